//! A process that maps objects, and where.

use farmem_page::{PageCount, PageIndex, PageRange};

use crate::uffd::Uffd;

/// Mappings of objects that a process has at most. Unmapping a part in the midst of one makes two of it.
const MOST_MAPPINGS: usize = 64;

/// Where a process maps pages of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// As the process sees them.
    pub(super) there: PageRange,
    /// The first of them, as the pager sees it.
    pub(super) pages: PageIndex,
    /// Whether the process maps all of them for sure. Otherwise it maps those at the beginning, or none.
    pub(super) is_measured: bool,
}

impl Place {
    /// The mapped pages, as the pager sees them.
    pub(super) fn pages(&self) -> PageRange {
        PageRange::at(self.pages, self.there.count())
    }

    /// The part of it that holds those of `there`; empty if none does.
    pub(super) fn part(&self, there: PageRange) -> Self {
        let part = self.there.intersect(there);
        let skipped = PageRange::new(self.there.start, part.start).count();
        Self { there: part, pages: self.pages + skipped, ..*self }
    }

    /// How many pages at its beginning are there, as far as that can be told at this moment.
    fn measure(&self, is_there: impl Fn(PageIndex) -> Option<bool>) -> Option<PageCount> {
        let (mut least, mut most) = (0, self.there.count().get());
        while least < most {
            let middle = least + (most - least) / 2;
            match is_there(self.there.start + PageCount::new(middle))? {
                true => least = middle + 1,
                false => most = middle,
            }
        }
        Some(PageCount::new(least))
    }
}

/// There are more mappings than can be told apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TooMany;

/// Which mappings a process has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Places {
    places: [Place; MOST_MAPPINGS],
    count: usize,
}

impl Places {
    pub(super) const fn new() -> Self {
        let nothing = PageRange::new(PageIndex::new(0), PageIndex::new(0));
        let place = Place { there: nothing, pages: PageIndex::new(0), is_measured: true };
        Self { places: [place; MOST_MAPPINGS], count: 0 }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Place> {
        self.places[..self.count].iter()
    }

    /// As the pager sees a page of the process's.
    pub(super) fn page_of(&self, there: PageIndex) -> Option<PageIndex> {
        let place = self.iter().find(|place| place.there.contains(there))?;
        Some(place.pages + PageRange::new(place.there.start, there).count())
    }

    /// Where the process has pages that the pager sees in `pages`, in parts, and what of `pages` each part
    /// is.
    pub(super) fn of(&self, pages: PageRange) -> impl Iterator<Item = Place> + '_ {
        self.iter().filter_map(move |place| {
            let part = place.pages().intersect(pages);
            if part.is_empty() {
                return None;
            }
            let skipped = PageRange::new(place.pages, part.start).count();
            let there = PageRange::at(place.there.start + skipped, part.count());
            Some(Place { there, pages: part.start, ..*place })
        })
    }

    pub(super) fn add(&mut self, place: Place) -> Result<(), TooMany> {
        if place.there.is_empty() {
            return Ok(());
        }
        *self.places.get_mut(self.count).ok_or(TooMany)? = place;
        self.count += 1;
        Ok(())
    }

    /// The process has no objects there any more.
    pub(super) fn remove(&mut self, there: PageRange) -> Result<(), TooMany> {
        let before = *self;
        self.count = 0;
        for place in before.iter() {
            let behind = PageRange::new(there.end.max(place.there.start), place.there.end);
            let ahead = PageRange::new(place.there.start, there.start.min(place.there.end));
            self.add(place.part(ahead))?;
            self.add(place.part(behind))?;
        }
        Ok(())
    }

    /// The process has moved what it had at `from` to `to`.
    pub(super) fn relocate(&mut self, from: PageRange, to: PageIndex) -> Result<(), TooMany> {
        let before = *self;
        self.remove(PageRange::at(to, from.count()))?;
        self.remove(from)?;
        for place in before.iter() {
            let part = place.part(from);
            if part.there.is_empty() {
                continue;
            }
            let skipped = PageRange::new(from.start, part.there.start).count();
            self.add(Place { there: PageRange::at(to + skipped, part.there.count()), ..part })?;
        }
        // The kernel doesn't tell whether the old mapping has gone (`MREMAP_DONTUNMAP`). It hardly ever
        // stays, so where there are many mappings it isn't looked for.
        for place in before.iter() {
            let _ = self.add(Place { is_measured: false, ..place.part(from) });
        }
        Ok(())
    }

    /// The process maps what it has at `from` once more, at `to` (`mremap` of no length). The kernel doesn't
    /// tell how much of it: at most up to `end`, as the pager sees it.
    pub(super) fn duplicate(
        &mut self,
        from: PageIndex,
        to: PageIndex,
        end: PageIndex,
    ) -> Result<(), TooMany> {
        let Some(pages) = self.page_of(from) else { return Ok(()) };
        let next = self.iter().map(|place| place.there.start).filter(|&start| start > to).min();
        let room = next.map_or(u64::MAX, |next| PageRange::new(to, next).count().get());
        let most = PageRange::new(pages, end).count().get().min(room);
        let there = PageRange::at(to, PageCount::new(most));
        self.remove(there)?;
        self.add(Place { there, pages, is_measured: false })
    }

