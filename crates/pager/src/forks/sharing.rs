//! Memory that a fork leaves shared, and the budget.
//!
//! After a fork the kernel copies each shared page when either process writes it, and tells nobody. So after
//! a fork by which the application could pass its budget by such copies, the process's resident pages are
//! protected, in the child too: the first write to each is a fault, and waits until there is room for a copy.
//! While memory is protected, pages that processes share count once
//! ([`Ledger::resident`](farmem_telemetry::Ledger::resident)); what isn't protected counts for each.
//! Protection ends when all copies would fit, or nobody shares any more.
//!
//! The kernel doesn't move a shared page out. It is made the process's own first, a copy, and leaves right
//! after that; see [`Engine::expel_shared`]. The other process still has it: there is room only when that
//! lets go of it, too. Whoever has the page last moves it out without a copy.

use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use farmem_page::{PageCount, PageIndex, PageRange, PageWord};
use farmem_policy::{Fault, Prefetcher, Streams};
use farmem_sys::Errno;
use farmem_sys::lock::Lock;
use farmem_sys::memory;
use farmem_sys::pagemap::Runs;
use farmem_sys::thread;
use farmem_sys::uffd::{Uffd, UffdError};
use farmem_telemetry::{Counter, Step};

use crate::address_space::table::Taken;
use crate::bell::Reason;
use crate::engine::{Engine, WINDOW_PAGES};
use crate::eviction::evict::RUN_PAGES;
use crate::eviction::residency::TOLERATED_PAGES;
use crate::fault::serve::Served;
use crate::gate::Reading;

/// Runs of shared pages that wait to be made the process's own, as many as the bookkeeper is told of at a
/// time.
const QUEUE: usize = 16;
/// Pages that are protected in one go, so that nobody waits long at the gate.
const AT_ONCE: u64 = 4096;
/// Memory is protected when the application, shared pages counted for each process, comes this close to its
/// budget.
const MARGIN_SHARE: u64 = 32;
/// Protection ends when it is so much farther away.
const LIFT_SHARE: u64 = 8;
/// How long writes wait for room while nothing leaves. Another process may hold what is too much, and be
/// stopped: then the budget gives way, slowly.
const PATIENCE_NS: u64 = 100_000_000;
const LOOK_NS: u64 = 50_000;
/// Pages whose protection ends at once, at most.
const HELD: usize = RUN_PAGES;
/// How long whoever reads the event of a fork waits until the kernel lets it protect memory: the forking
/// thread must run first.
const EVENT_PATIENCE_NS: u64 = 500_000;
const EVENT_LOOK_NS: u64 = 10_000;

/// What a process knows of the memory that it shares.
#[derive(Debug)]
pub(crate) struct Sharing {
    is_protected: AtomicBool,
    /// Writes that wait until the application is within its budget, and fetches until the process is within
    /// its limit.
    writes: Patience,
    fetches: Patience,
    /// Whether the program may have let go of memory since the kernel was last asked how much is resident.
    has_let_go: AtomicBool,
    write_ahead: Lock<Streams>,
    victims: Lock<Victims>,
}

impl Sharing {
    pub(crate) fn new(is_protected: bool) -> Self {
        Self {
            is_protected: AtomicBool::new(is_protected),
            writes: Patience::new(),
            fetches: Patience::new(),
            has_let_go: AtomicBool::new(false),
            write_ahead: Lock::new(Streams::new(WINDOW_PAGES)),
            victims: Lock::new(Victims {
                runs: [PageRange::new(PageIndex::new(0), PageIndex::new(0)); QUEUE],
                count: 0,
            }),
        }
    }

    pub(crate) fn is_protected(&self) -> bool {
        self.is_protected.load(Ordering::Acquire)
    }

    /// The program lets go of memory.
    pub(crate) fn note_let_go(&self) {
        self.has_let_go.store(true, Ordering::Release);
    }

