//! The bytes of shards from those of others: Reed-Solomon with few shards.
//!
//! Parity `r` is the sum of all spans, span `i` times 2^(r·i): the exclusive or for the first, RAID 6's
//! second for the second. Up to eight spans and four parities any `data` shards tell the others (a test tries
//! all losses). Both directions take positions in a shard one by one, so ranges can be had from ranges.
//! docs/adr/0028 says why this is not a library's work.

use crate::field::{add_times, double_and_add, inverse, power_of_two, times};
use crate::redundancy::{MOST_SHARDS, Redundancy};

const MOST_DATA: usize = 8;
const _: () = assert!(MOST_DATA < MOST_SHARDS);

/// The factors of spans in a shard.
type Row = [u8; MOST_DATA];

impl Redundancy {
    /// The parity of a block's content, one shard after the other.
    pub fn parity_of(self, content: &[u8]) -> Vec<u8> {
        let bytes = content.len() / self.data();
        let mut parity = vec![0; bytes * self.parity()];
        for (nth, sums) in parity.chunks_exact_mut(bytes.max(1)).enumerate() {
            // Horner's rule: the last span is doubled most often.
            content.chunks_exact(bytes.max(1)).rev().for_each(|span| double_and_add(sums, nth, span));
        }
        parity
    }

    /// A shard's bytes, from the same range of as many others as there are spans. `None` when these are not
    /// as many, or not different, or not as long.
    pub fn restore(self, wanted: usize, known: &[(usize, &[u8])]) -> Option<Vec<u8>> {
        let length = known.first()?.1.len();
        let numbers: Vec<usize> = known.iter().map(|(shard, _)| *shard).collect();
        if wanted >= self.shards() || known.iter().any(|(_, bytes)| bytes.len() != length) {
            return None;
        }
        let factors = self.factors(wanted, &numbers)?;
        let mut bytes = vec![0; length];
        for (&(_, known), factor) in known.iter().zip(factors) {
            add_times(&mut bytes, factor, known);
        }
        Some(bytes)
    }

    /// How often each span is in a shard.
    fn row(self, shard: usize) -> Row {
        match shard.checked_sub(self.data()) {
            None => std::array::from_fn(|span| u8::from(span == shard)),
            Some(nth) => {
                std::array::from_fn(|span| if span < self.data() { power_of_two(nth * span) } else { 0 })
            }
        }
    }

    /// With which factors the known shards add up to the wanted one.
    fn factors(self, wanted: usize, known: &[usize]) -> Option<Row> {
        let size = self.data();
        if known.len() != size || known.iter().any(|shard| *shard >= self.shards()) {
            return None;
        }
        // Each known shard is a sum of spans. Solved for the spans by elimination, with the same done to what
        // says which shards are summed.
        let mut left: Vec<Row> = known.iter().map(|&shard| self.row(shard)).collect();
        let mut right: Vec<Row> =
            (0..size).map(|nth| std::array::from_fn(|other| u8::from(nth == other))).collect();
        for column in 0..size {
            let pivot = (column..size).find(|&row| left[row][column] != 0)?;
            left.swap(column, pivot);
            right.swap(column, pivot);
            let factor = inverse(left[column][column]);
            for matrix in [&mut left, &mut right] {
                matrix[column] = matrix[column].map(|value| times(value, factor));
            }
            for row in (0..size).filter(|row| *row != column) {
                let factor = left[row][column];
                for matrix in [&mut left, &mut right] {
                    let from = matrix[column];
                    matrix[row] = std::array::from_fn(|at| matrix[row][at] ^ times(from[at], factor));
                }
            }
        }
        let wanted = self.row(wanted);
        Some(std::array::from_fn(|shard| {
            (0..size).fold(0, |sum, span| sum ^ times(wanted[span], right[span][shard]))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn content(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| (at * 131 + at / 251 * 17) as u8).collect()
    }

    /// All shards, one after the other.
    fn shards(redundancy: Redundancy, content: &[u8]) -> Vec<Vec<u8>> {
        let bytes = content.len() / redundancy.data();
        let parity = redundancy.parity_of(content);
        content.chunks(bytes).chain(parity.chunks(bytes)).map(<[u8]>::to_vec).collect()
    }

    #[test]
    fn any_losses_up_to_the_parity_are_made_good() {
        for (data, parity) in
            [1, 2, 4, 8].into_iter().flat_map(|data| (1..=4).map(move |parity| (data, parity)))
        {
            let redundancy = Redundancy::new(data, parity).unwrap();
            let shards = shards(redundancy, &content(24 * usize::from(data)));
            assert_eq!(shards.len(), redundancy.shards());
            for lost in (0_u32..1 << shards.len()).filter(|lost| lost.count_ones() == u32::from(parity)) {
                let known: Vec<(usize, &[u8])> = (0..shards.len())
                    .filter(|shard| lost >> shard & 1 == 0)
                    .map(|shard| (shard, &shards[shard][..]))
                    .collect();
                for (wanted, expected) in shards.iter().enumerate() {
                    assert_eq!(
                        redundancy.restore(wanted, &known).as_ref(),
                        Some(expected),
                        "{redundancy}, lost {lost:b}, wanted {wanted}"
                    );
                }
            }
        }
    }

    #[test]
    fn two_copies_are_the_same() {
        let content = content(100);
        assert_eq!(Redundancy::MIRROR.parity_of(&content), content);
    }

    #[test]
    fn too_few_shards_tell_nothing() {
        let redundancy = Redundancy::new(2, 1).unwrap();
        assert_eq!(redundancy.restore(0, &[(1, &[1, 2])]), None);
        assert_eq!(redundancy.restore(0, &[(1, &[1, 2]), (1, &[1, 2])]), None);
        assert_eq!(redundancy.restore(0, &[(1, &[1, 2]), (2, &[1])]), None);
        assert_eq!(redundancy.restore(0, &[(1, &[1, 2]), (9, &[1, 2])]), None);
    }

    proptest! {
        #[test]
        fn a_range_is_restored_from_the_same_range_of_others(
            start in 0_usize..200, length in 1_usize..56, lost in 0_usize..6, also in 0_usize..6,
        ) {
            let redundancy = Redundancy::new(4, 2).unwrap();
            let shards = shards(redundancy, &content(1024));
            let range = start..start + length;
            let mut known: Vec<(usize, &[u8])> = (0..6)
                .filter(|shard| *shard != lost && *shard != also)
                .map(|shard| (shard, &shards[shard][range.clone()]))
                .collect();
            known.truncate(4);
            prop_assert_eq!(redundancy.restore(lost, &known).unwrap(), &shards[lost][range]);
        }
    }
}
