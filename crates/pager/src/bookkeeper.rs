//! The bookkeeper: everything that need not happen while a thread waits. Finds the program's memory when the
//! budget comes near, keeps the process below its limit, and tells the ledger how things are.

use core::sync::atomic::Ordering;

use farmem_page::{PageCount, PageRange};
use farmem_policy::pacing::{self, Far, Growth, LEFT_PAGES, Outlook};
use farmem_sys::affinity::Allowed;
use farmem_sys::thread::Scheduling;
use farmem_sys::wait::{self, Scope};
use farmem_sys::{Errno, subject, thread};
use farmem_telemetry::{Counter, Rest, SlotState, Step};

use crate::address_space::scan::Scanner;
use crate::address_space::zeros::ZeroGuard;
use crate::bell::Reason;
use crate::engine::Engine;
use crate::eviction::evict::Evictor;
use crate::eviction::release::Releaser;
use crate::eviction::swap_in::SwapIn;
use crate::fault::flights;
use crate::fault::handler;
use crate::fault::pace::Pace;
use crate::fault::relief::Relief;
use crate::fault::serve::ServeBuffers;
use crate::hints::Hinted;
use crate::inject::Injection;
use crate::reporting::inspector::Inspector;
use crate::reporting::own_memory::OwnMemory;
use crate::whereabouts::Whereabouts;
use crate::withdrawal::Withdrawal;

/// Pages that came without the pager's help and are worth a look for new mappings: the kernel's own figure is
/// less exact.
pub(crate) const UNNOTICED_PAGES: i64 = 128;
/// Pages that are worth a look whatever it costs: 2 MiB.
const MANY_UNNOTICED_PAGES: i64 = 512;
/// Scans of the mappings take at most one part of the time in so many, by their processor time: a scan that
/// had to wait was not expensive.
const SCAN_SHARE: u64 = 10;
/// A process that has not faulted for so long may be looked at less often: 100 ms.
const QUIET_NS: u64 = 100_000_000;
/// The pause while what the program has called for is brought in, a millisecond at a time, or while somebody
/// has asked for the regions: only so that others get at what this thread holds.
const HINTED_NS: u64 = 50_000;
/// The rounds of all processes together take at most one processor's time in so many. They come before what
/// programs do, and before the puppets that rounds wait for.
const ROUND_SHARE: u64 = 2;
/// So many processes need no such bound: where they are above the budget their rounds evict, and that must
/// not wait.
const FEW: u64 = 8;
/// Pages evicted in one go.
const BATCH: usize = 64;
/// After evicting for so long this thread looks around: meanwhile the program may fill a mapping that nobody
/// knows.
const EVICTING_NS: u64 = 1_000_000;

/// Starts one more handler.
fn start_handler(engine: &'static Engine, allowed: Allowed) -> Result<(), Errno> {
    let number = engine.handlers.started();
    // Before it begins: readers wait for it from then on, and places for children are kept for it.
    engine.pages.gate.let_in(number + 1);
    engine.handlers.note_started(number + 1);
    let started = handler::start(engine, number, allowed);
    if started.is_err() {
        engine.handlers.note_started(number);
    }
    started
}

/// The bookkeeper of a process.
pub(crate) struct Bookkeeper {
    engine: &'static Engine,
    excluded: PageRange,
    scanner: Option<Scanner>,
    last_scan_ns: u64,
    /// Processes that have a pager which manages, this one among them.
    managing: u64,
    /// Of its processor's time.
    scan_took_ns: u64,
    last_faults: u64,
    /// When a round last found that there had been faults.
    faulted_ns: u64,
    growth: Growth,
    /// Handlers that are armed because threads fault.
    regular_handlers: u32,
    relief: Relief,
    allowed: Option<Allowed>,
    rounds: u64,
    cpu_ns: u64,
    pace: Pace,
    inspector: Inspector,
    releaser: Releaser,
    own_memory: OwnMemory,
    zero_guard: ZeroGuard,
    /// There from when memory is managed, if there is memory for it.
    swap_in: Option<SwapIn>,
    buffers: Option<ServeBuffers>,
    hinted: Hinted,
    is_returning: bool,
    whereabouts: Whereabouts,
    /// Whether this thread shares the processor of a handler that works alone.
    is_with_handler: bool,
    /// Whether that handler looks after most things until the next round, which is short then.
    is_watched: bool,
    /// Whether the program does nothing, and the supervisor calls this thread when it does something.
    is_attended: bool,
    /// Whether the latest round found pages that had been packed, or gave entries back: then there may be
    /// more.
    has_tidied: bool,
    /// What this thread is else, while it is urgent.
    unhurried: Option<Scheduling>,
    withdrawal: Withdrawal,
}

