//! Blocks that lack shards are made whole, and what is on nodes that are leaving goes elsewhere.

use std::collections::BTreeSet;
use std::ops::Bound;

use super::nodes::NodeChunks;
use super::racks::InRacks;
use super::{Allotment, BlockTable, Kept, Located, Shards, WrittenBy};
use crate::placement::{Chain, STRIPE_BLOCKS};

/// Blocks that are looked at for one that can be made whole, before others get a turn.
const TRIES: usize = 64;

/// Those of these blocks that are looked at next, after the one that was last.
pub(super) fn turns(blocks: &BTreeSet<u32>, last: u32) -> Vec<u32> {
    let after = (Bound::Excluded(last), Bound::Unbounded);
    blocks.range(after).chain(blocks.range(..=last)).copied().take(TRIES).collect()
}

impl BlockTable {
    /// Whether blocks have fewer shards than they should.
    pub fn is_bare(&self) -> bool {
        !self.bare.is_empty()
    }

    /// Shards that blocks lack.
    pub fn lacking(&self) -> u64 {
        let of_block = |kept: &Kept| self.redundancy.shards().saturating_sub(kept.located.shards.count());
        self.bare.iter().filter_map(|block| self.blocks.get(block)).map(|kept| of_block(kept) as u64).sum()
    }

    /// Shards that were rebuilt since the start.
    pub fn rebuilt(&self) -> u64 {
        self.rebuilt
    }

    /// A block that lacks shards, and chunks for some of them, on nodes that have none of its.
    pub fn next_bare(&mut self, most: impl Fn(usize) -> u64) -> Option<(Located, Allotment)> {
        for block in turns(&self.bare, self.looked_at) {
            self.looked_at = block;
            let Some(Kept { owner, located }) = self.blocks.get(&block).cloned() else {
                self.bare.remove(&block);
                continue;
            };
            let lacking =
                (0..self.redundancy.shards()).filter(|shard| located.shards.get(*shard).is_none()).collect();
            if let Some(allotment) = self.elsewhere(block, owner, located.shards, lacking, None, &most) {
                return Some((located, allotment));
            }
        }
        None
    }

    /// A block with shards on nodes that are leaving, and chunks for some of these shards, on nodes that have
    /// none of its.
    pub fn next_leaving(&mut self, most: impl Fn(usize) -> u64) -> Option<(Located, Allotment)> {
        for block in turns(&self.leaving, self.left_at) {
            self.left_at = block;
            let Some(Kept { owner, located }) = self.blocks.get(&block).cloned() else {
                self.leaving.remove(&block);
                continue;
            };
            let shards = self.shards_leaving(located.shards);
            if shards.is_empty() {
                self.leaving.remove(&block);
            } else if let Some(allotment) = self.elsewhere(block, owner, located.shards, shards, None, &most)
            {
                return Some((located, allotment));
            }
        }
        None
    }

    /// Chunks for shards of a block, on nodes that have none of its; `None` when no node has any. No rack has
    /// more of the block then than `bound`, or else than it has to.
    pub(super) fn elsewhere(
        &mut self,
        block: u32,
        owner: u16,
        known: Shards,
        wanted: Vec<usize>,
        bound: Option<usize>,
        most: impl Fn(usize) -> u64,
    ) -> Option<Allotment> {
        let sizes = self.sizes(NodeChunks::takes_part);
        let mut chain =
            Chain::new(self.identity ^ u64::from(owner), u64::from(block) / STRIPE_BLOCKS, &sizes);
        let chain = (0..).map_while(|nth| chain.get(nth));
        let fits = |node: usize| {
            let chunks = &self.nodes[node];
            known.on(node).is_none() && !chunks.free.is_empty() && chunks.used < most(node)
        };
        let room = self.room_in_racks(|node| sizes[node] > 0 && fits(node));
        let mut in_racks = InRacks::of(&self.nodes, known, &wanted);
        let bound = bound.unwrap_or_else(|| room.least_bound(&in_racks, wanted.len()));
        let spread = |node: &usize| fits(*node) && in_racks.add(self.nodes[*node].rack, bound);
        let places: Vec<(usize, usize)> = wanted.iter().copied().zip(chain.filter(spread)).collect();
        (!places.is_empty()).then(|| self.take_chunks(block, owner, WrittenBy::Rebuilder, places.into_iter()))
    }

