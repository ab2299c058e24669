//! An application that was made small while nobody uses it, and that is to have its memory again later: the
//! way down, and what it had before.
//!
//! The budget falls only as fast as pages leave, so that no thread of the program waits for room. Where
//! nothing more leaves, because the pool is full or what is left can't move, it rises again to what the
//! program has and some more: nobody is ended for having been shrunk.

use std::time::{Duration, Instant};

use farmem_page::PageCount;

use crate::limits::sizing::Sizing;

/// The least that a process is shrunk to unless a size is given: 4 MiB. An interpreter that waits for work
/// touches between one and four, and would fault all the time with less.
const LEAST_PAGES: u64 = 1024;
/// How far the budget falls ahead of what the application has: 3 MiB. From 4 MiB on, threads would wait for
/// room.
const AHEAD: PageCount = PageCount::new(768);
/// Faults bring in pages before others leave: above the budget by less than 1 MiB is within it.
const TOLERATED: PageCount = PageCount::new(256);
/// Nothing more leaves when for so long nothing has left; longer as long as nothing has left at all, since
/// pagers have to come first. Shorter than a fault waits for room in a full pool before its program is ended.
const STANDSTILL: Duration = Duration::from_secs(2);
const BEGINNING: Duration = Duration::from_secs(5);
/// By how much the budget is above what the application has, when nothing more leaves: 4 MiB, and twice as
/// much each time that this wasn't enough.
const MARGIN_PAGES: u64 = 1024;
const MOST_DOUBLINGS: u32 = 16;

/// How the budget was before.
pub(super) struct Before {
    pub(super) budget: PageCount,
    /// What was agreed with the host.
    pub(super) local_own: u64,
    pub(super) borrows: bool,
    /// Whether it was as agreed; else this was what it followed the program by.
    pub(super) is_budget_leased: bool,
    pub(super) sizing: Option<Sizing>,
}

/// An application that was shrunk.
pub(crate) struct Shrunk {
    pub(super) before: Before,
    wanted: PageCount,
    /// The latest budget that was set on the way; anything else was set by somebody else.
    set: PageCount,
    /// How much had left when it was last looked whether anything does, and since when that is so.
    evicted: u64,
    since: Instant,
    has_left: bool,
    /// Times that the budget rose because nothing more left.
    raised: u32,
    /// Why nothing more leaves.
    reason: Option<String>,
}

/// What is to be done next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Nothing.
    None,
    /// Let the budget fall to this.
    Fall(PageCount),
    /// Nothing more leaves: raise it to this.
    Raise(PageCount),
}

/// The least budget for so many processes.
pub(super) fn least(processes: usize) -> PageCount {
    PageCount::new(LEAST_PAGES * processes.max(1) as u64)
}

impl Shrunk {
    /// On the way to this budget, from one that is `set`.
    pub(super) fn begin(before: Before, wanted: PageCount, set: PageCount, evicted: u64) -> Self {
        Self { before, wanted, set, evicted, since: Instant::now(), has_left: false, raised: 0, reason: None }
    }

    /// The budget that it had before.
    pub(crate) fn budget_before(&self) -> PageCount {
        self.before.budget
    }

    /// What it is to have.
    pub(super) fn wanted(&self) -> PageCount {
        self.wanted
    }

    /// From now on it is to have so much, and has it.
    pub(super) fn settle(&mut self, wanted: PageCount) {
        (self.wanted, self.set, self.reason) = (wanted, wanted, None);
    }

    /// Whether the budget is still on its way.
    pub(super) fn is_falling(&self) -> bool {
        self.reason.is_none() && self.set > self.wanted
    }

    /// Whether the application, of which so much is resident, is as small as it was to be.
    pub(crate) fn is_small(&self, resident: PageCount) -> bool {
        !self.is_falling() && resident <= self.wanted + TOLERATED
    }

    /// Why it doesn't become so small.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Remembers it.
    pub(super) fn explain(&mut self, reason: String) {
        self.reason = Some(reason);
    }

