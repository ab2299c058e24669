//! Which absent pages come back when there is room again: the most recently stored ones first (FastSwap §V).
//!
//! What was stored last was resident longest, so it is the likeliest to be wanted. A *survey* counts the absent pages by the
//! time since they left; from it follows the age up to which all of them fit. The clock is the victim policy's, in its ticks
//! ([`VictimPolicy::absence`](crate::VictimPolicy::absence)).

use farmem_page::PageCount;

/// Ages that are told apart: all that a stamp can hold.
const AGES: usize = 1024;

/// Room must have been there for so long: memory that a program frees and takes again at once is none.
const LASTING_NS: u64 = 50_000_000;

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

    /// Begins anew.
    pub fn clear(&mut self) {
        self.counts.fill(0);
    }

    /// Counts a page that left so many ticks ago.
    pub fn add(&mut self, absence: u64) {
        let count = &mut self.counts[(absence as usize).min(AGES - 1)];
        *count = count.saturating_add(1);
    }

    /// The longest absence up to which pages may come back so that `room` is filled and no more than the pages of its last
    /// tick are left out for want of it. `None` when nothing can come.
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
}

impl Room {
    /// How many pages may come back, when `free` pages are below the limit, `margin` of them within reach of the next faults.
    /// Nothing until there has been plenty for a while; then until only the margin is left.
    pub fn look(&mut self, free: i64, margin: PageCount, now_ns: u64) -> PageCount {
        let margin = margin.get() as i64;
        let spare = free.saturating_sub(margin);
        if spare < if self.since_ns.is_some() { 1 } else { margin } {
            self.since_ns = None;
            return PageCount::ZERO;
        }
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        if now_ns.saturating_sub(since_ns) < LASTING_NS {
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

    #[test]
    fn room_must_last_and_be_plenty_to_begin_with() {
        const MARGIN: PageCount = PageCount::new(100);
        let mut room = Room::default();
        assert_eq!(room.look(199, MARGIN, 0), PageCount::ZERO);
        assert_eq!(room.look(199, MARGIN, 10 * LASTING_NS), PageCount::ZERO);
        assert_eq!(room.look(300, MARGIN, 20 * LASTING_NS), PageCount::ZERO);
        assert_eq!(room.look(300, MARGIN, 21 * LASTING_NS), PageCount::new(200));
        // From here on it may be used up but for the margin.
        assert_eq!(room.look(101, MARGIN, 21 * LASTING_NS), PageCount::new(1));
        assert_eq!(room.look(100, MARGIN, 21 * LASTING_NS), PageCount::ZERO);
        assert_eq!(room.look(300, MARGIN, 22 * LASTING_NS), PageCount::ZERO);
    }
}
