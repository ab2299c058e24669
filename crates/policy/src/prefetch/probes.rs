//! What becomes of pages that came ahead, by a sample of them that stay behind.
//!
//! Pages that came ahead are mapped, so their use raises no fault. That of a window is known by the next
//! fault of its stream. Where a stream ends, as an array does, there is none: then its last window may have
//! been used or not, which is *doubtful*; and so is what a few references led to. So one page in [`ONE_IN`]
//! that would have come is left where it is, a *probe*. If the program faults on it while its *companion*,
//! the page of the same window that came before it, is still local, it would have been used. What share of
//! the probes in doubtful windows were met is what share of doubtful pages were used.
//!
//! A probe tells nothing to any policy: for these it came like the others.

use farmem_page::{PageIndex, PageRange};

/// Of pages that come ahead one in so many stays behind. It has nothing in common with the length of a
/// window, so that each place in one has its turn.
const ONE_IN: u32 = 251;
/// Probes that are remembered. A program has used, or lost, what came with the older ones.
const PROBES: usize = 32;

/// What is known of a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Nothing.
    Waiting,
    /// The program has asked for it, and whether in time.
    Met(bool),
    /// It isn't known whether its window was used.
    Doubtful,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    page: PageIndex,
    companion: PageIndex,
    state: State,
}

/// Probes of doubtful windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// So many more of them there are.
    pub probes: u32,
    /// So many more of them would have been used.
    pub used: u32,
}

/// The sample. A kilobyte, no allocation; not synchronised.
#[derive(Clone, Debug)]
pub struct Probes {
    entries: [Option<Probe>; PROBES],
    /// Which one is forgotten next.
    oldest: usize,
    /// Pages until the next one stays behind.
    until: u32,
}

impl Probes {
    /// None yet.
    pub const fn new() -> Self {
        Self { entries: [None; PROBES], oldest: 0, until: ONE_IN }
    }

    /// `page` is about to come, after `companion` of the same window: whether it is to stay behind.
    pub fn is_to_stay(&mut self, page: PageIndex, companion: PageIndex) -> bool {
        self.until -= 1;
        if self.until > 0 {
            return false;
        }
        self.until = ONE_IN;
        self.entries[self.oldest] = Some(Probe { page, companion, state: State::Waiting });
        self.oldest = (self.oldest + 1) % PROBES;
        true
    }

    /// A fault on `page`. `None` unless it is a probe, of which no policy is to be told.
    pub fn meet(&mut self, page: PageIndex, is_local: impl FnOnce(PageIndex) -> bool) -> Option<Found> {
        let is_waited_for = |probe: &Probe| probe.page == page && !matches!(probe.state, State::Met(_));
        let entry = self.entries.iter_mut().find(|entry| entry.as_ref().is_some_and(is_waited_for))?;
        let probe = entry.as_mut()?;
        let in_time = is_local(probe.companion);
        if probe.state == State::Doubtful {
            *entry = None;
            return Some(Found { probes: 0, used: in_time.into() });
        }
        probe.state = State::Met(in_time);
        Some(Found::default())
    }

    /// Some pages are settled, those that it `holds`: they were used, or that is doubtful.
    pub fn settle(&mut self, holds: impl Fn(PageIndex) -> bool, is_used: bool) -> Found {
        let mut found = Found::default();
        for entry in &mut self.entries {
            let Some(probe) = entry.as_mut().filter(|probe| holds(probe.page)) else { continue };
            let state = probe.state;
            if is_used {
                *entry = None;
                continue;
            }
            match state {
                State::Doubtful => continue,
                State::Waiting => probe.state = State::Doubtful,
                State::Met(in_time) => {
                    found.used += u32::from(in_time);
                    *entry = None;
                }
            }
            found.probes += 1;
        }
        found
    }

