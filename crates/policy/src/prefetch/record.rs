//! The last few faults, and the patterns among them.

/// Longest distance between neighbours of a pattern, in pages.
pub(super) const STRIDE_LIMIT: i64 = 64;

/// Faults remembered. Enough for sixteen threads to show two faults each before the first is overwritten.
const LENGTH: usize = 32;

/// A ring of page numbers.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pages: [u64; LENGTH],
    next: usize,
}

/// Faults in line that end in the newest one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Line {
    /// Pages from one fault to the next, never 0, at most [`STRIDE_LIMIT`] either way.
    pub(super) stride: i64,
    /// Faults in line, the newest one included: 2 or more.
    pub(super) length: u32,
}

impl Record {
    pub(super) const fn new() -> Self {
        Self { pages: [EMPTY; LENGTH], next: 0 }
    }

    pub(super) fn push(&mut self, page: u64) {
        self.pages[self.next] = page;
        self.next = (self.next + 1) % LENGTH;
    }

    /// The best line that a fault on `page` would end: the longest, and of these the closest. Neighbours make
    /// a line of two; anything farther apart takes three.
    pub(super) fn line_to(&self, page: u64) -> Option<Line> {
        let mut best: Option<Line> = None;
        for candidate in self.near(page) {
            let stride = page.wrapping_sub(candidate) as i64;
            if stride == 0 {
                continue;
            }
            let length = self.length(candidate, stride);
            if length < 3 && stride.abs() != 1 {
                continue;
            }
            if best.is_none_or(|best| (length, -stride.abs()) > (best.length, -best.stride.abs())) {
                best = Some(Line { stride, length });
            }
        }
        best
    }

    /// Drops the pages from `low` up to, not including, `high`.
    pub(super) fn forget(&mut self, low: u64, high: u64) {
        for page in &mut self.pages {
            if (low..high).contains(page) {
                *page = EMPTY;
            }
        }
    }

    fn near(&self, page: u64) -> impl Iterator<Item = u64> {
        let low = page.wrapping_sub(STRIDE_LIMIT as u64);
        let mut found = 0_u32;
        for (position, &candidate) in self.pages.iter().enumerate() {
            let is_near = candidate.wrapping_sub(low) <= 2 * STRIDE_LIMIT as u64;
            found |= (is_near as u32) << position;
        }
        core::iter::from_fn(move || {
            let position = found.trailing_zeros();
            if position == u32::BITS {
                return None;
            }
            found &= found - 1;
            self.pages.get(position as usize).copied()
        })
    }

    /// Faults in line from the newest one over `second` backwards; stops at [`LENGTH_LIMIT`], more tells
    /// nothing.
    fn length(&self, second: u64, stride: i64) -> u32 {
        let mut page = second;
        let mut length = 2;
        while length < LENGTH_LIMIT {
            page = page.wrapping_add_signed(-stride);
            if !self.pages.contains(&page) {
                break;
            }
            length += 1;
        }
        length
    }
}

/// No page has this number, and none lies within a stride of it.
const EMPTY: u64 = 1 << 63;
const LENGTH_LIMIT: u32 = 4;

const _: () = assert!(LENGTH <= u32::BITS as usize, "one bit per remembered fault");

#[cfg(test)]
mod tests {
    use super::*;

    fn record(pages: &[u64]) -> Record {
        let mut record = Record::new();
        pages.iter().for_each(|&page| record.push(page));
        record
    }

    #[test]
    fn neighbours_make_a_line_of_two() {
        assert_eq!(record(&[10]).line_to(11), Some(Line { stride: 1, length: 2 }));
        assert_eq!(record(&[10]).line_to(9), Some(Line { stride: -1, length: 2 }));
    }

    #[test]
    fn distant_pages_take_three() {
        assert_eq!(record(&[10]).line_to(15), None);
        assert_eq!(record(&[10, 99, 15]).line_to(20), Some(Line { stride: 5, length: 3 }));
    }

    #[test]
    fn the_longest_line_wins_over_the_closest() {
        let line = record(&[100, 101, 108, 109, 116]).line_to(117);
        assert_eq!(line, Some(Line { stride: 8, length: 3 }));
    }

    #[test]
    fn a_page_is_in_line_with_nothing_when_it_is_far_from_all() {
        assert_eq!(record(&[0, 65, 130]).line_to(195), None);
        assert_eq!(record(&[]).line_to(u64::MAX - 1), None);
    }

    #[test]
    fn forgotten_pages_make_no_line() {
        let mut record = record(&[10, 11]);
        record.forget(11, 12);
        assert_eq!(record.line_to(12), None);
    }
}
