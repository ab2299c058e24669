//! Eviction: the hand finds victims, the kernel moves their frames out of the program's sight, the vault stores them.
//!
//! Pages leave in runs of neighbours: while another thread of the program runs, each run costs one flush of the other
//! processors' TLBs, however long it is. A moved frame is never used for another page: after a `vmsplice` the kernel
//! may still hold it for a pipe. It is given back to the machine instead.

use core::sync::atomic::Ordering;

use farmem_page::{PageBytes, PageCount, PageIndex, PageRange, PageWord};
use farmem_policy::{Verdict, VictimPolicy};
use farmem_store::Writer;
use farmem_sys::memory::Frames;
use farmem_sys::pagemap::{Pagemap, Runs, SCAN_PAGES};
use farmem_sys::uffd::{Uffd, UffdError};
use farmem_sys::{Errno, cache};
use farmem_telemetry::{Counter, Step, TraceKind};

use crate::address_space::table::Taken;
use crate::engine::Engine;
use crate::eviction::stranded::Stranded;
use crate::eviction::vault::Stowed;
use crate::gate::Change;

/// Frames of the staging area.
const STAGING_PAGES: u64 = 512;
/// Pages that leave in one move at most.
pub(crate) const RUN_PAGES: usize = 64;
/// Pages that an eviction looks at for each page it is asked for, before it gives up.
const VISITS_PER_PAGE: u64 = 64;
/// Pages that one question to the kernel may cover where there are hardly any: 256 MiB, some 100 µs if it has empty page tables for
/// all of them, and next to nothing if it has none.
const MOST_REACH: u64 = 1 << 16;
/// Pages that are evicted beyond what a fault needs, so that the next faults find room.
const AHEAD_PAGES: usize = 16;
/// Evicted pages between two questions to the kernel how many are resident.
const SYNC_PAGES: u64 = 256;
/// How far above their limits an application's processes may get before their faults wait for room: 4 MiB.
pub(crate) const TOLERATED_PAGES: i64 = 1024;
/// Each of them at least so far: 512 KiB.
pub(crate) const LEAST_TOLERATED_PAGES: i64 = 128;

/// Who evicts: one thread at a time.
pub(crate) struct Evictor {
    pub(crate) frames: Frames,
    used: u64,
    /// Of those used, the ones whose page has left. The others were put back.
    pub(crate) held: u64,
    pub(crate) stranded: Stranded,
    hand: PageIndex,
    detour: Option<Detour>,
    /// Pages that the next question to the kernel covers.
    reach: u64,
    /// How often the hand has come to the end, and pages that the policy has kept.
    laps: u64,
    kept: u64,
    runs: Runs,
    /// The part of the current run that the hand has not come to.
    rest: PageRange,
    next_run: usize,
    pagemap: &'static Pagemap,
    writer: Writer,
    since_sync: u64,
}

/// Pages that the hand goes through out of turn.
#[derive(Clone, Copy, Debug)]
struct Detour {
    end: PageIndex,
    /// Where it goes on.
    back: PageIndex,
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
    /// It was the process's own a moment ago. The kernel uses it, perhaps for as long as the program runs (a buffer that is
    /// registered for input and output), so telling the bookkeeper again would have no end.
    Keep,
}

impl Evictor {
    pub(crate) fn new(uffd: &Uffd, writer: Writer, pagemap: &'static Pagemap) -> Result<Self, Errno> {
        let frames = Frames::reserve(PageCount::new(STAGING_PAGES))?;
        uffd.register_missing(frames.range()).map_err(|_| Errno::NOMEM)?;
        let nothing = PageIndex::new(0);
        Ok(Self {
            frames,
            used: 0,
            held: 0,
            stranded: Stranded::new(),
            hand: nothing,
            detour: None,
            reach: SCAN_PAGES as u64,
            laps: 0,
            kept: 0,
            runs: Runs::empty(),
            rest: PageRange::new(nothing, nothing),
            next_run: 0,
            pagemap,
            writer,
            since_sync: 0,
        })
    }

