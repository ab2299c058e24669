//! Taking pages (invariants 2 to 4 of the page word).

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicU16, Ordering};

use farmem_page::{PageCount, PageIndex, PageRange, PageWord, PatternIndex, Place};
use shuttle::sync::Arc;
use shuttle::thread;

use crate::check;
use crate::table::{PageTable, Taken};

const PAGE: PageIndex = PageIndex::new(1);

/// One page, who holds it, who waits for it, and which entries are in use.
struct Model {
    table: PageTable,
    holders: AtomicI32,
    asleep: AtomicI32,
    next_entry: AtomicU16,
    in_use: Mutex<BTreeSet<u16>>,
}

impl Model {
    fn new() -> Arc<Self> {
        let table = PageTable::new().unwrap();
        Arc::new(Self {
            table,
            holders: AtomicI32::new(0),
            asleep: AtomicI32::new(0),
            next_entry: AtomicU16::new(1),
            in_use: Mutex::new(BTreeSet::new()),
        })
    }

    fn allocate(&self) -> Place {
        let entry = self.next_entry.fetch_add(1, Ordering::SeqCst);
        self.in_use.lock().unwrap().insert(entry);
        Place::Pattern(PatternIndex::new(entry))
    }

    fn free(&self, place: Place) {
        let Place::Pattern(entry) = place else { panic!("only patterns are used here") };
        assert!(self.in_use.lock().unwrap().remove(&(entry.get() as u16)), "an entry was freed twice");
    }

    fn hold(&self, taken: Taken, work: impl FnOnce(PageWord) -> PageWord) -> (PageWord, bool) {
        assert_eq!(self.holders.fetch_add(1, Ordering::SeqCst), 0, "two hold the page");
        let word = work(taken.word);
        thread::yield_now();
        self.holders.fetch_sub(1, Ordering::SeqCst);
        let released = taken.release(word);
        if released.is_waited {
            self.wake();
        }
        (word, released.is_dropped)
    }

    fn wake(&self) {
        self.asleep.store(0, Ordering::SeqCst);
    }

    /// A thread of the program faults, and a handler serves it or leaves it to the holder of the page.
    fn fault(&self) {
        self.asleep.fetch_add(1, Ordering::SeqCst);
        if let Some(taken) = self.table.take(PAGE) {
            let (word, is_dropped) = self.hold(taken, |word| {
                self.wake();
                word.with_far(false)
            });
            self.let_go(word, is_dropped);
        }
    }

    /// An entry dropped while its page was held is the holder's to free.
    fn let_go(&self, word: PageWord, is_dropped: bool) {
        if is_dropped {
            word.place().into_iter().for_each(|place| self.free(place));
        }
    }

    /// The page leaves: to its own entry or, as chance has it, to another.
    fn evict(&self, to_new: bool) {
        let Some(taken) = self.table.take_if(PAGE, |word| !word.is_unevictable()) else { return };
        let old = taken.word.place();
        let (word, is_dropped) = self.hold(taken, |word| match old {
            Some(_) if !to_new => word.with_far(true),
            _ => {
                let new = self.allocate();
                old.into_iter().for_each(|place| self.free(place));
                word.with_far(true).with_place(Some(new))
            }
        });
        self.let_go(word, is_dropped);
    }

    /// A reservation is given back: the word first, then the entry.
    fn give_back(&self) {
        let word = self.table.word(PAGE);
        if word.is_far() || word.place().is_none() {
            return;
        }
        if let Some(taken) = self.table.take_if(PAGE, |now| now == word) {
            self.hold(taken, |word| word.with_place(None));
            word.place().into_iter().for_each(|place| self.free(place));
        }
    }

    fn discard(&self) {
        self.table.discard(PageRange::at(PAGE, PageCount::new(1)), |_, place| self.free(place));
    }

    fn settle(&self) {
        assert_eq!(self.asleep.load(Ordering::SeqCst), 0, "a thread waits and nobody will wake it");
        let word = self.table.word(PAGE);
        assert!(!word.is_busy() && !word.is_waited() && !word.is_dropped(), "a mark is left: {word:?}");
        word.place().into_iter().for_each(|place| self.free(place));
        assert!(self.in_use.lock().unwrap().is_empty(), "an entry belongs to no page");
    }
}

type Part = fn(&Model);

fn together<const COUNT: usize>(parts: [Part; COUNT]) {
    let model = Model::new();
    let threads: Vec<_> = parts
        .into_iter()
        .map(|part| {
            let model = Arc::clone(&model);
            thread::spawn(move || part(&model))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    model.settle();
}

fn fault_twice(model: &Model) {
    model.fault();
    model.fault();
}

fn evict_twice(model: &Model) {
    model.evict(true);
    model.evict(true);
}

fn evict_in_place(model: &Model) {
    model.evict(false);
    model.evict(false);
}

fn give_back_twice(model: &Model) {
    model.give_back();
    model.give_back();
}

fn evict_and_fault(model: &Model) {
    model.evict(true);
    model.fault();
    model.evict(false);
}

fn replace(model: &Model) {
    let word = model.table.word(PAGE);
    if !word.is_busy() {
        model.table.replace(PAGE, word, word.with_prefetched(true));
    }
}

fn mark_and_unmark(model: &Model) {
    model.table.update(PAGE, |word| word.with_unevictable(true));
    model.table.update(PAGE, |word| word.with_unevictable(false));
}

#[test]
fn a_page_has_one_holder_who_wakes_everyone() {
    check(|| together([fault_twice, fault_twice, evict_twice]));
}

#[test]
fn a_page_discarded_while_it_leaves_keeps_no_entry_and_frees_each_once() {
    check(|| together([Model::fault, evict_twice, Model::discard]));
}

#[test]
fn a_page_discarded_while_it_is_rewritten_in_place_frees_its_entry_once() {
    check(|| together([evict_in_place, evict_twice, Model::discard, Model::discard]));
}

#[test]
fn marks_set_from_outside_disturb_no_holder() {
    check(|| together([fault_twice, evict_twice, mark_and_unmark, replace]));
}

#[test]
fn a_reservation_is_given_back_once_whoever_wants_the_page() {
    check(|| together([evict_and_fault, give_back_twice, Model::fault]));
    check(|| together([evict_and_fault, give_back_twice, Model::discard]));
}
