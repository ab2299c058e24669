//! A hash table with open addresses, a third full: keys are looked up and put into it at random.

use super::Task;
use super::numbers::mixed;

#[derive(Clone, Copy)]
struct Slot {
    /// 0 for none.
    key: u64,
    value: u64,
}

const PAGE_SLOTS: usize = 4096 / size_of::<Slot>();
/// For each page of the table.
const OPERATIONS: usize = 8;
/// The table is filled, and checked, in so many parts.
const PARTS: usize = 64;

pub(super) struct Dictionary {
    slots: Vec<Slot>,
    /// Keys that it began with; that many, and one for each two operations, are in it at the end.
    first_keys: u64,
    found: usize,
    wrong: usize,
    is_done: bool,
}

impl Dictionary {
    pub(super) fn new(bytes: usize) -> Self {
        let count = 1 << (bytes / size_of::<Slot>()).ilog2();
        let first_keys = count as u64 / 3;
        let mut table = Self {
            slots: vec![Slot { key: 0, value: 0 }; count],
            first_keys,
            found: 0,
            wrong: 0,
            is_done: false,
        };
        Self::in_parts(count, first_keys).for_each(|nth| table.put(nth));
        table
    }

    /// Keys up to so many, those of one part of the table after those of another: at random filling and
    /// checking it would take much longer than all that is measured, where most of the table is far.
    fn in_parts(slots: usize, keys: u64) -> impl Iterator<Item = u64> {
        let part_slots = slots.div_ceil(PARTS);
        let is_in = move |nth: u64, part: usize| Self::home(Self::key(nth), slots) / part_slots == part;
        (0..PARTS).flat_map(move |part| (0..keys).filter(move |&nth| is_in(nth, part)))
    }

    fn key(nth: u64) -> u64 {
        mixed(nth).max(1)
    }

    fn value(nth: u64) -> u64 {
        !mixed(nth)
    }

    /// Where a key is if no other one is there.
    fn home(key: u64, slots: usize) -> usize {
        (key >> 7) as usize & (slots - 1)
    }

    /// Where a key is, or would be.
    fn position(&self, key: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = Self::home(key, self.slots.len());
        while self.slots[at].key != 0 && self.slots[at].key != key {
            at = (at + 1) & mask;
        }
        at
    }

    fn put(&mut self, nth: u64) {
        let key = Self::key(nth);
        let at = self.position(key);
        self.slots[at] = Slot { key, value: Self::value(nth) };
    }

    fn is_there(&self, nth: u64) -> bool {
        let slot = self.slots[self.position(Self::key(nth))];
        slot.key != 0 && slot.value == Self::value(nth)
    }

    fn operations(&self) -> usize {
        self.slots.len() / PAGE_SLOTS * OPERATIONS
    }
}

impl Task for Dictionary {
    fn work(&mut self) {
        for nth in 0..self.operations() as u64 {
            if nth % 2 == 0 {
                self.put(self.first_keys + nth / 2);
                continue;
            }
            // Every second of the keys that are looked up is none of the table's.
            let is_known = nth % 4 == 1;
            let base = if is_known { 0 } else { u64::MAX / 2 };
            let is_there = self.is_there(base + mixed(nth) % self.first_keys);
            self.found += usize::from(is_there);
            self.wrong += usize::from(is_there != is_known);
        }
        self.is_done = true;
    }

    fn is_right(&self) -> bool {
        let keys = self.first_keys + self.operations() as u64 / 2;
        self.is_done
            && self.wrong == 0
            && self.found == self.operations() / 4
            && Self::in_parts(self.slots.len(), keys).all(|nth| self.is_there(nth))
            && self.slots.iter().filter(|slot| slot.key != 0).count() as u64 == keys
    }
}
