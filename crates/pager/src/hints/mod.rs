//! What the program says about its memory, and what the bookkeeper makes of it.
//!
//! The program's threads only leave word (`queue.rs`, `pin.rs`): they hold nothing that a thread of the pager
//! might wait for while they fault, and the userfaultfd is in the pager's own table of descriptors. The
//! bookkeeper does the rest, some milliseconds at a time.

pub(crate) mod mailboxes;
pub(crate) mod pin;
pub(crate) mod queue;
pub(crate) mod ranges;

use core::sync::atomic::{AtomicBool, Ordering};

use farmem_page::{PageCount, PageIndex, PageRange};
use farmem_policy::{VictimPolicy, hints};
use farmem_sys::lock::Lock;
use farmem_sys::pagemap::{Runs, SCAN_PAGES};
use farmem_sys::{Errno, thread};
use farmem_telemetry::{Counter, ProcessSlot, SlotState};

use crate::address_space::regions::Regions;
use crate::address_space::scan::Scanner;
use crate::bell::Reason;
use crate::engine::Engine;
use crate::fault::serve::{Cause, ServeBuffers, Source};
use crate::gate::{Change, Holding};
use crate::hints::pin::{Ordered, Pin};
use crate::hints::queue::{Hint, HintQueue};
use crate::hints::ranges::{Requests, pages};

/// A step ends after this time: meanwhile nobody watches the budget.
const STEP_NS: u64 = 1_000_000;
/// Pages that are brought in at once: the program may wait for the first of them already.
const AT_ONCE: usize = 16;
/// How often a task may find no room: others evict at the same time.
const PATIENCE: u32 = 200;
/// How long one may that somebody waits for: where processors are short room comes late, and a thread that is
/// refused it isn't asked again.
const ORDER_PATIENCE_NS: u64 = 1_000_000_000;
/// Words that are looked at without a look at the clock, or at messages that wait.
const LOOKED_AT: u64 = 1 << 12;
/// Pages that come after a fault at most, and hints that are looked at for that.
const AT_A_FAULT: u64 = 64;
/// Addresses end here.
const USER_END: u64 = 1 << 47;

/// Why a hint came to nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HintError {
    /// No program has such addresses.
    Invalid,
    /// Too much is asked for at this moment.
    Busy,
}

/// What the program has said.
#[derive(Debug)]
pub(crate) struct Hints {
    queue: HintQueue,
    pending: Lock<Pending>,
    /// Memory that is pinned. Changed only with a `Change` of the bookkeeper's, or a `Reading`, and so by one
    /// thread at a time.
    pub(crate) pinned: Regions,
    /// What the hand of evictions is to go to first.
    cold: Lock<Requests>,
    is_any_cold: AtomicBool,
}

impl Hints {
    /// # Errors
    /// No memory.
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self {
            queue: HintQueue::new()?,
            pending: Lock::new(Pending { task: None }),
            pinned: Regions::new()?,
            cold: Lock::new(Requests::new()),
            is_any_cold: AtomicBool::new(false),
        })
    }

    /// The pinned memory around `page`, if it is pinned.
    pub(crate) fn pinned(&self, page: PageIndex) -> Option<PageRange> {
        self.pinned.holding(page)
    }

    /// What is to leave first, once.
    pub(crate) fn pop_cold(&self) -> Option<PageRange> {
        if !self.is_any_cold.load(Ordering::Acquire) {
            return None;
        }
        let mut cold = self.cold.lock();
        let first = cold.pop();
        self.is_any_cold.store(first.is_some(), Ordering::Release);
        first
    }
}

/// The pages that have some of these bytes.
pub(crate) fn checked(start: usize, length: usize) -> Result<PageRange, HintError> {
    match start.checked_add(length) {
        Some(end) if end as u64 <= USER_END => Ok(pages(start, length)),
        _ => Err(HintError::Invalid),
    }
}

