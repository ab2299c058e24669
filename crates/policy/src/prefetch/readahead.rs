//! The kernel's readahead for swapped memory (Linux, `mm/swap_state.c`, readahead by mapping), for
//! comparison: a window for each region, as long as what was used of the last one is worth, at most eight
//! pages.
//!
//! Where the kernel sees which of its pages were touched, this policy infers it; and where the kernel puts a
//! window around a page, for want of a direction, this policy takes the half that follows.

use farmem_page::{PageIndex, PageRange};

use super::windows::Windows;
use super::{Advice, Fault, Prefetcher, Run};

/// Longest window, the faulted page included: the kernel's with `vm.page-cluster` at 3.
const WINDOW_LIMIT: u32 = 8;
/// Regions that are remembered.
const REGIONS: usize = 16;

/// The latest fault in a region.
#[derive(Clone, Copy, Debug)]
struct Region {
    start: PageIndex,
    previous: PageIndex,
    /// Pages of the last window, the faulted one included.
    window: u32,
}

/// Follows the last fault of each of sixteen regions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Readahead {
    regions: [Option<Region>; REGIONS],
    next: usize,
    windows: Windows,
}

impl Readahead {
    /// Where a region is kept: its own place, or that of the one that was first met the longest ago.
    fn place(&mut self, start: PageIndex) -> &mut Option<Region> {
        let known = self.regions.iter().position(|region| region.is_some_and(|region| region.start == start));
        let place = known.unwrap_or_else(|| {
            let oldest = self.next;
            self.next = (self.next + 1) % REGIONS;
            self.regions[oldest] = None;
            oldest
        });
        &mut self.regions[place]
    }
}

impl Prefetcher for Readahead {
    fn on_fault(&mut self, fault: Fault, bounds: PageRange) -> Advice {
        let page = fault.page;
        if !bounds.contains(page) {
            return Advice::default();
        }
        let used = self.windows.used(page);
        let place = self.place(bounds.start);
        let last = *place;
        let direction = match (used, last) {
            (Some(run), _) => Some(run.stride),
            (None, Some(last)) => [1, -1].into_iter().find(|&step| last.previous.offset(step) == Some(page)),
            (None, None) => None,
        };
        let window = window_pages(used, direction.is_some(), last.map_or(0, |last| last.window));
        *place = Some(Region { start: bounds.start, previous: page, window });
        let ahead = window - 1;
        let fetch = match direction {
            Some(step) => Run::behind(page, step, ahead, bounds),
            None => Run::behind(page, 1, ahead / 2, bounds),
        };
        self.windows.advise(used, fetch)
    }

    fn forget(&mut self, range: PageRange) {
        self.windows.forget(range);
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

/// Pages of the next window, the faulted one included: what was used and two more, to the next power of two;
/// never less than half of the last window, so that one miss does not end a walk.
fn window_pages(used: Option<Run>, is_in_line: bool, last: u32) -> u32 {
    let wanted = match used.map_or(0, |run| run.count) {
        0 if is_in_line => 2,
        0 => 1,
        hits => (hits + 2).next_power_of_two(),
    };
    wanted.clamp(1, WINDOW_LIMIT).max(last / 2)
}
