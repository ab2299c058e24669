//! The page table and the regions against a reference: operations are read from bytes and done as the pager
//! does them, with a kernel and a store that are plain maps. After each, every page must show its own
//! content, every entry must belong to one page, and what waits must have a holder. The same for fixed seeds
//! and for the fuzzer.

use std::collections::{BTreeMap, BTreeSet};

use farmem_page::{
    PageCount, PageIndex, PageRange, PageWord, PatternIndex, Place, SlabIndex, SlotIndex, SlotPlace,
};

use crate::memory::{self, PAGES};
use crate::regions::Regions;
use crate::table::{PageTable, Taken};

/// Content of a page, as a number; 0 is all zeros.
type Content = u32;

/// A page that was taken, and what its holder has of it.
struct Held {
    taken: Taken,
    /// Content of a page on its way out; `None` of one on its way in.
    leaving: Option<Content>,
}

struct World {
    table: PageTable,
    regions: Regions,
    is_managed: [bool; PAGES],
    /// What the program must find.
    expected: [Content; PAGES],
    /// What the kernel has.
    resident: BTreeMap<usize, Content>,
    /// What the store has.
    stored: BTreeMap<u64, Content>,
    held: BTreeMap<usize, Held>,
    waiting: BTreeSet<usize>,
    unevictable: BTreeSet<usize>,
    next: u32,
}

/// Runs the operations in `bytes`; panics when something is not as it must be.
pub(crate) fn run(bytes: &[u8]) {
    memory::reset();
    let mut world = World::new();
    let mut script = bytes.iter().copied();
    while let (Some(operation), Some(first), Some(second)) = (script.next(), script.next(), script.next()) {
        world.step(operation, usize::from(first), usize::from(second));
        world.check();
    }
    memory::set_short(false);
    while let Some((&page, _)) = world.held.first_key_value() {
        world.finish(page, 0);
        world.check();
    }
}

fn range(start: usize, count: usize) -> PageRange {
    PageRange::at(PageIndex::new(start as u64), PageCount::new(count as u64))
}

fn index(page: usize) -> PageIndex {
    PageIndex::new(page as u64)
}

impl World {
    fn new() -> Self {
        Self {
            table: PageTable::new().expect("the first memory is there"),
            regions: Regions::new().expect("the first memory is there"),
            is_managed: [false; PAGES],
            expected: [0; PAGES],
            resident: BTreeMap::new(),
            stored: BTreeMap::new(),
            held: BTreeMap::new(),
            waiting: BTreeSet::new(),
            unevictable: BTreeSet::new(),
            next: 0,
        }
    }

    fn step(&mut self, operation: u8, first: usize, second: usize) {
        let page = first % PAGES;
        let count = (second % 16 + 1).min(PAGES - page);
        match operation % 16 {
            0..=2 => self.fault(page),
            3 => self.write(page),
            4..=6 => self.leave(page),
            7..=8 => self.finish(page, second),
            9 => self.give_back(page),
            10 => self.discard(page, count),
            11 => self.relocate(page, second % PAGES, (first + second) % 16 + 1),
            12 => self.mark(page, second.is_multiple_of(2)),
            13 => self.fork(),
            14 => self.change_regions(page, count, second.is_multiple_of(2)),
            _ => memory::set_short(second.is_multiple_of(4)),
        }
    }

