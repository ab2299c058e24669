//! Leap (Maruf and Chowdhury, USENIX ATC 2020, §3 and §4), for comparison: the stride that most of the latest
//! faults agree on.
//!
//! The history holds the differences between faults, one after the other, whoever raised them. A vote is held
//! over its newest part, then over twice as much, until a stride has the majority; the window grows with what
//! was used of the last one. Pages that were prefetched and used raise no fault here; when their use is
//! inferred, they enter the history as if they had.

use farmem_page::{PageIndex, PageRange};

use super::windows::Windows;
use super::{Advice, Fault, Prefetcher, Run};

/// Differences that are remembered.
const HISTORY: usize = 32;
/// How many of them vote first.
const FIRST_VOTE: usize = HISTORY / 8;
/// Longest window.
const WINDOW_LIMIT: u32 = 8;

/// Follows the one stride that the majority of the latest faults has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Leap {
    /// A ring, the newest right before `next`. 0 where nothing is remembered: no two faults in a row have
    /// this difference.
    history: [i64; HISTORY],
    next: usize,
    last: Option<PageIndex>,
    /// The stride that had the majority last; 0 for none.
    trend: i64,
    /// Pages of the last window.
    window: u32,
    windows: Windows,
}

impl Leap {
    fn push(&mut self, difference: i64) {
        self.history[self.next] = difference;
        self.next = (self.next + 1) % HISTORY;
    }

    /// The newest `count` differences.
    fn newest(&self, count: usize) -> impl Iterator<Item = i64> + '_ {
        (1..=count).map(|age| self.history[(self.next + HISTORY - age) % HISTORY])
    }

    /// The stride of more than half of the newest differences, of as few of them as agree (Leap, algorithm
    /// 1).
    fn majority(&self) -> Option<i64> {
        let mut count = FIRST_VOTE;
        while count <= HISTORY {
            // Whoever has the majority outlasts all others, each vote against them taken off one for them
            // (Boyer and Moore).
            let (candidate, _) =
                self.newest(count).fold((0, 0_usize), |(candidate, lead), vote| match lead {
                    0 => (vote, 1),
                    _ if vote == candidate => (candidate, lead + 1),
                    _ => (candidate, lead - 1),
                });
            let votes = self.newest(count).filter(|&vote| vote == candidate).count();
            if candidate != 0 && votes > count / 2 {
                return Some(candidate);
            }
            count *= 2;
        }
        None
    }

    /// Pages of the next window (Leap, algorithm 2): it grows with what was used, and shrinks by half at
    /// most.
    fn window_pages(&self, used: Option<Run>, is_on_trend: bool) -> u32 {
        let wanted = match used.map_or(0, |run| run.count) {
            0 => u32::from(is_on_trend),
            hits => (hits + 1).next_power_of_two().min(WINDOW_LIMIT),
        };
        wanted.max(self.window / 2)
    }
}

impl Prefetcher for Leap {
    fn on_fault(&mut self, fault: Fault, bounds: PageRange) -> Advice {
        let page = fault.page;
        if !bounds.contains(page) {
            return Advice::default();
        }
        let used = self.windows.used(page);
        let mut difference = self.last.map_or(0, |last| page.get().wrapping_sub(last.get()) as i64);
        if let Some(run) = used {
            (0..run.count).for_each(|_| self.push(run.stride));
            difference = run.stride;
        }
        if difference != 0 {
            self.push(difference);
        }
        self.last = Some(page);
        let is_on_trend = difference != 0 && difference == self.trend;
        if let Some(stride) = self.majority() {
            self.trend = stride;
        }
        self.window = self.window_pages(used, is_on_trend || (difference != 0 && difference == self.trend));
        let fetch = if self.trend == 0 { None } else { Run::behind(page, self.trend, self.window, bounds) };
        self.windows.advise(used, fetch)
    }

    fn forget(&mut self, range: PageRange) {
        self.windows.forget(range);
        if self.last.is_some_and(|last| range.contains(last)) {
            self.last = None;
        }
    }

    fn drain(&mut self) -> Option<Run> {
        self.windows.drain()
    }

    fn set_cache(&mut self, pages: u32) {
        self.windows.set_cache(pages);
    }

    fn shrink(&mut self) -> Option<Run> {
        self.windows.shrink()
    }

    fn unsettled_pages(&self) -> u32 {
        self.windows.unsettled_pages()
    }
}