    /// Shards were added to a block, or have come from nodes that are leaving; or not. Not, either, when the
    /// block was written or freed meanwhile. How many were.
    pub fn settle_rebuilt(
        &mut self,
        located: &Located,
        allotment: &Allotment,
        is_written: impl Fn(usize) -> bool,
    ) -> usize {
        let written = self.written(allotment, is_written);
        let (mut added, mut moved) = (0, 0);
        let mut unused = Shards::default();
        let may_move = self.may_move(allotment.block, written);
        let kept = self.blocks.get_mut(&allotment.block).filter(|kept| kept.located.serial == located.serial);
        match kept {
            None => unused = written,
            Some(kept) => {
                let shards = &mut kept.located.shards;
                for (shard, address) in written.iter() {
                    let before = shards.get(shard);
                    match before {
                        _ if shards.on(address.node.into()).is_some() => unused.set(shard, address),
                        None => {
                            shards.set(shard, address);
                            added += 1;
                        }
                        // What nobody reads by that address any more goes back to the node.
                        Some(before) if may_move.contains(&shard) => {
                            shards.set(shard, address);
                            moved += 1;
                            if let Some(chunks) = self.nodes.get_mut(usize::from(before.node)) {
                                chunks.used = chunks.used.saturating_sub(1);
                                chunks.spoiled(WrittenBy::Mover).push(before.frame);
                            }
                        }
                        Some(_) => unused.set(shard, address),
                    }
                }
                if shards.count() == self.redundancy.shards() {
                    self.bare.remove(&allotment.block);
                }
            }
        }
        self.note(allotment.block);
        self.free_all(unused);
        self.rebuilt += added as u64;
        added + moved
    }

    /// Which of a block's shards are better where they were written now: those on nodes that are leaving,
    /// and those that are too many for their racks.
    fn may_move(&self, block: u32, written: Shards) -> Vec<usize> {
        let Some(mut shards) = self.located(block).map(|located| located.shards) else { return Vec::new() };
        let mut better = Vec::new();
        for (shard, to) in written.iter() {
            let Some(from) = shards.get(shard) else {
                shards.set(shard, to);
                continue;
            };
            if self.is_leaving(from.node.into()) || self.is_relieved(shards, shard, to.node) {
                shards.set(shard, to);
                better.push(shard);
            }
        }
        better
    }

    /// Whether blocks have shards on nodes that are leaving.
    pub fn is_any_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Blocks with shards on nodes that are leaving, and perhaps some that had one.
    pub fn leaving(&self) -> impl Iterator<Item = u32> {
        self.leaving.iter().copied()
    }

    /// Frees the blocks with shards on nodes that are leaving which are somewhere else as well. Those blocks.
    pub fn drop_leaving(&mut self, is_elsewhere: impl Fn(u32) -> bool) -> Vec<u32> {
        let dropped: Vec<u32> = self.leaving.iter().copied().filter(|block| is_elsewhere(*block)).collect();
        dropped.iter().for_each(|block| self.forget(*block));
        dropped
    }

    /// A block's shards that are on nodes which are leaving.
    fn shards_leaving(&self, shards: Shards) -> Vec<usize> {
        let leaving = shards.iter().filter(|(_, address)| self.is_leaving(address.node.into()));
        leaving.map(|(shard, _)| shard).collect()
    }

    /// Notes what the nodes of a block's shards ask for.
    pub(super) fn note(&mut self, block: u32) {
        self.note_leaving(block);
        self.note_exposed(block);
    }

    /// Notes whether a block has shards on nodes that are leaving.
    fn note_leaving(&mut self, block: u32) {
        let is_leaving =
            self.located(block).is_some_and(|located| !self.shards_leaving(located.shards).is_empty());
        if is_leaving {
            self.leaving.insert(block);
        } else {
            self.leaving.remove(&block);
        }
    }
}
