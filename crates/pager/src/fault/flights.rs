//! Pages on their way from memory nodes. Whoever takes one of these asks, and goes on; the *fetcher*, a
//! thread of its own, installs it when it has come. So a node holds up only the threads that touch its pages.
//!
//! A page is held meanwhile (its word is busy): whoever else touches it waits for the same answer. Unlike
//! what threads hold, it is so for as long as a node takes, as stranded pages are until the kernel takes
//! them. So what a message says of it is done here: what the program has given up is let go, what it has
//! moved is followed.
//!
//! Invariants:
//! 1. A flight is in the list from when its call is posted until somebody ends it. The thread that ends one
//!    is in a [`Holding`] or a [`Reading`], so that the page isn't moved between.
//! 2. Flights and reserved places are no more than [`MOST`].
//! 3. The list is a leaf lock: while it is held nobody waits, and no page comes in.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use farmem_page::{PageIndex, PageRange};
use farmem_store::{Answer, Call, Posted, Standing, Urgency};
use farmem_sys::affinity::Allowed;
use farmem_sys::guard::{self, Guard};
use farmem_sys::lock::Lock;
use farmem_sys::wait::{self, Scope, Sleepers};
use farmem_sys::{Errno, memory, thread};
use farmem_telemetry::Step;

use crate::address_space::table::Taken;
use crate::engine::Engine;
use crate::eviction::vault::{LoadFailure, PageReader};
use crate::fault::batch::Batch;
use crate::fault::references::Following;
use crate::fault::serve::{Cause, ServeBuffers, Served, Source};
use crate::gate::{FETCHER, Holding, Reading};
use crate::whereabouts::Whereabouts;

/// Pages of a process that may be on their way at a time: twice the calls of a lane.
pub(crate) const MOST: usize = 32;
const _: () = assert!(MOST < wait::MOST_WORDS, "the fetcher sleeps on a word for each, and one more");
/// Pages that come in under one right to hold pages: a move or a fork waits for no more.
const LANDED_AT_ONCE: usize = 8;
/// How long the fetcher leaves pages alone that the kernel has refused, since the address space changes.
const SETTLE_NS: u64 = 20_000;
/// How long the fetcher sleeps at most while something is under way.
const SLICE_NS: u64 = 50_000_000;
/// The same while nothing is.
const IDLE_NS: u64 = 1_000_000_000;

/// Why a page is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Errand {
    pub(crate) cause: Cause,
    /// Whether nobody waits for it.
    pub(crate) is_ahead: bool,
    /// What is to be done with its words when it has come.
    pub(crate) following: Option<Following>,
}

/// A page on its way.
struct Flight {
    taken: Taken,
    call: Call,
    posted: Posted,
    errand: Errand,
    since_ns: u64,
    /// Whether a thread has come to wait for what was asked for ahead.
    is_wanted: bool,
}

/// The pages on their way.
#[derive(Debug)]
pub(crate) struct Flights {
    flights: Lock<List>,
    /// Changes whenever the fetcher should look.
    bell: AtomicU32,
    /// Whether there is a fetcher.
    is_running: AtomicBool,
}

struct List {
    flights: [Option<Flight>; MOST],
    /// Places that are kept for what the fetcher has in hand: pages that land, and pages that have been
    /// refused. So there is always one for a page that must be asked for again, and there are never more
    /// refused ones than flights.
    reserved: usize,
}

impl List {
    fn free(&self) -> usize {
        self.flights.iter().filter(|flight| flight.is_none()).count()
    }
}

/// What a flight has come to.
enum Landing {
    /// Nodes have answered.
    Answered(Answer),
    /// A thread waits for what was asked for ahead.
    Wanted,
    /// No answer will come.
    Hopeless,
}

impl Flights {
    pub(crate) const fn new() -> Self {
        Self {
            flights: Lock::new(List { flights: [const { None }; MOST], reserved: 0 }),
            bell: AtomicU32::new(0),
            is_running: AtomicBool::new(false),
        }
    }

    /// Whether pages may be asked for without waiting.
    pub(crate) fn may_fly(&self) -> bool {
        self.is_running.load(Ordering::Acquire)
    }

    fn ring(&self) {
        self.bell.fetch_add(1, Ordering::AcqRel);
        wait::wake(&self.bell, Sleepers::All, Scope::Process);
    }

