//! What the process reports of its regions when somebody asks: where its pages are, how hot those here are,
//! how long those elsewhere have been away and how well they compress.
//!
//! A walk over all regions, a step of it in each of the bookkeeper's rounds, and only for as long as there is
//! a question.

use farmem_page::{PageIndex, PageRange};
use farmem_policy::VictimPolicy;
use farmem_sys::memory;
use farmem_sys::pagemap::{Runs, SCAN_PAGES};
use farmem_sys::thread;
use farmem_telemetry::{Gathered, RegionFigures};

use crate::engine::Engine;

/// A step ends after this time.
const STEP_NS: u64 = 500_000;

/// The walk.
pub(crate) struct Inspector {
    /// There from the first question on.
    found: Option<&'static mut Found>,
    /// The question that is being answered.
    question: Option<u64>,
    hand: PageIndex,
    /// The region that the hand is in.
    region: Option<RegionFigures>,
}

struct Found {
    gathered: Gathered,
    runs: Runs,
}

impl Inspector {
    pub(crate) const fn new() -> Self {
        Self { found: None, question: None, hand: PageIndex::new(0), region: None }
    }

    /// One step, if somebody asks. Whether there is more to do.
    pub(crate) fn step(&mut self, engine: &Engine) -> bool {
        let report = engine.ledger.region_report();
        let Some(question) = report.question(engine.slot.index()) else { return false };
        if self.found.is_none() {
            // Without memory for it the question stays unanswered.
            self.found = memory::leak(Found { gathered: Gathered::new(), runs: Runs::empty() }).ok();
        }
        let Some(found) = self.found.as_deref_mut() else { return false };
        if self.question.replace(question) != Some(question) {
            found.gathered.clear();
            (self.hand, self.region) = (PageIndex::new(0), None);
        }
        let began_ns = thread::now_ns();
        while let Some(range) = engine.pages.regions.from(self.hand) {
            if let Some(last) = self.region.filter(|region| region.range.end != range.end) {
                found.gathered.add(last);
                self.region = None;
            }
            let start = self.hand.max(range.start);
            let window_end = (start.get() / SCAN_PAGES as u64 + 1) * SCAN_PAGES as u64;
            let window = PageRange::new(start, PageIndex::new(window_end.min(range.end.get())));
            look(engine, window, &mut found.runs, self.region.get_or_insert(RegionFigures::new(range)));
            self.hand = window.end;
            if thread::now_ns() - began_ns > STEP_NS {
                return true;
            }
        }
        if let Some(last) = self.region.take() {
            found.gathered.add(last);
        }
        self.question = None;
        report.tell(question, &found.gathered);
        false
    }
}

/// Counts the pages of a window. They may come and go meanwhile: what is told is for people.
fn look(engine: &Engine, window: PageRange, runs: &mut Runs, region: &mut RegionFigures) {
    if engine.pages.files.pagemap.resident(window, runs).is_ok() {
        for page in runs.iter().flat_map(PageRange::iter) {
            region.resident += 1;
            region.hot += u64::from(engine.eviction.victims.came_soon(engine.pages.table.word(page)));
        }
    }
    for page in window.iter() {
        let word = engine.pages.table.word(page);
        if word.is_far() {
            let stored = word.place().and_then(|place| engine.vault.stored_bytes(place));
            region.add_far(engine.eviction.victims.absence(word), stored);
        }
    }
}