    /// Of `gone` pages that have gone without the pager's help, those that another process may still have.
    /// The kernel's figure is not exact: without a reason nothing has gone.
    pub(crate) fn let_go(&self, gone: u64) -> PageCount {
        let has_let_go =
            self.has_let_go.load(Ordering::Relaxed) && self.has_let_go.swap(false, Ordering::AcqRel);
        PageCount::new(if has_let_go { gone } else { 0 })
    }

    /// Whether a fetch must wait: what could leave is shared, and `excess` pages are too many.
    pub(crate) fn must_fetch_wait(&self, excess: i64) -> bool {
        self.fetches.must_wait(excess)
    }

    /// What was to leave can't, however long a fetch waits.
    fn end_fetch_wait(&self) {
        self.fetches.end();
    }

    pub(crate) fn forget(&self, range: PageRange) {
        self.write_ahead.lock().forget(range);
    }

    /// Remembers a page that can't leave while it is shared. Forgets it when there are too many: the hand
    /// will meet it again.
    pub(crate) fn push_victim(&self, page: PageIndex) {
        if let Some(mut victims) = self.victims.try_lock() {
            victims.push(page);
        }
    }

    pub(crate) fn pop_victims(&self) -> Option<PageRange> {
        self.victims.lock().pop()
    }
}

/// How long to wait for room that others have to make.
#[derive(Debug)]
pub(super) struct Patience {
    /// Least pages that were too many since the wait began, and when that was.
    least: AtomicI64,
    least_ns: AtomicU64,
    asked_ns: AtomicU64,
}

impl Patience {
    pub(super) const fn new() -> Self {
        Self { least: AtomicI64::new(i64::MAX), least_ns: AtomicU64::new(0), asked_ns: AtomicU64::new(0) }
    }

    /// Whether to wait with `excess` pages too many. Once nothing has left for long, one may go on, and the
    /// wait begins again.
    pub(super) fn must_wait(&self, excess: i64) -> bool {
        let now_ns = thread::now_ns();
        let is_new = now_ns - self.asked_ns.swap(now_ns, Ordering::Relaxed) > PATIENCE_NS;
        let is_over = now_ns - self.least_ns.load(Ordering::Relaxed) > PATIENCE_NS;
        if is_new || is_over || excess < self.least.load(Ordering::Relaxed) {
            self.least.store(excess, Ordering::Relaxed);
            self.least_ns.store(now_ns, Ordering::Relaxed);
        }
        is_new || !is_over
    }

    /// Those that wait need not.
    fn end(&self) {
        self.least_ns.store(0, Ordering::Relaxed);
    }
}

/// Pages that are to leave but are shared, as runs of neighbours.
#[derive(Debug)]
struct Victims {
    runs: [PageRange; QUEUE],
    count: usize,
}

impl Victims {
    fn push(&mut self, page: PageIndex) {
        let next = page + PageCount::new(1);
        if let Some(last) = self.count.checked_sub(1).map(|at| &mut self.runs[at])
            && last.end == page
            && last.count().get() < RUN_PAGES as u64
        {
            last.end = next;
        } else if let Some(place) = self.runs.get_mut(self.count) {
            *place = PageRange::new(page, next);
            self.count += 1;
        }
    }

    fn pop(&mut self) -> Option<PageRange> {
        self.count = self.count.checked_sub(1)?;
        Some(self.runs[self.count])
    }
}

impl Engine {
    /// A fork has been made. Protects what parent and child share since, if copies of it may not fit the
    /// budget, before either has written much. `true` when the child hears of each write from now on; what
    /// can't be protected in the parent its bookkeeper protects.
    pub(crate) fn protect_after_fork(&self, _reading: &Reading<'_>, child: &Uffd) -> bool {
        let is_needed = self.family.sharing.is_protected()
            || self.may_pass_budget(self.family.children.own_pages().get());
        if !self.is_managing() || !is_needed {
            return false;
        }
        let until_ns = thread::now_ns() + EVENT_PATIENCE_NS;
        let protect = |uffd: &Uffd| {
            let mut is_complete = true;
            for region in self.pages.regions.iter() {
                self.pages.table.each_gap(
                    region,
                    |word| word.is_unevictable() || is_away(word),
                    |range| is_complete &= is_complete && protect_until(until_ns, uffd, range),
                );
            }
            is_complete
        };
        self.share_nothing_yet();
        // The parent runs already.
        if protect(&self.pages.uffd) {
            self.family.sharing.is_protected.store(true, Ordering::Release);
            self.slot.set_protected(true);
        } else {
            self.bell.ring(Reason::Fork);
        }
        protect(child)
    }

