//! What proves that a page is the page that was stored.

use farmem_page::PageBytes;
use xxhash_rust::{
    const_xxh3::const_custom_default_secret,
    xxh3::{xxh3_64_with_secret, xxh3_128_with_secret},
};

/// 128 bits that stand for the content of a page.
///
/// One value serves two ends: a page that was read back is checked against it, and a page that is about to be
/// stored again is known to be unchanged by it. The second use compares content that a program chooses, which
/// is why it has 128 bits and a seed that no program knows: two pages of one pool share a fingerprint by
/// chance once in 2^64 pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fingerprint(u128);

/// Takes fingerprints with the seed of one pool. Cheap to make, free to share between threads.
#[derive(Clone)]
pub struct Fingerprinter {
    secret: [u8; SECRET_BYTES],
}

const SECRET_BYTES: usize = 192;

impl Fingerprint {
    /// The fingerprint from its two halves, low one first.
    pub const fn from_words(words: [u64; 2]) -> Self {
        Self(words[0] as u128 | (words[1] as u128) << 64)
    }
    /// The two halves, low one first.
    pub const fn to_words(self) -> [u64; 2] {
        [self.0 as u64, (self.0 >> 64) as u64]
    }
}

impl Fingerprinter {
    /// A fingerprinter for the pool with this seed.
    pub const fn new(seed: u64) -> Self {
        Self { secret: const_custom_default_secret(seed) }
    }
    /// A check for one word (XXH3, 64 bits); also good as a hash of it.
    pub fn of_word(&self, word: u64) -> u64 {
        xxh3_64_with_secret(&word.to_le_bytes(), &self.secret)
    }
    /// The fingerprint of a page (XXH3, 128 bits).
    pub fn of(&self, page: &PageBytes) -> Fingerprint {
        Fingerprint(xxh3_128_with_secret(page, &self.secret))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farmem_page::PAGE_BYTES;
    use xxhash_rust::xxh3::xxh3_128_with_seed;

    #[test]
    fn a_fingerprint_is_the_seeded_xxh3_of_the_page() {
        let page = core::array::from_fn::<u8, PAGE_BYTES, _>(|at| (at * 31 % 251) as u8);
        let taken = Fingerprinter::new(99).of(&page);
        assert_eq!(taken, Fingerprint(xxh3_128_with_seed(&page, 99)));
    }

    #[test]
    fn a_flipped_bit_changes_the_fingerprint() {
        let fingerprinter = Fingerprinter::new(3);
        let page = [5u8; PAGE_BYTES];
        let whole = fingerprinter.of(&page);
        for byte in (0..PAGE_BYTES).step_by(61) {
            let mut flipped = page;
            flipped[byte] ^= 1;
            assert_ne!(fingerprinter.of(&flipped), whole, "byte {byte}");
        }
    }

    #[test]
    fn words_survive_the_round_trip() {
        let taken = Fingerprinter::new(1).of(&[9; PAGE_BYTES]);
        assert_eq!(Fingerprint::from_words(taken.to_words()), taken);
    }
}
