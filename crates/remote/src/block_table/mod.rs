//! Which chunks a client holds on which node, and what is in them.
//!
//! A chunk is in exactly one of these hands: *free* (granted, nothing in it), *allotted* (being written),
//! *kept* (a shard of a block), or *spoiled* (nobody knows whether a write to it will still take effect, or
//! its node lies: it goes back, by the lane of that write, so that the node has done with the write before it
//! grants the chunk again). Each incarnation of a node has a number: what was allotted in an earlier one is
//! worth nothing.

mod nodes;
mod placing;
mod racks;
#[cfg(test)]
mod racks_tests;
mod repair;
mod shards;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};

use crate::checks::Checks;
use crate::redundancy::{MOST_SHARDS, Redundancy};
use nodes::NodeChunks;
use racks::Racks;
pub use shards::Shards;

/// Chunks for shards of a block that are about to be written: for all of a new block, or for those that it
/// lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allotment {
    /// The block.
    pub block: u32,
    /// Where its shards go.
    pub shards: Shards,
    owner: u16,
    by: WrittenBy,
    incarnations: [u32; MOST_SHARDS],
}

/// The thread that writes shards. Each has lanes of its own, between which there is no order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WrittenBy {
    /// The thread that brings blocks out of memory.
    Mover,
    /// The thread that rebuilds lost shards, and moves those on nodes that are leaving.
    Rebuilder,
}

/// What is known of a block.
#[derive(Clone, Debug)]
pub struct Located {
    /// Where its shards are.
    pub shards: Shards,
    /// What tells their bytes from others.
    pub checks: Checks,
    /// Which writing of the block it is: no other one has this number.
    serial: u64,
}

#[derive(Clone, Debug)]
struct Kept {
    owner: u16,
    located: Located,
}

/// What becomes of the chunk of a shard that is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LostChunk {
    /// Its node says that it is not the client's.
    Gone,
    /// It goes back to its node.
    Returned,
}

/// A client's table of blocks.
#[derive(Clone, Debug)]
pub struct BlockTable {
    identity: u64,
    redundancy: Redundancy,
    nodes: Vec<NodeChunks>,
    blocks: HashMap<u32, Kept>,
    /// Blocks that ever left, by process.
    left: HashMap<u16, u64>,
    /// Blocks that have fewer shards than they should.
    bare: BTreeSet<u32>,
    /// The bare block that was looked at last.
    looked_at: u32,
    /// Blocks with a shard on a node that is leaving, and perhaps some that had one.
    leaving: BTreeSet<u32>,
    /// The one of them that was looked at last.
    left_at: u32,
    /// Blocks of which one rack holds more shards than may be lost.
    exposed: BTreeSet<u32>,
    /// The one of them that was looked at last.
    exposed_at: u32,
    racks: Racks,
    /// Whether nodes that are leaving take what no other has room for: it has no other place.
    is_last_resort: bool,
    serial: u64,
    rebuilt: u64,
}

impl BlockTable {
    /// An empty table of a client, for so many nodes. `identity` is the client's.
    pub fn new(identity: u64, redundancy: Redundancy, nodes: usize) -> Self {
        Self {
            identity,
            redundancy,
            nodes: vec![NodeChunks::default(); nodes],
            blocks: HashMap::new(),
            left: HashMap::new(),
            bare: BTreeSet::new(),
            looked_at: 0,
            leaving: BTreeSet::new(),
            left_at: 0,
            exposed: BTreeSet::new(),
            exposed_at: 0,
            racks: Racks::default(),
            is_last_resort: false,
            serial: 0,
            rebuilt: 0,
        }
    }

    /// How blocks lie on nodes.
    pub fn redundancy(&self) -> Redundancy {
        self.redundancy
    }

