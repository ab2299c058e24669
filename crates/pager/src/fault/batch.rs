//! Pages that come in together: taken, loaded, installed, let go.

use core::ops::Range;

use farmem_page::{PAGE_BYTES, PageCount, PageIndex, PageRange, PageWord};
use farmem_policy::{Fault, Run, VictimPolicy, absence};
use farmem_store::Urgency;
use farmem_sys::guard::{self, Guard};
use farmem_sys::pagemap::Vacancies;
use farmem_sys::thread;
use farmem_sys::uffd::{UffdError, Waiters};
use farmem_telemetry::{Counter, RETURN_BUCKETS, TraceKind};

use crate::address_space::table::Taken;
use crate::engine::{BATCH_PAGES, Engine};
use crate::eviction::vault::LoadFailure;
use crate::fault::flights::Errand;
use crate::fault::references::Following;
use crate::fault::serve::{Cause, ServeBuffers, Served, Source};
use crate::fault::waiting::Timing;
use crate::gate::{Change, Holding};

const _: () =
    assert!(absence::BUCKETS == RETURN_BUCKETS, "the ledger has a word for each bucket of an absence");

const _: () = assert!(BATCH_PAGES <= u128::BITS as usize, "a batch's pages have a bit each");

/// What became of loading a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Loaded {
    /// It is in the buffers.
    There,
    /// It is on a node, which was not to be asked, or would have sent it too late.
    Later,
    /// It can't be had.
    Lost,
}

/// What became of a page that a fault wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    /// It is in the buffers.
    There,
    /// It is not, and that has been seen to.
    Not(Served),
}

/// A batch of taken pages; those that follow each other stand next to each other.
pub(crate) struct Batch {
    pages: [Option<Taken>; BATCH_PAGES],
    count: usize,
}

impl Batch {
    pub(crate) const fn new() -> Self {
        Self { pages: [const { None }; BATCH_PAGES], count: 0 }
    }

    /// Its position.
    pub(crate) fn push(&mut self, taken: Taken) -> usize {
        let at = self.count;
        self.pages[at] = Some(taken);
        self.count += 1;
        at
    }

    /// How many pages it was given.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The page at that position, which is no longer part of it.
    pub(super) fn take(&mut self, at: usize) -> Option<Taken> {
        self.pages[at].take()
    }
}

/// Where pages came for which threads may wait.
#[derive(Default)]
struct Awaited(Option<PageRange>);

impl Awaited {
    fn add(&mut self, range: PageRange) {
        if range.count() > PageCount::new(0) {
            self.0 = Some(self.0.map_or(range, |before| before.hull(range)));
        }
    }
}

impl Engine {
    /// The faulted page and those of `run` that come from the same source, in ascending order.
    pub(super) fn gather(&self, faulted: Taken, run: Option<Run>, source: Source) -> Batch {
        let mut batch = Batch::new();
        let Some(run) = run else {
            batch.push(faulted);
            return batch;
        };
        let mut probes = if source == Source::Stored { self.foresight.probes.try_lock() } else { None };
        let mut companion = None;
        let mut take = |page| {
            let taken = self.pages.table.take_if(page, |word| match source {
                Source::Stored => word.is_far() && Source::of(word) == source,
                Source::Zeros => word.with_pinned(false) == PageWord::default(),
            })?;
            match (&mut probes, companion.replace(page)) {
                (Some(probes), Some(companion)) => self.unless_probe(probes, taken, companion),
                _ => Some(taken),
            }
        };
        if run.stride > 0 {
            batch.push(faulted);
            run.pages().take(BATCH_PAGES - 1).filter_map(&mut take).for_each(|taken| _ = batch.push(taken));
        } else {
            let count = run.count.min(BATCH_PAGES as u32 - 1);
            let pages = (0..count).rev().filter_map(|position| run.page(position));
            pages.filter_map(&mut take).for_each(|taken| _ = batch.push(taken));
            batch.push(faulted);
        }
        batch
    }

