//! Foresight: which pages will be wanted, and what became of those that came ahead.

use farmem_page::{PageIndex, PageRange};
use farmem_policy::{
    ChosenPrefetcher, Found, PrefetchPolicy, Prefetcher, Probes, Run, Streams, VictimPolicy,
};
use farmem_sys::lock::Lock;
use farmem_sys::{Errno, thread};
use farmem_telemetry::Counter;

use crate::engine::{Engine, WINDOW_PAGES};
use crate::fault::asked::Asked;
use crate::fault::references::References;

/// What guesses at the pages that a process will want. Whoever finds one of its locks taken goes without.
#[derive(Debug)]
pub(crate) struct Foresight {
    /// Which stored pages will be wanted, by the policy that the application was started with.
    pub(crate) fetch_ahead: Lock<ChosenPrefetcher>,
    /// A sample of the pages that it fetches, which stay behind.
    pub(crate) probes: Lock<Probes>,
    /// Which stored pages words refer to.
    pub(crate) references: References,
    /// Which pages will be touched for the first time.
    pub(crate) touch_ahead: Lock<Streams>,
    /// When pages were asked for that came ahead.
    pub(crate) asked: Asked,
}

impl Foresight {
    /// # Errors
    /// No memory.
    pub(crate) fn new(policy: PrefetchPolicy) -> Result<Self, Errno> {
        Ok(Self {
            fetch_ahead: Lock::new(ChosenPrefetcher::new(policy, WINDOW_PAGES)),
            probes: Lock::new(Probes::new()),
            references: References::new(policy)?,
            touch_ahead: Lock::new(Streams::new(WINDOW_PAGES)),
            asked: Asked::new()?,
        })
    }

    /// Pages are gone: what was advised of them is settled neither way.
    fn forget(&self, range: PageRange) {
        self.fetch_ahead.lock().forget(range);
        self.probes.lock().forget(range);
        self.touch_ahead.lock().forget(range);
    }
}

impl Engine {
    /// Counts the pages of a settled piece of advice. At any time, with or without a `Change`: a word that
    /// somebody changes meanwhile stays as they left it.
    pub(crate) fn settle(&self, run: Option<Run>, is_used: bool) {
        let Some(run) = run else { return };
        self.settle_pages(run.pages(), Some(is_used));
        self.settle_probes(|page| run.contains(page), is_used);
    }

    /// The same of any pages; `None` where it can't be told whether they were used. What was left behind of
    /// them isn't settled.
    pub(crate) fn settle_pages(&self, pages: impl Iterator<Item = PageIndex>, is_used: Option<bool>) {
        let settled = pages.filter(|&page| self.settle_page(page, is_used)).count() as u64;
        let counter = if is_used == Some(true) { Counter::PrefetchUsed } else { Counter::PrefetchDoubtful };
        self.slot.add(counter, settled);
    }

    /// Settles what was left behind of pages.
    pub(crate) fn settle_probes(&self, holds: impl Fn(PageIndex) -> bool, is_used: bool) {
        if let Some(mut probes) = self.foresight.probes.try_lock() {
            self.count_probes(probes.settle(holds, is_used));
        }
    }

    /// What has become known of pages that were left behind.
    pub(crate) fn count_probes(&self, found: Found) {
        if found != Found::default() {
            self.slot.add(Counter::PrefetchProbes, found.probes.into());
            self.slot.add(Counter::PrefetchProbesUsed, found.used.into());
        }
    }

    /// [`Engine::settle`] of one page; whether it was one that came ahead and of which nothing was known.
    fn settle_page(&self, page: PageIndex, is_used: Option<bool>) -> bool {
        let word = self.pages.table.word(page);
        if !word.is_prefetched() || word.is_busy() {
            return false;
        }
        let settled = word.with_prefetched(false);
        let settled = if is_used == Some(false) { self.eviction.victims.on_unused(settled) } else { settled };
        self.pages.table.replace(page, word, settled);
        if is_used == Some(true)
            && let Some(after_ns) = self.foresight.asked.used_after_ns(page, thread::now_ns)
        {
            self.vault.note_use(after_ns);
        }
        true
    }

    /// Advice about pages that are gone is settled neither way.
    pub(crate) fn forget_advice(&self, range: PageRange) {
        self.foresight.forget(range);
        self.family.sharing.forget(range);
    }
}
