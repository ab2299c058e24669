//! Blocks that the mover has written to nodes, as it remembers them: the block table may have lost some
//! since.
//!
//! It alone lets slabs have blocks, so one that belongs to none stays so until it gives it to another. Which
//! those are it finds out without a lock, some at a time.

/// Words of [`Held`] that one look goes through: a whole turn over the blocks of a terabyte takes 16 looks.
const LOOKED_AT: usize = 4096;

/// A bit for each block.
#[derive(Debug, Default)]
pub(super) struct Held {
    words: Vec<u64>,
    /// The word that the next look begins with.
    hand: usize,
}

impl Held {
    pub(super) fn insert(&mut self, block: u32) {
        let at = block as usize / 64;
        if at >= self.words.len() {
            self.words.resize(at + 1, 0);
        }
        self.words[at] |= 1 << (block % 64);
    }

    /// Takes out those that belong to no slab any more, of the blocks that it is the turn of.
    pub(super) fn take_unclaimed(&mut self, is_claimed: impl Fn(u32) -> bool) -> Vec<u32> {
        let mut unclaimed = Vec::new();
        for _ in 0..self.words.len().min(LOOKED_AT) {
            let at = if self.hand < self.words.len() { self.hand } else { 0 };
            self.hand = at + 1;
            let word = &mut self.words[at];
            let mut left = *word;
            while left != 0 {
                let bit = left.trailing_zeros();
                left &= left - 1;
                let block = at as u32 * 64 + bit;
                if !is_claimed(block) {
                    *word &= !(1 << bit);
                    unclaimed.push(block);
                }
            }
        }
        unclaimed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_no_slab_is_taken_out_once() {
        let mut held = Held::default();
        assert!(held.take_unclaimed(|_| false).is_empty());
        [3, 64, 1000].into_iter().for_each(|block| held.insert(block));
        assert_eq!(held.take_unclaimed(|block| block == 64), [3, 1000]);
        assert!(held.take_unclaimed(|block| block == 64).is_empty());
        held.insert(3);
        assert_eq!(held.take_unclaimed(|_| false), [3, 64]);
    }

    #[test]
    fn each_look_goes_on_where_the_last_one_ended() {
        let mut held = Held::default();
        let last = 3 * LOOKED_AT as u32 * 64 / 2;
        [0, last].into_iter().for_each(|block| held.insert(block));
        assert_eq!(held.take_unclaimed(|_| false), [0]);
        assert_eq!(held.take_unclaimed(|_| false), [last]);
        held.insert(1);
        let found: Vec<u32> = (0..2).flat_map(|_| held.take_unclaimed(|_| false)).collect();
        assert_eq!(found, [1]);
    }
}