    /// Brings back those of `pages` that are absent still, for which the caller has made sure that there is
    /// room; the first [`BATCH_PAGES`] of them at most. They come in ascending order. How many were tried.
    pub(crate) fn return_pages(
        &self,
        holding: &Holding<'_>,
        buffers: &mut ServeBuffers,
        pages: impl Iterator<Item = PageIndex>,
        cause: Cause,
    ) -> usize {
        let mut batch = Batch::new();
        let take =
            |page| self.pages.table.take_if(page, |word| word.is_far() && Source::of(word) == Source::Stored);
        pages.filter_map(take).take(BATCH_PAGES).for_each(|taken| _ = batch.push(taken));
        let count = batch.count;
        // Where the address space changes, pages stay away: nobody waits for them.
        let _ = self.bring_in(holding, buffers, batch, cause);
        count
    }

    /// Brings the content of the batch's page at that position into the buffers, and checks it. A page that
    /// is lost has been dealt with.
    fn load(
        &self,
        holding: &Holding<'_>,
        buffers: &mut ServeBuffers,
        batch: &mut Batch,
        at: usize,
        cause: Cause,
        urgency: Urgency,
    ) -> Loaded {
        let Some(taken) = &batch.pages[at] else { return Loaded::Lost };
        let Some(place) = taken.word.place() else { return Loaded::Lost };
        let _wait = (holding.is_handlers() && self.vault.is_away(place)).then(|| self.handlers.wait());
        match self.vault.load(&mut buffers.reader, place, &mut buffers.content[at], urgency) {
            Ok(origin) => {
                buffers.waiting.loaded(origin, cause.is_fault_on(taken.page));
                Loaded::There
            }
            Err(LoadFailure::Later) => Loaded::Later,
            Err(LoadFailure::Lost) => {
                if let Some(taken) = batch.pages[at].take() {
                    self.lose(holding, taken);
                }
                Loaded::Lost
            }
        }
    }

    /// [`Engine::load`] of one page for the fault that leads the batch. What has to be asked of nodes comes
    /// by itself, later, and is followed then.
    pub(crate) fn load_for(
        &self,
        holding: &Holding<'_>,
        buffers: &mut ServeBuffers,
        batch: &mut Batch,
        at: usize,
        fault: Fault,
        following: Option<Following>,
    ) -> Arrival {
        let loading = buffers.waiting.begin_loading();
        let loaded = self.load(holding, buffers, batch, at, Cause::Fault(fault.page), self.urgency());
        buffers.waiting.end_loading(loading, &self.slot);
        match loaded {
            Loaded::There => Arrival::There,
            Loaded::Lost => Arrival::Not(Served::Done),
            Loaded::Later => {
                Arrival::Not(self.send_for(buffers, batch, at, Cause::Fault(fault.page), following))
            }
        }
    }

    /// How to load what a thread waits for, before nodes are asked.
    fn urgency(&self) -> Urgency {
        if self.flights.may_fly() { Urgency::Later } else { Urgency::Awaited }
    }

    /// Asks nodes for the batch's page at that position, which is no longer part of it.
    fn send_for(
        &self,
        buffers: &ServeBuffers,
        batch: &mut Batch,
        at: usize,
        cause: Cause,
        following: Option<Following>,
    ) -> Served {
        let Some(taken) = batch.pages[at].take() else { return Served::Done };
        let is_faulted = cause.is_fault_on(taken.page);
        if !is_faulted {
            self.foresight.asked.note(taken.page, thread::now_ns());
        }
        match self.launch(&buffers.reader, taken, Errand { cause, is_ahead: !is_faulted, following }) {
            Ok(()) => Served::Flying,
            // Too much is under way, or the page is somewhere else by now. The thread is kept: it need not
            // fault again.
            Err(taken) if is_faulted => {
                self.give_back(taken);
                Served::Later
            }
            // Nor is a thread woken that waits for it and has been put off: all that did so would fault again
            // and again.
            Err(taken) => {
                self.give_back(taken);
                Served::Done
            }
        }
    }

    /// Lets go of the batch's page at that position, which stays where it is. Whoever has come meanwhile, or
    /// waits already, faults again.
    fn put_off(&self, batch: &mut Batch, at: usize) {
        if let Some(taken) = batch.pages[at].take() {
            self.let_try_again(taken);
        }
    }

