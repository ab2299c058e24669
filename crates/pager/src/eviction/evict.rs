//! Eviction: the [hand](super::hand) finds victims, the kernel moves their frames out of the program's sight,
//! the [vault](super::vault) stores them.
//!
//! Pages leave in runs of neighbours: while another thread of the program runs, each run costs one flush of
//! the other processors' TLBs, however long it is. A moved frame is never used for another page: after a
//! `vmsplice` the kernel may still hold it for a pipe. It is given back to the machine instead.

use farmem_page::{PageBytes, PageCount, PageIndex, PageRange};
use farmem_policy::VictimPolicy;
use farmem_store::Writer;
use farmem_sys::Errno;
use farmem_sys::guard::{self, Guard};
use farmem_sys::memory::Frames;
use farmem_sys::pagemap::{Pagemap, SCAN_PAGES};
use farmem_sys::thread;
use farmem_sys::uffd::{MOST_MOVES, Move, UNTRIED, Uffd, UffdError};
use farmem_telemetry::{Counter, Step, TraceKind};

use crate::address_space::table::Taken;
use crate::engine::Engine;
use crate::eviction::hand::{Hand, may_leave};
use crate::eviction::quiescence::{Costs, Quiet};
use crate::eviction::stranded::Stranded;
use crate::eviction::vault::Stowed;
use crate::gate::{Change, Holding};

/// Frames of the staging area.
const STAGING_PAGES: u64 = 512;
/// Pages that leave in one move at most.
pub(crate) const RUN_PAGES: usize = 64;
/// Pages that an eviction looks at for each page it is asked for, before it gives up.
const VISITS_PER_PAGE: u64 = 64;
/// Pages that are evicted beyond what a fault needs, so that the next faults find room. With the one that it
/// needs they are moved by one call, as long as each is a run of its own.
const AHEAD_PAGES: usize = MOST_MOVES - 1;
/// Evicted pages between two questions to the kernel how many are resident.
const SYNC_PAGES: u64 = 256;

/// The evictor: one thread at a time.
pub(crate) struct Evictor {
    pub(crate) frames: Frames,
    /// The staging area that is not in use, if there are two. One is for pages that the program may run, the
    /// other for all others.
    idle_area: Option<Frames>,
    /// Whether `frames` takes pages that the program may run.
    is_executable: bool,
    used: u64,
    /// Of those used, the ones whose page has left. The others were put back.
    pub(crate) held: u64,
    pub(crate) stranded: Stranded,
    hand: Hand,
    pagemap: &'static Pagemap,
    writer: Writer,
    since_sync: u64,
    /// Pages that are taken out at once: few while the pool refuses some of them, which come back for
    /// nothing.
    at_once: usize,
    /// Of moves.
    costs: Costs,
}

/// What an eviction has achieved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) evicted: u64,
    /// The pool took no more.
    pub(crate) is_full: bool,
    /// Messages must be read first.
    pub(crate) is_changing: bool,
    /// Somebody else was evicting, or nobody may.
    pub(crate) is_busy: bool,
    /// Victims that are shared, or in use by the kernel: the bookkeeper knows of them.
    pub(crate) shared: u64,
    /// Victims that the kernel uses, though they are the process's own.
    pub(crate) in_use: u64,
}

/// What becomes of a page that the kernel won't move while others share it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum IfShared {
    /// The bookkeeper is told of it.
    Tell,
    /// It was the process's own a moment ago. The kernel uses it, perhaps for as long as the program runs (a
    /// buffer that is registered for input and output), so telling the bookkeeper again would have no end.
    Keep,
}

impl Evictor {
    pub(crate) fn new(uffd: &Uffd, writer: Writer, pagemap: &'static Pagemap) -> Result<Self, Errno> {
        let reserve = |is_executable| {
            let frames = Frames::reserve(PageCount::new(STAGING_PAGES), is_executable)?;
            uffd.register_missing(frames.range()).map_err(Errno::from)?;
            Ok::<_, Errno>(frames)
        };
        Ok(Self {
            frames: reserve(false)?,
            idle_area: if Frames::has_executable() { Some(reserve(true)?) } else { None },
            is_executable: false,
            used: 0,
            held: 0,
            stranded: Stranded::new(),
            hand: Hand::new(pagemap),
            pagemap,
            writer,
            since_sync: 0,
            at_once: RUN_PAGES,
            costs: Costs::default(),
        })
    }