impl Engine {
    /// The program says something of `length` bytes from `start` on. On any thread of its, also in a handler
    /// of a signal; waits for nobody. Only whole pages are called cold.
    ///
    /// # Errors
    /// See [`HintError`].
    pub fn hint(&self, hint: Hint, start: usize, length: usize) -> Result<(), HintError> {
        checked(start, length)?;
        let range = mailboxes::pages_of(hint, start as u64, length as u64);
        // As long as nothing is managed, nothing is far and nothing leaves.
        if length == 0 || range.is_empty() || !self.is_managing() {
            return Ok(());
        }
        if !self.hints.queue.push(hint, range) {
            return Err(HintError::Busy);
        }
        self.bell.note(Reason::Hint);
        Ok(())
    }
}

/// What is being done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Noting in the words that pages stay, or no longer do.
    Note(Pin),
    /// Bringing in so many pages at most.
    Fetch(u64),
    /// Telling the policy that pages are cold.
    Cold,
}

#[derive(Clone, Copy, Debug)]
struct Task {
    range: PageRange,
    /// Where it goes on.
    hand: PageIndex,
    stage: Stage,
    /// How often it may find no room yet.
    patience: u32,
    /// Until when it may find no room, however often.
    patient_until_ns: u64,
    /// Since its beginning it has met a page that somebody else had in hand.
    has_passed_busy: bool,
    /// It only undoes what could not be done.
    is_refused: bool,
}

impl Task {
    fn new(range: PageRange, stage: Stage) -> Self {
        Self {
            range,
            hand: range.start,
            stage,
            patience: PATIENCE,
            patient_until_ns: 0,
            has_passed_busy: false,
            is_refused: false,
        }
    }

    /// One whose end somebody waits for.
    fn ordered(range: PageRange, stage: Stage) -> Self {
        Self { patient_until_ns: thread::now_ns() + ORDER_PATIENCE_NS, ..Self::new(range, stage) }
    }

    /// Whether to try again after it found no room.
    fn is_patient(&mut self) -> bool {
        self.patience = self.patience.saturating_sub(1);
        self.patience > 0 || thread::now_ns() < self.patient_until_ns
    }
}

/// What is to be done with hints, by the bookkeeper in its rounds, and before that by a handler that has just
/// served a fault: what the thread has called for is likely to be what it comes to next.
#[derive(Debug)]
struct Pending {
    task: Option<Task>,
}

impl Pending {
    /// The hint in hand, or the next one.
    fn next(&mut self, engine: &Engine) -> Option<&mut Task> {
        if self.task.is_none() {
            let (hint, range) = engine.hints.queue.pop().or_else(|| engine.mailboxes.pop())?;
            let stage = match hint {
                Hint::Prefetch => Stage::Fetch(hints::most_hinted(engine.residency.limit()).get()),
                Hint::Cold => Stage::Cold,
            };
            self.task = Some(Task::new(range, stage));
        }
        self.task.as_mut()
    }

    /// It has been followed.
    fn finish(&mut self, engine: &Engine) {
        if let Some(task) = self.task.take()
            && task.stage == Stage::Cold
        {
            // Where there are too many already, the hand meets these pages in its turn.
            let _ = engine.hints.cold.lock().add(task.range);
            engine.hints.is_any_cold.store(true, Ordering::Release);
        }
    }
}

/// The bookkeeper's part.
pub(crate) struct Hinted {
    /// What somebody has ordered.
    ordered: Option<Ordered>,
    /// How far that has come, once it is allowed.
    order: Option<Task>,
}

impl Hinted {
    pub(crate) const fn new() -> Self {
        Self { ordered: None, order: None }
    }

    /// Whether somebody wants to pin memory: it must be managed then.
    pub(crate) fn is_anything_to_be_pinned(&self) -> bool {
        self.ordered.is_some_and(|ordered| ordered.pin == Pin::Pin)
    }

