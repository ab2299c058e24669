//! Threads that serve faults.
//!
//! A fault wakes whoever waits at the userfaultfd. Waking a thread on another processor is expensive (an idle
//! one takes tens of microseconds to wake), so a handler stays on the processor where faults happen. While
//! one thread faults, one handler is armed and follows that thread from processor to processor. While several
//! do, so many handlers are armed, each kept on a processor of its own; the others sleep where no fault wakes
//! them.
//!
//! When a handler wakes the program's thread, the scheduler finds the processor taken, by the handler, and
//! moves the thread to an idle one: the next fault then has to wake a processor. So a handler that works
//! alone is of the idle class, which leaves the processor free in the scheduler's eyes. Where others want
//! that processor it would starve: the bookkeeper notices, and makes it an ordinary thread for a while
//! ([`Starvation`]). Several handlers are ordinary threads. They come before the program's where there are
//! fewer of them than of these ([`Crowd`](super::handlers::Crowd)).
//!
//! While all that are armed wait for a disk, others take their place ([`Relief`](super::relief::Relief)).

use core::sync::atomic::Ordering;

use farmem_page::{PageCount, PageRange};
use farmem_policy::{Fault, pacing};
use farmem_sys::affinity::Allowed;
use farmem_sys::process::WatchedThread;
use farmem_sys::{affinity, memory, thread};
use farmem_telemetry::{Counter, MAX_HANDLERS};

use crate::address_space::events::Received;
use crate::bell::Reason;
use crate::bookkeeper::UNNOTICED_PAGES;
use crate::engine::Engine;
use crate::fault::serve::{ServeBuffers, Served};
use crate::fault::waiting::Timing;
use crate::gate::FETCHER;
use crate::inject::Injection;

/// Most handlers that are armed because threads fault, one for each processor: with more, each reading of a
/// message keeps more of them waiting.
pub(crate) const MOST_REGULAR: u32 = 8;
/// Most handlers: all parties at the gate but the fetcher and the bookkeeper.
pub(crate) const MOST: u32 = FETCHER as u32;
const _: () = assert!(MOST as usize <= MAX_HANDLERS, "every handler can show its work");
const _: () = assert!(MOST_REGULAR < MOST, "some are left for when these wait");
/// Faults that a handler defers one by one. Of more it only knows where they are.
const DEFERRED: usize = 256;
/// Faults between two looks at where the faulting thread runs, at most: while looks find it where it was.
const FOLLOW_FAULTS: u64 = 8;
/// Faults between two looks at what it does.
const LOOK_FAULTS: u32 = 64;
/// The first faults are all looked at: a program may have few.
const LOOKED_AT: u64 = 256;
/// How often a handler looks around when nothing happens.
const IDLE_NS: u64 = 500_000_000;
/// How often while it keeps the bookkeeper's watch.
const WATCH_NS: u64 = pacing::SHORTEST_NS;
/// How often while children are served.
const CHILDREN_NS: u64 = 200_000;
/// How long the program waits at most while there are too many children: they are given pagers meanwhile, a
/// few milliseconds for each.
const CROWDED_NS: u64 = 1_000_000_000;
/// How long to wait for a program's thread to get on with the change that it was let go for.
const SETTLE_NS: u64 = 20_000;
/// How long to wait for room.
const ROOM_NS: u64 = 200_000;

/// What a thread of the program waits for.
#[derive(Clone, Copy, Debug)]
enum Wish {
    /// A missing page.
    Touch(Fault),
    /// To write a protected page.
    Write(Fault),
}

impl Wish {
    fn fault(self) -> Fault {
        match self {
            Wish::Touch(fault) | Wish::Write(fault) => fault,
        }
    }
}

