//! What tells the bytes that were written to a node from others. Kept by the client for each page of each
//! shard: where a block has several, who sent other bytes is known, and the right ones are made from what the
//! others hold; where it has one, another copy is not given up for bytes that are wrong. (Whatever gets past
//! 32 bits the page's own fingerprint finds.)

use std::sync::Arc;

use farmem_codec::Fingerprinter;
use farmem_transport::FRAME_BYTES;

/// Takes and compares checks, with a seed of its own: nodes can't know which bytes would pass.
pub struct Checker(Fingerprinter);

/// The checks of a block's shards, page by page, one shard after the other.
pub type Checks = Arc<[u32]>;

impl Checker {
    /// With a seed that is nobody else's.
    pub fn new(seed: u64) -> Self {
        Self(Fingerprinter::new(seed))
    }

    /// Those of whole pages.
    pub fn of<'a>(&self, content: &'a [u8]) -> impl Iterator<Item = u32> + use<'a, '_> {
        let (pages, _) = content.as_chunks::<FRAME_BYTES>();
        pages.iter().map(|page| self.0.of(page).to_words()[0] as u32)
    }

    /// Whether the bytes are those pages, of which these are the checks.
    pub fn is_right(&self, content: &[u8], checks: &[u32]) -> bool {
        content.len() == checks.len() * FRAME_BYTES && self.of(content).eq(checks.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_changed_are_not_right() {
        let checker = Checker::new(3);
        let mut content = vec![7; 3 * FRAME_BYTES];
        let checks: Vec<u32> = checker.of(&content).collect();
        assert!(
            checker.is_right(&content, &checks) && checker.is_right(&content[FRAME_BYTES..], &checks[1..])
        );
        content[2 * FRAME_BYTES + 5] ^= 1;
        assert!(
            !checker.is_right(&content, &checks) && checker.is_right(&content[..FRAME_BYTES], &checks[..1])
        );
        assert!(!checker.is_right(&content[..FRAME_BYTES], &checks));
    }
}