    /// The next pages that are resident, as one run; `None` when a window had none.
    fn next_resident(&mut self, engine: &Engine) -> Option<PageRange> {
        self.turn_off(engine);
        if !self.rest.is_empty() {
            return Some(self.rest);
        }
        if let Some(run) = self.runs.iter().nth(self.next_run) {
            self.next_run += 1;
            self.rest = run;
            return Some(run);
        }
        self.next_run = 0;
        self.runs = Runs::empty();
        self.turn_back();
        let Some(region) = engine.regions.from(self.hand) else {
            match self.detour.take() {
                Some(detour) => self.hand = detour.back,
                None => {
                    self.hand = PageIndex::new(0);
                    self.laps += 1;
                }
            }
            return None;
        };
        let start = if region.contains(self.hand) { self.hand } else { region.start };
        if let Some(kept) = engine.hints.kept(start) {
            self.hand = kept.end;
            return None;
        }
        // Windows end where a page table of the kernel's does: one that is full is one question. Where pages are few, there
        // may be so many windows without one that the hand must not go through them one by one.
        let window_end = (start.get() / SCAN_PAGES as u64) * SCAN_PAGES as u64 + self.reach;
        let window = PageRange::new(start, PageIndex::new(window_end.min(region.end.get())));
        self.hand = scan(self.pagemap, window, &mut self.runs);
        let is_empty = self.runs.iter().next().is_none();
        self.reach = if is_empty { (2 * self.reach).min(MOST_REACH) } else { SCAN_PAGES as u64 };
        None
    }

    /// Sends the hand to pages that the program has called cold, at once.
    fn turn_off(&mut self, engine: &Engine) {
        if self.detour.is_none()
            && let Some(cold) = engine.hints.pop_cold()
        {
            let ahead = self.runs.iter().nth(self.next_run);
            let back = match ahead {
                _ if !self.rest.is_empty() => self.rest.start,
                Some(run) => run.start,
                None => self.hand,
            };
            self.detour = Some(Detour { end: cold.end, back });
            self.hand = cold.start;
            self.reach = SCAN_PAGES as u64;
            self.runs = Runs::empty();
            self.rest = PageRange::new(cold.start, cold.start);
            self.next_run = 0;
        }
    }

    /// Sends it back when it has been through them.
    fn turn_back(&mut self) {
        if let Some(detour) = self.detour.filter(|detour| self.hand >= detour.end) {
            self.hand = detour.back;
            self.detour = None;
        }
    }

    /// Goes on behind the mapping of `page`, which the kernel won't move: it is locked, or not to be read and written alone (code
    /// that a program makes as it runs), and so is all of it.
    fn leave_mapping(&mut self, engine: &Engine, page: PageIndex) {
        let end = match engine.files.maps.next(page.addr()) {
            Ok(Some(mapping)) if mapping.range.contains(page) => mapping.range.end,
            _ => self.rest.end,
        };
        self.hand = self.hand.max(end);
        self.rest = PageRange::new(end, self.rest.end.max(end));
        while self.runs.iter().nth(self.next_run).is_some_and(|run| run.start < end) {
            self.next_run += 1;
        }
    }