impl Bookkeeper {
    /// The bookkeeper of a process, to run on the calling thread. `excluded` is a mapping that must not be
    /// managed.
    pub(crate) fn new(engine: &'static Engine, excluded: PageRange) -> Self {
        thread::name(c"farmem-book");
        let may_prefer = thread::hurry();
        Self {
            engine,
            excluded,
            scanner: None,
            last_scan_ns: 0,
            managing: 1,
            scan_took_ns: 0,
            last_faults: 0,
            faulted_ns: 0,
            growth: Growth::default(),
            regular_handlers: 0,
            relief: Relief::default(),
            allowed: None,
            rounds: 0,
            cpu_ns: 0,
            pace: Pace::new(may_prefer),
            inspector: Inspector::new(),
            releaser: Releaser::new(),
            own_memory: OwnMemory::default(),
            zero_guard: ZeroGuard::default(),
            swap_in: None,
            buffers: None,
            hinted: Hinted::new(),
            is_returning: false,
            whereabouts: Whereabouts::new(Allowed::now()),
            is_with_handler: false,
            is_watched: false,
            is_attended: false,
            has_tidied: false,
            unhurried: None,
            withdrawal: Withdrawal::default(),
        }
    }

    /// Runs for ever.
    pub(crate) fn run(&mut self) -> ! {
        loop {
            let began_ns = thread::cpu_ns();
            let pause_ns = self.round();
            let took_ns = thread::cpu_ns() - began_ns;
            let pause_ns = pause_ns.max(took_ns * ROUND_SHARE * self.managing.saturating_sub(FEW));
            self.sleep(pause_ns);
        }
    }