struct Handler {
    engine: &'static Engine,
    party: u32,
    buffers: ServeBuffers,
    /// In the order in which they were taken, each with the number of the work that it is.
    deferred: [Option<(Wish, u64)>; DEFERRED],
    deferred_count: usize,
    /// Where all those faults are that found no place: their threads fault again once others have been
    /// served. Not before: the kernel hands out all faults before any event, and while threads fault again
    /// and again the event that everybody waits for would never be read.
    overflow: Option<PageRange>,
    /// Whether some of these wait for the address space to settle, not for room.
    is_settling: bool,
    /// The number of the work in hand.
    work: u64,
    since_look: u32,
    /// When it last looked for the bookkeeper.
    watched_ns: u64,
    /// Since when it takes no message because there are too many children; 0 while it does.
    crowded_ns: u64,
    /// Whether the last message was there without waiting for it; then the next one may be as well.
    is_flowing: bool,
    /// The fault at which this handler last looked where the faulting thread runs.
    followed_at: u64,
    /// So many faults later it looks again at the soonest.
    follow_after: u64,
    served: u64,
    processor: Option<u32>,
    cpu_ns: u64,
    allowed: Allowed,
    followed: Option<WatchedThread>,
}

/// Starts the handler of that number.
///
/// # Errors
/// No memory, or no thread.
pub(crate) fn start(engine: &'static Engine, party: u32, allowed: Allowed) -> Result<(), farmem_sys::Errno> {
    let handler = memory::leak(Handler {
        engine,
        party,
        buffers: ServeBuffers::new(engine)?,
        deferred: [None; DEFERRED],
        deferred_count: 0,
        overflow: None,
        is_settling: false,
        work: 0,
        since_look: LOOK_FAULTS,
        watched_ns: 0,
        crowded_ns: 0,
        is_flowing: false,
        followed_at: 0,
        follow_after: 1,
        served: 0,
        processor: None,
        cpu_ns: 0,
        allowed,
        followed: None,
    })?;
    thread::spawn_with(run, handler)?;
    Ok(())
}

fn run(handler: &'static mut Handler) -> ! {
    thread::name(c"farmem-fault");
    handler.engine.handlers.begin(handler.party);
    loop {
        handler.park();
        handler.turn();
    }
}

impl Handler {
    /// Sleeps while this handler isn't armed.
    fn park(&mut self) {
        let handlers = &self.engine.handlers;
        if handlers.is_armed(self.party) || self.deferred_count > 0 {
            return;
        }
        self.account();
        handlers.wait_until_armed(self.party);
        self.processor = None;
        self.since_look = LOOK_FAULTS;
    }

    /// Takes a message, waiting for one if there is none yet, and deals with it.
    ///
    /// The thread that a served fault lets go preempts this one on their processor, and has often faulted
    /// again when this one goes on: so a message is looked for before it is waited for.
    fn turn(&mut self) {
        let engine = self.engine;
        if !self.is_flowing && self.deferred_count == 0 && !engine.eviction.are_stranded() {
            self.wait();
        }
        engine.slot.beat();
        self.work += 1;
        self.show(self.work);
        let mut timing = Timing::sampled(self.work);
        let received =
            if self.holds_back() { Received::Nothing } else { engine.receive(&engine.pages.gate.read()) };
        timing.end_step(&engine.slot, Counter::ReadingNs);
        match received {
            Received::Fault(fault) => {
                self.fault(Wish::Touch(fault));
                self.follow_hints();
            }
            Received::Write(fault) => self.fault(Wish::Write(fault)),
            Received::Event => {}
            Received::Nothing if self.deferred_count > 0 => {
                thread::sleep(if self.is_settling { SETTLE_NS } else { ROOM_NS });
            }
            Received::Nothing if engine.eviction.are_stranded() => thread::sleep(SETTLE_NS),
            // The program may do anything now that needs nobody here.
            Received::Nothing if !self.is_flowing => self.call_bookkeeper(),
            Received::Nothing => {}
        }
        self.is_flowing = received != Received::Nothing;
        if engine.eviction.are_stranded() {
            engine.return_stranded(&engine.pages.gate.hold(self.party as usize));
        }
        if self.deferred_count > 0 {
            self.retry();
        }
        if engine.family.children.are_any() {
            engine.serve_children(&mut self.buffers);
        }
        self.show(0);
    }