    /// Finds out how long the mappings are of which that isn't known: `is_there` says of an address whether
    /// faults there are told, if it can be told at this moment. Whether all are known now.
    pub(super) fn measure(&mut self, is_there: impl Fn(PageIndex) -> Option<bool>) -> bool {
        let before = *self;
        self.count = 0;
        let mut are_all_known = true;
        for &place in before.iter() {
            let measured =
                if place.is_measured { Some(place.there.count()) } else { place.measure(&is_there) };
            are_all_known &= measured.is_some();
            let place = match measured {
                Some(count) => {
                    Place { there: PageRange::at(place.there.start, count), is_measured: true, ..place }
                }
                None => place,
            };
            // There are no more than before.
            let _ = self.add(place);
        }
        are_all_known
    }

    /// Nothing of `pages`, as the pager sees them, counts any more.
    pub(super) fn forget(&mut self, pages: PageRange) {
        let before = *self;
        self.count = 0;
        for place in before.iter().filter(|place| place.pages().intersect(pages).is_empty()) {
            // There are no more than before.
            let _ = self.add(*place);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// A process that maps objects.
pub(super) struct Mapper {
    /// What it is known by.
    pub(super) number: u64,
    pub(super) uffd: Uffd,
    pub(super) places: Places,
    /// One of its threads, as soon as that is known.
    pub(super) thread: Option<u32>,
}

impl Mapper {
    /// Whether it maps some of `pages`.
    pub(super) fn maps_any(&self, pages: PageRange) -> bool {
        self.places.of(pages).next().is_some()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    fn range(start: u64, end: u64) -> PageRange {
        PageRange::new(PageIndex::new(start), PageIndex::new(end))
    }

    fn place(there: PageRange, pages: u64) -> Place {
        Place { there, pages: PageIndex::new(pages), is_measured: true }
    }

    /// Mapped at 100 to 110 is what the pager sees from 1000 on.
    fn places() -> Places {
        let mut places = Places::new();
        places.add(place(range(100, 110), 1000)).unwrap();
        places
    }

    fn told(places: &Places) -> Vec<(u64, u64, u64)> {
        let told = |place: &Place| (place.there.start.get(), place.there.end.get(), place.pages.get());
        places.iter().map(told).collect()
    }

    #[test]
    fn pages_are_found_in_both_directions() {
        let places = places();
        assert_eq!(places.page_of(PageIndex::new(103)), Some(PageIndex::new(1003)));
        assert_eq!(places.page_of(PageIndex::new(110)), None);
        let part: Vec<Place> = places.of(range(1008, 1020)).collect();
        assert_eq!(part, [place(range(108, 110), 1008)]);
    }

    #[test]
    fn what_is_unmapped_in_the_midst_leaves_two() {
        let mut places = places();
        places.remove(range(103, 105)).unwrap();
        assert_eq!(told(&places), [(100, 103, 1000), (105, 110, 1005)]);
        places.remove(range(0, 107)).unwrap();
        assert_eq!(told(&places), [(107, 110, 1007)]);
        places.remove(range(200, 300)).unwrap();
        assert_eq!(told(&places), [(107, 110, 1007)]);
        places.remove(range(100, 110)).unwrap();
        assert!(places.is_empty());
    }

    #[test]
    fn what_is_moved_is_found_at_its_new_place_alone() {
        let mut places = places();
        places.add(place(range(500, 504), 2000)).unwrap();
        places.relocate(range(104, 120), PageIndex::new(502)).unwrap();
        assert!(places.measure(|there| Some(there < PageIndex::new(104) || there >= PageIndex::new(500))));
        assert_eq!(told(&places), [(100, 104, 1000), (500, 502, 2000), (502, 508, 1004)]);
    }

    #[test]
    fn what_is_moved_and_stays_is_found_at_both_places() {
        let mut places = places();
        places.relocate(range(104, 108), PageIndex::new(500)).unwrap();
        assert!(places.measure(|_| Some(true)));
        assert_eq!(told(&places), [(100, 104, 1000), (108, 110, 1008), (500, 504, 1004), (104, 108, 1004)]);
    }

    #[test]
    fn what_is_mapped_once_more_is_as_long_as_is_found_out() {
        let mut places = places();
        places.add(place(range(520, 524), 2000)).unwrap();
        places.duplicate(PageIndex::new(102), PageIndex::new(500), PageIndex::new(1100)).unwrap();
        // Until then it may be as long as the object, or reach to the next mapping.
        assert_eq!(places.page_of(PageIndex::new(519)), Some(PageIndex::new(1021)));
        assert!(!places.measure(|_| None));
        assert_eq!(places.page_of(PageIndex::new(519)), Some(PageIndex::new(1021)));
        assert!(places.measure(|there| Some(there < PageIndex::new(505))));
        assert_eq!(told(&places), [(100, 110, 1000), (520, 524, 2000), (500, 505, 1002)]);
        assert_eq!(places.page_of(PageIndex::new(505)), None);
    }

    #[test]
    fn there_may_be_too_many() {
        let mut places = Places::new();
        for at in 0..MOST_MAPPINGS as u64 {
            places.add(place(range(10 * at, 10 * at + 9), at * 100)).unwrap();
        }
        assert_eq!(places.remove(range(4, 5)), Err(TooMany));
    }
}
