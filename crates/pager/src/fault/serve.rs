//! Serving a fault: the ladder from the cheapest source of a page's content to the most expensive, and
//! nothing else.
//!
//! PFA §3: the fault path takes a free frame, fills it, maps it and lets the thread go; the rest is
//! bookkeeping.

use farmem_page::{PageBytes, PageCount, PageIndex, PageRange, PageWord, Place};
use farmem_policy::{Advice, Fault, Prefetcher, Probes, Run};
use farmem_sys::guard::{self, Guard};
use farmem_sys::lock::Lock;
use farmem_sys::uffd::UffdError;
use farmem_sys::{Errno, memory, thread};
use farmem_telemetry::{Counter, Step};

use crate::address_space::table::Taken;
use crate::engine::{BATCH_PAGES, Engine};
use crate::eviction::vault::PageReader;
use crate::fault::batch::Batch;
use crate::fault::references::FollowPlan;
use crate::fault::waiting::{Sampler, Waiting, Whence, of_all};
use crate::gate::Holding;

/// Memory that a handler works in.
pub(crate) struct ServeBuffers {
    /// Content on its way in, page by page.
    pub(crate) content: &'static mut [PageBytes],
    pub(crate) reader: PageReader,
    /// What the thread of the fault in hand waits for.
    pub(crate) waiting: Waiting,
    decisions: Sampler,
}

impl ServeBuffers {
    /// # Errors
    /// No memory.
    pub(crate) fn new(engine: &'static Engine) -> Result<Self, Errno> {
        Ok(Self {
            content: memory::table_mut(BATCH_PAGES)?,
            reader: engine.vault.reader(&engine.pages.uffd, &engine.pages.gate),
            waiting: Waiting::new(),
            decisions: Sampler::new(),
        })
    }

    /// Begins to measure how long it takes to decide what to fetch ahead, if its turn has come.
    fn begin_deciding(&mut self) -> Option<Deciding> {
        let first_ns = self.decisions.is_due().then(thread::now_ns)?;
        let began_ns = thread::now_ns();
        Some(Deciding { began_ns, clock_ns: began_ns.saturating_sub(first_ns) })
    }
}

/// A decision that is measured.
struct Deciding {
    began_ns: u64,
    /// What it takes to look at the clock, which is not much less.
    clock_ns: u64,
}

/// What became of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Served {
    /// The thread goes on, or somebody else lets it.
    Done,
    /// The address space is changing: read messages, then try again.
    Again,
    /// There is no room yet, or too much is under way: try again when that may have changed.
    Later,
    /// Nodes have been asked for the page. The thread goes on when it has come.
    Flying,
}

/// Why pages come in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// A thread waits for this page; the others are wanted soon.
    Fault(PageIndex),
    /// There is room for them.
    Room,
    /// The program has said that it will want them.
    Hint,
}

impl Cause {
    pub(super) fn is_fault_on(self, page: PageIndex) -> bool {
        self == Cause::Fault(page)
    }
}

/// Where a page's content comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// The vault.
    Stored,
    /// Nobody has written the page, or only zeros.
    Zeros,
}

impl Source {
    pub(crate) fn of(word: PageWord) -> Self {
        match word.place() {
            None | Some(Place::Zero) => Self::Zeros,
            Some(_) => Self::Stored,
        }
    }
}

impl Engine {
    /// Serves a fault of this process.
    pub(crate) fn serve(&self, holding: &Holding<'_>, buffers: &mut ServeBuffers, fault: Fault) -> Served {
        if !self.pages.table.ensure(fault.page) {
            self.refused(Step::Table, Errno::NOMEM);
        }
        let word = self.pages.table.word(fault.page);
        let guess = Source::of(word);
        if let Some(place) = word.place() {
            // What follows may evict, and takes long enough for the content to come near.
            self.vault.prefetch(place);
        }
        let (run, plan) = match guess {
            Source::Stored => self.decide(buffers, fault),
            Source::Zeros => {
                (self.ask(&self.foresight.touch_ahead, fault).and_then(|advice| advice.fetch), None)
            }
        };
        let ahead = run.map(|run| run.count).or(plan.as_ref().map(|plan| plan.following.most));
        let pages = 1 + ahead.unwrap_or(0) as usize;
        // There is room already as a rule, and the clock is left alone.
        let room =
            self.residency.excess(pages) <= 0 || buffers.waiting.for_room(|| self.make_room(holding, pages));
        let Some(taken) = self.pages.table.take(fault.page) else {
            self.slot.add(Counter::StagedHits, 1);
            // Whoever brings it lets the thread go.
            let is_flying = self.hurry(fault.page, plan.map(FollowPlan::suspend));
            return if is_flying { Served::Flying } else { Served::Done };
        };
        if taken.word.is_stored() && !taken.word.is_far() {
            return self.meet_unheard(holding, taken);
        }
        // The page may have left, or come, since the guess.
        let source = if guard::stands(Guard::SourceAfterTaking) { Source::of(taken.word) } else { guess };
        self.trace_fault(fault, source == Source::Stored);
        if source == Source::Stored {
            self.mailboxes.tell(fault);
        }
        if source == Source::Stored
            && let Some(mut plan) = plan
        {
            plan.following.most *= u32::from(room);
            return self.serve_following(holding, buffers, plan, taken);
        }
        let run = run.filter(|_| room && source == guess);
        let batch = self.gather(taken, run, source);
        match source {
            Source::Stored => self.bring_in(holding, buffers, batch, Cause::Fault(fault.page)),
            Source::Zeros => {
                buffers.waiting.comes_from(Whence::Zeros);
                self.touch(holding, batch, fault)
            }
        }
    }

