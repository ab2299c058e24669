//! What was advised, and what became of it, for policies whose windows stand for themselves.
//!
//! The pages of a window raise no fault when they are used, so the proof is a later one: a fault right behind
//! a window, on its path, says that the program came through it. A window of which nothing was heard by the
//! time that its place is needed has expired.
//!
//! All windows together are bounded: see [`super::Prefetcher::set_cache`].

use farmem_page::{PageIndex, PageRange};

use super::{Advice, MOST_WINDOWS, Run};

/// Windows that nothing is known of yet: as many as threads that walk at once, and then some.
const WINDOWS: usize = MOST_WINDOWS;

/// The latest windows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Windows {
    open: [Option<Run>; WINDOWS],
    next: usize,
    /// Pages that all windows may hold together; `None` for any number.
    cache_pages: Option<u32>,
}

impl Windows {
    /// The window that a fault on `page` comes right behind. It is settled: it was used.
    pub(super) fn used(&mut self, page: PageIndex) -> Option<Run> {
        self.open.iter_mut().find(|window| window.is_some_and(|run| is_right_behind(run, page)))?.take()
    }

    /// Advice to fetch as much of `wanted` as there is room for, a new window. What it takes the place of has
    /// expired, also where there is no room at all: else windows that nobody will ask about would keep others
    /// out for ever.
    pub(super) fn advise(&mut self, used: Option<Run>, wanted: Option<Run>) -> Advice {
        let Some(wanted) = wanted else {
            return Advice { fetch: None, used, expired: None };
        };
        let place = self.next;
        self.next = (place + 1) % WINDOWS;
        let expired = self.open[place].take();
        let room = self.cache_pages.map_or(u32::MAX, |most| most.saturating_sub(self.unsettled_pages()));
        let fetch = Some(Run { count: wanted.count.min(room), ..wanted }).filter(|run| run.count > 0);
        self.open[place] = fetch;
        Advice { fetch, used, expired }
    }

    /// Pages that all windows hold together.
    pub(super) fn unsettled_pages(&self) -> u32 {
        self.open.iter().flatten().map(|run| run.count).sum()
    }

    /// Changes how many pages all windows may hold together.
    pub(super) fn set_cache(&mut self, pages: u32) {
        self.cache_pages = Some(pages);
    }

    /// Hands out the oldest window while they hold more than they may.
    pub(super) fn shrink(&mut self) -> Option<Run> {
        if self.cache_pages.is_none_or(|most| self.unsettled_pages() <= most) {
            return None;
        }
        let (young, old) = self.open.split_at_mut(self.next);
        old.iter_mut().chain(young).find_map(Option::take)
    }

    /// Drops windows with pages in `range`.
    pub(super) fn forget(&mut self, range: PageRange) {
        for window in &mut self.open {
            if window.is_some_and(|run| !run.span().intersect(range).is_empty()) {
                *window = None;
            }
        }
    }

    /// Hands out a window that is left.
    pub(super) fn drain(&mut self) -> Option<Run> {
        self.open.iter_mut().find_map(Option::take)
    }
}

fn is_right_behind(run: Run, page: PageIndex) -> bool {
    run.start.offset(run.stride.wrapping_mul(i64::from(run.count))) == Some(page)
}