    /// Takes up to `most` neighbouring victims; the range they fill.
    fn take_victims(
        &mut self,
        engine: &Engine,
        most: usize,
        visits: &mut u64,
        taken: &mut [Option<Taken>; RUN_PAGES],
    ) -> PageRange {
        let nothing = PageRange::new(self.hand, self.hand);
        let room = (STAGING_PAGES - self.used) as usize;
        let most = most.min(RUN_PAGES).min(room);
        let Some(run) = self.next_resident(engine) else {
            *visits += SCAN_PAGES as u64 / 16;
            return nothing;
        };
        // The kernel was asked for these pages under an earlier change. Whatever happened to their mapping since is known by
        // now: outside the regions there may be a new one, which nobody serves.
        let Some(region) = engine.regions.from(run.start).filter(|region| region.start < run.end) else {
            self.rest = nothing;
            return nothing;
        };
        let run = run.intersect(region);
        let mut start = run.start;
        let mut count = 0;
        let mut at = run.start;
        while at < run.end && count < most {
            *visits += 1;
            let page = at;
            at = PageIndex::new(at.get() + 1);
            match engine.victim(page) {
                Look::Taken(victim) => {
                    if count == 0 {
                        start = page;
                    }
                    taken[count] = Some(victim);
                    count += 1;
                    continue;
                }
                Look::Kept => self.kept += 1,
                Look::Away => {}
            }
            if count > 0 {
                break;
            }
        }
        self.rest = PageRange::new(at, self.rest.end);
        PageRange::at(start, PageCount::new(count as u64))
    }

    /// Gives the staged frames back to the machine. They are all stored by now: nothing is stranded.
    fn release_frames(&mut self, engine: &Engine) {
        if self.used == 0 {
            return;
        }
        let used = PageRange::at(self.frames.range().start, PageCount::new(self.used));
        // Discarding registered memory would raise an event, and wait for who reads it: perhaps for this thread.
        let unregistered = engine.uffd.unregister(self.frames.range()).map_err(Errno::from);
        let released = unregistered
            .and_then(|()| self.frames.release(used))
            .and_then(|()| engine.uffd.register_missing(self.frames.range()).map_err(Errno::from));
        if let Err(errno) = released {
            engine.refused(Step::Staging, errno);
        }
        self.used = 0;
        self.held = 0;
    }
}

/// What the hand makes of a page.
enum Look {
    Taken(Taken),
    /// The policy keeps it.
    Kept,
    /// It can't leave now.
    Away,
}

/// What a lap of the hand has brought so far.
#[derive(Clone, Copy, Debug)]
struct Lap {
    number: u64,
    /// Where the counts stood at its beginning, if the hand was at its beginning.
    began: Option<(u64, u64)>,
}

/// The pool is full: the page, which is still held.
struct NoRoom(Taken);

/// Whether the page may be taken in order to leave.
fn may_leave(word: PageWord) -> bool {
    !word.is_busy() && !word.is_pinned() && !word.is_kept() && !word.is_discarded()
}

/// Looks for resident pages in `window`; how far it came.
fn scan(pagemap: &Pagemap, window: PageRange, runs: &mut Runs) -> PageIndex {
    match pagemap.resident(window, runs) {
        Ok(end) if end > window.start => end,
        _ => {
            *runs = Runs::empty();
            window.end
        }
    }
}

impl Engine {
    /// Makes room for `pages` pages, evicting if needed. `false` when there is none: then fetch no more than must be.
    pub(crate) fn make_room(&self, change: &Change<'_>, pages: usize) -> bool {
        let excess = self.excess(pages);
        if excess <= 0 {
            return true;
        }
        let Some(mut evictor) = self.evictor.try_lock() else {
            return excess <= self.tolerated() / 4;
        };
        let Some(evictor_now) = evictor.as_mut() else { return true };
        let outcome = self.evict_with(change, evictor_now, excess as usize + AHEAD_PAGES);
        drop(evictor);
        self.excess(pages) <= 0 || !outcome.is_full
    }

    /// Evicts about `pages` pages, unless somebody else evicts at this moment.
    pub(crate) fn evict(&self, change: &Change<'_>, pages: usize) -> Outcome {
        match self.evictor.try_lock().as_deref_mut() {
            Some(Some(evictor)) => self.evict_with(change, evictor, pages),
            _ => Outcome { is_busy: true, ..Outcome::default() },
        }
    }

