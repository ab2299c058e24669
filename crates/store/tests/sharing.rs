//! Why swap-outs into reserved entries scale with processors, whatever number there is: what one owner writes
//! for them, no other owner touches, down to the cache line. Counted in the pool's own code, access by
//! access.

mod support;

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use farmem_page::{PageBytes, Place};
use farmem_store::{Atomic, Epoch, Memory, OwnerId, Packing, Pool, Update, Writer};
use farmem_sys::shared::SharedMemory;
use std::cell::RefCell;
use std::collections::BTreeSet;
use support::{config, page};

const WORD_BYTES: usize = size_of::<u64>();
const WORDS_PER_LINE: usize = 64 / WORD_BYTES;
/// The tables of the pool below are smaller.
const TABLE_WORDS: usize = 1 << 18;
const PAGES: u64 = 200;

/// Lines that are read and written at present.
#[derive(Default)]
struct Touched {
    read: BTreeSet<usize>,
    written: BTreeSet<usize>,
}

thread_local! {
    static TOUCHED: RefCell<Touched> = RefCell::default();
}

struct WatchedWord {
    value: AtomicU64,
    number: usize,
}

impl WatchedWord {
    fn read(&self) -> &AtomicU64 {
        TOUCHED.with_borrow_mut(|touched| touched.read.insert(self.number / WORDS_PER_LINE));
        &self.value
    }
    fn written(&self) -> &AtomicU64 {
        TOUCHED.with_borrow_mut(|touched| touched.written.insert(self.number / WORDS_PER_LINE));
        &self.value
    }
}

impl Atomic for WatchedWord {
    fn load(&self, order: Ordering) -> u64 {
        self.read().load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        self.written().store(value, order);
    }
    fn compare_exchange(&self, current: u64, new: u64, done: Ordering, failed: Ordering) -> Result<u64, u64> {
        self.written().compare_exchange(current, new, done, failed)
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.written().fetch_add(value, order)
    }
    fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        self.written().fetch_sub(value, order)
    }
    fn fetch_and(&self, value: u64, order: Ordering) -> u64 {
        self.written().fetch_and(value, order)
    }
    fn fetch_or(&self, value: u64, order: Ordering) -> u64 {
        self.written().fetch_or(value, order)
    }
    fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
        self.written().fetch_max(value, order)
    }
}

/// Tables whose words are watched; frames lie in other memory, at the same offsets.
struct WatchedMemory {
    words: Vec<WatchedWord>,
    frames: SharedMemory,
}

impl WatchedMemory {
    fn new(length_bytes: usize) -> Self {
        let word = |number| WatchedWord { value: AtomicU64::new(0), number };
        Self {
            words: (0..TABLE_WORDS).map(word).collect(),
            frames: SharedMemory::create(c"farmem-test-pool", length_bytes).unwrap(),
        }
    }
}

impl Memory for WatchedMemory {
    type Word = WatchedWord;

    fn length_bytes(&self) -> usize {
        self.frames.length_bytes()
    }
    fn words(&self, offset_bytes: usize, count: usize) -> Option<&[WatchedWord]> {
        self.words.get(offset_bytes / WORD_BYTES..offset_bytes / WORD_BYTES + count)
    }
    fn copy_out(&self, offset_bytes: usize, out: &mut [u8]) -> bool {
        self.frames.copy_out(offset_bytes, out)
    }
    fn copy_in(&self, offset_bytes: usize, bytes: &[u8]) -> bool {
        self.frames.copy_in(offset_bytes, bytes)
    }
    fn release(&self, range_bytes: Range<usize>) {
        let _ = self.frames.release(range_bytes);
    }
}

/// An owner with pages that have left once, and so have entries.
struct Owner {
    writer: Writer,
    pages: Vec<(Place, PageBytes)>,
}

impl Owner {
    fn new(pool: &Pool<WatchedMemory>, number: u16) -> Self {
        let mut writer = Writer::new(OwnerId(number));
        writer.set_packing(Packing::Later);
        let pages = (0..PAGES)
            .map(|at| {
                let page = page(u64::from(number) * PAGES + at, 4000);
                (writer.store(pool, &page, Epoch::FIRST).unwrap(), page)
            })
            .collect();
        Self { writer, pages }
    }

    /// All pages are changed and leave again, into the entries that they have. What was touched for that.
    fn leave(&mut self, pool: &Pool<WatchedMemory>) -> Touched {
        TOUCHED.take();
        for (place, page) in &mut self.pages {
            page[0] = page[0].wrapping_add(1);
            let update = self.writer.update(pool, *place, page, Epoch::FIRST, Epoch::NONE).unwrap();
            assert_eq!(update, Update::InPlace(*place));
        }
        TOUCHED.take()
    }
}

#[test]
fn swap_outs_into_reserved_entries_write_no_cache_line_that_another_owner_touches() {
    let config = config(16, 0);
    let pool = Pool::create(WatchedMemory::new(config.memory_bytes().unwrap()), &config).unwrap();
    let mut owners: Vec<Owner> = (0..3).map(|number| Owner::new(&pool, number)).collect();
    let touched: Vec<Touched> = owners.iter_mut().map(|owner| owner.leave(&pool)).collect();
    for (number, own) in touched.iter().enumerate() {
        assert!(own.written.len() > PAGES as usize / 8, "entries are written");
        for (other, others) in touched.iter().enumerate().filter(|(other, _)| *other != number) {
            let shared: Vec<_> = own
                .written
                .intersection(&others.read)
                .chain(own.written.intersection(&others.written))
                .collect();
            assert!(shared.is_empty(), "{number} writes lines {shared:?}, which {other} touches");
        }
    }
}