    /// Installs the pages of a batch from position `from` on, each for itself, none of them the faulted one.
    pub(crate) fn install_following(
        &self,
        holding: &Holding<'_>,
        buffers: &ServeBuffers,
        batch: &mut Batch,
        from: usize,
        fault: Fault,
    ) {
        for at in from..batch.count {
            // Where the address space changes, pages stay away: nobody waits for them.
            let _ = self.install_one(holding, buffers, batch, at, Cause::Fault(fault.page));
        }
    }

    /// Installs the page that leads the batch.
    pub(crate) fn install_first(
        &self,
        holding: &Holding<'_>,
        buffers: &ServeBuffers,
        batch: &mut Batch,
        cause: Cause,
    ) -> Served {
        self.install_one(holding, buffers, batch, 0, cause)
    }

    /// Installs the batch's page at that position, if it is still part of it.
    fn install_one(
        &self,
        holding: &Holding<'_>,
        buffers: &ServeBuffers,
        batch: &mut Batch,
        at: usize,
        cause: Cause,
    ) -> Served {
        let mut timing = buffers.waiting.timing();
        let Some(change) = self.change(holding) else { return self.let_all_go(batch, at..at + 1, cause) };
        let mut awaited = Awaited::default();
        self.shed_overtaken(&change, batch, at..at + 1, cause);
        let outcome = match self.sift(&change, batch, at, 1, cause) {
            Served::Done => self.install(&change, batch, at, &buffers.content[at], cause, &mut awaited),
            refused => refused,
        };
        self.wake_after(change, &awaited, &mut timing);
        outcome
    }

    /// Ends the change and wakes whoever waits for pages that came. Waking takes longer than all of the
    /// change, and the program's thread may have the processor next.
    fn wake_after(&self, change: Change<'_>, awaited: &Awaited, timing: &mut Timing) {
        drop(change);
        timing.end_step(&self.slot, Counter::InstallingNs);
        if let Some(range) = awaited.0 {
            self.pages.uffd.wake(range);
            timing.end_step(&self.slot, Counter::WakingNs);
        }
    }

    /// Lets go of those pages of the batch, before anything is done with them. A thread that waits for one is
    /// kept until its fault is served again.
    fn let_all_go(&self, batch: &mut Batch, positions: Range<usize>, cause: Cause) -> Served {
        let mut outcome = Served::Done;
        for taken in batch.pages[positions].iter_mut().filter_map(Option::take) {
            if cause.is_fault_on(taken.page) {
                outcome = Served::Again;
            }
            self.give_back(taken);
        }
        outcome
    }

    /// Takes those out of the batch that the program has given up since they were taken. Whoever waits for
    /// one faults again.
    fn shed_overtaken(&self, _change: &Change<'_>, batch: &mut Batch, positions: Range<usize>, cause: Cause) {
        for place in &mut batch.pages[positions] {
            let Some(taken) = place.take_if(|taken| taken.is_overtaken()) else { continue };
            if cause.is_fault_on(taken.page) {
                self.let_try_again(taken);
            } else {
                self.give_back(taken);
            }
        }
    }

    /// Pages that have an entry: load, check, install. What only nodes have is asked for and comes by itself,
    /// where there is a fetcher; without one, pages that come along are asked for when the thread's own is
    /// there.
    pub(super) fn bring_in(
        &self,
        holding: &Holding<'_>,
        buffers: &mut ServeBuffers,
        mut batch: Batch,
        cause: Cause,
    ) -> Served {
        let is_faulted = |batch: &Batch, at: usize| {
            batch.pages[at].as_ref().is_some_and(|taken| cause.is_fault_on(taken.page))
        };
        let loading = buffers.waiting.begin_loading();
        // What comes from a node with this page is there for others.
        let first = (0..batch.count).find(|at| is_faulted(&batch, *at));
        let mut sent = None;
        if let Some(at) = first
            && self.load(holding, buffers, &mut batch, at, cause, self.urgency()) == Loaded::Later
        {
            sent = Some(self.send_for(buffers, &mut batch, at, cause, None));
        }
        let mut later = 0_u128;
        for at in (0..batch.count).filter(|at| Some(*at) != first) {
            let loaded = self.load(holding, buffers, &mut batch, at, cause, Urgency::Later);
            later |= u128::from(loaded == Loaded::Later) << at;
        }
        buffers.waiting.end_loading(loading, &self.slot);
        if later == 0 {
            let outcome = self.install_all(holding, buffers, &mut batch, cause);
            return sent.unwrap_or(outcome);
        }
        let mut rest = Batch::new();
        let taken =
            (0..batch.count).filter(|at| later >> at & 1 != 0).filter_map(|at| batch.pages[at].take());
        taken.for_each(|taken| _ = rest.push(taken));
        let outcome = self.install_all(holding, buffers, &mut batch, cause);
        buffers.waiting.let_go();
        // What comes for a hint, or since there is room, is waited for: whoever brings it would only find
        // that too much is under way.
        if matches!(cause, Cause::Fault(_)) && self.flights.may_fly() {
            self.send_for_all(buffers, rest, cause);
        } else {
            self.bring_in_ahead(holding, buffers, rest, cause);
        }
        sent.unwrap_or(outcome)
    }