    fn evict_with(&self, change: &Change<'_>, evictor: &mut Evictor, pages: usize) -> Outcome {
        let mut outcome = Outcome::default();
        if !self.return_stranded_of(change, evictor) {
            outcome.is_changing = true;
            return outcome;
        }
        if self.forking.load(Ordering::Acquire) != 0 {
            outcome.is_busy = true;
            return outcome;
        }
        if self.is_unmovable() {
            return outcome;
        }
        let mut visits = 0;
        let patience = (pages as u64 * VISITS_PER_PAGE).max(4 * SCAN_PAGES as u64);
        let mut lap = Lap { number: evictor.laps, began: None };
        while outcome.evicted < pages as u64
            && visits < patience
            && outcome.shared < RUN_PAGES as u64
            && !outcome.is_full
            && !outcome.is_changing
        {
            if evictor.used == STAGING_PAGES {
                evictor.release_frames(self);
            }
            let mut taken = [const { None }; RUN_PAGES];
            let most = pages - outcome.evicted as usize;
            let run = evictor.take_victims(self, most, &mut visits, &mut taken);
            if !run.is_empty() {
                self.expel(change, evictor, run, &mut taken, IfShared::Tell, &mut outcome);
            }
            if evictor.laps != lap.number {
                if !self.goes_on(lap, evictor.kept, &outcome) {
                    break;
                }
                lap = Lap { number: evictor.laps, began: Some((outcome.evicted, evictor.kept)) };
            }
        }
        self.finish(evictor, &outcome);
        outcome
    }

    /// The hand has come round: whether another lap is of any use.
    fn goes_on(&self, lap: Lap, kept: u64, outcome: &Outcome) -> bool {
        let Some(began) = lap.began else { return true };
        if outcome.evicted > began.0 || outcome.shared > 0 {
            return true;
        }
        if kept > began.1 {
            self.victims.on_want();
            return true;
        }
        self.found_unmovable();
        false
    }

    fn finish(&self, evictor: &mut Evictor, outcome: &Outcome) {
        self.staged.store(evictor.held, Ordering::Relaxed);
        evictor.since_sync += outcome.evicted;
        if evictor.since_sync >= SYNC_PAGES || outcome.evicted == 0 {
            evictor.since_sync = 0;
            let _ = self.sync_resident();
        }
        self.victims.on_evicted(PageCount::new(outcome.evicted));
    }

    /// Evicts what can leave of `run`, which was made the process's own, whatever the policy says of it.
    pub(crate) fn evict_run(&self, change: &Change<'_>, run: PageRange) -> Outcome {
        let mut outcome = Outcome::default();
        let mut place = self.evictor.try_lock();
        let Some(Some(evictor)) = place.as_deref_mut() else { return outcome };
        if !self.return_stranded_of(change, evictor) || self.forking.load(Ordering::Acquire) != 0 {
            return outcome;
        }
        if STAGING_PAGES - evictor.used < run.count().get() {
            evictor.release_frames(self);
        }
        let managed = self.regions.holding(run.start).unwrap_or(PageRange::new(run.start, run.start));
        let mut at = run.start;
        let end = run.intersect(managed).end;
        while at < end && !outcome.is_full && !outcome.is_changing {
            let mut taken = [const { None }; RUN_PAGES];
            let mut count = 0;
            while count < RUN_PAGES as u64
                && at + PageCount::new(count) < end
                && let Some(page) = self.table.take_if(at + PageCount::new(count), may_leave)
            {
                taken[count as usize] = Some(page);
                count += 1;
            }
            let part = PageRange::at(at, PageCount::new(count));
            self.expel(change, evictor, part, &mut taken, IfShared::Keep, &mut outcome);
            at = at + PageCount::new(count.max(1));
        }
        self.finish(evictor, &outcome);
        outcome
    }

    /// The page, taken, if it is to leave.
    fn victim(&self, page: PageIndex) -> Look {
        let word = self.table.word(page);
        if !may_leave(word) {
            return Look::Away;
        }
        match self.victims.visit(word) {
            Verdict::Evict => self.table.take_if(page, |now| now == word).map_or(Look::Away, Look::Taken),
            Verdict::Keep(kept) => {
                if kept != word {
                    self.table.replace(page, word, kept);
                }
                Look::Kept
            }
        }
    }