    /// One round; how long to pause after it.
    fn round(&mut self) -> u64 {
        let engine = self.engine;
        engine.slot.beat();
        engine.handlers.set_watching(false);
        self.is_attended = false;
        let was_watched = core::mem::take(&mut self.is_watched) && !engine.bell.is_rung(Reason::Look);
        engine.bell.answer(Reason::Look);
        if !was_watched || engine.ledger.is_withdrawing() || engine.is_anything_hinted() {
            self.take_time();
        }
        if engine.has_withdrawn() {
            return pacing::LONGEST_NS;
        }
        self.rounds += 1;
        engine.inject_at(Injection::BookkeeperPanic, self.rounds);
        let Some(resident) = engine.sync_resident() else { return pacing::LONGEST_NS };
        let unnoticed = engine.residency.take_unnoticed();
        let gap = self.share(resident);
        let before = self.growth.resident();
        self.growth.look(resident, thread::now_ns(), subject::cpu_ns());
        if engine.ledger.is_withdrawing() {
            engine.mailboxes.leave();
            return self.withdrawal.step(engine, self.buffers.as_mut());
        }
        engine.look_for_mailboxes(self.rounds);
        let is_faulting = engine.slot.get(Counter::Faults) != self.last_faults;
        let has_more_hints =
            self.hinted.step(engine, self.scanner.as_ref(), self.buffers.as_mut(), is_faulting);
        let has_more = self.inspector.step(engine) || has_more_hints;
        if self.scanner.is_none() {
            let left = gap - self.growth.margin(engine.ledger.budget());
            if left >= 0 && !engine.must_protect() && !self.hinted.is_anything_to_be_pinned() {
                let pause_ns = self.growth.pause_before_ns(left);
                let pause_ns = self.pause_by_rest(!has_more && !self.growth.is_running(), pause_ns);
                return if has_more { HINTED_NS } else { pause_ns };
            }
            self.begin();
        }
        if self.scanner.is_none() {
            return pacing::SHORTEST_NS;
        }
        engine.eviction.quiescence.start_if_wanted(self.whereabouts.allowed());
        let far = self.manage(unnoticed);
        self.is_returning = match (&mut self.swap_in, &mut self.buffers) {
            (Some(swap_in), Some(buffers)) => swap_in.step(engine, buffers),
            _ => false,
        };
        engine.review_protection();
        let faults = engine.slot.get(Counter::Faults);
        let is_relieving = self.relieve();
        let regular = self.regular_handlers;
        let threads = engine.handlers.arm(regular, self.relief.count(), faults - self.last_faults);
        self.pace.look_at_crowd(&engine.handlers, threads, regular);
        let now_ns = thread::now_ns();
        if faults != self.last_faults {
            self.faulted_ns = now_ns;
        }
        let is_quiet = now_ns - self.faulted_ns >= QUIET_NS;
        let is_resting = faults == self.last_faults && !self.growth.is_running();
        // A handler that nobody wakes needs no watching.
        self.pace.look(engine, is_resting || is_quiet);
        if is_resting {
            engine.release_staged(&engine.change_as_bookkeeper());
        }
        self.keep_out_of_the_way(faults != self.last_faults);
        self.account();
        let has_moved = faults != self.last_faults || resident != before;
        // Where several threads fault, however seldom, their handlers are armed by counting in short rounds.
        let is_one = threads == 1 && engine.handlers.is_first_alone();
        self.is_watched = is_one && faults != self.last_faults && self.pace.is_delicate() && !has_more;
        self.last_faults = faults;
        let is_running = self.growth.is_running()
            || self.pace.is_delicate()
            || self.has_tidied
            || engine.handlers.waiting() > 0;
        let is_returning = self.is_returning;
        let excess = engine.residency.excess(0);
        let is_watched = self.is_watched;
        let shortest_ns = if is_quiet && !self.has_tidied && engine.handlers.waiting() == 0 {
            self.growth.shortest_ns()
        } else {
            pacing::SHORTEST_NS
        };
        let outlook =
            Outlook { gap, excess, far, is_returning, has_moved, is_running, shortest_ns, is_watched };
        let pause_ns = self.pause_by_rest(!has_more && outlook.rests(), outlook.pause_ns());
        if has_more {
            return HINTED_NS;
        }
        engine.handlers.set_watching(is_watched);
        if is_relieving { pause_ns.min(pacing::SHORTEST_NS) } else { pause_ns }
    }

    /// Sees to it that messages are read while handlers wait for a disk: one more handler is there after each
    /// round in which all wait. Whether this is such a round.
    fn relieve(&mut self) -> bool {
        let engine = self.engine;
        let before = self.relief.count();
        let is_short = engine.handlers.do_all_wait() && engine.pages.uffd.has_message();
        let wanted = self.regular_handlers + self.relief.look(is_short, engine.handlers.waiting());
        let started = engine.handlers.started();
        if wanted > started
            && let Some(allowed) = self.allowed
        {
            // A thread has the class of the one that starts it.
            self.take_time();
            if start_handler(engine, allowed).is_err() {
                // What one takes is not had back where its thread can't be started: it is not tried again.
                self.relief.limit(started - self.regular_handlers);
            }
        }
        self.relief.count() > before
    }