    /// A fault on a page that the pager hasn't taken away. Either it has come since, or the program has
    /// discarded it and nobody has told of that.
    fn meet_unheard(&self, holding: &Holding<'_>, taken: Taken) -> Served {
        let page = PageRange::at(taken.page, PageCount::new(1));
        let Some(_change) = self.change(holding) else {
            self.give_back(taken);
            return Served::Again;
        };
        match self.vacancies(page) {
            _ if taken.is_overtaken() => self.let_try_again(taken),
            Ok(found) if found.present == 0 && guard::stands(Guard::MarkersAreLookedAt) => {
                self.forget_unheard(taken);
            }
            Err(UffdError::Changing) => {
                self.give_back(taken);
                return Served::Again;
            }
            _ => self.let_try_again(taken),
        }
        Served::Done
    }

    /// What both tiers say to a fault on a stored page.
    fn decide(&self, buffers: &mut ServeBuffers, fault: Fault) -> (Option<Run>, Option<FollowPlan<'_>>) {
        if self.meet_probe(fault.page) {
            return (None, None);
        }
        let deciding = buffers.begin_deciding();
        let run = self.advise(fault);
        let (plan, looked_ns) = self.plan_following(fault, run.is_some());
        if let Some(Deciding { began_ns, clock_ns }) = deciding {
            let took_ns = thread::now_ns().saturating_sub(began_ns).saturating_sub(looked_ns + clock_ns);
            self.slot.add(Counter::DecidingNs, of_all(took_ns));
        }
        (run, plan)
    }

    /// What the policy says that goes by addresses.
    fn advise(&self, fault: Fault) -> Option<Run> {
        let advice = self.ask(&self.foresight.fetch_ahead, fault)?;
        self.settle(advice.used, true);
        self.settle(advice.expired, false);
        advice.fetch
    }

    /// Whether the page was left behind as a sample of those that came ahead: then its fault tells no policy
    /// anything.
    fn meet_probe(&self, page: PageIndex) -> bool {
        let Some(mut probes) = self.foresight.probes.try_lock() else { return false };
        let found = probes.meet(page, |companion| !self.pages.table.word(companion).is_far());
        drop(probes);
        found.is_some_and(|found| {
            self.count_probes(found);
            true
        })
    }

    /// A page that is to come ahead, after `companion`; `None` if it stays behind, as a sample.
    pub(crate) fn unless_probe(
        &self,
        probes: &mut Probes,
        taken: Taken,
        companion: PageIndex,
    ) -> Option<Taken> {
        if probes.is_to_stay(taken.page, companion) {
            self.give_back(taken);
            return None;
        }
        Some(taken)
    }

    /// What a policy says. `None` while another handler is teaching it: this fault teaches nothing, and waits
    /// for nobody.
    fn ask(&self, policy: &Lock<impl Prefetcher>, fault: Fault) -> Option<Advice> {
        let mut policy = policy.try_lock()?;
        let bounds = self
            .pages
            .regions
            .holding(fault.page)
            .unwrap_or(PageRange::new(fault.page, PageIndex::new(fault.page.get() + 1)));
        Some(policy.on_fault(fault, bounds))
    }

    /// Pages that nobody has touched yet: zeros.
    fn touch(&self, holding: &Holding<'_>, mut batch: Batch, fault: Fault) -> Served {
        if batch.count() == 1 && !fault.write {
            // The kernel's shared page of zeros takes no memory; if the program writes it later, the kernel
            // copies it.
            return batch.take(0).map_or(Served::Done, |taken| self.touch_reading(holding, taken));
        }
        self.install_zeros(holding, batch, Cause::Fault(fault.page))
    }

    fn touch_reading(&self, holding: &Holding<'_>, taken: Taken) -> Served {
        let page = taken.page;
        let range = PageRange::new(page, PageIndex::new(page.get() + 1));
        let Some(_change) = self.change(holding) else {
            self.give_back(taken);
            return Served::Again;
        };
        if taken.is_overtaken() {
            self.let_try_again(taken);
            return Served::Done;
        }
        let progress = self.pages.uffd.zero_in(range);
        self.slot.add(Counter::FirstTouches, 1);
        self.pages.open_zeros.note();
        let word = taken.word;
        if word.is_far() && progress.stopped.is_none() {
            self.slot.subtract(Counter::FarPages, 1);
        }
        let is_there = matches!(progress.stopped, None | Some(UffdError::Exists));
        let is_left = progress.stopped.is_some();
        let released = taken.release(
            word.with_far(word.is_far() && !is_there).with_discarded(word.is_discarded() && is_left),
        );
        match progress.stopped {
            None if !released.is_waited => Served::Done,
            Some(UffdError::Changing) => Served::Again,
            _ => {
                self.pages.uffd.wake(range);
                Served::Done
            }
        }
    }
}