    /// The fetcher has done with a page, or keeps its place.
    fn landed(&self, is_done: bool) {
        self.flights.lock().reserved -= usize::from(is_done);
    }

    /// Ends those flights that `is_meant` says; `each` hears of them, one after the other.
    fn end_each(&self, is_meant: impl Fn(&Flight) -> bool, mut each: impl FnMut(Flight)) {
        for at in 0..MOST {
            let ended = self.flights.lock().flights[at].take_if(|flight| is_meant(flight));
            ended.into_iter().for_each(&mut each);
        }
    }
}

/// A page that a thread waits for, and that has come, but the kernel has refused it, since the address space
/// changes; or what had come was displaced then, and too much is under way to ask again.
struct Refused {
    page: PageIndex,
    since_ns: u64,
}

/// Memory of the fetcher.
struct Fetcher {
    engine: &'static Engine,
    buffers: ServeBuffers,
    whereabouts: Whereabouts,
    /// Whoever waits for one of these is left waiting. A thread that is woken faults again, and the kernel
    /// hands out all faults before any event: with enough threads the event that everybody waits for would
    /// never be read.
    refused: [Option<Refused>; MOST],
}

/// Starts the fetcher, where there may be pages on nodes.
///
/// # Errors
/// No memory, or no thread: then whoever asks waits for the answer.
pub(crate) fn start(engine: &'static Engine, allowed: Allowed) -> Result<(), Errno> {
    if !engine.vault.has_nodes() {
        return Ok(());
    }
    let whereabouts = Whereabouts::new(Some(allowed));
    let fetcher = memory::leak(Fetcher {
        engine,
        buffers: ServeBuffers::new(engine)?,
        whereabouts,
        refused: [const { None }; MOST],
    })?;
    thread::spawn_with(run, fetcher)?;
    engine.flights.is_running.store(true, Ordering::Release);
    Ok(())
}

fn run(fetcher: &'static mut Fetcher) -> ! {
    thread::name(c"farmem-fetch");
    let engine = fetcher.engine;
    loop {
        let rung = engine.flights.bell.load(Ordering::Acquire);
        while engine.land(&mut fetcher.buffers, &mut fetcher.refused) {}
        // A handler that works alone wakes this thread, and this one the thread of the program: on another
        // processor each of these would wake that, too.
        fetcher.whereabouts.stay_with_handler(&engine.handlers, true);
        engine.await_answers(rung, fetcher.refused.iter().any(Option::is_some));
    }
}

impl Engine {
    /// Asks nodes for a page that is held, and leaves it to the fetcher. Gives it back where that can't be
    /// done now.
    pub(super) fn launch(&self, reader: &PageReader, taken: Taken, errand: Errand) -> Result<(), Taken> {
        self.launch_unless(|list| list.free() <= list.reserved, reader, taken, errand)
    }

    /// The same, where one has a place in the list already. It is not used up.
    fn launch_again(&self, reader: &PageReader, taken: Taken, errand: Errand) -> Result<(), Taken> {
        self.launch_unless(|_| false, reader, taken, errand)
    }

    fn launch_unless(
        &self,
        is_too_much: impl Fn(&List) -> bool,
        reader: &PageReader,
        taken: Taken,
        errand: Errand,
    ) -> Result<(), Taken> {
        let Some(place) = taken.word.place() else { return Err(taken) };
        let mut list = self.flights.flights.lock();
        if is_too_much(&list) {
            return Err(taken);
        }
        let Some(free) = list.flights.iter_mut().find(|flight| flight.is_none()) else { return Err(taken) };
        let Some((call, posted)) = self.vault.post(reader, place, errand.is_ahead) else { return Err(taken) };
        let since_ns = thread::now_ns();
        *free = Some(Flight { taken, call, posted, errand, since_ns, is_wanted: false });
        drop(list);
        self.flights.ring();
        Ok(())
    }

    /// A thread has come to wait for a page that somebody has. If that is on its way ahead of need, it is
    /// needed now, and is followed for that thread. Whether it is.
    pub(super) fn hurry(&self, page: PageIndex, following: Option<Following>) -> bool {
        if !self.flights.may_fly() {
            return false;
        }
        let mut flights = self.flights.flights.lock();
        let is_it =
            |flight: &&mut Flight| flight.taken.page == page && flight.errand.is_ahead && !flight.is_wanted;
        let Some(flight) = flights.flights.iter_mut().flatten().find(is_it) else { return false };
        flight.is_wanted = true;
        flight.errand.following = following;
        flight.since_ns = thread::now_ns();
        drop(flights);
        self.flights.ring();
        true
    }