    /// Asks nodes for pages that nobody waits for.
    #[cold]
    fn send_for_all(&self, buffers: &ServeBuffers, mut batch: Batch, cause: Cause) {
        for at in 0..batch.count {
            let _ = self.send_for(buffers, &mut batch, at, cause, None);
        }
    }

    /// Pages that nobody waits for, and that nodes alone have. Those that would come too late stay where they
    /// are.
    #[cold]
    fn bring_in_ahead(
        &self,
        holding: &Holding<'_>,
        buffers: &mut ServeBuffers,
        mut batch: Batch,
        cause: Cause,
    ) {
        let ahead = buffers.reader.caller().ahead();
        ahead.begin(batch.pages.iter().flatten().map(Taken::watch));
        let since_ns = ahead.since_ns();
        for at in 0..batch.count {
            if let Some(taken) = &batch.pages[at] {
                self.foresight.asked.note(taken.page, since_ns);
            }
            if self.load(holding, buffers, &mut batch, at, cause, Urgency::Ahead) == Loaded::Later {
                self.put_off(&mut batch, at);
            }
        }
        let _ = self.install_all(holding, buffers, &mut batch, cause);
        if let Some(after_ns) = buffers.reader.caller().ahead().awaited_after_ns() {
            self.vault.note_use(after_ns);
        }
    }

    /// Installs what has been loaded of a batch.
    fn install_all(
        &self,
        holding: &Holding<'_>,
        buffers: &ServeBuffers,
        batch: &mut Batch,
        cause: Cause,
    ) -> Served {
        let timing = buffers.waiting.timing();
        let content = |at: usize, length: usize| buffers.content[at..at + length].as_flattened();
        self.install_runs(holding, batch, cause, content, timing)
    }

    /// Installs pages of zeros.
    pub(super) fn install_zeros(&self, holding: &Holding<'_>, mut batch: Batch, cause: Cause) -> Served {
        let content = |_, length: usize| self.pages.zeros[..length].as_flattened();
        self.install_runs(holding, &mut batch, cause, content, Timing::NONE)
    }

