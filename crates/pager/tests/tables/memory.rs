//! What the tested files get in place of the pager's own memory: a little of it, used again by the next run,
//! and refused on demand.

use std::cell::Cell;

pub(crate) use core::hint::spin_loop;
pub(crate) use core::sync::atomic::{AtomicU64, Ordering, fence};
pub(crate) use farmem_sys::Errno;
pub(crate) use farmem_sys::guard::{self, Guard};
pub(crate) use farmem_sys::lock::Lock;

use farmem_page::PageIndex;

/// Looks before sleeping.
pub(crate) const SPINS: u32 = 10;
/// Few, so that there is often no room for another one.
pub(crate) const MOST_REGIONS: usize = 6;
/// Pages that have a word, and pages whose words come to be together.
pub(crate) const PAGES: usize = 64;
const CHUNK: usize = 8;
/// Words of all tables of a run: that of the process, of a few children, and the regions.
const WORDS: usize = 8 * (PAGES + PAGES / CHUNK) + 4 * MOST_REGIONS;

thread_local! {
    static ALL: &'static [AtomicU64] = Vec::leak((0..WORDS).map(|_| AtomicU64::new(0)).collect());
    static USED: Cell<usize> = const { Cell::new(0) };
    static IS_SHORT: Cell<bool> = const { Cell::new(false) };
}

/// Takes all memory back. What was made of it must not be used any more.
pub(crate) fn reset() {
    ALL.with(|all| all.iter().for_each(|word| word.store(0, Ordering::Relaxed)));
    USED.set(0);
    IS_SHORT.set(false);
}

/// From now on there is no memory, or there is some again.
pub(crate) fn set_short(is_short: bool) {
    IS_SHORT.set(is_short);
}

/// So many zeros.
pub(crate) fn table(count: usize) -> Result<&'static [AtomicU64], Errno> {
    let start = USED.get();
    let words = ALL.with(|all| all.get(start..start + count)).ok_or(Errno::NOMEM)?;
    if IS_SHORT.get() {
        return Err(Errno::NOMEM);
    }
    USED.set(start + count);
    Ok(words)
}

/// Words that come to be eight at a time, unless there is no memory for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SparseWords {
    words: &'static [AtomicU64],
    is_there: &'static [AtomicU64],
}

impl SparseWords {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self { words: table(PAGES)?, is_there: table(PAGES / CHUNK)? })
    }

    fn chunk(&self, page: PageIndex) -> Option<&'static AtomicU64> {
        self.is_there.get(page.get() as usize / CHUNK)
    }

    pub(crate) fn get(&self, page: PageIndex) -> Option<&'static AtomicU64> {
        let is_there = self.chunk(page)?.load(Ordering::Relaxed) != 0;
        self.words.get(page.get() as usize).filter(|_| is_there)
    }

    pub(crate) fn get_or_create(&self, page: PageIndex) -> Option<&'static AtomicU64> {
        if self.get(page).is_none() && !IS_SHORT.get() {
            self.chunk(page)?.store(1, Ordering::Relaxed);
        }
        self.get(page)
    }

    pub(crate) fn clear(&self) {
        self.words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    pub(crate) fn skip_empty(&self, page: PageIndex) -> Option<PageIndex> {
        let next = (page.get() as usize / CHUNK + 1) * CHUNK;
        (next < PAGES).then_some(PageIndex::new(next as u64))
    }
}
