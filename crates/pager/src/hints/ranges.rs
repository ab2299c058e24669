//! Ranges that the program has said something about, and what follows from it.

use core::sync::atomic::Ordering;

use farmem_page::{PageIndex, PageRange, PageWord, Place, VirtAddr};
use farmem_sys::{Errno, thread};

use crate::address_space::table::PageTable;
use crate::engine::Engine;

/// Most ranges that wait for that at a time.
const MOST: usize = 64;
const LOOK_NS: u64 = 20_000;

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

impl Engine {
    /// The program wants forked children to find some pages empty (MADV_WIPEONFORK). Which ones the kernel tells, also after
    /// they have been moved, unmapped, or kept again. Any thread may call this.
    pub fn note_wiped(&self) {
        self.has_wiped.store(true, Ordering::Release);
    }

    /// Takes what a forked child finds empty out of the table that is to be the child's. `gone` hears of what had an entry.
    ///
    /// # Errors
    /// The kernel doesn't say.
    pub(crate) fn wipe(&self, table: &PageTable, mut gone: impl FnMut(PageWord, Place)) -> Result<(), Errno> {
        self.files.flags.wiped_on_fork(|range| table.discard(range, &mut gone))
    }

    /// The program wants to serve these pages itself: they leave no more. `false` when they were not managed, or can't cease
    /// to be. The caller then touches those that are far ([`Engine::is_far`]) and calls [`Engine::finish_let_go`].
    pub fn let_go(&self, start: usize, length: usize) -> bool {
        let range = pages(start, length);
        // As for a fork, nothing leaves from now on, and who evicts at this moment, and may have them in hand, finishes. So the calling
        // thread's stack stays, too: whoever would have to bring it back may need the regions, which this thread locks.
        self.forking.fetch_add(1, Ordering::AcqRel);
        while !self.is_eviction_over() {
            thread::sleep(LOOK_NS);
        }
        // Nor must a handler of a signal touch far memory meanwhile.
        let is_let_go = thread::with_signals_blocked(|| {
            let is_managed = self.regions.from(range.start).is_some_and(|region| region.start < range.end);
            if !is_managed || !self.let_go.insert(range) {
                return false;
            }
            self.regions.remove(range);
            true
        });
        self.forking.fetch_sub(1, Ordering::AcqRel);
        is_let_go
    }

    /// Whether the page at this address is away.
    pub fn is_far(&self, address: usize) -> bool {
        self.table.word(VirtAddr::new(address as u64).page()).is_far()
    }

    /// Ends the management of pages that are all local now.
    pub fn finish_let_go(&self, start: usize, length: usize) {
        // The descriptor belongs to the pager's threads. The bookkeeper takes this lock, and a handler of a signal may wait for it.
        while !thread::with_signals_blocked(|| self.unregister.lock().add(pages(start, length))) {
            thread::sleep(LOOK_NS);
        }
        while thread::with_signals_blocked(|| self.unregister.lock().count) > 0 {
            thread::sleep(LOOK_NS);
        }
    }

    /// On a thread of the pager: unregisters what has been let go.
    pub(crate) fn unregister_let_go(&self) {
        let mut asked = self.unregister.lock();
        for &range in &asked.ranges[..asked.count] {
            // A failure leaves them registered: the program's own registration then fails as beside another pager.
            let _ = self.uffd.unregister(range);
            self.table.discard(range, |_, place| self.vault.free(place));
        }
        asked.count = 0;
    }

    /// Whether the program serves some of these pages itself.
    pub(crate) fn is_let_go(&self, range: PageRange) -> bool {
        self.let_go.from(range.start).is_some_and(|other| other.start < range.end)
    }
}
