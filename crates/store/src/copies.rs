//! Where a slab that has left memory can be read.
//!
//! A *block* is a slab's worth of room outside memory. It stands for up to three copies of the same bytes:
//! one on disk, at the block's offset, and one or two on memory nodes, at addresses that only the supervisor
//! knows. Blocks below the disk's size may have a copy there; those from there on lie on nodes alone. So a
//! slab's state names a block whatever holds its content, and a node that is lost changes no state: a copy
//! fewer is left.

use crate::layout::WORD_BYTES;
use crate::memory::{Atomic, Memory};
use crate::pool::{Damaged, Pool};
use crate::slab::Kind;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use farmem_page::Place;

const ON_DISK: u64 = 1;
const ON_NODE: u64 = 2;
const VERSION_SHIFT: u32 = 2;
/// Bits of a block's version: so many writes of a block later, what a reader buffered of it might be taken
/// for new.
pub(crate) const VERSION_BITS: u32 = 29;

/// What there is of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Copies {
    pub(crate) on_disk: bool,
    pub(crate) on_node: bool,
    /// Counts what was written to the block, so that buffered bytes of an earlier content are told from those
    /// of the present one.
    pub(crate) version: u32,
}

impl Copies {
    /// Whether there is one at all.
    pub(crate) const fn is_any(self) -> bool {
        self.on_disk || self.on_node
    }
    const fn decode(bits: u64) -> Self {
        let version = (bits >> VERSION_SHIFT & ((1 << VERSION_BITS) - 1)) as u32;
        Self { on_disk: bits & ON_DISK != 0, on_node: bits & ON_NODE != 0, version }
    }
    const fn encode(self) -> u64 {
        let version = (self.version as u64 & ((1 << VERSION_BITS) - 1)) << VERSION_SHIFT;
        version | if self.on_disk { ON_DISK } else { 0 } | if self.on_node { ON_NODE } else { 0 }
    }
}

impl<M: Memory> Pool<M> {
    fn copies_word(&self, block: usize) -> Result<&M::Word, Damaged> {
        if block >= self.layout.blocks {
            return Err(Damaged);
        }
        self.word(self.layout.copies_at + block * WORD_BYTES)
    }

    /// What there is of a block.
    pub(crate) fn copies(&self, block: usize) -> Result<Copies, Damaged> {
        Ok(Copies::decode(self.copies_word(block)?.load(Acquire)))
    }

    /// Says where the block's new content is. Only for the mover, before a slab's state names the block.
    pub(crate) fn set_copies(&self, block: usize, on_disk: bool, on_node: bool) {
        if let Ok(word) = self.copies_word(block) {
            let version = Copies::decode(word.load(Acquire)).version.wrapping_add(1);
            word.store(Copies { on_disk, on_node, version }.encode(), Release);
        }
    }

    /// Says that the content of a block, which stays what it is, is on disk as well. Only for the mover.
    pub(crate) fn note_disk_copy(&self, block: usize) {
        if let Ok(word) = self.copies_word(block) {
            word.fetch_or(ON_DISK, AcqRel);
        }
    }

    /// Whether a block's content is on disk.
    pub fn has_disk_copy(&self, block: usize) -> bool {
        self.copies(block).is_ok_and(|copies| copies.on_disk)
    }

    /// Whether nodes, and nobody else, have what is stored at `place`.
    pub fn is_on_nodes_alone(&self, place: Place) -> bool {
        let Place::Slot(at) = place else { return false };
        let Ok(state) = self.state(at.slab.get()) else { return false };
        state.kind == Kind::Away
            && self.copies(state.location).is_ok_and(|copies| copies.on_node && !copies.on_disk)
    }

    /// No node holds a block any more. Only for the supervisor.
    pub fn forget_nodes_of(&self, block: usize) {
        if let Ok(word) = self.copies_word(block) {
            word.fetch_and(!ON_NODE, AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_survive_their_encoding() {
        for (on_disk, on_node) in [(false, false), (true, false), (false, true), (true, true)] {
            let copies = Copies { on_disk, on_node, version: (1 << VERSION_BITS) - 1 };
            assert_eq!(Copies::decode(copies.encode()), copies);
        }
        assert_eq!(Copies::decode(0), Copies::default());
    }
}