    /// The pause of a program that does nothing (`rests`) or something: while it does nothing the supervisor
    /// is to notice when that changes, for all processes at once.
    fn pause_by_rest(&mut self, rests: bool, usual_ns: u64) -> u64 {
        let engine = self.engine;
        self.is_attended = rests && !engine.mailboxes.are_any() && engine.slot.ask_for_watch();
        if !rests {
            engine.slot.end_watch();
        }
        pacing::at_rest_ns(usual_ns, self.is_attended)
    }

    /// While one thread faults and its handler does the evicting, this thread runs on their processor. On
    /// another one it would leave that idle a thousand times a second, and a processor that becomes idle
    /// takes a waiting thread from where one is: the faulting thread, away from its handler.
    fn keep_out_of_the_way(&mut self, has_faulted: bool) {
        let engine = self.engine;
        let is_idle = has_faulted && engine.residency.excess(0) <= LEFT_PAGES && !self.is_returning;
        self.is_with_handler = self.whereabouts.stay_with_handler(&engine.handlers, is_idle);
    }

    /// Sleeps until something is to be done, for `pause_ns` at most.
    ///
    /// Where it shares the handler's processor it goes to sleep, and wakes up, as an urgent thread. Otherwise
    /// the scheduler may count it as waiting for that processor: for a while after it has gone to sleep
    /// (delayed dequeue, Linux 6.12), and between its wake-up and the end of the call that the handler is in.
    /// A thread of the program that is woken then goes to another processor, which costs as much as ten
    /// faults. Nor should it be found on another processor as an ordinary thread: one that runs there alone
    /// draws the program's thread to it. So rounds that are short are urgent as a whole.
    fn sleep(&mut self, pause_ns: u64) {
        if !self.is_with_handler {
            self.take_time();
        } else if self.unhurried.is_none() {
            self.unhurried = thread::become_urgent();
        }
        let engine = self.engine;
        if !self.is_attended {
            engine.mailboxes.sleep(&engine.bell, pause_ns);
            return;
        }
        let watched = (wait::low_half(engine.slot.rest()), Rest::Watched as u32, Scope::Machine);
        wait::wait_any([engine.bell.word(), watched].into_iter(), pause_ns);
    }

    /// What comes may take long, so it isn't urgent.
    fn take_time(&mut self) {
        if let Some(unhurried) = self.unhurried.take() {
            unhurried.give(thread::current());
        }
    }

    /// Sets this process's limit from what the application has as a whole; pages that the application has
    /// left.
    fn share(&mut self, resident: PageCount) -> i64 {
        let engine = self.engine;
        let budget = engine.ledger.budget().get() as i64;
        let total = engine.ledger.wanted().get() as i64;
        let own = resident.get() as i64;
        let left = budget - total;
        let managing =
            engine.ledger.slots().filter(|slot| slot.state() == SlotState::Managing).count().max(1);
        self.managing = managing as u64;
        let managing = managing as i64;
        // Processes above the budget give in proportion to what they have.
        let limit = if left >= 0 { own + left / managing } else { own + left * own / total.max(1) };
        let limit = PageCount::new(limit.max(0) as u64);
        engine.set_limit(limit, managing);
        engine.keep_cache(limit, managing as u64);
        left
    }

    /// Takes the program's memory under management, unless the pager leaves.
    pub(crate) fn begin(&mut self) {
        let engine = self.engine;
        let mut place = engine.eviction.evictor.lock();
        if engine.eviction.is_leaving() {
            return;
        }
        let files = engine.pages.files;
        let evictor = Evictor::new(&engine.pages.uffd, engine.vault.writer(), &files.pagemap)
            .unwrap_or_else(|errno| engine.refused(Step::Staging, errno));
        let Some(allowed) = self.whereabouts.allowed() else { engine.refused(Step::Thread, Errno::NOTSUP) };
        // Where the program has as many threads as it may, fewer handlers do; only one must be had.
        let wanted = allowed.count().clamp(1, handler::MOST_REGULAR);
        self.regular_handlers = 0;
        while self.regular_handlers < wanted {
            match start_handler(engine, allowed) {
                Ok(()) => self.regular_handlers += 1,
                Err(errno) if self.regular_handlers == 0 => engine.refused(Step::Thread, errno),
                Err(_) => break,
            }
        }
        self.allowed = Some(allowed);
        self.relief.limit(handler::MOST - self.regular_handlers);
        // Without a fetcher whoever asks nodes waits for the answer.
        let _ = flights::start(engine, allowed);
        *place = Some(evictor);
        engine.is_managing.store(true, Ordering::Release);
        engine.slot.set_state(SlotState::Managing);
        self.scanner = Some(Scanner::new(self.excluded));
        self.swap_in = SwapIn::new().ok();
        self.buffers = ServeBuffers::new(engine).ok();
    }

