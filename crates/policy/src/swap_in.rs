//! Which absent pages come back when there is room again: the most recently stored ones first (FastSwap §V).
//!
//! What was stored last was resident longest, so it is the likeliest to be wanted. A *survey* counts the
//! absent pages by the time since they left; from it follows the age up to which all of them fit. The clock
//! is the victim policy's, in its ticks ([`VictimPolicy::absence`](crate::VictimPolicy::absence)).

use farmem_page::PageCount;

use crate::pacing::usual_margin;

/// Ages that are told apart: all that a stamp can hold.
const AGES: usize = 1024;

/// How long room must have been there. That of a raised budget is meant to be used; memory that a program has
/// freed is often what it takes next, and pages that came back meanwhile would be in its way.
const RAISED_NS: u64 = 50_000_000;
const FREED_NS: u64 = 1_000_000_000;

/// Absent pages by age.
#[derive(Clone, Debug)]
pub struct Survey {
    counts: [u32; AGES],
}

impl Survey {
    /// Of no pages.
    pub const fn new() -> Self {
        Self { counts: [0; AGES] }
    }

    /// Begins again.
    pub fn clear(&mut self) {
        self.counts.fill(0);
    }

    /// Counts a page that left so many ticks ago.
    pub fn add(&mut self, absence: u64) {
        let count = &mut self.counts[(absence as usize).min(AGES - 1)];
        *count = count.saturating_add(1);
    }

    /// The longest absence up to which pages may come back so that `room` is filled and no more than the
    /// pages of its last tick are left out for want of it. `None` when nothing can come.
    pub fn longest_absence(&self, room: PageCount) -> Option<u64> {
        if room == PageCount::ZERO {
            return None;
        }
        let mut left = room.get();
        let mut longest = None;
        for (absence, &count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            longest = Some(absence as u64);
            match left.checked_sub(u64::from(count)) {
                Some(rest) if rest > 0 => left = rest,
                _ => break,
            }
        }
        longest
    }
}

impl Default for Survey {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether there is room to bring pages back to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Room {
    since_ns: Option<u64>,
    budget: PageCount,
    /// Whether the budget was raised since there was last no room.
    is_raised: bool,
}

impl Room {
    /// How many pages may come back under `budget`, when `free` pages are below the limit; a margin of them
    /// is for the next faults. Nothing until there has been plenty for a while; then until only the margin is
    /// left.
    pub fn look(&mut self, free: i64, budget: PageCount, now_ns: u64) -> PageCount {
        self.is_raised |= budget > self.budget && self.budget != PageCount::ZERO;
        self.budget = budget;
        let margin = usual_margin(budget).get() as i64;
        let spare = free.saturating_sub(margin);
        if spare < if self.since_ns.is_some() { 1 } else { margin } {
            *self = Self { budget, is_raised: self.is_raised && self.since_ns.is_none(), since_ns: None };
            return PageCount::ZERO;
        }
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        let lasting_ns = if self.is_raised { RAISED_NS } else { FREED_NS };
        if now_ns.saturating_sub(since_ns) < lasting_ns {
            return PageCount::ZERO;
        }
        PageCount::new(spare as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survey(pages: &[(u64, usize)]) -> Survey {
        let mut survey = Survey::new();
        for &(absence, count) in pages {
            (0..count).for_each(|_| survey.add(absence));
        }
        survey
    }

    #[test]
    fn the_youngest_that_fit_come_back() {
        let survey = survey(&[(3, 10), (0, 5), (700, 100)]);
        assert_eq!(survey.longest_absence(PageCount::new(4)), Some(0));
        assert_eq!(survey.longest_absence(PageCount::new(5)), Some(0));
        assert_eq!(survey.longest_absence(PageCount::new(6)), Some(3));
        assert_eq!(survey.longest_absence(PageCount::new(15)), Some(3));
        assert_eq!(survey.longest_absence(PageCount::new(16)), Some(700));
        assert_eq!(survey.longest_absence(PageCount::new(9999)), Some(700));
    }

    #[test]
    fn nothing_comes_back_without_room_or_without_pages() {
        assert_eq!(survey(&[(3, 10)]).longest_absence(PageCount::ZERO), None);
        assert_eq!(Survey::new().longest_absence(PageCount::new(9)), None);
    }

    #[test]
    fn absences_beyond_the_clock_are_the_longest() {
        assert_eq!(survey(&[(u64::MAX, 1)]).longest_absence(PageCount::new(1)), Some(AGES as u64 - 1));
    }

    /// Its margin is 1000 pages.
    const BUDGET: PageCount = PageCount::new(16_000);

    #[test]
    fn freed_room_must_last_and_be_plenty_to_begin_with() {
        let mut room = Room::default();
        assert_eq!(room.look(1999, BUDGET, 0), PageCount::ZERO);
        assert_eq!(room.look(1999, BUDGET, 10 * FREED_NS), PageCount::ZERO);
        assert_eq!(room.look(3000, BUDGET, 20 * FREED_NS), PageCount::ZERO);
        assert_eq!(room.look(3000, BUDGET, 20 * FREED_NS + RAISED_NS), PageCount::ZERO);
        assert_eq!(room.look(3000, BUDGET, 21 * FREED_NS), PageCount::new(2000));
        // From here on it may be used up but for the margin.
        assert_eq!(room.look(1001, BUDGET, 21 * FREED_NS), PageCount::new(1));
        assert_eq!(room.look(1000, BUDGET, 21 * FREED_NS), PageCount::ZERO);
        assert_eq!(room.look(3000, BUDGET, 22 * FREED_NS), PageCount::ZERO);
    }

    #[test]
    fn room_of_a_raised_budget_is_used_soon_and_what_is_freed_later_is_not() {
        let mut room = Room::default();
        let small = PageCount::new(8000);
        assert_eq!(room.look(0, small, 0), PageCount::ZERO);
        assert_eq!(room.look(3000, BUDGET, 1), PageCount::ZERO);
        assert_eq!(room.look(3000, BUDGET, 1 + RAISED_NS), PageCount::new(2000));
        assert_eq!(room.look(900, BUDGET, 2 + RAISED_NS), PageCount::ZERO);
        assert_eq!(room.look(3000, BUDGET, 3 + RAISED_NS), PageCount::ZERO);
        assert_eq!(room.look(3000, BUDGET, 3 + 2 * RAISED_NS), PageCount::ZERO);
    }
}
