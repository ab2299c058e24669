//! Ranges that the program has said something about, on their way to the bookkeeper: any thread puts them in,
//! the bookkeeper alone takes them out, in order. Nobody waits: what doesn't fit is refused.
//!
//! Invariants:
//! 1. A cell's *turn* says whose it is: that of the position at which it will be written next, or one more
//!    when it has been written. The thread that takes a position by moving `head` over it writes its cell,
//!    and nobody else does.
//! 2. A cell's turn is kept less the cell's index, so that zeroed memory is an empty queue.

use farmem_page::{PageCount, PageIndex, PageRange};

use crate::sync::{AtomicU64, Errno, Ordering, QUEUED_HINTS as LENGTH, table};

/// Words of a cell: turn, first page and kind, count of pages.
const CELL: usize = 3;
const COLD: u64 = 1 << 63;

/// What the program has said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hint {
    /// These pages will be wanted soon.
    Prefetch,
    /// These pages won't be wanted for long: they may leave before all others.
    Cold,
}

/// The queue.
#[derive(Debug)]
pub(crate) struct HintQueue {
    words: &'static [AtomicU64],
    head: AtomicU64,
    /// Written by the bookkeeper alone.
    tail: AtomicU64,
}

impl HintQueue {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self { words: table(LENGTH * CELL)?, head: AtomicU64::new(0), tail: AtomicU64::new(0) })
    }

    fn cell(&self, position: u64) -> (&[AtomicU64], u64) {
        let index = position as usize % LENGTH;
        (&self.words[index * CELL..(index + 1) * CELL], index as u64)
    }

    /// `false` when there is no room.
    pub(crate) fn push(&self, hint: Hint, range: PageRange) -> bool {
        let mut position = self.head.load(Ordering::Relaxed);
        loop {
            let (cell, index) = self.cell(position);
            let turn = cell[0].load(Ordering::Acquire).wrapping_add(index);
            if turn < position {
                return false;
            }
            if turn > position {
                position = self.head.load(Ordering::Relaxed);
                continue;
            }
            match self.head.compare_exchange_weak(
                position,
                position + 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    let kind = if hint == Hint::Cold { COLD } else { 0 };
                    cell[1].store(range.start.get() | kind, Ordering::Relaxed);
                    cell[2].store(range.count().get(), Ordering::Relaxed);
                    cell[0].store(position + 1 - index, Ordering::Release);
                    return true;
                }
                Err(now) => position = now,
            }
        }
    }

    /// On the bookkeeper: the next one. `None` also while the next one is being written.
    pub(crate) fn pop(&self) -> Option<(Hint, PageRange)> {
        let position = self.tail.load(Ordering::Relaxed);
        let (cell, index) = self.cell(position);
        if cell[0].load(Ordering::Acquire).wrapping_add(index) != position + 1 {
            return None;
        }
        let first = cell[1].load(Ordering::Relaxed);
        let range =
            PageRange::at(PageIndex::new(first & !COLD), PageCount::new(cell[2].load(Ordering::Relaxed)));
        cell[0].store(position + LENGTH as u64 - index, Ordering::Release);
        self.tail.store(position + 1, Ordering::Relaxed);
        Some((if first & COLD != 0 { Hint::Cold } else { Hint::Prefetch }, range))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, count: u64) -> PageRange {
        PageRange::at(PageIndex::new(start), PageCount::new(count))
    }

    #[test]
    fn what_goes_in_comes_out_in_order_and_what_does_not_fit_is_refused() {
        let queue = HintQueue::new().unwrap();
        for round in 0..3 {
            assert_eq!(queue.pop(), None);
            for at in 0..LENGTH as u64 {
                let hint = if at % 2 == 0 { Hint::Prefetch } else { Hint::Cold };
                assert!(queue.push(hint, range(round + at, at + 1)), "{at} of round {round}");
            }
            assert!(!queue.push(Hint::Cold, range(7, 7)));
            for at in 0..LENGTH as u64 {
                let hint = if at % 2 == 0 { Hint::Prefetch } else { Hint::Cold };
                assert_eq!(queue.pop(), Some((hint, range(round + at, at + 1))));
            }
        }
    }

    #[test]
    fn nothing_is_lost_or_said_twice_between_threads() {
        const EACH: u64 = 20_000;
        let queue = &HintQueue::new().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..3 {
                scope.spawn(move || {
                    for at in 0..EACH {
                        while !queue.push(Hint::Prefetch, range(at, thread + 1)) {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let mut next = [0; 3];
            while next != [EACH; 3] {
                let Some((_, range)) = queue.pop() else {
                    std::thread::yield_now();
                    continue;
                };
                let thread = range.count().get() as usize - 1;
                assert_eq!(range.start.get(), next[thread]);
                next[thread] += 1;
            }
        });
        assert_eq!(queue.pop(), None);
    }
}