    /// Pages are gone.
    pub fn forget(&mut self, range: PageRange) {
        for entry in &mut self.entries {
            if entry.is_some_and(|probe| range.contains(probe.page)) {
                *entry = None;
            }
        }
    }
}

impl Default for Probes {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Run;

    const WINDOW: u32 = 64;

    fn window(number: u64) -> Run {
        Run { start: PageIndex::new(number * 1000), stride: 1, count: WINDOW }
    }

    /// The pages of the window come; those that stay behind.
    fn bring(probes: &mut Probes, run: Run) -> std::vec::Vec<PageIndex> {
        let pages: std::vec::Vec<PageIndex> = run.pages().collect();
        let behind = |pair: &[PageIndex]| probes.is_to_stay(pair[1], pair[0]).then_some(pair[1]);
        pages.windows(2).filter_map(behind).collect()
    }

    #[test]
    fn one_page_in_so_many_stays_behind_at_every_place_of_a_window() {
        let mut probes = Probes::new();
        let mut places = std::collections::BTreeSet::new();
        let mut count = 0;
        for number in 0..20_000 {
            for page in bring(&mut probes, window(number)) {
                places.insert(page.get() % 1000);
                count += 1;
            }
        }
        assert_eq!(count, 20_000 * (WINDOW - 1) / ONE_IN);
        assert_eq!(places.len(), WINDOW as usize - 1);
    }

    #[test]
    fn the_share_of_doubtful_pages_that_were_used_is_found() {
        let mut probes = Probes::new();
        let (mut asked, mut used) = (0, 0);
        let mut add = |found: Found| {
            asked += found.probes;
            used += found.used;
        };
        for number in 0..20_000 {
            let run = window(number);
            let behind = bring(&mut probes, run);
            // Of the windows whose end is in doubt the program reads three quarters, of one half before that
            // is known.
            let is_doubtful = number % 3 == 0;
            let is_read = !is_doubtful || number % 4 != 0;
            let is_late = number % 2 == 0;
            if is_read && !is_late {
                behind.iter().filter_map(|&page| probes.meet(page, |_| true)).for_each(&mut add);
            }
            add(probes.settle(|page| run.contains(page), !is_doubtful));
            if is_read && is_late && is_doubtful {
                behind.iter().filter_map(|&page| probes.meet(page, |_| true)).for_each(&mut add);
            }
        }
        let share = f64::from(used) / f64::from(asked);
        assert!(asked > 1_000 && (share - 0.75).abs() < 0.05, "{used} of {asked}");
    }

    #[test]
    fn what_is_asked_for_when_its_companion_has_left_was_of_no_use() {
        for is_settled_before in [false, true] {
            let mut probes = Probes::new();
            let run = window(1);
            let page = (0..).find_map(|_| bring(&mut probes, run).pop()).expect("one stays behind");
            let before = if is_settled_before {
                probes.settle(|page| run.contains(page), false)
            } else {
                Found::default()
            };
            let met = probes.meet(page, |_| false).expect("a probe");
            let after = if is_settled_before {
                Found::default()
            } else {
                probes.settle(|page| run.contains(page), false)
            };
            assert_eq!(before.probes + met.probes + after.probes, 1);
            assert_eq!(before.used + met.used + after.used, 0);
        }
    }

    #[test]
    fn a_probe_is_met_once_and_pages_that_are_gone_are_none() {
        let mut probes = Probes::new();
        let run = window(1);
        let page = (0..).find_map(|_| bring(&mut probes, run).pop()).expect("one stays behind");
        let mut gone = probes.clone();
        gone.forget(run.span());
        assert_eq!(gone.meet(page, |_| true), None);
        assert_eq!(probes.meet(page, |_| true), Some(Found::default()));
        assert_eq!(probes.meet(page, |_| true), None);
        assert_eq!(probes.settle(|page| run.contains(page), true), Found::default());
        assert_eq!(probes.settle(|page| run.contains(page), false), Found::default());
    }
}
