//! How much of a block is read at once (COMEX §3.3.5: the page and its neighbours, 16 in all). More than is
//! used costs the link, less costs round trips: so the span follows what became of earlier ones.

/// Pages read at once, at most.
const WIDEST: usize = 16;
/// Pages of a block, in 4 KiB as they are stored.
const BLOCK_PAGES: usize = 64;
/// A narrow span learns nothing of the pages next to it: one in so many reads is wider, to see.
const PROBE_EVERY: u32 = 16;
/// Below this many pages a span is narrow.
const NARROW: usize = 4;
/// What the latest read counts for, against all before it: an eighth.
const WEIGHT: f64 = 0.125;
/// From this part of the pages used on, the span widens; below the other it narrows. Between them lies a
/// factor of two, so that a change of the span alone doesn't change it back.
const WIDEN: f64 = 0.6;
const NARROW_DOWN: f64 = 0.25;

/// The span of one process.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Span {
    pages: usize,
    /// Which part of what was read was used, of late.
    used: f64,
    reads: u32,
    /// Whether it stays as it is, whatever becomes of what is read.
    is_fixed: bool,
}

impl Default for Span {
    fn default() -> Self {
        Self { pages: WIDEST / 2, used: (WIDEN + NARROW_DOWN) / 2.0, reads: 0, is_fixed: false }
    }
}

impl Span {
    /// One that stays at so many pages, a power of two; or with `None` one that follows what is used.
    pub fn new(fixed: Option<usize>) -> Self {
        let learning = Self::default();
        match fixed {
            Some(pages) => Self { pages: pages.clamp(1, WIDEST), is_fixed: true, ..learning },
            None => learning,
        }
    }

    /// Which pages of a block to read when `count` from `first` on are wanted: the first one, and how many.
    /// They hold those, and all lie in the block.
    pub fn around(&mut self, first: usize, count: usize) -> (usize, usize) {
        let count = count.clamp(1, WIDEST);
        let first = first.min(BLOCK_PAGES - count);
        self.reads = self.reads.wrapping_add(1);
        let is_probe = !self.is_fixed && self.pages < NARROW && self.reads.is_multiple_of(PROBE_EVERY);
        let pages = if is_probe { NARROW } else { self.pages }.max(count);
        // Aligned, so that neighbours read one after the other ask for the same pages; unless what is wanted
        // lies across.
        let aligned = first - first % pages;
        let start = if aligned + pages >= first + count { aligned } else { first };
        let start = start.min(BLOCK_PAGES - pages);
        (start, pages)
    }

    /// Pages of an earlier read had to go, so many of them used.
    pub fn learn(&mut self, fetched: usize, used: usize) {
        if self.is_fixed || fetched < 2 {
            return;
        }
        let part = used.min(fetched) as f64 / fetched as f64;
        self.used += (part - self.used) * WEIGHT;
        if self.used > WIDEN && self.pages < WIDEST {
            self.pages *= 2;
        } else if self.used < NARROW_DOWN && self.pages > 1 {
            self.pages /= 2;
        } else {
            return;
        }
        self.used = (WIDEN + NARROW_DOWN) / 2.0;
    }

    /// Pages read at once at present.
    pub fn pages(&self) -> usize {
        self.pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_wanted_is_always_read_and_nothing_outside_the_block(
            learned in prop::collection::vec((1_usize..17, 0_usize..17), 0..100),
            first in 0_usize..64,
            count in 1_usize..3,
        ) {
            prop_assume!(first + count <= BLOCK_PAGES);
            let mut span = Span::default();
            for (fetched, used) in learned {
                span.learn(fetched, used);
                let (start, pages) = span.around(first, count);
                prop_assert!(start <= first && first + count <= start + pages && start + pages <= BLOCK_PAGES);
                prop_assert!(pages <= WIDEST);
            }
        }
    }

    #[test]
    fn neighbours_that_are_used_widen_it_and_those_that_are_not_narrow_it() {
        let mut span = Span::default();
        (0..100).for_each(|_| span.learn(span.pages(), span.pages()));
        assert_eq!(span.pages(), WIDEST);
        (0..100).for_each(|_| span.learn(span.pages(), 1));
        assert!(span.pages() <= 4, "{span:?}");
    }

    #[test]
    fn a_span_that_is_fixed_learns_nothing() {
        let mut span = Span::new(Some(2));
        (0..100).for_each(|_| span.learn(span.pages(), span.pages()));
        assert!((0..100).all(|_| span.around(10, 1) == (10, 2)));
    }

    #[test]
    fn a_narrow_span_is_widened_again_by_its_probes() {
        let mut span = Span { pages: 1, ..Span::default() };
        for _ in 0..400 {
            let (_, pages) = span.around(10, 1);
            span.learn(pages, pages);
        }
        assert_eq!(span.pages(), WIDEST);
    }
}
