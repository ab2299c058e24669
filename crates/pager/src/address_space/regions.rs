//! The mappings under management.
//!
//! A sorted array under a sequence number: readers never wait for each other and notice when a writer was at
//! work. Writers are the event reader and the scanner, which exclude each other through a lock. A reader that
//! meets one for long sleeps on that lock: the writer may be a handler of the idle class on the reader's own
//! processor, which it would never get back from a reader that spins.

use farmem_page::{PageCount, PageIndex, PageRange};

use crate::sync::{AtomicU64, Errno, Lock, MOST_REGIONS as MOST, Ordering, SPINS, fence, spin_loop, table};

/// A sorted set of disjoint page ranges.
#[derive(Debug)]
pub(crate) struct Regions {
    // Odd while a writer is at work.
    version: AtomicU64,
    count: AtomicU64,
    starts: &'static [AtomicU64],
    ends: &'static [AtomicU64],
    writer: Lock<()>,
}

impl Regions {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self {
            version: AtomicU64::new(0),
            count: AtomicU64::new(0),
            starts: table(MOST)?,
            ends: table(MOST)?,
            writer: Lock::new(()),
        })
    }

    /// The region that holds `page`.
    pub(crate) fn holding(&self, page: PageIndex) -> Option<PageRange> {
        self.from(page).filter(|region| region.contains(page))
    }

    /// The region that holds `page`, or the next one behind it.
    pub(crate) fn from(&self, page: PageIndex) -> Option<PageRange> {
        let mut spins = 0;
        loop {
            let version = self.version.load(Ordering::Acquire);
            let found = self.get(self.position(page));
            fence(Ordering::Acquire);
            if version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version {
                return found;
            }
            if spins == SPINS {
                drop(self.writer.lock());
                spins = 0;
            }
            spins += 1;
            spin_loop();
        }
    }

    /// The parts of `range` that are in a region, in order.
    pub(crate) fn within(&self, range: PageRange) -> impl Iterator<Item = PageRange> + '_ {
        let mut from = range.start;
        core::iter::from_fn(move || {
            let part = self.from(from)?.intersect(PageRange::new(from, range.end.max(from)));
            from = part.end;
            (!part.is_empty()).then_some(part)
        })
    }

    /// Every region, in order. Regions that change meanwhile may be seen as they were or as they are.
    pub(crate) fn iter(&self) -> impl Iterator<Item = PageRange> + '_ {
        let mut from = PageIndex::new(0);
        core::iter::from_fn(move || {
            let region = self.from(from)?;
            from = region.end;
            Some(region)
        })
    }

    /// Pages in all regions.
    pub(crate) fn pages(&self) -> PageCount {
        PageCount::new(self.iter().map(|region| region.count().get()).sum())
    }

    /// Adds the pages of `range`. `false` when there is no room for another region.
    pub(crate) fn insert(&self, range: PageRange) -> bool {
        let _writer = self.writer.lock();
        // Everything that touches or overlaps the range becomes part of it.
        let mut merged = range;
        let first = self.position(PageIndex::new(range.start.get().saturating_sub(1)));
        let mut last = first;
        while let Some(region) = self.get(last).filter(|region| region.start <= range.end) {
            merged = PageRange::new(merged.start.min(region.start), merged.end.max(region.end));
            last += 1;
        }
        self.splice(first, last, &[merged])
    }

    /// Takes the pages of `range` out. `false` when there was no room to split a region; then it is left out
    /// whole.
    pub(crate) fn remove(&self, range: PageRange) -> bool {
        let _writer = self.writer.lock();
        let first = self.position(range.start);
        let mut last = first;
        let mut rest = [PageRange::new(range.start, range.start); 2];
        let mut kept = 0;
        while let Some(region) = self.get(last).filter(|region| region.start < range.end) {
            for part in [PageRange::new(region.start, range.start), PageRange::new(range.end, region.end)] {
                // Only the first region can reach out below, only the last above.
                if !part.is_empty() && kept < rest.len() {
                    rest[kept] = part;
                    kept += 1;
                }
            }
            last += 1;
        }
        let is_done = self.splice(first, last, &rest[..kept]);
        if !is_done {
            self.splice(first, last, &[]);
        }
        is_done
    }

    fn get(&self, at: usize) -> Option<PageRange> {
        if at >= (self.count.load(Ordering::Acquire) as usize).min(MOST) {
            return None;
        }
        let start = PageIndex::new(self.starts[at].load(Ordering::Relaxed));
        Some(PageRange::new(start, PageIndex::new(self.ends[at].load(Ordering::Relaxed))))
    }

    /// The first region that ends behind `page`.
    fn position(&self, page: PageIndex) -> usize {
        let mut low = 0;
        let mut high = (self.count.load(Ordering::Acquire) as usize).min(MOST);
        while low < high {
            let middle = low.midpoint(high);
            if self.ends[middle].load(Ordering::Relaxed) <= page.get() {
                low = middle + 1
            } else {
                high = middle
            }
        }
        low
    }

    /// Replaces the regions from `first` up to `last` by `with`.
    fn splice(&self, first: usize, last: usize, with: &[PageRange]) -> bool {
        let count = self.count.load(Ordering::Relaxed) as usize;
        let after = count - (last - first) + with.len();
        if after > MOST {
            return false;
        }
        self.version.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::Release);
        let target = first + with.len();
        let shift = |from: usize, to: usize| {
            self.starts[to].store(self.starts[from].load(Ordering::Relaxed), Ordering::Relaxed);
            self.ends[to].store(self.ends[from].load(Ordering::Relaxed), Ordering::Relaxed);
        };
        if target <= last {
            (0..count - last).for_each(|step| shift(last + step, target + step));
        } else {
            (0..count - last).rev().for_each(|step| shift(last + step, target + step));
        }
        for (step, region) in with.iter().enumerate() {
            self.starts[first + step].store(region.start.get(), Ordering::Relaxed);
            self.ends[first + step].store(region.end.get(), Ordering::Relaxed);
        }
        self.count.store(after as u64, Ordering::Release);
        self.version.fetch_add(1, Ordering::Release);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> PageRange {
        PageRange::new(PageIndex::new(start), PageIndex::new(end))
    }

    #[test]
    fn neighbours_become_one_region() {
        let regions = Regions::new().unwrap();
        assert!(
            regions.insert(range(10, 20)) && regions.insert(range(30, 40)) && regions.insert(range(20, 30))
        );
        assert_eq!(regions.holding(PageIndex::new(15)), Some(range(10, 40)));
        assert_eq!(regions.pages(), PageCount::new(30));
    }

    #[test]
    fn a_hole_splits_a_region() {
        let regions = Regions::new().unwrap();
        regions.insert(range(10, 40));
        regions.remove(range(15, 20));
        assert_eq!(regions.holding(PageIndex::new(14)), Some(range(10, 15)));
        assert_eq!(regions.holding(PageIndex::new(17)), None);
        assert_eq!(regions.from(PageIndex::new(17)), Some(range(20, 40)));
    }

    #[test]
    fn what_a_range_has_of_regions_comes_in_order_and_ends_with_the_range() {
        let regions = Regions::new().unwrap();
        regions.insert(range(10, 20));
        regions.insert(range(30, 40));
        regions.insert(range(50, 60));
        assert!(regions.within(range(15, 35)).eq([range(15, 20), range(30, 35)]));
        assert!(regions.within(range(20, 30)).eq([]));
        assert!(regions.within(range(61, 70)).eq([]));
    }

    #[test]
    fn removing_more_than_is_there_leaves_nothing() {
        let regions = Regions::new().unwrap();
        regions.insert(range(10, 12));
        regions.insert(range(20, 22));
        regions.remove(range(0, 100));
        assert_eq!(regions.from(PageIndex::new(0)), None);
    }

    #[test]
    fn regions_match_a_set_of_pages_under_random_changes() {
        let regions = Regions::new().unwrap();
        let mut model = [false; 64];
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..20_000 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let (start, length, add) = ((state >> 8) % 60, (state >> 20) % 9, state >> 40 & 1 == 1);
            let end = (start + length).min(64);
            model[start as usize..end as usize].fill(add);
            if start < end {
                if add {
                    regions.insert(range(start, end))
                } else {
                    regions.remove(range(start, end))
                };
            }
            for (page, &managed) in model.iter().enumerate() {
                assert_eq!(regions.holding(PageIndex::new(page as u64)).is_some(), managed);
            }
        }
    }
}