    /// On the fetcher: sleeps until a call is answered, or somebody rings, or it is time to try again.
    fn await_answers(&self, rung: u32, is_settling: bool) {
        if is_settling {
            return thread::sleep(SETTLE_NS);
        }
        let memory = self.vault.memory();
        let mut words = [const { None }; MOST];
        let mut is_any = false;
        for (word, flight) in words.iter_mut().zip(&self.flights.flights.lock().flights) {
            let Some(flight) = flight else { continue };
            // One that has been answered since, or is not to be waited for, is looked at again.
            let Some((at, value)) = self.vault.waits(&flight.posted) else { return };
            *word = memory.low_half(at).map(|half| (half, value, Scope::Machine));
            is_any = true;
        }
        let bell = (&self.flights.bell, rung, Scope::Process);
        let words = core::iter::once(bell).chain(words.iter().flatten().copied());
        wait::wait_any(words, if is_any { SLICE_NS } else { IDLE_NS });
    }

    /// On the fetcher: takes in what has come. Whether there may be more.
    fn land(&self, buffers: &mut ServeBuffers, refused: &mut [Option<Refused>; MOST]) -> bool {
        let holding = self.pages.gate.hold(FETCHER);
        for place in refused.iter_mut() {
            let Some(Refused { page, since_ns }) = place.take() else { continue };
            *place = self.land_again(&holding, buffers, page, since_ns);
            self.flights.landed(place.is_none());
        }
        let mut landed = 0;
        for at in 0..MOST {
            if landed == LANDED_AT_ONCE {
                return true;
            }
            let Some((flight, landing)) = self.next_landing(at) else { continue };
            landed += 1;
            let again = self.land_flight(&holding, buffers, flight, landing);
            self.flights.landed(again.is_none());
            // There is a place: what is in flight and what has been refused are no more than these.
            if let Some(free) = refused.iter_mut().find(|place| place.is_none()) {
                *free = again;
            }
        }
        false
    }

    /// A page that the kernel has refused before.
    fn land_again(
        &self,
        holding: &Holding<'_>,
        buffers: &mut ServeBuffers,
        page: PageIndex,
        since_ns: u64,
    ) -> Option<Refused> {
        if !self.pages.table.ensure(page) {
            self.refused(Step::Table, Errno::NOMEM);
        }
        let Some(taken) = self.pages.table.take(page) else {
            // The holder lets the thread go.
            let _ = self.hurry(page, None);
            return None;
        };
        if !taken.word.is_far() || Source::of(taken.word) != Source::Stored {
            // It is there by now, or has been given up or moved: the thread's next fault tells.
            self.let_try_again(taken);
            return None;
        }
        self.land_page(
            holding,
            buffers,
            taken,
            Errand { cause: Cause::Fault(page), is_ahead: false, following: None },
            since_ns,
            Urgency::Later,
        )
    }

    /// The flight in that place of the list, which ends, if something has come of it.
    fn next_landing(&self, at: usize) -> Option<(Flight, Landing)> {
        let mut flights = self.flights.flights.lock();
        let flight = flights.flights[at].as_ref()?;
        let landing = match self.vault.standing(&flight.posted) {
            Standing::Answered(answer) => Landing::Answered(answer),
            Standing::Waits if flight.is_wanted => Landing::Wanted,
            Standing::Waits => {
                let waited_ns = thread::now_ns().saturating_sub(flight.since_ns);
                if waited_ns < SLICE_NS || !self.vault.is_hopeless(waited_ns) {
                    return None;
                }
                Landing::Hopeless
            }
            Standing::Over => Landing::Hopeless,
        };
        let flight = flights.flights[at].take()?;
        flights.reserved += 1;
        Some((flight, landing))
    }

