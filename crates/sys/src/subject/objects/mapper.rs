//! A process that maps objects, and where.

use farmem_page::{PageCount, PageIndex, PageRange};

use crate::Errno;
use crate::list::List;
use crate::uffd::Uffd;

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

/// Which mappings a process has.
pub(super) struct Places {
    all: List<Place>,
    /// Those that are being moved. Kept for the next move: lists never give memory back.
    moved: List<Place>,
}

impl Places {
    pub(super) const fn new() -> Self {
        Self { all: List::new(), moved: List::new() }
    }

    /// The process has the mappings that another one has, in the place of its own.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn copy_from(&mut self, other: &Self) -> Result<(), Errno> {
        self.all.copy_from(&other.all)
    }

    pub(super) fn clear(&mut self) {
        self.all.clear();
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Place> {
        self.all.iter()
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

    /// # Errors
    /// No memory.
    pub(super) fn add(&mut self, place: Place) -> Result<(), Errno> {
        if place.there.is_empty() { Ok(()) } else { self.all.push(place) }
    }

    /// The process has no objects there any more.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn remove(&mut self, there: PageRange) -> Result<(), Errno> {
        for at in 0..self.all.len() {
            let place = self.all[at];
            let ahead = PageRange::new(place.there.start, there.start.min(place.there.end));
            let behind = PageRange::new(there.end.max(place.there.start), place.there.end);
            self.all[at] = place.part(ahead);
            self.add(place.part(behind))?;
        }
        self.all.retain(|place| !place.there.is_empty());
        Ok(())
    }

    /// The process has moved what it had at `from` to `to`.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn relocate(&mut self, from: PageRange, to: PageIndex) -> Result<(), Errno> {
        self.moved.clear();
        let parts = self.all.iter().map(|place| place.part(from));
        parts.filter(|part| !part.there.is_empty()).try_for_each(|part| self.moved.push(part))?;
        self.remove(PageRange::at(to, from.count()))?;
        self.remove(from)?;
        for at in 0..self.moved.len() {
            let part = self.moved[at];
            let skipped = PageRange::new(from.start, part.there.start).count();
            self.add(Place { there: PageRange::at(to + skipped, part.there.count()), ..part })?;
        }
        // The kernel doesn't tell whether the old mapping has gone (`MREMAP_DONTUNMAP`).
        (0..self.moved.len()).try_for_each(|at| self.add(Place { is_measured: false, ..self.moved[at] }))
    }

    /// The process maps what it has at `from` once more, at `to` (`mremap` of no length). The kernel doesn't
    /// tell how much of it: at most up to `end`, as the pager sees it.
    pub(super) fn duplicate(&mut self, from: PageIndex, to: PageIndex, end: PageIndex) -> Result<(), Errno> {
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
        let mut are_all_known = true;
        for place in self.all.iter_mut().filter(|place| !place.is_measured) {
            match place.measure(&is_there) {
                Some(count) => {
                    (place.there, place.is_measured) = (PageRange::at(place.there.start, count), true);
                }
                None => are_all_known = false,
            }
        }
        self.all.retain(|place| !place.there.is_empty());
        are_all_known
    }

    /// Nothing of `pages`, as the pager sees them, counts any more.
    pub(super) fn forget(&mut self, pages: PageRange) {
        self.all.retain(|place| place.pages().intersect(pages).is_empty());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
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
    /// Where it has had mappings of objects that were given up. A child that was forked before that, and of
    /// which the kernel tells later, is still registered there.
    pub(super) given_up: List<PageRange>,
}

impl Mapper {
    /// It was forked by another process, and has what that one has.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn inherit(&mut self, parent: &Self) -> Result<(), Errno> {
        self.places.copy_from(&parent.places)?;
        self.given_up.copy_from(&parent.given_up)?;
        for &there in self.given_up.iter() {
            // What is managed again there is another object, or the same one that was taken on later.
            if self.places.iter().all(|place| place.there.intersect(there).is_empty()) {
                let _ = self.uffd.unregister(there);
            }
        }
        Ok(())
    }

    /// Nothing of an object, which the pager sees at `pages`, counts any more.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn give_up(&mut self, pages: PageRange) -> Result<(), Errno> {
        let (places, given_up) = (&mut self.places, &mut self.given_up);
        places.of(pages).try_for_each(|place| given_up.push(place.there))?;
        places.forget(pages);
        Ok(())
    }

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
    fn there_may_be_any_number() {
        const COUNT: u64 = 5000;
        let mut places = Places::new();
        for at in 0..COUNT {
            places.add(place(range(10 * at, 10 * at + 9), at * 100)).unwrap();
        }
        (0..COUNT).for_each(|at| places.remove(range(10 * at + 4, 10 * at + 5)).unwrap());
        assert_eq!(places.iter().count() as u64, 2 * COUNT);
        let mut child = Places::new();
        child.copy_from(&places).unwrap();
        assert_eq!(child.page_of(PageIndex::new(10 * COUNT - 2)), Some(PageIndex::new(100 * COUNT - 92)));
        assert_eq!(child.page_of(PageIndex::new(10 * COUNT - 6)), None);
    }
}