    /// Waits instead of taking a message while there are too many children: it may be the event of a fork,
    /// and the thread that forks waits until that has been read.
    fn holds_back(&mut self) -> bool {
        if !self.engine.is_crowded() {
            self.crowded_ns = 0;
            return false;
        }
        let now_ns = thread::now_ns();
        if self.crowded_ns == 0 {
            self.crowded_ns = now_ns;
        }
        let holds = now_ns - self.crowded_ns < CROWDED_NS;
        if holds {
            thread::sleep(CHILDREN_NS);
        } else {
            self.crowded_ns = 0;
        }
        holds
    }

    /// Shows the supervisor what is in hand: the fault that has been deferred longest, or else the work of
    /// that number. It is no time, since the clocks of two processes need not agree.
    fn show(&self, work: u64) {
        let oldest = self.deferred[0].map_or(work, |(_, work)| work);
        self.engine.slot.work(self.party as usize).store(oldest, Ordering::Relaxed);
    }

    /// Shows that what is in hand comes along.
    fn come_along(&mut self) {
        self.work += 1;
        self.deferred.iter_mut().flatten().for_each(|(_, work)| *work = self.work);
        self.show(self.work);
    }

    fn wait(&self) {
        let engine = self.engine;
        if !engine.family.children.are_any() {
            let is_watching = engine.handlers.is_watching();
            engine.pages.uffd.wait(&[], Some(if is_watching { WATCH_NS } else { IDLE_NS }));
            return;
        }
        let (children, count) = engine.family.children.descriptors();
        engine.pages.uffd.wait(&children[..count], Some(CHILDREN_NS));
    }

    fn fault(&mut self, wish: Wish) {
        let started_ns = thread::now_ns();
        let fault = wish.fault();
        self.buffers.waiting.begin();
        self.served += 1;
        self.engine.inject_at(Injection::HandlerPanic, self.served);
        self.engine.inject_at(Injection::HandlerStall, self.served);
        self.look(fault.thread);
        self.watch(started_ns);
        self.engine.slot.add(Counter::Faults, 1);
        match self.serve(wish) {
            Served::Done => {}
            // Whoever installs it counts it.
            Served::Flying => return,
            Served::Again => self.defer(wish, true),
            Served::Later => self.defer(wish, false),
        }
        let took_ns = self.buffers.waiting.took_ns(started_ns);
        self.engine.slot.fault_latency().record(took_ns);
        self.buffers.waiting.count(&self.engine.slot, took_ns);
    }

    fn serve(&mut self, wish: Wish) -> Served {
        let engine = self.engine;
        let fault = match wish {
            Wish::Touch(fault) => fault,
            Wish::Write(fault) => return engine.let_write(self.party as usize, fault),
        };
        if engine.is_far_over() {
            let began_ns = thread::now_ns();
            let has_room = engine.wait_for_room(self.party as usize, || self.come_along());
            self.buffers.waiting.waited_for_room(thread::now_ns() - began_ns);
            if !has_room {
                return Served::Later;
            }
        }
        let holding = engine.pages.gate.hold(self.party as usize);
        engine.serve(&holding, &mut self.buffers, fault)
    }

    /// Brings in what the program has called for, once the thread that faulted has its page.
    fn follow_hints(&mut self) {
        let engine = self.engine;
        if engine.is_anything_hinted() && engine.do_handlers_follow_hints() {
            engine.follow_hints(&engine.pages.gate.hold(self.party as usize), &mut self.buffers);
        }
    }

    fn defer(&mut self, wish: Wish, is_settling: bool) {
        self.engine.slot.add(Counter::Retries, 1);
        self.is_settling |= is_settling;
        match self.deferred.get_mut(self.deferred_count) {
            Some(place) => {
                *place = Some((wish, self.work));
                self.deferred_count += 1;
            }
            None => {
                let page = PageRange::at(wish.fault().page, PageCount::new(1));
                self.overflow = Some(self.overflow.map_or(page, |overflow| overflow.hull(page)));
            }
        }
    }