    fn land_flight(
        &self,
        holding: &Holding<'_>,
        buffers: &mut ServeBuffers,
        flight: Flight,
        landing: Landing,
    ) -> Option<Refused> {
        let Flight { taken, call, posted, errand, since_ns, is_wanted } = flight;
        let errand = Errand { is_ahead: errand.is_ahead && !is_wanted, ..errand };
        let urgency = match landing {
            Landing::Answered(answer) => Urgency::Answered(call, answer),
            Landing::Wanted => {
                self.vault.withdraw(&posted);
                Urgency::Later
            }
            Landing::Hopeless => {
                self.vault.withdraw(&posted);
                // Without a supervisor this asks nobody, and tells what else there is. Nobody waits for the
                // rest.
                if errand.is_ahead { Urgency::Later } else { Urgency::Awaited }
            }
        };
        self.land_page(holding, buffers, taken, errand, since_ns, urgency)
    }

    /// Loads and installs a page that has come. What the kernel refuses, although a thread waits for it.
    fn land_page(
        &self,
        holding: &Holding<'_>,
        buffers: &mut ServeBuffers,
        taken: Taken,
        errand: Errand,
        since_ns: u64,
        urgency: Urgency,
    ) -> Option<Refused> {
        let Errand { cause, mut following, .. } = errand;
        // Room was made when it was asked for, and others may have used it.
        let ahead = following.map_or(0, |following| following.most);
        if !self.make_room(holding, 1 + ahead as usize) {
            following.iter_mut().for_each(|following| following.most = 0);
        }
        let Some(place) = taken.word.place() else {
            self.give_back(taken);
            return None;
        };
        buffers.waiting.begin();
        match self.vault.load(&mut buffers.reader, place, &mut buffers.content[0], urgency) {
            Ok(origin) => {
                buffers.waiting.loaded(origin, true);
                let page = taken.page;
                let mut batch = Batch::new();
                batch.push(taken);
                let plan = following.and_then(|following| self.resume_following(following));
                let served = match plan {
                    Some(plan) => self.follow(holding, buffers, plan, batch, cause),
                    None => self.install_first(holding, buffers, &mut batch, cause),
                };
                if served == Served::Again {
                    // What has come is in the read buffer.
                    return Some(Refused { page, since_ns });
                }
                if !errand.is_ahead {
                    let took_ns = thread::now_ns().saturating_sub(since_ns);
                    self.slot.fault_latency().record(took_ns);
                    buffers.waiting.count(&self.slot, took_ns);
                }
            }
            Err(LoadFailure::Lost) => self.lose(holding, taken),
            Err(LoadFailure::Later) if !errand.is_ahead => {
                // It has been displaced, or is elsewhere now.
                if let Err(taken) = self.launch_again(&buffers.reader, taken, errand) {
                    let page = taken.page;
                    self.give_back(taken);
                    return cause.is_fault_on(page).then_some(Refused { page, since_ns });
                }
            }
            Err(LoadFailure::Later) => self.give_back(taken),
        }
        None
    }

    /// The program has discarded or unmapped `range`, and its words say so. Whoever touches it need not wait
    /// for nodes.
    pub(crate) fn forget_flights(&self, _reading: &Reading<'_>, range: PageRange) {
        self.flights.end_each(
            |flight| range.contains(flight.taken.page),
            |flight| {
                self.vault.withdraw(&flight.posted);
                self.let_try_again(flight.taken);
            },
        );
    }

    /// The program has moved `from` to `to`, and the words have gone with it.
    pub(crate) fn move_flights(&self, _reading: &Reading<'_>, from: PageRange, to: PageIndex) {
        if !guard::stands(Guard::FlightsFollowMoves) {
            return;
        }
        let mut flights = self.flights.flights.lock();
        for place in &mut flights.flights {
            let Some(flight) = place.take_if(|flight| from.contains(flight.taken.page)) else { continue };
            let old = flight.taken.page;
            let Some(taken) = self.pages.table.follow(flight.taken, to + (old - from.start)) else {
                self.refused(Step::Table, Errno::NOMEM)
            };
            // A thread that waits there has lost the page, as without a pager. What comes now comes for
            // nobody.
            self.wake_page(old);
            let cause = match flight.errand.cause {
                cause if cause.is_fault_on(old) => Cause::Fault(taken.page),
                cause => cause,
            };
            let errand = Errand { cause, following: None, ..flight.errand };
            *place = Some(Flight { taken, errand, ..flight });
        }
    }
}

impl core::fmt::Debug for List {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} flights", self.flights.iter().flatten().count())
    }
}
