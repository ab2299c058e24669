//! Memory nodes as the mover sees them.

use crate::class::SLAB_BYTES;
use crate::disk::BlockError;
use crate::pool::OwnerId;

/// A block of which nodes get a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeBlock {
    /// Its number.
    pub block: usize,
    /// The process whose pages it holds: those of a process stay together.
    pub owner: OwnerId,
}

/// Memory nodes that keep copies of blocks. Where they keep them is their own affair.
pub trait Nodes {
    /// How many more blocks they would take at this moment, as far as is known.
    fn room(&self) -> usize;
    /// Writes blocks, of which `content` holds 256 KiB each, in the same order. Sets in `kept` which ones are
    /// safely there now, with all the copies that they should have; what was there of a block before is gone
    /// in any case.
    fn write(&mut self, blocks: &[NodeBlock], content: &[u8], kept: &mut [bool]);
    /// Whether what was written of a block is still there. The thread that loses it tells the pool, by
    /// [`Pool::forget_nodes_of`](crate::Pool::forget_nodes_of), and says so here from before that on.
    fn has(&self, block: usize) -> bool;
    /// Reads a whole block.
    ///
    /// # Errors
    /// No node has it, or none answers.
    fn read(&mut self, block: usize, out: &mut [u8; SLAB_BYTES]) -> Result<(), BlockError>;
}

/// No nodes.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoNodes;

impl Nodes for NoNodes {
    fn room(&self) -> usize {
        0
    }
    fn write(&mut self, _: &[NodeBlock], _: &[u8], kept: &mut [bool]) {
        kept.fill(false);
    }
    fn has(&self, _: usize) -> bool {
        false
    }
    fn read(&mut self, _: usize, _: &mut [u8; SLAB_BYTES]) -> Result<(), BlockError> {
        Err(BlockError::Failed)
    }
}