    /// Before memory is protected. How much is shared is not known yet: none of it counts for less, unless
    /// the supervisor has measured it already.
    fn share_nothing_yet(&self) {
        if !self.slot.is_protected() {
            self.slot.set_shared(PageCount::ZERO, self.slot.separated());
        }
    }

    /// Whether the copies that a fork makes possible may not fit the budget, the application having `more`
    /// pages than its processes have said.
    fn may_pass_budget(&self, more: u64) -> bool {
        let own = self.slot.get(Counter::ResidentPages);
        let in_full = self.ledger.resident_in_full().get() + more;
        in_full + own > self.fitting(MARGIN_SHARE)
    }

    /// On the bookkeeper, when it knows what the process has: whether memory that a fork has left shared is
    /// yet to be protected.
    pub(crate) fn must_protect(&self) -> bool {
        if self.is_trusted() && self.is_near_budget_in_full() {
            return true;
        }
        if !self.bell.is_rung(Reason::Fork) {
            return false;
        }
        let is_needed = self.may_pass_budget(0);
        if !is_needed {
            self.bell.answer(Reason::Fork);
        }
        is_needed
    }

    /// Whether what the process shares counts once although it isn't protected: the supervisor has measured
    /// it, and copies of all of it would fit the budget.
    fn is_trusted(&self) -> bool {
        self.slot.is_protected() && !self.family.sharing.is_protected()
    }

    /// Whether the application, what is shared counted for each process, is close to its budget.
    fn is_near_budget_in_full(&self) -> bool {
        self.in_full() > self.fitting(MARGIN_SHARE)
    }

    /// What the application would have if all that its processes share were written. Of children that have no
    /// pager yet the ledger knows nothing; each may have what this process has.
    fn in_full(&self) -> u64 {
        let children = self.family.children.count() * self.slot.get(Counter::ResidentPages);
        self.ledger.resident_in_full().get() + children
    }

    /// The budget, less one part in `share`.
    fn fitting(&self, share: u64) -> u64 {
        let budget = self.ledger.budget().get();
        budget - budget / share
    }

    /// On the bookkeeper, once in each of its rounds: protects memory, or ends that, as it has become
    /// necessary.
    pub(crate) fn review_protection(&self) {
        let has_relatives = self.slot.relatives() > 0;
        if self.must_protect() {
            self.protect();
            self.bell.answer(Reason::Fork);
        } else if self.eviction.is_leaving() {
            // Soon nothing is managed any more.
        } else if !self.family.sharing.is_protected() {
            if has_relatives && self.is_near_budget_in_full() {
                self.protect();
            }
        } else if !has_relatives || self.in_full() < self.fitting(LIFT_SHARE) {
            self.lift_protection();
        }
    }

    /// Protects what is resident. What comes in later nobody shares, until the next fork.
    fn protect(&self) {
        self.share_nothing_yet();
        for region in self.pages.regions.iter() {
            self.pages.table.each_gap(
                region,
                |word| word.is_unevictable() || is_away(word),
                |range| {
                    // A refusal means that the range has changed: what is there now is new.
                    self.for_parts(range, |part| self.pages.uffd.protect(part));
                },
            );
        }
        self.family.sharing.is_protected.store(true, Ordering::Release);
        self.slot.set_protected(true);
    }