    /// The block was written. `is_written` says for each shard whether it is there for certain; the chunks of
    /// the others are spoiled. Whether the block is kept now: all shards are there, and no node was lost
    /// meanwhile.
    pub fn settle(
        &mut self,
        allotment: &Allotment,
        is_written: impl Fn(usize) -> bool,
        checks: Checks,
    ) -> bool {
        let kept = self.written(allotment, is_written);
        if kept.count() < allotment.shards.count() {
            self.free_all(kept);
            return false;
        }
        if kept.count() < self.redundancy.shards() {
            self.bare.insert(allotment.block);
        }
        self.serial += 1;
        let located = Located { shards: kept, checks, serial: self.serial };
        self.blocks.insert(allotment.block, Kept { owner: allotment.owner, located });
        // A node may have begun to leave while it was written to.
        self.note(allotment.block);
        true
    }

    /// The shards that are there for certain, on nodes that were not lost meanwhile. The chunks of the others
    /// are spoiled.
    fn written(&mut self, allotment: &Allotment, is_written: impl Fn(usize) -> bool) -> Shards {
        let mut kept = Shards::default();
        for (shard, address) in allotment.shards.iter() {
            let Some(chunks) = self.nodes.get_mut(usize::from(address.node)) else { continue };
            if chunks.incarnation != allotment.incarnations[shard] {
                continue;
            }
            if is_written(shard) {
                kept.set(shard, address);
            } else {
                chunks.used = chunks.used.saturating_sub(1);
                chunks.spoiled(allotment.by).push(address.frame);
            }
        }
        kept
    }

    /// Nothing was written to what was allotted.
    pub fn cancel(&mut self, allotment: &Allotment) {
        let unused = self.written(allotment, |_| true);
        self.free_all(unused);
    }

    /// Where a block is, if it is on nodes.
    pub fn located(&self, block: u32) -> Option<&Located> {
        self.blocks.get(&block).map(|kept| &kept.located)
    }

    /// Whether a block is still what it was then.
    pub fn is_current(&self, block: u32, located: &Located) -> bool {
        self.blocks.get(&block).is_some_and(|kept| kept.located.serial == located.serial)
    }

    /// Whether a block is still what it was then, and where it was.
    pub fn is_there(&self, block: u32, located: &Located) -> bool {
        self.located(block).is_some_and(|now| now.serial == located.serial && now.shards == located.shards)
    }

    /// One shard turns out not to be there, or not to be what was written. Whether too little of the block is
    /// left. Nothing happens if the block was written or freed meanwhile.
    pub fn lose_shard(&mut self, block: u32, located: &Located, shard: usize, chunk: LostChunk) -> bool {
        let Some(kept) = self.blocks.get_mut(&block).filter(|kept| kept.located.serial == located.serial)
        else {
            return false;
        };
        let shards = &mut kept.located.shards;
        if let Some(address) = shards.get(shard).filter(|address| located.shards.get(shard) == Some(*address))
        {
            shards.clear(shard);
            if let Some(chunks) = self.nodes.get_mut(usize::from(address.node)) {
                chunks.used = chunks.used.saturating_sub(1);
                if chunk == LostChunk::Returned {
                    chunks.spoiled(WrittenBy::Mover).push(address.frame);
                }
            }
            self.bare.insert(block);
        }
        let is_gone = shards.count() < self.redundancy.data();
        match is_gone {
            true => self.forget(block),
            false => self.note_exposed(block),
        }
        is_gone
    }

    /// Frees the chunks of blocks that belong to no slab any more; of those that are not here, nothing.
    pub fn release(&mut self, blocks: &[u32]) {
        blocks.iter().for_each(|block| self.forget(*block));
    }

    fn forget(&mut self, block: u32) {
        self.bare.remove(&block);
        self.leaving.remove(&block);
        self.exposed.remove(&block);
        if let Some(kept) = self.blocks.remove(&block) {
            self.free_all(kept.located.shards);
        }
    }

    fn free_all(&mut self, shards: Shards) {
        for (_, address) in shards.iter() {
            if let Some(chunks) = self.nodes.get_mut(usize::from(address.node)) {
                chunks.used = chunks.used.saturating_sub(1);
                chunks.free.push(address.frame);
            }
        }
    }
}
