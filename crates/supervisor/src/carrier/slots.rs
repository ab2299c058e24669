//! Things that nodes have by their numbers. Numbers are given out one after the other while others look
//! things up, and are never taken back.

use std::ops::Index;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Nodes that may join while a run goes on. One that comes back to an address that was known has its number
/// again.
pub(super) const JOINS: usize = 1024;

/// See the module's text.
pub(super) struct Slots<T> {
    slots: Box<[OnceLock<T>]>,
    used: AtomicUsize,
}

impl<T> Slots<T> {
    /// With these to begin with, and room for some more.
    pub(super) fn new(first: Vec<T>, room: usize) -> Self {
        let used = AtomicUsize::new(first.len());
        let empty = (0..room).map(|_| OnceLock::new());
        Self { slots: first.into_iter().map(OnceLock::from).chain(empty).collect(), used }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }

    /// Whether there can be no more.
    pub(super) fn is_full(&self) -> bool {
        self.len() == self.slots.len()
    }

    /// One more, with the next number. False when there is no room. Only one thread at a time may add.
    pub(super) fn add(&self, thing: T) -> bool {
        let number = self.len();
        let is_added = self.slots.get(number).is_some_and(|slot| slot.set(thing).is_ok());
        if is_added {
            self.used.store(number + 1, Ordering::Release);
        }
        is_added
    }

    /// All, by their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().take(self.len()).filter_map(OnceLock::get)
    }
}

/// As that of a slice: numbers come from the block table alone, which knows of none that was not given out.
impl<T> Index<usize> for Slots<T> {
    type Output = T;

    fn index(&self, number: usize) -> &T {
        self.slots[number].get().expect("a number that was given out")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_each_other_up_to_what_there_is_room_for() {
        let slots = Slots::new(vec!['a'], 2);
        assert!(slots.add('b') && !slots.is_full() && slots.add('c'));
        assert!(slots.is_full() && !slots.add('d'));
        assert_eq!((slots.len(), slots[1]), (3, 'b'));
        assert_eq!(slots.iter().collect::<String>(), "abc");
    }
}
