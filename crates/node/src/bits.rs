//! A set of small numbers that finds its smallest one at once: a tree of words, each bit saying whether the
//! word below it has any.

const WORD_BITS: usize = u64::BITS as usize;

/// Numbers below a bound that is given at the start.
#[derive(Clone, Debug)]
pub(crate) struct Bits {
    /// The bottom first; the last has one word.
    levels: Vec<Vec<u64>>,
    count: usize,
}

impl Bits {
    /// None of the numbers below `bound`.
    pub(crate) fn new(bound: usize) -> Self {
        let mut levels = Vec::new();
        let mut words = bound.div_ceil(WORD_BITS).max(1);
        loop {
            levels.push(vec![0; words]);
            if words == 1 {
                return Self { levels, count: 0 };
            }
            words = words.div_ceil(WORD_BITS);
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Whether `number` is one; false beyond the bound.
    pub(crate) fn contains(&self, number: usize) -> bool {
        self.levels[0].get(number / WORD_BITS).is_some_and(|word| word & bit(number) != 0)
    }

    /// The smallest.
    pub(crate) fn first(&self) -> Option<usize> {
        let mut at = 0;
        for level in self.levels.iter().rev() {
            let word = level[at];
            if word == 0 {
                return None;
            }
            at = at * WORD_BITS + word.trailing_zeros() as usize;
        }
        Some(at)
    }

    /// Puts a number in that is not there. It must be below the bound.
    pub(crate) fn insert(&mut self, mut number: usize) {
        debug_assert!(!self.contains(number), "{number} is there");
        self.count += 1;
        for level in &mut self.levels {
            let word = &mut level[number / WORD_BITS];
            let was_empty = *word == 0;
            *word |= bit(number);
            if !was_empty {
                return;
            }
            number /= WORD_BITS;
        }
    }

    /// Takes a number out, if it is there.
    pub(crate) fn remove(&mut self, mut number: usize) -> bool {
        if !self.contains(number) {
            return false;
        }
        self.count -= 1;
        for level in &mut self.levels {
            let word = &mut level[number / WORD_BITS];
            *word &= !bit(number);
            if *word != 0 {
                break;
            }
            number /= WORD_BITS;
        }
        true
    }
}

const fn bit(number: usize) -> u64 {
    1 << (number % WORD_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_is_a_set(bound in 1usize..10_000, steps in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..300)) {
            let (mut bits, mut model) = (Bits::new(bound), BTreeSet::new());
            for (index, is_insertion) in steps {
                let number = index.index(bound);
                if is_insertion && model.insert(number) {
                    bits.insert(number);
                } else if !is_insertion {
                    prop_assert_eq!(bits.remove(number), model.remove(&number));
                }
                prop_assert_eq!(bits.contains(number), model.contains(&number));
                prop_assert_eq!(bits.first(), model.first().copied());
                prop_assert_eq!(bits.count(), model.len());
            }
        }
    }
}
