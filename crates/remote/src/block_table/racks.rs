//! Racks: what fails as a whole is to hold no more of a block than may be lost (docs/adr/0070).
//!
//! A node says in which rack it is. One that doesn't is a rack of its own. The shards of a block go to as
//! many racks as have room, as evenly as that allows. Where a node would have more than twice its part for
//! that, up to as many as may be lost lie in one rack. Where too few racks have room, one of them gets more:
//! a block is rather whole than spread. Such a block is *exposed*, which is counted; its shards go elsewhere
//! once that is possible.

use std::collections::HashMap;

use farmem_transport::Rack;

use super::nodes::NodeChunks;
use super::repair::turns;
use super::{Allotment, BlockTable, Kept, Located, Shards};
use crate::redundancy::MOST_SHARDS;

/// The racks that nodes were ever in, by number. There are no more than nodes, and these have 16 bits.
#[derive(Clone, Debug, Default)]
pub(super) struct Racks {
    numbers: HashMap<Rack, u16>,
}

impl Racks {
    pub(super) fn number(&mut self, rack: Rack) -> u16 {
        let next = self.numbers.len() as u16;
        *self.numbers.entry(rack).or_insert(next)
    }
}

/// In which racks shards of one block lie.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InRacks {
    racks: [u16; MOST_SHARDS],
    count: usize,
}

impl InRacks {
    /// Those of a block, except for the shards named.
    pub(super) fn of(nodes: &[NodeChunks], shards: Shards, except: &[usize]) -> Self {
        let mut in_racks = Self::default();
        for (_, address) in shards.iter().filter(|(shard, _)| !except.contains(shard)) {
            in_racks.add(nodes.get(usize::from(address.node)).and_then(|chunks| chunks.rack), usize::MAX);
        }
        in_racks
    }

    /// One more, unless the rack then had more than so many. Whether it may.
    pub(super) fn add(&mut self, rack: Option<u16>, bound: usize) -> bool {
        let Some(rack) = rack else { return true };
        let may = self.count_in(rack) < bound && self.count < MOST_SHARDS;
        if may {
            self.racks[self.count] = rack;
            self.count += 1;
        }
        may
    }

    pub(super) fn count_in(&self, rack: u16) -> usize {
        self.racks[..self.count].iter().filter(|other| **other == rack).count()
    }

    /// The most that one rack has.
    pub(super) fn fullest(&self) -> usize {
        self.racks[..self.count].iter().map(|rack| self.count_in(*rack)).max().unwrap_or(0)
    }
}

/// How many nodes could take a shard: in each rack, and in none.
#[derive(Clone, Debug, Default)]
pub(super) struct Room {
    racks: Vec<usize>,
    alone: usize,
}

impl Room {
    /// The least number of shards for a rack with which so many more than these can be placed, or as many as
    /// there is room for.
    pub(super) fn least_bound(&self, held: &InRacks, wanted: usize) -> usize {
        let placed = |bound: usize| -> usize {
            let of_rack =
                |(rack, room): (usize, &usize)| (*room).min(bound.saturating_sub(held.count_in(rack as u16)));
            self.alone + self.racks.iter().enumerate().map(of_rack).sum::<usize>()
        };
        let wanted = wanted.min(placed(usize::MAX));
        (1..=MOST_SHARDS).find(|bound| placed(*bound) >= wanted).unwrap_or(MOST_SHARDS)
    }

    /// Whether a rack has room that has fewer than so many of these, or a node that is in none.
    fn is_there_below(&self, held: &InRacks, bound: usize) -> bool {
        let mut racks = self.racks.iter().enumerate();
        self.alone > 0 || racks.any(|(rack, room)| *room > 0 && held.count_in(rack as u16) < bound)
    }
}

impl BlockTable {
    /// Racks that nodes have named.
    pub fn racks(&self) -> usize {
        self.racks.numbers.len()
    }

    /// Blocks of which one rack holds more shards than may be lost.
    pub fn exposed(&self) -> u64 {
        self.exposed.len() as u64
    }

    /// The nodes that fit, counted by their racks; nothing where no rack is known, for then nothing depends
    /// on it.
    pub(super) fn room_in_racks(&self, fits: impl Fn(usize) -> bool) -> Room {
        let mut room = Room { racks: vec![0; self.racks()], alone: 0 };
        if room.racks.is_empty() {
            return room;
        }
        for (_, chunks) in self.nodes.iter().enumerate().filter(|(node, _)| fits(*node)) {
            match chunks.rack {
                Some(rack) => room.racks[usize::from(rack)] += 1,
                None => room.alone += 1,
            }
        }
        room
    }

    /// Whether one rack holds more of these shards than may be lost. Where none may, no rack is worse than
    /// one node.
    fn is_exposed(&self, shards: Shards) -> bool {
        let parity = self.redundancy.parity();
        parity > 0 && self.racks() > 0 && InRacks::of(&self.nodes, shards, &[]).fullest() > parity
    }

    pub(super) fn note_exposed(&mut self, block: u32) {
        if self.located(block).is_some_and(|located| self.is_exposed(located.shards)) {
            self.exposed.insert(block);
        } else {
            self.exposed.remove(&block);
        }
    }

    /// A block of which one rack holds too much, and chunks for some of that, on nodes of other racks that
    /// have none of it. It is for [`BlockTable::settle_rebuilt`] like what leaves a node.
    pub fn next_exposed(&mut self, most: impl Fn(usize) -> u64) -> Option<(Located, Allotment)> {
        if self.exposed.is_empty() {
            return None;
        }
        let parity = self.redundancy.parity();
        let may_take =
            |chunks: &NodeChunks| chunks.takes_part() && chunks.size > 0 && !chunks.free.is_empty();
        let room =
            self.room_in_racks(|node| may_take(&self.nodes[node]) && self.nodes[node].used < most(node));
        for block in turns(&self.exposed, self.exposed_at) {
            self.exposed_at = block;
            let Some(Kept { owner, located }) = self.blocks.get(&block).cloned() else {
                self.exposed.remove(&block);
                continue;
            };
            let surplus = self.surplus(located.shards);
            let left = InRacks::of(&self.nodes, located.shards, &surplus);
            if room.is_there_below(&left, parity)
                && let Some(allotment) =
                    self.elsewhere(block, owner, located.shards, surplus, Some(parity), &most)
            {
                return Some((located, allotment));
            }
        }
        None
    }

    /// The shards of a block that are too many for their racks.
    fn surplus(&self, shards: Shards) -> Vec<usize> {
        let (parity, mut in_racks) = (self.redundancy.parity(), InRacks::default());
        let rack = |node: u16| self.nodes.get(usize::from(node)).and_then(|chunks| chunks.rack);
        let surplus = shards.iter().filter(|(_, address)| !in_racks.add(rack(address.node), parity));
        surplus.map(|(shard, _)| shard).collect()
    }

    /// Whether a block is better off with a shard at another node.
    pub(super) fn is_relieved(&self, shards: Shards, shard: usize, by: u16) -> bool {
        let parity = self.redundancy.parity();
        let rack = |node: u16| self.nodes.get(usize::from(node)).and_then(|chunks| chunks.rack);
        let Some(from) = shards.get(shard).and_then(|address| rack(address.node)) else { return false };
        let others = InRacks::of(&self.nodes, shards, &[shard]);
        others.count_in(from) >= parity && rack(by).is_none_or(|to| others.count_in(to) < parity)
    }
}
