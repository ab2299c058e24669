//! What was advised, and what became of it, for policies whose windows stand for themselves.
//!
//! The pages of a window raise no fault when they are used, so the proof is a later one: a fault right behind a window, on its path, says
//! that the program came through it. A window of which nothing was heard by the time that its place is needed has expired.

use farmem_page::{PageIndex, PageRange};

use super::Run;

/// Windows that nothing is known of yet: as many as threads that walk at once, and then some.
const WINDOWS: usize = 16;

/// The latest windows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Windows {
    open: [Option<Run>; WINDOWS],
    next: usize,
}

impl Windows {
    /// The window that a fault on `page` comes right behind. It is settled: it was used.
    pub(super) fn used(&mut self, page: PageIndex) -> Option<Run> {
        self.open.iter_mut().find(|window| window.is_some_and(|run| is_right_behind(run, page)))?.take()
    }

    /// Notes a new window; what it takes the place of has expired.
    pub(super) fn open(&mut self, run: Run) -> Option<Run> {
        let place = &mut self.open[self.next];
        self.next = (self.next + 1) % WINDOWS;
        place.replace(run)
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
