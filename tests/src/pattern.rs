//! Data that can be recomputed instead of remembered.

/// The SplitMix64 generator (Steele, Lea and Flood, "Fast splittable pseudorandom number generators").
#[derive(Clone, Debug)]
pub struct SplitMix {
    state: u64,
}

impl SplitMix {
    /// A generator whose sequence depends on `seed` alone.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound
    }
}

/// The value that belongs to `key` at `version`: 100 to `longest` bytes, about half of which compress.
#[must_use]
pub fn value_bytes(key: u64, version: u64, longest: usize) -> Vec<u8> {
    let mut random = SplitMix::new(key.wrapping_mul(0x1000_0000_01b3) ^ version);
    let length = 100 + usize::try_from(random.below(longest as u64 - 99)).expect("below a usize");
    let mut value = Vec::with_capacity(length + 16);
    while value.len() < length {
        let word = random.next_u64().to_le_bytes();
        value.extend_from_slice(&word);
        value.extend_from_slice(&[word[0] & 7; 8]);
    }
    value.truncate(length);
    value
}

/// FNV-1a over everything that was added to it.
#[derive(Clone, Debug)]
pub struct Digest(u64);

impl Digest {
    /// The digest of nothing.
    #[must_use]
    pub fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds bytes; their boundaries don't count.
    pub fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// The digest so far.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0
    }
}

impl Default for Digest {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_depends_on_its_version() {
        assert_ne!(value_bytes(7, 0, 4000), value_bytes(7, 1, 4000));
        assert_eq!(value_bytes(7, 1, 4000), value_bytes(7, 1, 4000));
    }

    #[test]
    fn a_value_keeps_within_its_length() {
        for key in 0..1000 {
            let length = value_bytes(key, 0, 200).len();
            assert!((100..=200).contains(&length), "{length}");
        }
    }
}
