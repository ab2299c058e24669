//! Which slabs a mover takes next. To find the first ones of an order it looks at all slabs: so it notes more
//! of them than a batch wants, one of so many slabs, and takes from these until they are used up. What a
//! batch costs then doesn't grow with the pool.

use crate::memory::Memory;
use crate::mover::BATCH_SLABS;
use crate::pool::Pool;
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;

/// One of so many slabs is noted at a time.
const NOTED_SHARE: usize = 64;

/// Slabs in an order, smallest keys first.
pub(crate) struct Candidates<K> {
    /// The last one is taken next.
    noted: Vec<(K, usize)>,
}

impl<K: Ord + Copy> Candidates<K> {
    pub(crate) const fn new() -> Self {
        Self { noted: Vec::new() }
    }

    /// Forgets what was noted: there may be slabs by now that come before those.
    pub(crate) fn forget(&mut self) {
        self.noted.clear();
    }

    /// The next slabs by their keys, as many as there is room in `out`, and how many there are. `key_of` says
    /// which slabs may be taken at all; one whose key has become larger since it was noted is left to another
    /// look. Fewer than wanted are all that there are.
    pub(crate) fn take<M: Memory>(
        &mut self,
        pool: &Pool<M>,
        key_of: impl Fn(usize) -> Option<K>,
        out: &mut [Option<usize>],
    ) -> usize {
        let mut count = self.take_noted(&key_of, out);
        if count < out.len() {
            self.look(pool.slabs_used(), |slab| key_of(slab).filter(|_| !out[..count].contains(&Some(slab))));
            count += self.take_noted(&key_of, &mut out[count..]);
        }
        count
    }

    fn take_noted(&mut self, key_of: impl Fn(usize) -> Option<K>, out: &mut [Option<usize>]) -> usize {
        let mut count = 0;
        while count < out.len()
            && let Some((key, slab)) = self.noted.pop()
        {
            if key_of(slab).is_some_and(|now| now <= key) {
                out[count] = Some(slab);
                count += 1;
            }
        }
        count
    }

    fn look(&mut self, slabs: usize, key_of: impl Fn(usize) -> Option<K>) {
        let most = (slabs / NOTED_SHARE).max(BATCH_SLABS);
        // The largest of those that are noted gives way to a smaller one.
        let mut smallest = BinaryHeap::from(core::mem::take(&mut self.noted));
        for (key, slab) in (0..slabs).filter_map(|slab| Some((key_of(slab)?, slab))) {
            if smallest.len() < most {
                smallest.push((key, slab));
            } else if let Some(mut largest) = smallest.peek_mut()
                && (key, slab) < *largest
            {
                *largest = (key, slab);
            }
        }
        self.noted = smallest.into_sorted_vec();
        self.noted.reverse();
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::populate::tests::full;
    use std::cell::{Cell, RefCell};
    use std::vec;

    #[test]
    fn all_come_in_order_and_few_looks_do() {
        const SLABS: usize = 4096;
        let pool = full(SLABS);
        // A permutation.
        let keys = RefCell::new((0..SLABS).map(|slab| Some(slab * 1021 % SLABS)).collect::<Vec<_>>());
        let looks = Cell::new(0);
        let key_of = |slab: usize| {
            looks.set(looks.get() + 1);
            keys.borrow()[slab]
        };
        let mut candidates = Candidates::new();
        let mut taken = Vec::new();
        loop {
            let mut out = [None; BATCH_SLABS];
            let count = candidates.take(&pool, key_of, &mut out);
            for slab in out[..count].iter().flatten() {
                taken.push(keys.borrow_mut()[*slab].take().unwrap());
            }
            if count < BATCH_SLABS {
                break;
            }
        }
        assert_eq!(taken, (0..SLABS).collect::<Vec<_>>());
        assert!(looks.get() < (NOTED_SHARE + 4) * SLABS, "{}", looks.get());
    }

    #[test]
    fn what_has_changed_since_is_not_taken_by_its_old_place() {
        let pool = full(100);
        let keys = RefCell::new((0..100).map(Some).collect::<Vec<_>>());
        let mut candidates = Candidates::new();
        let mut take = |most: usize| {
            let mut out = vec![None; most];
            let count = candidates.take(&pool, |slab| keys.borrow()[slab], &mut out);
            let slabs: Vec<_> = out[..count].iter().flatten().copied().collect();
            slabs.iter().for_each(|&slab| keys.borrow_mut()[slab] = None);
            slabs
        };
        assert_eq!(take(2), [0, 1]);
        keys.borrow_mut()[2] = Some(1000);
        keys.borrow_mut()[3] = None;
        assert_eq!(take(8), [4, 5, 6, 7, 8, 9, 10, 11]);
    }

    #[test]
    fn none_is_taken_twice_when_all_are_few() {
        let pool = full(3);
        let mut out = [None; 8];
        assert_eq!(Candidates::new().take(&pool, Some, &mut out), 3);
        assert_eq!(out[..4], [Some(0), Some(1), Some(2), None]);
    }
}
