//! Which nodes a block goes to (COMEX §3.3.4), and for how many blocks there is room.

use farmem_transport::RemoteAddress;

use super::nodes::NodeChunks;
use super::{Allotment, BlockTable, Shards, WrittenBy};
use crate::placement::{Chain, STRIPE_BLOCKS, lent, most_blocks};
use crate::redundancy::MOST_SHARDS;

impl BlockTable {
    /// Whether there is nowhere else to go than nodes: then those that are leaving take what the others have
    /// no room for.
    pub fn set_last_resort(&mut self, is_last_resort: bool) {
        self.is_last_resort = is_last_resort;
    }

    /// Whether nodes that are leaving have to take something.
    pub fn needs_leaving(&self) -> bool {
        self.is_last_resort && self.room_on(NodeChunks::takes_part, 1) == 0
    }

    /// How many blocks could be placed now. A node that has not refused yet is taken to have `unknown` more
    /// than is in hand.
    pub fn room(&self, unknown: usize) -> usize {
        match self.room_on(NodeChunks::takes_part, unknown) {
            0 if self.is_last_resort => self.room_on(NodeChunks::answers, unknown),
            room => room,
        }
    }

    fn room_on(&self, is_among: impl Fn(&NodeChunks) -> bool, unknown: usize) -> usize {
        let of_node = |chunks: &NodeChunks| match (is_among(chunks), chunks.is_full) {
            (false, _) => 0,
            (true, true) => chunks.free.len(),
            (true, false) => chunks.free.len() + unknown,
        };
        let mut rooms: Vec<usize> = self.nodes.iter().map(of_node).filter(|room| *room > 0).collect();
        rooms.sort_unstable();
        let shards = self.redundancy.shards().min(rooms.len());
        if shards < self.redundancy.data() {
            return 0;
        }
        // Two shards of a block never are on the same node. So whatever the roomiest nodes have, each block
        // needs the others for the rest.
        (0..shards)
            .map(|roomiest| rooms[..rooms.len() - roomiest].iter().sum::<usize>() / (shards - roomiest))
            .min()
            .unwrap_or(0)
    }

    /// Chunks for a block of a process: of the nodes that its stripe prefers, passing over those that have
    /// none or more than their part, or hold `most` shards already. What was kept of the block before is
    /// free. `None` when too few nodes have any.
    ///
    /// A block gets fewer shards than it should only where no other node could take the rest: it is bare
    /// then. A node that has merely no chunk in hand could, once it has been asked: until then there is
    /// nothing for the block, which so stays where it is.
    pub fn allot(&mut self, block: u32, owner: u16, most: impl Fn(usize) -> u64) -> Option<Allotment> {
        self.forget(block);
        let left = self.left.get(&owner).copied().unwrap_or(0);
        let (mut chosen, mut could_be_more) = self.choose(owner, left, NodeChunks::takes_part, &most);
        if chosen.len() < self.redundancy.data() && !could_be_more && self.is_last_resort {
            (chosen, could_be_more) = self.choose(owner, left, NodeChunks::answers, &most);
        }
        let shards = self.redundancy.shards();
        if chosen.len() < self.redundancy.data() || chosen.len() < shards && could_be_more {
            return None;
        }
        self.left.insert(owner, left + 1);
        // Parity is read only when something is lost: it takes turns, from one stripe to the next as well.
        let count = chosen.len();
        chosen.sort_unstable();
        chosen.rotate_left(left as usize % count);
        Some(self.take_chunks(block, owner, WrittenBy::Mover, chosen.into_iter().enumerate()))
    }

    /// The nodes among some for a block that is the `left`th of its process to leave, as many as it has
    /// shards or fewer; and whether one of these nodes that has no chunk in hand may grant some.
    fn choose(
        &self,
        owner: u16,
        left: u64,
        is_among: fn(&NodeChunks) -> bool,
        most: impl Fn(usize) -> u64,
    ) -> (Vec<usize>, bool) {
        let sizes = self.sizes(is_among);
        // Once, not for each node.
        let lent = lent(&sizes);
        let mut chain = Chain::new(self.identity ^ u64::from(owner), left / STRIPE_BLOCKS, &sizes);
        let total = self.nodes.iter().map(|node| node.used).sum();
        let mut chosen: Vec<usize> = Vec::new();
        let mut add = |bound: &dyn Fn(usize) -> u64| {
            let mut tried = (0..).map_while(|nth| chain.get(nth));
            while chosen.len() < self.redundancy.shards()
                && let Some(node) = tried.next()
            {
                let chunks = &self.nodes[node];
                if !chosen.contains(&node) && chunks.used < bound(node) && !chunks.free.is_empty() {
                    chosen.push(node);
                }
            }
            chosen.len()
        };
        // First within the bounds, then wherever there is room: a bound evens out, it doesn't refuse.
        add(&|node| most(node).min(most_blocks(total, self.nodes[node].size, lent)));
        let count = add(&most);
        // A block that leaves anyway is better whole than a node's load slow.
        if count >= self.redundancy.data() {
            add(&|_| u64::MAX);
        }
        let may_grant =
            |node: &NodeChunks| is_among(node) && node.size > 0 && !node.is_full && node.free.is_empty();
        (chosen, self.nodes.iter().any(may_grant))
    }

    /// Free chunks of nodes that have some, for the shards named.
    pub(super) fn take_chunks(
        &mut self,
        block: u32,
        owner: u16,
        by: WrittenBy,
        places: impl Iterator<Item = (usize, usize)>,
    ) -> Allotment {
        let mut allotment =
            Allotment { block, shards: Shards::default(), owner, by, incarnations: [0; MOST_SHARDS] };
        for (shard, node) in places {
            let chunks = &mut self.nodes[node];
            if let Some(frame) = chunks.free.pop() {
                chunks.used += 1;
                allotment.incarnations[shard] = chunks.incarnation;
                allotment.shards.set(shard, RemoteAddress { node: node as u16, frame });
            }
        }
        allotment
    }
}