    /// One step. Whether there is more to do. Without a scanner and buffers nothing is managed yet. While
    /// handlers serve faults (`is_faulting`) hints are left to them, where they follow any.
    pub(crate) fn step(
        &mut self,
        engine: &Engine,
        scanner: Option<&Scanner>,
        mut buffers: Option<&mut ServeBuffers>,
        is_faulting: bool,
    ) -> bool {
        engine.give_up_pinned();
        let deadline_ns = thread::now_ns() + STEP_NS;
        loop {
            let ordered = match self.ordered {
                Some(ordered) => ordered,
                None => {
                    let Some(ordered) = engine.next_order() else { break };
                    *self.ordered.insert(ordered)
                }
            };
            if self.order.is_none() {
                if !engine.manage_what_is_to_be_pinned(&ordered, scanner) {
                    return true;
                }
                if engine.allows_order(&ordered) {
                    self.order = Some(Task::ordered(ordered.range, Stage::Note(ordered.pin)));
                } else {
                    self.ordered = None;
                    engine.answer_order(&ordered, false);
                }
            }
            let Some(task) = &mut self.order else {
                if thread::now_ns() >= deadline_ns {
                    return true;
                }
                continue;
            };
            let holding = engine.hold_as_bookkeeper();
            match (advance(engine, &holding, buffers.as_deref_mut(), task), task.stage) {
                (Progress::GoesOn, _) => {}
                (Progress::NoRoom, _) if task.is_patient() => return true,
                (Progress::Done, Stage::Note(Pin::Pin)) => {
                    *task = Task::ordered(task.range, Stage::Fetch(u64::MAX));
                }
                // A page was on its way out when it was marked: it comes to rest in far memory.
                (Progress::Done, Stage::Fetch(_)) if task.has_passed_busy && task.is_patient() => {
                    let Task { patience, patient_until_ns, .. } = *task;
                    *task =
                        Task { patience, patient_until_ns, ..Task::new(task.range, Stage::Fetch(u64::MAX)) };
                    return true;
                }
                (Progress::NoRoom, Stage::Fetch(_)) => {
                    *task = Task::new(task.range, Stage::Note(Pin::Unpin));
                    task.is_refused = true;
                }
                (Progress::Done | Progress::NoRoom, _) => {
                    let is_refused = task.is_refused;
                    (self.order, self.ordered) = (None, None);
                    engine.answer_order(&ordered, !is_refused);
                }
            }
            if thread::now_ns() >= deadline_ns {
                return true;
            }
        }
        let Some(buffers) = buffers else {
            engine.mailboxes.thin_out();
            return false;
        };
        if is_faulting && engine.do_handlers_follow_hints() {
            return false;
        }
        while engine.is_anything_hinted() {
            let goes_on = engine.follow_hints(&engine.hold_as_bookkeeper(), buffers);
            if !goes_on || thread::now_ns() >= deadline_ns {
                return engine.is_anything_hinted();
            }
        }
        false
    }
}

impl Engine {
    /// Whether the program has said something that may not have been followed yet.
    pub(crate) fn is_anything_hinted(&self) -> bool {
        self.bell.is_rung(Reason::Hint) || self.mailboxes.is_any_hint()
    }

    /// Whether handlers follow hints, after faults. Where pages may be on nodes they don't: whoever follows
    /// one may have to wait there, and a handler must not.
    pub(crate) fn do_handlers_follow_hints(&self) -> bool {
        !self.flights.may_fly()
    }

    /// Follows some of the hints that there are, if nobody else does at this moment: those that bring in
    /// [`AT_A_FAULT`] pages. `false` when there is no room at this moment.
    pub(crate) fn follow_hints(&self, holding: &Holding<'_>, buffers: &mut ServeBuffers) -> bool {
        let Some(mut pending) = self.hints.pending.try_lock() else { return true };
        self.bell.answer(Reason::Hint);
        let before = self.slot.get(Counter::Hinted);
        let deadline_ns = thread::now_ns() + STEP_NS;
        for _ in 0..AT_A_FAULT {
            let Some(task) = pending.next(self) else { return true };
            match advance(self, holding, Some(buffers), task) {
                Progress::GoesOn => {}
                Progress::NoRoom if task.is_patient() => {
                    self.bell.note(Reason::Hint);
                    return false;
                }
                Progress::NoRoom | Progress::Done => pending.finish(self),
            }
            if self.slot.get(Counter::Hinted) - before >= AT_A_FAULT
                || thread::now_ns() >= deadline_ns
                || holding.must_let_go()
            {
                break;
            }
        }
        self.bell.note(Reason::Hint);
        true
    }
}

/// How far a task has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    GoesOn,
    Done,
    /// Nothing could be brought in at this moment.
    NoRoom,
}