    fn lift_protection(&self) {
        // From here on the process counts in full, so the budget holds whatever is written.
        self.slot.set_protected(false);
        let is_complete =
            self.pages.regions.iter().all(|region| self.for_parts(region, |part| self.open_part(part)));
        self.family.sharing.is_protected.store(!is_complete, Ordering::Release);
    }

    /// Ends the protection of what is there of `part`. What has left has a marker, which is to stay;
    /// meanwhile nothing leaves.
    fn open_part(&self, part: PageRange) -> Result<(), UffdError> {
        // Whoever evicts may wait for a reading, which waits for this change: then it is tried again.
        let Some(_evictor) = self.eviction.evictor.try_lock() else { return Err(UffdError::Changing) };
        let mut outcome = Ok(());
        self.pages
            .table
            .each_gap(part, is_away, |gap| outcome = outcome.and_then(|()| self.pages.uffd.unprotect(gap)));
        outcome
    }

    /// Calls `act` for all of `range`, part by part, again while the address space is changing. `false` when
    /// that doesn't end.
    pub(crate) fn for_parts(
        &self,
        range: PageRange,
        mut act: impl FnMut(PageRange) -> Result<(), UffdError>,
    ) -> bool {
        const ATTEMPTS: usize = 1000;
        let mut start = range.start;
        let mut attempts = 0;
        while start < range.end {
            let end = (start + PageCount::new(AT_ONCE)).min(range.end);
            let change = self.change_as_bookkeeper();
            let result = act(PageRange::new(start, end));
            drop(change);
            if result == Err(UffdError::Changing) {
                attempts += 1;
                if attempts == ATTEMPTS {
                    return false;
                }
                // A handler reads what has changed.
                thread::sleep(LOOK_NS);
                continue;
            }
            start = end;
        }
        true
    }

    /// Pages by which the application is above its budget.
    pub(super) fn over_budget(&self) -> i64 {
        self.ledger.wanted().get() as i64 - self.ledger.budget().get() as i64
    }

    /// Serves a fault on a protected page: lets the thread write it, and pages that it will write next, when
    /// there is room for the copies that the kernel then makes.
    pub(crate) fn let_write(&self, party: usize, fault: Fault) -> Served {
        let _change = self.pages.gate.change(party);
        let page = PageRange::at(fault.page, PageCount::new(1));
        let mut range = self.writes_ahead(fault);
        let mut copies = self.pages.files.pagemap.shared(range);
        if copies != PageCount::ZERO {
            let over = self.over_budget();
            if over + copies.get() as i64 > 0 {
                range = page;
                copies = self.pages.files.pagemap.shared(page);
            }
            let is_over = copies != PageCount::ZERO && over > TOLERATED_PAGES;
            if is_over && !self.eviction.is_leaving() && self.family.sharing.writes.must_wait(over) {
                return Served::Later;
            }
        }
        self.slot.separate(copies);
        match self.open_held(range) {
            Ok(_) => Served::Done,
            Err(UffdError::Changing) => Served::Again,
            Err(_) => {
                if !self.pages.table.ensure(fault.page) {
                    self.refused(Step::Table, Errno::NOMEM);
                }
                // Whoever has the page in hand wakes its waiters.
                if let Some(taken) = self.pages.table.take(fault.page) {
                    self.let_try_again(taken);
                }
                Served::Done
            }
        }
    }

    /// Ends the protection of the first pages of `range`, as far as nobody has them in hand and they are
    /// here: what has left has a marker, which is to stay. How many that were.
    fn open_held(&self, range: PageRange) -> Result<PageCount, UffdError> {
        let mut held = [const { None }; HELD];
        let mut count = 0;
        for (place, page) in held.iter_mut().zip(range.iter()) {
            let Some(taken) = self.pages.table.take_if(page, |word| !word.is_busy()) else { break };
            match self.unless_far(taken) {
                Ok(taken) => *place = Some(taken),
                Err(taken) => {
                    self.give_back(taken);
                    break;
                }
            }
            count += 1;
        }
        let count = PageCount::new(count);
        let opened = if count == PageCount::ZERO {
            Err(UffdError::Gone)
        } else {
            self.pages.uffd.unprotect(PageRange::at(range.start, count))
        };
        held.into_iter().flatten().for_each(|page| self.give_back(page));
        opened.map(|()| count)
    }