    /// What to do now, when so much is resident and so much has ever left. `is_pausing` while storage is
    /// waited for, which says nothing.
    pub(super) fn step(&mut self, now: Instant, resident: PageCount, evicted: u64, is_pausing: bool) -> Step {
        if evicted != self.evicted {
            self.has_left = true;
        }
        if evicted != self.evicted || is_pausing || resident <= self.set + TOLERATED {
            (self.evicted, self.since) = (evicted, now);
        }
        let patience = if self.has_left { STANDSTILL } else { BEGINNING };
        if now.duration_since(self.since) > patience {
            let margin = MARGIN_PAGES << self.raised.min(MOST_DOUBLINGS);
            self.raised += 1;
            self.since = now;
            self.set = (resident + PageCount::new(margin)).min(self.before.budget).max(self.set);
            return Step::Raise(self.set);
        }
        if !self.is_falling() {
            return Step::None;
        }
        let next = resident.saturating_sub(AHEAD).max(self.wanted);
        if next >= self.set {
            return Step::None;
        }
        self.set = next;
        Step::Fall(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn pages(count: u64) -> PageCount {
        PageCount::new(count)
    }

    fn shrunk(wanted: u64, set: u64) -> Shrunk {
        let before = Before {
            budget: pages(100_000),
            local_own: 100_000,
            borrows: true,
            is_budget_leased: true,
            sizing: None,
        };
        Shrunk::begin(before, pages(wanted), pages(set), 7)
    }

    #[test]
    fn the_budget_falls_no_further_ahead_than_pages_leave_and_ends_where_it_should() {
        let mut shrunk = shrunk(1000, 20_000);
        let now = Instant::now();
        assert_eq!(shrunk.step(now, pages(20_000), 7, false), Step::Fall(pages(20_000 - 768)));
        assert_eq!(shrunk.step(now, pages(20_000), 7, false), Step::None);
        assert_eq!(shrunk.step(now, pages(9000), 8, false), Step::Fall(pages(9000 - 768)));
        // It takes more meanwhile: the budget stays.
        assert_eq!(shrunk.step(now, pages(12_000), 9, false), Step::None);
        assert!(shrunk.is_falling() && !shrunk.is_small(pages(1000)));
        assert_eq!(shrunk.step(now, pages(1200), 9, false), Step::Fall(pages(1000)));
        assert!(!shrunk.is_falling() && shrunk.is_small(pages(1256)) && !shrunk.is_small(pages(1257)));
    }

    #[test]
    fn where_nothing_more_leaves_the_budget_rises_above_what_is_there_and_each_time_by_more() {
        let mut shrunk = shrunk(1000, 20_000);
        let mut now = Instant::now();
        shrunk.step(now, pages(20_000), 7, false);
        shrunk.step(now, pages(19_000), 1007, false);
        // Storage that is waited for says nothing.
        now += STANDSTILL;
        assert_eq!(shrunk.step(now, pages(19_000), 1007, true), Step::None);
        now += STANDSTILL;
        assert_eq!(shrunk.step(now, pages(19_000), 1007, false), Step::None);
        now += Duration::from_millis(1);
        assert_eq!(shrunk.step(now, pages(19_000), 1007, false), Step::Raise(pages(20_024)));
        shrunk.explain("the pool is full".to_owned());
        assert!(!shrunk.is_falling() && !shrunk.is_small(pages(19_000)));
        assert_eq!(shrunk.step(now, pages(19_000), 1007, false), Step::None);
        // It goes on growing.
        now += STANDSTILL;
        assert_eq!(shrunk.step(now, pages(20_300), 1007, false), Step::None);
        now += STANDSTILL;
        assert_eq!(shrunk.step(now, pages(20_300), 1007, false), Step::Raise(pages(22_348)));
        now += STANDSTILL * 2;
        assert_eq!(shrunk.step(now, pages(99_900), 1007, false), Step::Raise(pages(100_000)));
    }

    #[test]
    fn pagers_have_time_to_come() {
        let mut shrunk = shrunk(1000, 20_000);
        let now = Instant::now();
        shrunk.step(now, pages(20_000), 7, false);
        assert_eq!(shrunk.step(now + BEGINNING, pages(20_000), 7, false), Step::None);
        assert!(matches!(shrunk.step(now + BEGINNING * 2, pages(20_000), 7, false), Step::Raise(_)));
    }

    #[test]
    fn the_least_is_for_each_process() {
        assert_eq!((least(0), least(1), least(3)), (pages(1024), pages(1024), pages(3072)));
    }
}