    /// Gives the staged frames back to the machine. They are all stored by now: nothing is stranded.
    fn release_frames(&mut self, engine: &Engine) {
        if self.used == 0 {
            return;
        }
        let used = PageRange::at(self.frames.range().start, PageCount::new(self.used));
        // Discarding registered memory would raise an event, and wait for the thread that reads it: perhaps
        // for this thread.
        let unregistered = engine.pages.uffd.unregister(self.frames.range()).map_err(Errno::from);
        let released = unregistered
            .and_then(|()| self.frames.release(used))
            .and_then(|()| engine.pages.uffd.register_missing(self.frames.range()).map_err(Errno::from));
        if let Err(errno) = released {
            engine.refused(Step::Staging, errno);
        }
        self.used = 0;
        self.held = 0;
    }

    /// Whether the page is of a mapping whose frames go to the staging area that is not in use.
    fn needs_other_area(&self, engine: &Engine, page: PageIndex) -> bool {
        if self.idle_area.is_none() {
            return false;
        }
        let mapping = engine.pages.files.maps.next(page.addr()).ok().flatten();
        mapping.is_some_and(|mapping| {
            mapping.range.contains(page) && mapping.writable && mapping.executable != self.is_executable
        })
    }

    /// Changes to the staging area that frames of the page's mapping go to. All that is in the one in use is
    /// stored.
    fn use_area_for(&mut self, engine: &Engine, page: PageIndex) {
        if !self.needs_other_area(engine, page) {
            return;
        }
        self.release_frames(engine);
        if let Some(idle) = &mut self.idle_area {
            core::mem::swap(&mut self.frames, idle);
            self.is_executable = !self.is_executable;
        }
    }
}

/// What a lap of the hand has brought so far.
#[derive(Clone, Copy, Debug)]
struct Lap {
    number: u64,
    /// Where the counts stood at its beginning, if the hand was at its beginning.
    began: Option<(u64, u64)>,
}

/// Runs of victims that leave together.
struct Batch {
    runs: [PageRange; MOST_MOVES],
    count: usize,
    /// The pages of all runs, one after the other.
    taken: [Option<Taken>; RUN_PAGES],
    pages: usize,
}

impl Batch {
    fn new() -> Self {
        let nothing = PageRange::new(PageIndex::new(0), PageIndex::new(0));
        Self { runs: [nothing; MOST_MOVES], count: 0, taken: [const { None }; RUN_PAGES], pages: 0 }
    }

    /// Whether another run would do, when `most` pages are wanted.
    fn has_room(&self, most: usize) -> bool {
        self.pages < most && self.count < MOST_MOVES
    }

    fn push(&mut self, run: PageRange) {
        if !run.is_empty() {
            self.runs[self.count] = run;
            self.count += 1;
            self.pages += run.count().get() as usize;
        }
    }
}

/// The pool is full: the page, which is still held.
struct NoRoom(Taken);

impl Engine {
    /// Makes room for `pages` pages, evicting if needed. `false` when there is none: then fetch no more than
    /// must be.
    pub(crate) fn make_room(&self, holding: &Holding<'_>, pages: usize) -> bool {
        let excess = self.residency.excess(pages);
        if excess <= 0 {
            return true;
        }
        let Some(mut evictor) = self.eviction.evictor.try_lock() else {
            return excess <= self.residency.tolerated() / 4;
        };
        let Some(evictor_now) = evictor.as_mut() else { return true };
        let outcome = self.evict_with(holding, evictor_now, excess as usize + AHEAD_PAGES);
        drop(evictor);
        self.residency.excess(pages) <= 0 || !outcome.is_full
    }