    /// Moves a run of taken pages out and stores them.
    fn expel(
        &self,
        change: &Change<'_>,
        evictor: &mut Evictor,
        run: PageRange,
        taken: &mut [Option<Taken>; RUN_PAGES],
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
            let frame = evictor.frames.range().start + PageCount::new(evictor.used);
            // The page has been cold for long: it comes near while the kernel moves it.
            cache::prefetch_page(start);
            let progress = self.uffd.move_pages(from, frame, evictor.pagemap);
            let moved = progress.done.get();
            evictor.used += moved;
            let evicted_before = outcome.evicted;
            for step in 0..moved {
                let Some(page) = taken[(at + step) as usize].take() else { continue };
                if step + 1 < moved {
                    cache::prefetch_page(frame + PageCount::new(step + 1));
                }
                let frame = frame + PageCount::new(step);
                match self.stow(&mut evictor.writer, page, evictor.frames.look(frame)) {
                    Ok(()) => outcome.evicted += 1,
                    Err(NoRoom(page)) => {
                        outcome.is_full = true;
                        self.put_back(change, evictor, page, frame);
                    }
                }
            }
            // Pages that are only tried must not look like room to those who wait for some.
            self.went_out(outcome.evicted - evicted_before);
            evictor.held += outcome.evicted - evicted_before;
            at += moved;
            if self.are_stranded() {
                outcome.is_changing = true;
                break;
            }
            let Some(stopped) = progress.stopped else { continue };
            if moved > 0 {
                // What stopped a move halfway is told when it is tried again from there.
                continue;
            }
            if matches!(stopped, UffdError::Other(_)) {
                // Where the pages are can't be known.
                self.refused(Step::MoveOut, stopped);
            }
            if stopped == UffdError::Exists {
                // A page of zeros came out uncounted. It takes no memory, and goes with the frames.
                evictor.used += 1;
                if STAGING_PAGES - evictor.used < length - at {
                    break;
                }
                continue;
            }
            if stopped == UffdError::Unsupported && at_once > 1 {
                at_once = 1;
                continue;
            }
            if stopped == UffdError::Changing {
                self.slot.add(Counter::Retries, 1);
                outcome.is_changing = true;
                break;
            }
            // The page at which it stopped stays where it is.
            if let Some(page) = taken.get_mut(at as usize).and_then(Option::take) {
                self.slot.add(Counter::Refused, 1);
                match (stopped, if_shared) {
                    (UffdError::Busy, IfShared::Tell) => {
                        self.sharing.push_victim(page.page);
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
            at += 1;
            if stopped == UffdError::Unsupported {
                evictor.leave_mapping(self, start);
                break;
            }
        }
        taken.iter_mut().filter_map(Option::take).for_each(|page| self.give_back(page));
    }

    /// A page that stays, as it was.
    pub(crate) fn give_back(&self, page: Taken) {
        let number = page.page;
        if page.put_back().is_waited {
            self.wake_page(number);
        }
    }

    /// A page that the kernel won't give: the hand comes back to it as late as to one that has just come.
    fn keep(&self, page: Taken) {
        let range = PageRange::at(page.page, PageCount::new(1));
        let word = self.victims.on_first_touch(page.word);
        if page.release(word).is_waited {
            self.uffd.wake(range);
        }
    }

    /// Stores a page that was moved out.
    fn stow(&self, writer: &mut Writer, page: Taken, content: &PageBytes) -> Result<(), NoRoom> {
        let range = PageRange::at(page.page, PageCount::new(1));
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
        let word =
            self.victims.on_evict(page.word).with_place(Some(place)).with_far(true).with_prefetched(false);
        let released = page.release(word);
        if released.is_dropped {
            self.vault.free(place);
        }
        if released.is_waited {
            self.uffd.wake(range);
        }
        Ok(())
    }
}