    fn fresh(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    /// A new entry: mostly a slot, sometimes one that takes none.
    fn store(&mut self, content: Content) -> Place {
        if content == 0 {
            return Place::Zero;
        }
        let number = self.fresh();
        let place = if content.is_multiple_of(5) {
            Place::Pattern(PatternIndex::new(number as u16))
        } else {
            let (slab, slot) = SlabIndex::new(number).zip(SlotIndex::new(number as u16 % 16)).expect("small");
            Place::Slot(SlotPlace { slab, slot })
        };
        self.stored.insert(place.encode(), content);
        place
    }

    fn free(&mut self, place: Place) {
        if place != Place::Zero {
            assert!(self.stored.remove(&place.encode()).is_some(), "{place:?} was freed twice");
        }
    }

    fn load(&self, place: Option<Place>) -> Content {
        match place {
            None | Some(Place::Zero) => 0,
            Some(place) => *self.stored.get(&place.encode()).expect("an entry that a page has is stored"),
        }
    }

    /// The program touches the page, and a handler takes it if nobody else has.
    fn fault(&mut self, page: usize) {
        if self.resident.contains_key(&page) {
            return;
        }
        if !self.table.ensure(index(page)) {
            return;
        }
        match self.table.take(index(page)) {
            Some(taken) => {
                assert!(!self.held.contains_key(&page), "two hold page {page}");
                self.held.insert(page, Held { taken, leaving: None });
            }
            None => {
                assert!(self.held.contains_key(&page), "page {page} waits for nobody");
                self.waiting.insert(page);
            }
        }
    }

    fn write(&mut self, page: usize) {
        let content = self.fresh();
        if let Some(old) = self.resident.get_mut(&page) {
            *old = content;
            self.expected[page] = content;
        }
    }

    /// The hand takes a resident page and moves its frame away.
    fn leave(&mut self, page: usize) {
        let Some(&content) = self.resident.get(&page) else { return };
        let Some(taken) = self.table.take_if(index(page), |word| !word.is_unevictable()) else { return };
        assert!(!self.held.contains_key(&page) && !self.unevictable.contains(&page));
        self.resident.remove(&page);
        self.held.insert(page, Held { taken, leaving: Some(content) });
    }

    /// The holder of a page comes to an end, in one of several ways.
    fn finish(&mut self, page: usize, how: usize) {
        let Some(Held { taken, leaving }) = self.held.remove(&page) else { return };
        let word = taken.word;
        let released = match leaving {
            Some(content) if how % 4 != 3 => {
                let is_clean = word.place().is_some_and(|place| self.load(Some(place)) == content);
                let place = match word.place() {
                    Some(old) if is_clean => old,
                    Some(old @ Place::Slot(_)) if how.is_multiple_of(2) && content != 0 => {
                        self.stored.insert(old.encode(), content);
                        old
                    }
                    old => {
                        old.into_iter().for_each(|old| self.free(old));
                        self.store(content)
                    }
                };
                let released = taken.release(word.with_place(Some(place)).with_far(true));
                if released.is_dropped {
                    self.free(place);
                }
                released
            }
            Some(content) => {
                // The store is full: the frame goes back, whatever the program did to the page meanwhile.
                let is_dropped = self.expected[page] != content;
                if !is_dropped {
                    self.resident.insert(page, content);
                }
                let released = taken.release(word.with_far(false));
                self.free_dropped(released.is_dropped, word);
                released
            }
            None if how % 4 == 3 => {
                let released = {
                    let word = taken.word;
                    taken.release(word)
                };
                self.free_dropped(released.is_dropped, word);
                released
            }
            None => {
                let content = self.load(word.place());
                let released = taken.release(word.with_far(false));
                if released.is_dropped {
                    // Discarded after it was installed.
                    self.free_dropped(true, word);
                } else {
                    self.resident.insert(page, content);
                }
                released
            }
        };
        assert_eq!(released.is_waited, self.waiting.remove(&page), "who waits for page {page} is woken");
    }

    fn free_dropped(&mut self, is_dropped: bool, word: PageWord) {
        if is_dropped {
            word.place().into_iter().for_each(|place| self.free(place));
        }
    }

    fn give_back(&mut self, page: usize) {
        if !self.resident.contains_key(&page) {
            return;
        }
        let word = self.table.word(index(page));
        let Some(at) = word.reservation() else { return };
        if let Some(taken) = self.table.take_if(index(page), |now| now == word) {
            assert!(!self.held.contains_key(&page), "a page with a holder has no reservation");
            let released = taken.release(word.with_place(None));
            assert!(!released.is_dropped && !released.is_waited);
            self.free(Place::Slot(at));
        }
    }

    fn discard(&mut self, page: usize, count: usize) {
        let mut freed = Vec::new();
        self.table.discard(range(page, count), |word, place| {
            assert_eq!(word.place(), Some(place));
            freed.push(place);
        });
        freed.into_iter().for_each(|place| self.free(place));
        for page in page..page + count {
            self.resident.remove(&page);
            self.expected[page] = 0;
        }
    }

    /// Only while nobody holds a page, as the gate has it. A target without memory ends the process: not done
    /// here.
    fn relocate(&mut self, from: usize, to: usize, count: usize) {
        let count = count.min(PAGES - from).min(PAGES - to);
        if !self.held.is_empty() || from.abs_diff(to) < count {
            return;
        }
        if (to..to + count).any(|page| !self.table.ensure(index(page))) {
            return;
        }
        self.discard(to, count);
        // A mark goes with its word; where no word comes, the place keeps its own.
        let is_known: Vec<bool> =
            (from..from + count).map(|page| self.table.word(index(page)) != PageWord::default()).collect();
        assert!(self.table.relocate(range(from, count), index(to)), "every target has a word");
        for (step, is_known) in is_known.into_iter().enumerate() {
            let (from, to) = (from + step, to + step);
            self.expected[to] = std::mem::take(&mut self.expected[from]);
            match self.resident.remove(&from) {
                Some(content) => self.resident.insert(to, content),
                None => self.resident.remove(&to),
            };
            if self.unevictable.remove(&from) {
                self.unevictable.insert(to);
            } else if is_known {
                self.unevictable.remove(&to);
            }
        }
    }

    fn mark(&mut self, page: usize, is_unevictable: bool) {
        if self.table.ensure(index(page)) {
            self.table.update(index(page), |word| word.with_unevictable(is_unevictable));
            if is_unevictable {
                self.unevictable.insert(page)
            } else {
                self.unevictable.remove(&page)
            };
        }
    }

    /// A child sees what its parent has, whoever holds a page at this moment, by a copy of the words.
    fn fork(&self) {
        let Ok(copy) = PageTable::new() else { return };
        if self.table.copy_to_child(&copy).is_err() {
            return;
        }
        for page in 0..PAGES {
            let (word, own) = (copy.word(index(page)), self.table.word(index(page)));
            assert!(!word.is_busy() && !word.is_waited() && !word.is_dropped(), "a child has no holders");
            let place = if own.is_dropped() { None } else { own.place() };
            assert_eq!((word.place(), word.is_unevictable()), (place, own.is_unevictable()));
        }
        copy.clear();
        assert!(
            (0..PAGES).all(|page| copy.word(index(page)) == PageWord::default()),
            "ready for the next child"
        );
    }

    fn change_regions(&mut self, page: usize, count: usize, is_added: bool) {
        let before: Vec<PageRange> = self.regions.iter().collect();
        let changed = range(page, count);
        let is_done = if is_added { self.regions.insert(changed) } else { self.regions.remove(changed) };
        if is_done {
            self.is_managed[page..page + count].fill(is_added);
        } else {
            assert_eq!(before.len(), memory::MOST_REGIONS, "there was room");
            if !is_added {
                // The region that could not be split is left out whole.
                for region in before.iter().filter(|region| !region.intersect(changed).is_empty()) {
                    let pages = region.start.get() as usize..region.end.get() as usize;
                    self.is_managed[pages].fill(false);
                }
            }
        }
    }

    fn check(&self) {
        let mut entries = BTreeSet::new();
        for page in 0..PAGES {
            let word = self.table.word(index(page));
            assert_eq!(word.is_busy(), self.held.contains_key(&page), "page {page}");
            assert_eq!(word.is_waited(), self.waiting.contains(&page), "page {page}");
            assert_eq!(word.is_unevictable(), self.unevictable.contains(&page), "page {page}");
            for place in word.place().into_iter().filter(|place| *place != Place::Zero) {
                assert!(entries.insert(place.encode()), "{place:?} belongs to two pages");
            }
            match (self.held.get(&page), self.resident.get(&page)) {
                (Some(_), Some(_)) => panic!("page {page} is held and resident"),
                (Some(held), None) if !word.is_dropped() => {
                    let shown = held.leaving.unwrap_or_else(|| self.load(word.place()));
                    assert_eq!(shown, self.expected[page], "page {page}, held");
                }
                (Some(_), None) => assert_eq!(self.expected[page], 0, "page {page}, discarded while held"),
                (None, Some(content)) => {
                    assert_eq!(*content, self.expected[page], "page {page}, resident");
                    assert!(!word.is_far(), "page {page} is resident");
                }
                (None, None) => {
                    assert_eq!(self.load(word.place()), self.expected[page], "page {page}, absent")
                }
            }
            let region = self.regions.holding(index(page));
            assert_eq!(region.is_some(), self.is_managed[page], "whether page {page} is managed");
        }
        assert_eq!(
            entries,
            self.stored.keys().copied().collect(),
            "entries without a page, or pages without an entry"
        );
        let regions: Vec<PageRange> = self.regions.iter().collect();
        assert!(regions.windows(2).all(|pair| pair[0].end < pair[1].start), "regions are apart: {regions:?}");
        assert!(regions.len() <= memory::MOST_REGIONS);
        let managed = self.is_managed.iter().filter(|is_managed| **is_managed).count();
        assert_eq!(self.regions.pages().get(), managed as u64);
    }
}