impl Progress {
    fn done_if(is_done: bool) -> Self {
        if is_done { Self::Done } else { Self::GoesOn }
    }
}

/// A part of the task.
fn advance(
    engine: &Engine,
    holding: &Holding<'_>,
    buffers: Option<&mut ServeBuffers>,
    task: &mut Task,
) -> Progress {
    match (task.stage, buffers) {
        (Stage::Note(pin), _) => {
            let Some(change) = engine.change(holding) else { return Progress::GoesOn };
            task.hand =
                engine.note_pinned(&change, pin, PageRange::new(task.hand, task.range.end), LOOKED_AT);
            Progress::done_if(task.hand >= task.range.end)
        }
        (Stage::Fetch(left), Some(buffers)) => {
            let end = task.range.end;
            let mut search = Search { engine, hand: task.hand, end, looked_at: 0, has_passed_busy: false };
            let most = left.min(AT_ONCE as u64) as usize;
            if !engine.make_room(holding, most)
                || engine.residency.excess(most) > engine.residency.tolerated() / 2
            {
                return Progress::NoRoom;
            }
            let brought =
                engine.return_pages(holding, buffers, search.by_ref().take(most), Cause::Hint) as u64;
            task.hand = search.hand;
            task.has_passed_busy |= search.has_passed_busy;
            task.stage = Stage::Fetch(left - brought);
            Progress::done_if(left == brought || task.hand >= task.range.end)
        }
        (Stage::Cold, Some(_)) => {
            let Some(change) = engine.change(holding) else { return Progress::GoesOn };
            task.hand = engine.note_cold(&change, PageRange::new(task.hand, task.range.end));
            Progress::done_if(task.hand >= task.range.end)
        }
        (Stage::Fetch(_) | Stage::Cold, None) => Progress::Done,
    }
}

/// The pages of a task that are in far memory.
struct Search<'a> {
    engine: &'a Engine,
    hand: PageIndex,
    end: PageIndex,
    looked_at: u64,
    has_passed_busy: bool,
}

impl Iterator for Search<'_> {
    type Item = PageIndex;

    fn next(&mut self) -> Option<PageIndex> {
        while self.looked_at < LOOKED_AT && self.hand < self.end {
            let Some(region) =
                self.engine.pages.regions.from(self.hand).filter(|region| region.start < self.end)
            else {
                self.hand = self.end;
                return None;
            };
            let page = region.start.max(self.hand);
            self.hand = PageIndex::new(page.get() + 1);
            self.looked_at += 1;
            let word = self.engine.pages.table.word(page);
            self.has_passed_busy |= word.is_busy();
            if word.is_far() && !word.is_busy() && Source::of(word) == Source::Stored {
                return Some(page);
            }
        }
        None
    }
}

impl Engine {
    /// Tells the policy that the resident pages at the beginning of `range` are cold; how far it came.
    fn note_cold(&self, _change: &Change<'_>, range: PageRange) -> PageIndex {
        let Some(region) = self.pages.regions.from(range.start).filter(|region| region.start < range.end)
        else {
            return range.end;
        };
        let start = region.start.max(range.start);
        let window_end = PageIndex::new((start.get() / SCAN_PAGES as u64 + 1) * SCAN_PAGES as u64);
        let window = PageRange::new(start, window_end.min(region.end).min(range.end));
        let mut runs = Runs::empty();
        if self.pages.files.pagemap.resident(window, &mut runs).is_err() {
            return window.end;
        }
        for page in runs.iter().flat_map(PageRange::iter) {
            self.pages.table.update(page, |word| {
                if word.is_far() || word.is_busy() { word } else { self.eviction.victims.on_cold(word) }
            });
        }
        window.end
    }

    /// Pages that all processes of the application have pinned, and those that they may pin.
    pub(crate) fn pinned_and_most(&self) -> (PageCount, PageCount) {
        let lives =
            |slot: &ProcessSlot<'_>| matches!(slot.state(), SlotState::Connected | SlotState::Managing);
        let pinned = self.ledger.slots().filter(lives);
        let pinned = pinned.map(|slot| slot.get(Counter::PinnedPages)).sum();
        (PageCount::new(pinned), hints::most_pinned(self.ledger.budget()))
    }
}
