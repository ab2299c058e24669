//! The hand of the clock: it goes round through all managed memory, by address, and takes the pages that are
//! to leave.

use farmem_page::{PageCount, PageIndex, PageRange, PageWord};
use farmem_policy::{Verdict, VictimPolicy};
use farmem_sys::guard::{self, Guard};
use farmem_sys::pagemap::{Pagemap, Runs, SCAN_PAGES};

use crate::address_space::table::Taken;
use crate::engine::Engine;

/// Pages that one question to the kernel may cover where there are hardly any: 256 MiB, some 100 µs if it has
/// empty page tables for all of them, and next to nothing if it has none.
const MOST_REACH: u64 = 1 << 16;

/// Where the hand is, and what it sees.
pub(super) struct Hand {
    at: PageIndex,
    detour: Option<Detour>,
    /// Pages that the next question to the kernel covers.
    reach: u64,
    /// How often it has come to the end, and pages that the policy has spared.
    pub(super) laps: u64,
    pub(super) spared: u64,
    runs: Runs,
    /// The part of the current run that it has not come to.
    rest: PageRange,
    next_run: usize,
    pagemap: &'static Pagemap,
}

/// Pages that the hand goes through out of turn.
#[derive(Clone, Copy, Debug)]
struct Detour {
    end: PageIndex,
    /// Where it goes on.
    back: PageIndex,
}

impl Hand {
    pub(super) fn new(pagemap: &'static Pagemap) -> Self {
        let nothing = PageIndex::new(0);
        Self {
            at: nothing,
            detour: None,
            reach: SCAN_PAGES as u64,
            laps: 0,
            spared: 0,
            runs: Runs::empty(),
            rest: PageRange::new(nothing, nothing),
            next_run: 0,
            pagemap,
        }
    }

    /// The next pages that are resident, as one run; `None` when a window had none.
    fn next_resident(&mut self, engine: &Engine) -> Option<PageRange> {
        self.begin_detour(engine);
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
        self.end_detour();
        let Some(region) = engine.pages.regions.from(self.at) else {
            match self.detour.take() {
                Some(detour) => self.at = detour.back,
                None => {
                    self.at = PageIndex::new(0);
                    self.laps += 1;
                }
            }
            return None;
        };
        let start = if region.contains(self.at) { self.at } else { region.start };
        if let Some(pinned) = engine.hints.pinned(start) {
            self.at = pinned.end;
            return None;
        }
        // Windows end where a page table of the kernel's does: one that is full is one question. Where pages
        // are few, there may be so many windows without one that the hand must not go through them one by
        // one.
        let window_end = (start.get() / SCAN_PAGES as u64) * SCAN_PAGES as u64 + self.reach;
        let window = PageRange::new(start, PageIndex::new(window_end.min(region.end.get())));
        self.at = scan(self.pagemap, window, &mut self.runs);
        let is_empty = self.runs.iter().next().is_none();
        self.reach = if is_empty { (2 * self.reach).min(MOST_REACH) } else { SCAN_PAGES as u64 };
        None
    }

    /// Sends the hand to pages that the program has called cold, at once.
    fn begin_detour(&mut self, engine: &Engine) {
        if self.detour.is_none()
            && let Some(cold) = engine.hints.pop_cold()
        {
            let ahead = self.runs.iter().nth(self.next_run);
            let back = match ahead {
                _ if !self.rest.is_empty() => self.rest.start,
                Some(run) => run.start,
                None => self.at,
            };
            self.detour = Some(Detour { end: cold.end, back });
            self.at = cold.start;
            self.reach = SCAN_PAGES as u64;
            self.runs = Runs::empty();
            self.rest = PageRange::new(cold.start, cold.start);
            self.next_run = 0;
        }
    }

    /// Sends it back when it has been through them.
    fn end_detour(&mut self) {
        if let Some(detour) = self.detour.filter(|detour| self.at >= detour.end) {
            self.at = detour.back;
            self.detour = None;
        }
    }

    /// Goes on behind the mapping of `page`, which the kernel won't move: it is locked, or not to be read and
    /// written alone (code that a program makes as it runs), and so is all of it.
    pub(super) fn leave_mapping(&mut self, engine: &Engine, page: PageIndex) {
        let end = match engine.pages.files.maps.next(page.addr()) {
            Ok(Some(mapping)) if mapping.range.contains(page) => mapping.range.end,
            _ => self.rest.end,
        };
        self.at = self.at.max(end);
        if self.rest.start < end {
            self.rest = PageRange::new(end, self.rest.end.max(end));
        }
        while self.runs.iter().nth(self.next_run).is_some_and(|run| run.start < end) {
            self.next_run += 1;
        }
    }

    /// Takes up to `most` neighbouring victims; the range they fill.
    pub(super) fn take_victims(
        &mut self,
        engine: &Engine,
        most: usize,
        visits: &mut u64,
        taken: &mut [Option<Taken>],
    ) -> PageRange {
        let nothing = PageRange::new(self.at, self.at);
        let most = most.min(taken.len());
        let Some(run) = self.next_resident(engine) else {
            *visits += SCAN_PAGES as u64 / 16;
            return nothing;
        };
        // The kernel was asked for these pages some time ago: their mapping may have gone since.
        let region = engine.pages.regions.from(run.start).filter(|region| region.start < run.end);
        let region = if guard::stands(Guard::VictimsAreManaged) { region } else { Some(run) };
        let Some(region) = region else {
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
                Look::Spared => self.spared += 1,
                Look::Away => {}
            }
            if count > 0 {
                break;
            }
        }
        self.rest = PageRange::new(at, self.rest.end);
        PageRange::at(start, PageCount::new(count as u64))
    }
}

/// What the hand makes of a page.
enum Look {
    Taken(Taken),
    /// The policy lets it stay.
    Spared,
    /// It can't leave now.
    Away,
}

/// Whether the page may be taken in order to leave.
pub(super) fn may_leave(word: PageWord) -> bool {
    !word.is_busy() && !word.is_unevictable() && !word.is_pinned() && !word.is_discarded()
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
    /// The page, taken, if it is to leave.
    fn victim(&self, page: PageIndex) -> Look {
        let word = self.pages.table.word(page);
        if !may_leave(word) {
            return Look::Away;
        }
        match self.eviction.victims.visit(word) {
            Verdict::Evict => {
                self.pages.table.take_if(page, |now| now == word).map_or(Look::Away, Look::Taken)
            }
            Verdict::Keep(kept) => {
                if kept != word {
                    self.pages.table.replace(page, word, kept);
                }
                Look::Spared
            }
        }
    }
}