    /// The page, if it is here. Of one that has come past this pager, as a forked child's that another pager
    /// has served, the word may not know that yet.
    fn unless_far(&self, mut taken: Taken) -> Result<Taken, Taken> {
        if !taken.word.is_far() {
            return Ok(taken);
        }
        let found = self.pages.files.pagemap.vacancies(PageRange::at(taken.page, PageCount::new(1)));
        if found.is_none_or(|found| found.present == 0) {
            return Err(taken);
        }
        self.slot.subtract(Counter::FarPages, 1);
        taken.word = taken.word.with_far(false);
        Ok(taken)
    }

    /// The faulted page with those behind it that are about to be written, as one range.
    fn writes_ahead(&self, fault: Fault) -> PageRange {
        let page = PageRange::at(fault.page, PageCount::new(1));
        let bounds = self.pages.regions.holding(fault.page).unwrap_or(page);
        let advice =
            self.family.sharing.write_ahead.try_lock().map(|mut streams| streams.on_fault(fault, bounds));
        match advice.and_then(|advice| advice.fetch) {
            Some(run) if run.stride == 1 => {
                PageRange::at(fault.page, PageCount::new(1 + u64::from(run.count))).intersect(bounds)
            }
            _ => page,
        }
    }

    /// On the bookkeeper: makes runs of shared pages that are to leave the process's own, and lets them
    /// leave. Outside the gate for the copies: the kernel may have to bring in a page for one, which a
    /// handler must be able to serve.
    pub(crate) fn expel_shared(&self) -> u64 {
        let mut evicted = 0;
        // Handlers may go on finding more meanwhile; this thread has other work as well.
        for _ in 0..QUEUE {
            let Some(run) = self.family.sharing.pop_victims() else { break };
            if self.eviction.is_leaving() || self.residency.excess(0) <= 0 {
                continue;
            }
            let Some(run) = self.open(run) else { continue };
            self.slot.add(Counter::Unshared, run.count().get());
            // A failure leaves pages as they are: then they don't leave.
            let _ = memory::unshare_pages(run);
            let outcome = self.evict_run(&self.hold_as_bookkeeper(), run);
            if outcome.evicted == 0 && outcome.in_use > 0 {
                self.family.sharing.end_fetch_wait();
            }
            evicted += outcome.evicted;
        }
        evicted
    }

    /// Ends the protection of what is still there of the first part of `run`, which it returns. Refused while
    /// the address space is changing; the hand will come by again.
    fn open(&self, run: PageRange) -> Option<PageRange> {
        let _change = self.change_as_bookkeeper();
        let managed = self.pages.regions.holding(run.start)?;
        let mut resident = Runs::empty();
        // What has left meanwhile must not be brought back for this.
        self.pages.files.pagemap.resident(run.intersect(managed), &mut resident).ok()?;
        let run = resident.iter().next()?;
        self.slot.separate(self.pages.files.pagemap.shared(run));
        Some(PageRange::at(run.start, self.open_held(run).ok()?))
    }
}

/// Whether a page has left, or somebody has it in hand: its marker is no protection.
fn is_away(word: PageWord) -> bool {
    word.is_far() || word.is_busy()
}

/// Protects `range` as soon as the kernel has done what it has told of. `false` when that takes too long, or
/// not all of it is there.
fn protect_until(until_ns: u64, uffd: &Uffd, range: PageRange) -> bool {
    loop {
        match uffd.protect(range) {
            Err(UffdError::Changing) if thread::now_ns() < until_ns => thread::sleep(EVENT_LOOK_NS),
            result => return matches!(result, Ok(()) | Err(UffdError::Ended)),
        }
    }
}