    /// Gives staged frames back to the machine while nobody needs room: until then they take memory, though
    /// their pages have left.
    pub(crate) fn release_staged(&self, _change: &Change<'_>) {
        if !self.residency.is_any_staged() || self.eviction.are_stranded() {
            return;
        }
        if let Some(Some(evictor)) = self.eviction.evictor.try_lock().as_deref_mut() {
            evictor.release_frames(self);
            self.residency.set_staged(evictor.held);
        }
    }

    /// Evicts about `pages` pages, unless somebody else evicts at this moment.
    pub(crate) fn evict(&self, holding: &Holding<'_>, pages: usize) -> Outcome {
        match self.eviction.evictor.try_lock().as_deref_mut() {
            Some(Some(evictor)) => self.evict_with(holding, evictor, pages),
            _ => Outcome { is_busy: true, ..Outcome::default() },
        }
    }

    fn evict_with(&self, holding: &Holding<'_>, evictor: &mut Evictor, pages: usize) -> Outcome {
        let mut outcome = Outcome::default();
        if !self.return_stranded_of(holding, evictor) {
            outcome.is_changing = true;
            return outcome;
        }
        if self.eviction.is_leaving() {
            outcome.is_busy = true;
            return outcome;
        }
        if self.eviction.unmovable.is_all(self.residency.excess(0), thread::now_ns()) {
            return outcome;
        }
        let mut visits = 0;
        let patience = (pages as u64 * VISITS_PER_PAGE).max(4 * SCAN_PAGES as u64);
        let mut lap = Lap { number: evictor.hand.laps, began: None };
        while outcome.evicted < pages as u64
            && visits < patience
            && outcome.shared < RUN_PAGES as u64
            && !outcome.is_full
            && !outcome.is_changing
        {
            let most = (pages - outcome.evicted as usize).min(evictor.at_once);
            let batch = &mut Batch::new();
            self.gather_batch(evictor, most, (&mut visits, patience), lap, batch);
            self.expel_batch(holding, evictor, batch, &mut outcome);
            evictor.at_once =
                if outcome.is_full { 1.max(evictor.at_once / 4) } else { RUN_PAGES.min(2 * evictor.at_once) };
            if evictor.hand.laps != lap.number {
                if !self.goes_on(lap, evictor.hand.spared, &outcome) {
                    break;
                }
                lap = Lap { number: evictor.hand.laps, began: Some((outcome.evicted, evictor.hand.spared)) };
            }
        }
        self.finish(evictor, &outcome);
        outcome
    }

    /// Takes runs of victims that are to leave together, until there are enough or the hand has looked for
    /// long.
    fn gather_batch(
        &self,
        evictor: &mut Evictor,
        most: usize,
        (visits, patience): (&mut u64, u64),
        lap: Lap,
        batch: &mut Batch,
    ) {
        // Each page of a batch may need a second frame, when it isn't moved with the first attempt.
        if STAGING_PAGES - evictor.used < 2 * RUN_PAGES as u64 {
            evictor.release_frames(self);
        }
        let most = most.min(RUN_PAGES);
        while batch.has_room(most) && *visits < patience && evictor.hand.laps == lap.number {
            let taken = &mut batch.taken[batch.pages..];
            let run = evictor.hand.take_victims(self, most - batch.pages, visits, taken);
            batch.push(run);
            // What of a batch is in mappings of another protection stays until the hand comes round.
            if batch.count == 1 && batch.pages == run.count().get() as usize {
                evictor.use_area_for(self, run.start);
            }
        }
    }

    /// The hand has come round: whether another lap is of any use.
    fn goes_on(&self, lap: Lap, spared: u64, outcome: &Outcome) -> bool {
        let Some(began) = lap.began else { return true };
        if outcome.evicted > began.0 || outcome.shared > 0 {
            return true;
        }
        if spared > began.1 {
            self.eviction.victims.on_want();
            return true;
        }
        self.eviction.unmovable.note(self.residency.excess(0), thread::now_ns());
        false
    }

    fn finish(&self, evictor: &mut Evictor, outcome: &Outcome) {
        self.residency.set_staged(evictor.held);
        evictor.since_sync += outcome.evicted;
        if evictor.since_sync >= SYNC_PAGES || outcome.evicted == 0 {
            evictor.since_sync = 0;
            let _ = self.sync_resident();
        }
        self.eviction.victims.on_evicted(PageCount::new(outcome.evicted));
    }