    fn retry(&mut self) {
        let count = core::mem::take(&mut self.deferred_count);
        self.is_settling = false;
        for at in 0..count {
            let Some((wish, work)) = self.deferred[at].take() else { continue };
            let served = self.serve(wish);
            if !matches!(served, Served::Done | Served::Flying) {
                self.is_settling |= served == Served::Again;
                // A thread that waits for room has been looked after: it is work again.
                let work = if served == Served::Later { self.work } else { work };
                self.deferred[self.deferred_count] = Some((wish, work));
                self.deferred_count += 1;
            }
        }
        if self.deferred_count <= DEFERRED / 2
            && let Some(overflow) = self.overflow.take()
        {
            self.engine.pages.uffd.wake(overflow);
        }
    }

    /// Each millisecond while the bookkeeper sleeps for longer: whether memory has come that nobody has
    /// noticed. That thread would have to be woken for it, on this processor or on another one; and a thread
    /// that goes to sleep on this one sends the program's to another, at its next fault, more often than not.
    fn watch(&mut self, now_ns: u64) {
        let engine = self.engine;
        if !engine.handlers.is_watching() || now_ns < self.watched_ns + WATCH_NS {
            return;
        }
        self.watched_ns = now_ns;
        if engine.sync_resident().is_none() || engine.residency.unnoticed() > UNNOTICED_PAGES {
            self.call_bookkeeper();
        }
    }

    /// The bookkeeper is to look itself, if it relies on this handler.
    fn call_bookkeeper(&self) {
        if self.engine.handlers.is_watching() {
            self.engine.bell.ring(Reason::Look);
        }
    }

    /// From time to time: where the faulting thread runs, and whether the kernel faulted for it.
    fn look(&mut self, faulting: u32) {
        if self.engine.handlers.note_fault(faulting) {
            // There may be work for another handler.
            self.call_bookkeeper();
        }
        // A thread on another processor goes on at once, and is waited for.
        if !self.is_flowing && self.served >= self.followed_at + self.follow_after {
            self.followed_at = self.served;
            let before = self.processor;
            self.follow(faulting);
            // What has just been moved is often moved on.
            let is_new = self.processor != before;
            self.follow_after = if is_new { 1 } else { (2 * self.follow_after).min(FOLLOW_FAULTS) };
        }
        self.since_look += 1;
        let is_due = self.since_look >= LOOK_FAULTS;
        if !is_due && self.served > LOOKED_AT {
            return;
        }
        let weight = if self.served > LOOKED_AT { u64::from(LOOK_FAULTS) } else { 1 };
        let threads = &self.engine.pages.files.threads;
        if threads.is_in_system_call(faulting) == Some(true) {
            self.engine.slot.add(Counter::FaultsInSyscalls, weight);
        }
        if is_due {
            self.since_look = 0;
            self.account();
        }
    }

    /// Where the faulting thread runs: the scheduler may move it at any time, and while it runs elsewhere
    /// each of its faults wakes a processor or two.
    fn follow(&mut self, faulting: u32) {
        if !self.engine.handlers.is_first_alone() {
            self.stay_on(self.allowed.nth(self.party % self.allowed.count().max(1)));
            return;
        }
        if self.followed.as_ref().is_none_or(|followed| followed.thread() != faulting) {
            self.followed = self.engine.pages.files.threads.watch(faulting);
        }
        let processor = self.followed.as_ref().and_then(WatchedThread::processor);
        self.stay_on(processor);
    }

    fn stay_on(&mut self, processor: Option<u32>) {
        if let Some(processor) = processor
            && self.processor != Some(processor)
        {
            affinity::stay_on(processor);
            self.processor = Some(processor);
            if self.party == 0 {
                self.engine.handlers.note_processor(processor);
            }
        }
    }

    fn account(&mut self) {
        let now_ns = thread::cpu_ns();
        self.engine.slot.add(Counter::PagerCpuNs, now_ns - self.cpu_ns);
        self.cpu_ns = now_ns;
    }
}
