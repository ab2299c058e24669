//! A process that maps objects, and where.

use farmem_page::{PageIndex, PageRange};

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
        Self { there: part, pages: self.pages + skipped }
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
        Self { places: [Place { there: nothing, pages: PageIndex::new(0) }; MOST_MAPPINGS], count: 0 }
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
            Some(Place { there: PageRange::at(place.there.start + skipped, part.count()), pages: part.start })
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
            self.add(Place { there: PageRange::at(to + skipped, part.there.count()), pages: part.pages })?;
        }
        Ok(())
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

    /// Mapped at 100 to 110 is what the pager sees from 1000 on.
    fn places() -> Places {
        let mut places = Places::new();
        places.add(Place { there: range(100, 110), pages: PageIndex::new(1000) }).unwrap();
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
        assert_eq!(part, [Place { there: range(108, 110), pages: PageIndex::new(1008) }]);
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
        places.add(Place { there: range(500, 504), pages: PageIndex::new(2000) }).unwrap();
        places.relocate(range(104, 120), PageIndex::new(502)).unwrap();
        assert_eq!(told(&places), [(100, 104, 1000), (500, 502, 2000), (502, 508, 1004)]);
    }

    #[test]
    fn there_may_be_too_many() {
        let mut places = Places::new();
        for at in 0..MOST_MAPPINGS as u64 {
            places
                .add(Place { there: range(10 * at, 10 * at + 9), pages: PageIndex::new(at * 100) })
                .unwrap();
        }
        assert_eq!(places.remove(range(4, 5)), Err(TooMany));
    }
}
