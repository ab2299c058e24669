//! Ranges that the program has said something about, and what follows from it.

use farmem_page::{PageIndex, PageRange, VirtAddr};
use farmem_sys::thread;

use crate::engine::Engine;

/// Most ranges of a kind; a program that names more gets the last ones forgotten.
const MOST: usize = 64;
const LOOK_NS: u64 = 20_000;

/// A few ranges of pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RangeList {
    ranges: [PageRange; MOST],
    count: usize,
}

impl RangeList {
    pub(crate) const fn new() -> Self {
        let nothing = PageRange::new(PageIndex::new(0), PageIndex::new(0));
        Self { ranges: [nothing; MOST], count: 0 }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = PageRange> + '_ {
        self.ranges[..self.count].iter().copied()
    }

    pub(crate) fn add(&mut self, range: PageRange) {
        if let Some(place) = self.ranges.get_mut(self.count) {
            *place = range;
            self.count += 1;
        }
    }

    /// Takes the pages of `range` out.
    pub(crate) fn remove(&mut self, range: PageRange) {
        let before = *self;
        self.count = 0;
        for other in before.iter() {
            for part in [
                PageRange::new(other.start, range.start.min(other.end)),
                PageRange::new(range.end.max(other.start), other.end),
            ] {
                if !part.is_empty() {
                    self.add(part);
                }
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn touches(&self, range: PageRange) -> bool {
        self.iter().any(|other| !other.intersect(range).is_empty())
    }
}

fn pages(start: usize, length: usize) -> PageRange {
    PageRange::new(
        VirtAddr::new(start as u64).page(),
        VirtAddr::new((start as u64).saturating_add(length as u64)).page_up(),
    )
}

impl Engine {
    /// The program wants a forked child to find these pages empty, or no longer (MADV_WIPEONFORK, MADV_KEEPONFORK).
    pub fn note_wiped(&self, start: usize, length: usize, is_wiped: bool) {
        let range = pages(start, length);
        let mut wiped = self.wiped.lock();
        wiped.remove(range);
        if is_wiped {
            wiped.add(range);
        }
    }

    /// The program wants to serve these pages itself: they leave no more. `false` when they were not managed. The caller
    /// then touches those that are far ([`Engine::is_far`]) and calls [`Engine::finish_let_go`].
    pub fn let_go(&self, start: usize, length: usize) -> bool {
        let range = pages(start, length);
        let is_managed = self.regions.from(range.start).is_some_and(|region| region.start < range.end);
        if !is_managed {
            return false;
        }
        self.let_go.lock().add(range);
        self.regions.remove(range);
        // Who evicts at this moment may have them in hand.
        while self.evictor.try_lock().is_none() {
            thread::sleep(LOOK_NS);
        }
        true
    }

    /// Whether the page at this address is away.
    pub fn is_far(&self, address: usize) -> bool {
        self.table.word(VirtAddr::new(address as u64).page()).is_far()
    }

    /// Ends the management of pages that are all local now.
    pub fn finish_let_go(&self, start: usize, length: usize) {
        // The descriptor belongs to the pager's threads.
        self.unregister.lock().add(pages(start, length));
        while !self.unregister.lock().is_empty() {
            thread::sleep(LOOK_NS);
        }
    }

    /// On a thread of the pager: unregisters what has been let go.
    pub(crate) fn unregister_let_go(&self) {
        let mut asked = self.unregister.lock();
        for range in asked.iter() {
            // A failure leaves them registered: the program's own registration then fails as beside another pager.
            let _ = self.uffd.unregister(range);
            self.table.discard(range, |_, place| self.vault.free(place));
        }
        *asked = RangeList::new();
    }

    /// Whether the program serves some of these pages itself.
    pub(crate) fn is_let_go(&self, range: PageRange) -> bool {
        self.let_go.lock().touches(range)
    }
}