    fn account(&mut self) {
        let now_ns = thread::cpu_ns();
        let still_ns = self.engine.eviction.quiescence.take_still_ns();
        self.engine.slot.add(Counter::PagerCpuNs, now_ns - self.cpu_ns + still_ns);
        self.cpu_ns = now_ns;
    }

    fn manage(&mut self, unnoticed: i64) -> Far {
        let engine = self.engine;
        let now_ns = thread::now_ns();
        let passed_ns = now_ns - self.last_scan_ns;
        let is_due = unnoticed > UNNOTICED_PAGES || passed_ns > pacing::LONGEST_NS;
        let is_affordable = passed_ns >= self.scan_took_ns * SCAN_SHARE || unnoticed > MANY_UNNOTICED_PAGES;
        let looks = is_due && is_affordable || engine.bell.is_rung(Reason::Fork);
        if looks || engine.residency.excess(0) > LEFT_PAGES {
            self.take_time();
        }
        let Some(scanner) = &self.scanner else { return Far::Open };
        if looks {
            let began_ns = thread::cpu_ns();
            scanner.register_new(engine);
            scanner.keep_control_blocks(engine);
            self.last_scan_ns = thread::now_ns();
            self.scan_took_ns = thread::cpu_ns() - began_ns;
        }
        self.zero_guard.round(engine);
        if engine.eviction.are_stranded() {
            engine.return_stranded(&engine.hold_as_bookkeeper());
        }
        let is_full = self.evict_excess(scanner);
        engine.expel_shared();
        let has_packed = engine.take_packed();
        engine.vault.free_deferred();
        let has_released = self.releaser.round(engine) > 0;
        self.has_tidied = has_packed || has_released;
        self.own_memory.round(engine);
        match (is_full, has_released) {
            (false, _) => Far::Open,
            (true, true) => Far::Scarce,
            (true, false) => Far::Full,
        }
    }

    /// Whether the pool was full.
    fn evict_excess(&self, scanner: &Scanner) -> bool {
        let engine = self.engine;
        let mut fruitless = 0;
        let began_ns = thread::now_ns();
        if engine.residency.excess(0) <= LEFT_PAGES && engine.slot.get(Counter::Faults) != self.last_faults {
            return false;
        }
        while engine.residency.excess(0) > 0 && fruitless < 4 && thread::now_ns() - began_ns < EVICTING_NS {
            let pages = (engine.residency.excess(0) as usize).min(BATCH);
            let outcome = engine.evict(&engine.hold_as_bookkeeper(), pages);
            let evicted = outcome.evicted + engine.expel_shared();
            fruitless = if evicted == 0 { fruitless + 1 } else { 0 };
            if outcome.is_full || outcome.is_changing {
                return outcome.is_full;
            }
        }
        scanner.keep_control_blocks(engine);
        false
    }
}

impl Engine {
    /// Whether faults must wait for room.
    pub(crate) fn is_far_over(&self) -> bool {
        self.is_managing.load(Ordering::Relaxed) && self.residency.excess(0) > self.residency.tolerated()
    }

    /// Lets threads that wait for a page try again.
    pub(crate) fn wake_page(&self, page: farmem_page::PageIndex) {
        self.pages.uffd.wake(PageRange::at(page, PageCount::new(1)));
    }
}
