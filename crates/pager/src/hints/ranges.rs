//! Ranges that the program has said something about, and what follows from it.

use farmem_page::{PageIndex, PageRange, VirtAddr};

/// Most ranges that wait for that at a time.
const MOST: usize = 64;

/// Ranges that somebody is to see to.
#[derive(Debug)]
pub(crate) struct Requests {
    ranges: [PageRange; MOST],
    count: usize,
}

impl Requests {
    pub(crate) const fn new() -> Self {
        let nothing = PageRange::new(PageIndex::new(0), PageIndex::new(0));
        Self { ranges: [nothing; MOST], count: 0 }
    }

    /// `false` when there are too many already.
    pub(crate) fn add(&mut self, range: PageRange) -> bool {
        let Some(place) = self.ranges.get_mut(self.count) else { return false };
        *place = range;
        self.count += 1;
        true
    }

    /// The one that waits longest.
    pub(crate) fn pop(&mut self) -> Option<PageRange> {
        let first = self.ranges[..self.count].first().copied()?;
        self.ranges.copy_within(1..self.count, 0);
        self.count -= 1;
        Some(first)
    }
}

/// The pages that have some of these bytes.
pub(crate) fn pages(start: usize, length: usize) -> PageRange {
    PageRange::new(
        VirtAddr::new(start as u64).page(),
        VirtAddr::new((start as u64).saturating_add(length as u64)).page_up(),
    )
}