    /// Evicts what can leave of `run`, which was made the process's own, whatever the policy says of it.
    pub(crate) fn evict_run(&self, holding: &Holding<'_>, run: PageRange) -> Outcome {
        let mut outcome = Outcome::default();
        let mut place = self.eviction.evictor.try_lock();
        let Some(Some(evictor)) = place.as_deref_mut() else { return outcome };
        if !self.return_stranded_of(holding, evictor) || self.eviction.is_leaving() {
            return outcome;
        }
        evictor.use_area_for(self, run.start);
        if STAGING_PAGES - evictor.used < run.count().get() {
            evictor.release_frames(self);
        }
        let managed = self.pages.regions.holding(run.start).unwrap_or(PageRange::new(run.start, run.start));
        let mut at = run.start;
        let end = run.intersect(managed).end;
        while at < end && !outcome.is_full && !outcome.is_changing {
            let mut taken = [const { None }; RUN_PAGES];
            let mut count = 0;
            while count < RUN_PAGES as u64
                && at + PageCount::new(count) < end
                && let Some(page) = self.pages.table.take_if(at + PageCount::new(count), may_leave)
            {
                taken[count as usize] = Some(page);
                count += 1;
            }
            let part = PageRange::at(at, PageCount::new(count));
            self.expel(holding, evictor, part, &mut taken, IfShared::Keep, &mut outcome);
            at = at + PageCount::new(count.max(1));
        }
        self.finish(evictor, &outcome);
        outcome
    }

    /// Whether pages that were taken some time ago may still leave: the program has given none of them up,
    /// and they are managed. Outside of what is managed there may be a new mapping by now, which nobody
    /// serves.
    fn may_still_leave(&self, _change: &Change<'_>, run: PageRange, taken: &[Option<Taken>]) -> bool {
        let is_managed = self.pages.regions.holding(run.start).is_some_and(|region| run.end <= region.end);
        (is_managed || !guard::stands(Guard::VictimsAreManaged))
            && !taken.iter().flatten().any(Taken::is_overtaken)
    }

    /// Moves runs of taken pages out, all at once, and stores them.
    fn expel_batch(
        &self,
        holding: &Holding<'_>,
        evictor: &mut Evictor,
        batch: &mut Batch,
        outcome: &mut Outcome,
    ) {
        let nothing = Move { from: batch.runs[0], to: PageIndex::new(0), progress: UNTRIED };
        let mut moves = [nothing; MOST_MOVES];
        let first = evictor.frames.range().start + PageCount::new(evictor.used);
        let mut to = first;
        for (it, &run) in moves.iter_mut().zip(&batch.runs[..batch.count]) {
            *it = Move { from: run, to, ..nothing };
            to = to + run.count();
        }
        let moves = &mut moves[..batch.count];
        let taken = &mut batch.taken[..batch.pages];
        let Some(change) = self.change(holding) else {
            outcome.is_changing = true;
            return self.give_all_back(taken);
        };
        let mut rest = &*taken;
        let may_leave = moves.iter().all(|it| {
            let (run, others) = rest.split_at(it.from.count().get() as usize);
            rest = others;
            self.may_still_leave(&change, it.from, run)
        });
        if !may_leave {
            return self.give_all_back(taken);
        }
        let began_ns = thread::now_ns();
        let quiet = self.quiesce_for(evictor, moves.len());
        let is_quiet = quiet.is_some();
        self.pages.uffd.move_runs(moves, evictor.pagemap);
        // Frames of pages that weren't moved stay empty.
        evictor.used += taken.len() as u64;
        let mut rest = &mut *taken;
        for it in moves.iter() {
            let (run, others) = rest.split_at_mut(it.from.count().get() as usize);
            rest = others;
            self.mark(&change, evictor, it.to, &mut run[..it.progress.done.get() as usize], outcome);
        }
        drop(quiet);
        drop(change);
        let moved_ns = thread::now_ns();
        evictor.costs.note(moves.len(), is_quiet, moved_ns - began_ns);
        self.slot.add(Counter::MovingNs, moved_ns - began_ns);
        let mut rest = taken;
        for it in moves.iter() {
            let done = it.progress.done.get() as usize;
            let (run, others) = rest.split_at_mut(it.from.count().get() as usize);
            rest = others;
            let (moved, left) = run.split_at_mut(done);
            self.stow_moved(holding, evictor, it.to, moved, outcome);
            if left.is_empty() {
                continue;
            }
            if self.eviction.are_stranded() || outcome.is_full || outcome.is_changing {
                outcome.is_changing |= self.eviction.are_stranded();
                self.give_all_back(left);
            } else {
                let left_run = PageRange::new(it.from.start + it.progress.done, it.from.end);
                self.expel(holding, evictor, left_run, left, IfShared::Tell, outcome);
            }
        }
        self.slot.add(Counter::StoringNs, thread::now_ns() - moved_ns);
    }

