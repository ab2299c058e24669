//! What the checked files get in place of the kernel: a futex, and words for a few pages.

pub(crate) use farmem_sys::Errno;

use farmem_page::PageIndex;
use shuttle::sync::atomic::AtomicU64;

/// A futex: a thread sleeps only if the word had the expected value, and nobody has woken it meanwhile.
pub(crate) mod wait {
    use std::collections::HashMap;
    use std::sync::Arc;

    use shuttle::sync::atomic::{AtomicU32, Ordering};
    use shuttle::sync::{Condvar, Mutex};

    #[derive(Clone, Copy)]
    pub(crate) enum Scope {
        Process,
    }

    #[derive(Clone, Copy)]
    pub(crate) enum Sleepers {
        One,
        All,
    }

    shuttle::lazy_static! {
        static ref BEDS: Mutex<HashMap<usize, Arc<Condvar>>> = Mutex::new(HashMap::new());
    }

    fn address(word: &AtomicU32) -> usize {
        core::ptr::from_ref(word).addr()
    }

    pub(crate) fn wait(word: &AtomicU32, value: u32, timeout_ns: Option<u64>, _: Scope) {
        assert_eq!(timeout_ns, None, "a time-out would hide a lost wake-up");
        let mut beds = BEDS.lock().unwrap();
        if word.load(Ordering::SeqCst) == value {
            let bed = Arc::clone(beds.entry(address(word)).or_default());
            drop(bed.wait(beds).unwrap());
        }
    }

    pub(crate) fn wake(word: &AtomicU32, sleepers: Sleepers, _: Scope) {
        let beds = BEDS.lock().unwrap();
        if let Some(bed) = beds.get(&address(word)) {
            match sleepers {
                Sleepers::One => bed.notify_one(),
                Sleepers::All => bed.notify_all(),
            }
        }
    }
}

/// Pages that have a word.
const PAGES: usize = 4;

/// Words that all exist from the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SparseWords {
    words: &'static [AtomicU64],
}

impl SparseWords {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self { words: Vec::leak((0..PAGES).map(|_| AtomicU64::new(0)).collect()) })
    }

    pub(crate) fn get(&self, page: PageIndex) -> Option<&'static AtomicU64> {
        self.words.get(page.get() as usize)
    }

    pub(crate) fn get_or_create(&self, page: PageIndex) -> Option<&'static AtomicU64> {
        self.get(page)
    }

    pub(crate) fn clear(&self) {
        self.words.iter().for_each(|word| word.store(0, crate::sync::Ordering::Relaxed));
    }

    pub(crate) fn skip_empty(&self, page: PageIndex) -> Option<PageIndex> {
        (page.get() < PAGES as u64).then_some(page)
    }
}
