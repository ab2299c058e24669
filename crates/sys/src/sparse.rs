//! A word for each page of an address space, of which only the parts in use take memory.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use farmem_page::{PAGE_BYTES, PageCount, PageIndex, PageRange, VirtAddr};

use crate::pagemap::{Pagemap, Runs, SCAN_PAGES};
use crate::{Errno, memory};

/// Pages whose words lie together: 1 GiB of address space, whose words take 2 MiB as they are touched.
const LEAF_PAGES: usize = 1 << 18;
/// Pages that the words of a leaf fill.
const LEAF_WORD_PAGES: usize = LEAF_PAGES * size_of::<u64>() / PAGE_BYTES;
const _: () = assert!(LEAF_WORD_PAGES <= SCAN_PAGES, "one question covers all words of a leaf");
/// Leaves of a 47-bit address space.
const LEAVES: usize = 1 << 17;
/// Where the pages that can have a word end.
pub const END: PageIndex = PageIndex::new((LEAVES * LEAF_PAGES) as u64);

/// A word for each page of a 47-bit address space. Lock-free; words never move and never go.
#[derive(Clone, Copy, Debug)]
pub struct SparseWords {
    leaves: &'static [AtomicPtr<AtomicU64>],
}

// SAFETY note for the whole type: a leaf's pointer is null, or points to LEAF_PAGES words that were leaked.
impl SparseWords {
    /// No words yet.
    ///
    /// # Errors
    /// No memory.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self { leaves: memory::table(LEAVES)? })
    }

    /// The word of `page`, if its leaf exists.
    pub fn get(&self, page: PageIndex) -> Option<&'static AtomicU64> {
        let leaf = self.leaves.get(page.get() as usize / LEAF_PAGES)?.load(Ordering::Acquire);
        if leaf.is_null() {
            return None;
        }
        // SAFETY: the leaf is leaked and holds LEAF_PAGES words.
        Some(unsafe { &*leaf.add(page.get() as usize % LEAF_PAGES) })
    }

    /// The word of `page`, which begins as zero; `None` beyond the address space or without memory.
    pub fn get_or_create(&self, page: PageIndex) -> Option<&'static AtomicU64> {
        if let Some(word) = self.get(page) {
            return Some(word);
        }
        let place = self.leaves.get(page.get() as usize / LEAF_PAGES)?;
        let fresh = memory::neighbouring_table::<AtomicU64>(LEAF_PAGES).ok()?.as_ptr().cast_mut();
        // The thread that loses the race leaks an untouched reservation of addresses, which costs no memory.
        let _ = place.compare_exchange(core::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire);
        self.get(page)
    }

    /// How much memory the words take at this moment: what was written of them, page by page. `pagemap` is
    /// this process's.
    ///
    /// # Errors
    /// What the kernel returns.
    pub fn resident(&self, pagemap: &Pagemap) -> Result<PageCount, Errno> {
        let mut runs = Runs::empty();
        let mut resident = 0;
        let leaves =
            self.leaves.iter().map(|leaf| leaf.load(Ordering::Acquire)).filter(|leaf| !leaf.is_null());
        for leaf in leaves {
            let start = VirtAddr::new(leaf.addr() as u64).page();
            let words = PageRange::at(start, PageCount::new(LEAF_WORD_PAGES as u64));
            pagemap.resident(words, &mut runs)?;
            resident += runs.iter().map(|run| run.count().get()).sum::<u64>();
        }
        Ok(PageCount::new(resident))
    }

    /// Makes all words zero, and gives back the memory that they take.
    pub fn clear(&self) {
        let leaves = self.leaves.iter().map(|leaf| leaf.load(Ordering::Acquire));
        for leaf in leaves.filter(|leaf| !leaf.is_null()) {
            // SAFETY: the leaf is leaked and holds LEAF_PAGES words.
            memory::clear(unsafe { core::slice::from_raw_parts(leaf, LEAF_PAGES) });
        }
    }

    /// The first page from `page` on whose leaf exists, so that callers can leave out empty stretches.
    pub fn skip_empty(&self, page: PageIndex) -> Option<PageIndex> {
        let first = page.get() as usize / LEAF_PAGES;
        let leaf = (first..LEAVES).find(|&leaf| !self.leaves[leaf].load(Ordering::Acquire).is_null())?;
        Some(page.max(PageIndex::new((leaf * LEAF_PAGES) as u64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_words_for_data_that_lies_in_more_places_than_a_process_may_have_mappings() {
        const PLACES: usize = 100_000;
        let words = SparseWords::new().expect("addresses");
        let page = |place: usize| PageIndex::new((place * LEAF_PAGES) as u64);
        for place in 0..PLACES {
            let word = words.get_or_create(page(place)).expect("a word");
            if place % 8 == 0 {
                word.store(place as u64, Ordering::Relaxed);
            }
        }
        let is_kept = |place: usize| {
            words.get(page(place)).is_some_and(|word| word.load(Ordering::Relaxed) == place as u64)
        };
        assert!((0..PLACES).step_by(8).all(is_kept));
        assert_eq!(words.skip_empty(page(PLACES)), None);
    }
}