    /// Installs the pages that are left of a batch, those that follow each other at once; `content` knows
    /// what the pages from a position on hold.
    fn install_runs<'a>(
        &self,
        holding: &Holding<'_>,
        batch: &mut Batch,
        cause: Cause,
        content: impl Fn(usize, usize) -> &'a [u8],
        mut timing: Timing,
    ) -> Served {
        let all = 0..batch.count;
        let Some(change) = self.change(holding) else { return self.let_all_go(batch, all, cause) };
        self.shed_overtaken(&change, batch, all, cause);
        let mut awaited = Awaited::default();
        let mut outcome = Served::Done;
        let mut at = 0;
        while at < batch.count {
            if self.sift(&change, batch, at, contiguous(batch, at), cause) == Served::Again {
                outcome = Served::Again;
            }
            let length = contiguous(batch, at);
            if length == 0 {
                at += 1;
                continue;
            }
            // What is left of them after a refusal halfway is looked at once more.
            if self.install(&change, batch, at, content(at, length), cause, &mut awaited) == Served::Again {
                outcome = Served::Again;
            }
        }
        self.wake_after(change, &awaited, &mut timing);
        outcome
    }

    /// Takes those pages out of the batch's `length` ones from position `at` on, which follow each other,
    /// that the program has discarded and that nobody has told of: their markers are gone. And those where
    /// the program wants no page.
    fn sift(
        &self,
        _change: &Change<'_>,
        batch: &mut Batch,
        at: usize,
        length: usize,
        cause: Cause,
    ) -> Served {
        let is_doubtful = |taken: &Taken| taken.word.is_marked() && taken.word.is_stored();
        let pages = &batch.pages[at..at + length];
        // A fault on a page tells that the program wants one there.
        if !(length > 1 || pages.iter().flatten().any(is_doubtful)) {
            return Served::Done;
        }
        let Some(first) = pages.iter().flatten().next().map(|taken| taken.page) else { return Served::Done };
        let range = PageRange::at(first, PageCount::new(length as u64));
        // Whatever is in the way, the kernel says so when the pages are to come.
        let Some(found) = self.pages.files.pagemap.vacancies(range) else { return Served::Done };
        let is_lost = |step: usize, taken: &Taken| {
            is_doubtful(taken) && found.marked >> step & 1 == 0 || found.barred >> step & 1 != 0
        };
        let is_any_lost = pages
            .iter()
            .enumerate()
            .any(|(step, taken)| taken.as_ref().is_some_and(|taken| is_lost(step, taken)));
        if !is_any_lost {
            return Served::Done;
        }
        match self.is_settled(range) {
            Ok(()) => {}
            Err(UffdError::Changing) => {
                return self.stay_away(batch, at, length, UffdError::Changing, cause);
            }
            // Whatever it is, it stands in the way of the pages as well.
            Err(_) => return Served::Done,
        }
        for (step, place) in batch.pages[at..at + length].iter_mut().enumerate() {
            if guard::stands(Guard::MarkersAreLookedAt)
                && let Some(taken) = place.take_if(|taken| is_lost(step, taken))
            {
                self.forget_unheard(taken);
            }
        }
        Served::Done
    }

    /// What there is where pages are to come.
    ///
    /// # Errors
    /// [`UffdError::Changing`] while the address space changes: a page that is being moved has taken its
    /// marker along, and its word follows only when the message is read. [`UffdError::Gone`] where nothing is
    /// managed.
    pub(crate) fn vacancies(&self, range: PageRange) -> Result<Vacancies, UffdError> {
        let found = self.pages.files.pagemap.vacancies(range).ok_or(UffdError::Gone)?;
        self.is_settled(range).map(|()| found)
    }

    /// Whether what the page table showed before this call is what the tables know of.
    ///
    /// # Errors
    /// As for [`Engine::vacancies`].
    fn is_settled(&self, range: PageRange) -> Result<(), UffdError> {
        // A change that had begun before the look is still under way, or nobody could have changed a page
        // since: nobody reads messages meanwhile.
        match self.pages.uffd.is_registered(range.start) {
            Some(true) => Ok(()),
            Some(false) => Err(UffdError::Gone),
            None => Err(UffdError::Changing),
        }
    }

    /// The program has discarded a page, and nobody has told of it.
    pub(crate) fn forget_unheard(&self, taken: Taken) {
        let (page, word) = (taken.page, taken.word);
        // Whoever has discarded it once more leaves the entry to this thread, too.
        let _ = taken.release(word.with_place(None).with_far(false));
        if word.is_far() {
            self.slot.subtract(Counter::FarPages, 1);
        }
        if let Some(place) = word.place() {
            self.vault.free(place);
        }
        // Whoever waits for it faults again, and gets zeros.
        self.wake_page(page);
    }

    /// Installs `content` in the batch's pages from position `at` on, which follow each other, and lets them
    /// go. Where the kernel stops halfway, the others are still part of the batch afterwards. Nobody is
    /// woken: `awaited` is told where that is to be done.
    fn install(
        &self,
        _change: &Change<'_>,
        batch: &mut Batch,
        at: usize,
        content: &[u8],
        cause: Cause,
        awaited: &mut Awaited,
    ) -> Served {
        let length = content.len() / PAGE_BYTES;
        let mut outcome = Served::Done;
        let mut done = 0;
        let mut at_once = length;
        while done < length {
            let Some(first) = batch.pages[at + done].as_ref().map(|taken| taken.page) else { break };
            let end = (done + at_once).min(length);
            let progress =
                self.pages.uffd.copy_in(first, &content[done * PAGE_BYTES..end * PAGE_BYTES], Waiters::Keep);
            let arrived = progress.done.get() as usize;
            awaited.add(PageRange::at(first, progress.done));
            self.residency.came_in(arrived as u64);
            for taken in batch.pages[at + done..at + done + arrived].iter_mut().filter_map(Option::take) {
                self.arrived(taken, cause);
            }
            done += arrived;
            let Some(stopped) = progress.stopped else { continue };
            if arrived > 0 {
                // What stopped it halfway is told when it is tried again from there.
                return outcome;
            }
            if stopped == UffdError::Gone && at_once > 1 {
                // The run may cross the edge of two mappings: then its pages go one by one.
                at_once = 1;
                continue;
            }
            // This page stays as the kernel has it. After anything but a page that is there already, so do
            // the rest.
            let left = if stopped == UffdError::Exists { 1 } else { length - done };
            if self.stay_away(batch, at + done, left, stopped, cause) == Served::Again {
                outcome = Served::Again;
            }
            done += left;
        }
        outcome
    }

    /// `length` pages of the batch stay where they are, because of `stopped`.
    fn stay_away(
        &self,
        batch: &mut Batch,
        at: usize,
        length: usize,
        stopped: UffdError,
        cause: Cause,
    ) -> Served {
        let mut outcome = Served::Done;
        for taken in batch.pages[at..at + length].iter_mut().filter_map(Option::take) {
            let (page, word) = (taken.page, taken.word);
            let is_waited =
                taken.release(word.with_far(word.is_far() && stopped != UffdError::Exists)).is_waited;
            if cause.is_fault_on(page) && stopped == UffdError::Changing {
                if guard::stands(Guard::RefusedFaultsReturn) {
                    outcome = Served::Again;
                }
            } else if cause.is_fault_on(page) || is_waited {
                self.wake_page(page);
            }
        }
        outcome
    }

    /// A page is local again, or for the first time.
    fn arrived(&self, taken: Taken, cause: Cause) {
        let (page, word) = (taken.page, taken.word);
        let word = if word.place().is_some() {
            self.slot.subtract(Counter::FarPages, 1);
            if cause != Cause::Room {
                self.slot.note_return(absence::bucket_of(self.eviction.victims.absence(word)));
            }
            let (counter, word) = match cause {
                Cause::Room => {
                    self.trace(TraceKind::Return, page);
                    (Counter::SwappedIn, self.eviction.victims.on_return(word))
                }
                Cause::Hint => {
                    self.trace(TraceKind::Prefetch, page);
                    (Counter::Hinted, self.eviction.victims.on_hinted(word))
                }
                Cause::Fault(faulted) if page == faulted => {
                    (Counter::Fetches, self.eviction.victims.on_refault(word))
                }
                Cause::Fault(_) => {
                    self.trace(TraceKind::Prefetch, page);
                    (Counter::Prefetched, self.eviction.victims.on_refault(word).with_prefetched(true))
                }
            };
            self.slot.add(counter, 1);
            word
        } else {
            self.slot.add(Counter::FirstTouches, 1);
            self.eviction.victims.on_first_touch(word)
        };
        if taken.release(word.with_far(false).with_discarded(false)).is_waited {
            // When that was is known already, and that it is used.
            self.foresight.asked.forget(page);
            self.settle_pages(core::iter::once(page), Some(true));
        }
    }
}

/// How many pages from position `at` on follow each other without a gap.
fn contiguous(batch: &Batch, at: usize) -> usize {
    let mut previous: Option<PageIndex> = None;
    batch.pages[at..batch.count]
        .iter()
        .take_while(|taken| {
            let Some(page) = taken.as_ref().map(|taken| taken.page) else { return false };
            let follows = previous.is_none_or(|before| before.offset(1) == Some(page));
            previous = Some(page);
            follows
        })
        .count()
}