    /// Lets the program's other processors stand still, if that pays for so many moves. Where several of its
    /// threads fault, most processors are in the kernel or in the pager at that moment, and a call holds up
    /// those that could serve.
    fn quiesce_for(&self, evictor: &Evictor, moves: usize) -> Option<Quiet<'_>> {
        let is_worth_it = self.handlers.is_first_alone() && evictor.costs.is_worth_a_call(moves);
        if is_worth_it { self.eviction.quiescence.begin() } else { None }
    }

    fn give_all_back(&self, taken: &mut [Option<Taken>]) {
        taken.iter_mut().filter_map(Option::take).for_each(|page| self.give_back(page));
    }

    /// Leaves markers where pages have just been moved away, before anything else is done: a discard that is
    /// told to nobody between the move and this is overlooked. Where that can't be done they are put back.
    fn mark(
        &self,
        change: &Change<'_>,
        evictor: &mut Evictor,
        first: PageIndex,
        moved: &mut [Option<Taken>],
        outcome: &mut Outcome,
    ) {
        let Some(start) = moved.iter().flatten().next().map(|page| page.page) else { return };
        let count = moved.len() as u64;
        if self.pages.uffd.mark(PageRange::at(start, PageCount::new(count))) {
            return;
        }
        outcome.is_changing = true;
        for (step, page) in (0..count).zip(moved) {
            let frame = first + PageCount::new(step);
            page.take().into_iter().for_each(|page| self.put_back(Some(change), evictor, page, frame, false));
        }
    }

    /// Moves a run of taken pages out and stores them.
    fn expel(
        &self,
        holding: &Holding<'_>,
        evictor: &mut Evictor,
        run: PageRange,
        taken: &mut [Option<Taken>],
        if_shared: IfShared,
        outcome: &mut Outcome,
    ) {
        let mut at = 0;
        let length = run.count().get();
        // A run may cross the edge of two mappings, which the kernel refuses: then its pages go one by one.
        let mut at_once = length;
        while at < length {
            let start = run.start + PageCount::new(at);
            let from = PageRange::at(start, PageCount::new(at_once.min(length - at)));
            if STAGING_PAGES - evictor.used < from.count().get() {
                // Pages of zeros have taken the frames that were meant for these.
                break;
            }
            let frame = evictor.frames.range().start + PageCount::new(evictor.used);
            let Some(change) = self.change(holding) else {
                outcome.is_changing = true;
                break;
            };
            if !self.may_still_leave(&change, from, &taken[at as usize..][..from.count().get() as usize]) {
                break;
            }
            let progress = self.pages.uffd.move_pages(from, frame, evictor.pagemap);
            let moved = progress.done.get();
            evictor.used += moved;
            let gone = &mut taken[at as usize..(at + moved) as usize];
            self.mark(&change, evictor, frame, gone, outcome);
            drop(change);
            self.stow_moved(holding, evictor, frame, gone, outcome);
            at += moved;
            if self.eviction.are_stranded() {
                outcome.is_changing = true;
                break;
            }
            // What stopped a move halfway is told when it is tried again from there.
            let Some(stopped) = progress.stopped.filter(|_| moved == 0) else { continue };
            match stopped {
                UffdError::Exists => {
                    // A page of zeros is in the way, which came out at some time uncounted. It takes no
                    // memory, and goes with the frames.
                    evictor.used += 1;
                    if STAGING_PAGES - evictor.used < length - at {
                        break;
                    }
                }
                UffdError::Unsupported if at_once > 1 => at_once = 1,
                UffdError::Unsupported if evictor.needs_other_area(self, start) => break,
                UffdError::Changing => {
                    self.slot.add(Counter::Retries, 1);
                    outcome.is_changing = true;
                    break;
                }
                _ => {
                    if let Some(page) = taken.get_mut(at as usize).and_then(Option::take) {
                        self.stay(page, stopped, if_shared, outcome);
                    }
                    at += 1;
                    if stopped == UffdError::Unsupported {
                        evictor.hand.leave_mapping(self, start);
                        break;
                    }
                }
            }
        }
        self.give_all_back(taken);
    }

    /// Stores pages that were moved to frames of the staging area, the first of them `first`.
    fn stow_moved(
        &self,
        holding: &Holding<'_>,
        evictor: &mut Evictor,
        first: PageIndex,
        moved: &mut [Option<Taken>],
        outcome: &mut Outcome,
    ) {
        let count = moved.len() as u64;
        let evicted_before = outcome.evicted;
        for (step, page) in (0..count).zip(moved) {
            let Some(page) = page.take() else { continue };
            let frame = first + PageCount::new(step);
            match self.stow(&mut evictor.writer, page, evictor.frames.look(frame)) {
                Ok(()) => outcome.evicted += 1,
                Err(NoRoom(page)) => {
                    outcome.is_full = true;
                    let change = self.change(holding);
                    self.put_back(change.as_ref(), evictor, page, frame, true);
                }
            }
        }
        // Pages that are only tried must not look like room to those who wait for some.
        let evicted = outcome.evicted - evicted_before;
        self.residency.went_out(evicted);
        evictor.held += evicted;
    }

    /// A page that the kernel won't move stays where it is.
    fn stay(&self, page: Taken, stopped: UffdError, if_shared: IfShared, outcome: &mut Outcome) {
        if matches!(stopped, UffdError::Other(_)) {
            // Where the pages are can't be known.
            self.refused(Step::MoveOut, stopped);
        }
        self.slot.add(Counter::Refused, 1);
        match (stopped, if_shared) {
            (UffdError::Busy, IfShared::Tell) => {
                self.family.sharing.push_victim(page.page);
                outcome.shared += 1;
                self.give_back(page);
            }
            (UffdError::Busy, IfShared::Keep) => {
                outcome.in_use += 1;
                self.keep(page);
            }
            _ => self.keep(page),
        }
    }

    /// A page that the kernel won't give: the hand comes back to it as late as to one that has just come.
    fn keep(&self, page: Taken) {
        let word = self.eviction.victims.on_first_touch(page.word);
        self.let_go(page, word);
    }

    /// Stores a page that was moved out.
    fn stow(&self, writer: &mut Writer, page: Taken, content: &PageBytes) -> Result<(), NoRoom> {
        let old = page.word.place();
        let place = match self.vault.stow(writer, page.page, old, content) {
            Stowed::Clean(place) => {
                self.slot.add(Counter::DroppedClean, 1);
                place
            }
            Stowed::Rewritten(place) => {
                self.slot.add(Counter::EntriesReused, 1);
                place
            }
            Stowed::Placed(place) => {
                self.slot.add(Counter::EntriesAllocated, 1);
                place
            }
            Stowed::Full => {
                self.slot.add(Counter::PoolFull, 1);
                return Err(NoRoom(page));
            }
        };
        self.slot.add(Counter::Evicted, 1);
        self.slot.add(Counter::FarPages, 1);
        self.trace(TraceKind::Evict, page.page);
        let word = self.eviction.victims.on_evict(page.word).with_place(Some(place)).with_prefetched(false);
        let word = word.with_far(true).with_marked(true);
        self.let_go(page, word);
        Ok(())
    }
}
