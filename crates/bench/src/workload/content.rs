//! What the pages hold: bytes that can be computed again from the page's number, and that compress to a
//! chosen size.

use clap::ValueEnum;
use farmem_page::PAGE_BYTES;
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use serde::{Deserialize, Serialize};

/// Words of eight bytes in a page.
pub(super) const PAGE_WORDS: usize = PAGE_BYTES / size_of::<u64>();

/// Word that holds the page's identity.
pub(super) const WORD_IDENTITY: usize = 0;
/// Word that counts the writes to the page.
pub(super) const WORD_WRITES: usize = 1;
/// Word that holds the number of the page to visit next, in a pointer chase.
pub(super) const WORD_NEXT: usize = 2;

/// How well the pages compress, by the size that lz4 leaves of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compressibility {
    /// Zeros, but for the page's own number.
    Zero,
    /// To about a quarter.
    Quarter,
    /// To about half.
    Half,
    /// Not at all.
    Random,
}

impl Compressibility {
    /// Random bytes in each pair of words; the other bytes are the same in all pairs of a page. Objects look
    /// like this: pointers and numbers that differ in their low bytes. In lz4 a pair costs these bytes and
    /// three more.
    fn random_bytes(self) -> u32 {
        match self {
            Self::Zero => 0,
            Self::Quarter => 1,
            Self::Half => 5,
            Self::Random => 16,
        }
    }
}

/// Makes pages, and makes them again to compare.
#[derive(Clone, Copy, Debug)]
pub(super) struct Content {
    pub(super) compressibility: Compressibility,
}

/// What [`WORD_IDENTITY`] of a page holds: different in every page, and in no page zero.
pub(super) fn identity(page: usize) -> u64 {
    (page as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Content {
    /// The words of page `page` as they are before any write, with `next` as the page to visit next.
    pub(super) fn generate(self, page: usize, next: u64, words: &mut [u64; PAGE_WORDS]) {
        let mut random = SmallRng::seed_from_u64(page as u64);
        let common = if self.compressibility == Compressibility::Zero { 0 } else { random.next_u64() };
        let (first, second) = match self.compressibility.random_bytes() {
            bytes @ 0..8 => ((1 << (8 * bytes)) - 1, 0),
            _ => (u64::MAX, u64::MAX),
        };
        for pair in words.chunks_exact_mut(2) {
            for (word, mask) in pair.iter_mut().zip([first, second]) {
                *word = if mask == 0 { common } else { common & !mask | random.next_u64() & mask };
            }
        }

        words[WORD_IDENTITY] = identity(page);
        words[WORD_WRITES] = 0;
        words[WORD_NEXT] = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compressed_share(compressibility: Compressibility) -> f64 {
        let mut compressed = 0;
        for page in 0..100 {
            let mut words = [0; PAGE_WORDS];
            Content { compressibility }.generate(page, 0, &mut words);
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let mut room = vec![0; lz4_flex::block::get_maximum_output_size(bytes.len())];
            compressed += lz4_flex::block::compress_into(&bytes, &mut room).unwrap();
        }
        compressed as f64 / (100 * PAGE_BYTES) as f64
    }

    #[test]
    fn pages_compress_as_their_name_says() {
        let near = |compressibility, share: f64| (compressed_share(compressibility) - share).abs() < 0.06;

        assert!(near(Compressibility::Zero, 0.01));
        assert!(near(Compressibility::Quarter, 0.25));
        assert!(near(Compressibility::Half, 0.5));
        assert!(near(Compressibility::Random, 1.0));
    }

    #[test]
    fn a_page_can_be_made_again() {
        let content = Content { compressibility: Compressibility::Half };
        let (mut first, mut again, mut other) = ([0; PAGE_WORDS], [0; PAGE_WORDS], [0; PAGE_WORDS]);

        content.generate(7, 3, &mut first);
        content.generate(7, 3, &mut again);
        content.generate(8, 3, &mut other);

        assert_eq!(first, again);
        assert_ne!(first, other);
    }
}
