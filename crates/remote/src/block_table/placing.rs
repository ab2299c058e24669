//! Which nodes a block goes to (COMEX §3.3.4), and for how many blocks there is room.

use farmem_transport::RemoteAddress;

use super::nodes::NodeChunks;
use super::racks::InRacks;
use super::{Allotment, BlockTable, Shards, WrittenBy};
use crate::placement::{Chain, STRIPE_BLOCKS, lent, most_blocks};
use crate::redundancy::MOST_SHARDS;

/// Nodes for a block.
struct Choice {
    /// As many as it has shards, or fewer.
    nodes: Vec<usize>,
    /// Whether one that has no chunk in hand may grant some.
    could_be_more: bool,
    /// Whether such a one is in another rack than that which gets more than may be lost.
    could_be_wider: bool,
}

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
    /// nothing for the block, which so stays where it is. It is the same where one rack would get more of it
    /// than may be lost.
    pub fn allot(&mut self, block: u32, owner: u16, most: impl Fn(usize) -> u64) -> Option<Allotment> {
        self.forget(block);
        let left = self.left.get(&owner).copied().unwrap_or(0);
        let mut choice = self.choose(owner, left, NodeChunks::takes_part, &most);
        if choice.nodes.len() < self.redundancy.data() && !choice.could_be_more && self.is_last_resort {
            choice = self.choose(owner, left, NodeChunks::answers, &most);
        }
        let Choice { nodes: mut chosen, could_be_more, could_be_wider } = choice;
        let shards = self.redundancy.shards();
        let waits = chosen.len() < shards && could_be_more || could_be_wider;
        if chosen.len() < self.redundancy.data() || waits {
            return None;
        }
        self.left.insert(owner, left + 1);
        // Parity is read only when something is lost: it takes turns, from one stripe to the next as well.
        let count = chosen.len();
        chosen.sort_unstable();
        chosen.rotate_left(left as usize % count);
        Some(self.take_chunks(block, owner, WrittenBy::Mover, chosen.into_iter().enumerate()))
    }

    /// The nodes among some for a block that is the `left`th of its process to leave.
    fn choose(
        &self,
        owner: u16,
        left: u64,
        is_among: fn(&NodeChunks) -> bool,
        most: impl Fn(usize) -> u64,
    ) -> Choice {
        let sizes = self.sizes(is_among);
        let redundancy = self.redundancy;
        // Once, not for each node.
        let lent = lent(&sizes);
        let mut chain = Chain::new(self.identity ^ u64::from(owner), left / STRIPE_BLOCKS, &sizes);
        let total = self.nodes.iter().map(|node| node.used).sum();
        let has_room = |node: usize| sizes[node] > 0 && !self.nodes[node].free.is_empty();
        // As evenly over racks as their room allows.
        let even = self.room_in_racks(has_room).least_bound(&InRacks::default(), redundancy.shards());
        let widest = even.max(redundancy.parity());
        let (mut chosen, mut in_racks): (Vec<usize>, _) = (Vec::new(), InRacks::default());
        let mut add = |in_rack: usize, bound: &dyn Fn(usize) -> u64| {
            let mut tried = (0..).map_while(|nth| chain.get(nth));
            while chosen.len() < redundancy.shards()
                && let Some(node) = tried.next()
            {
                let chunks = &self.nodes[node];
                let fits = !chosen.contains(&node) && !chunks.free.is_empty() && chunks.used < bound(node);
                if fits && in_racks.add(chunks.rack, in_rack) {
                    chosen.push(node);
                }
            }
            chosen.len()
        };
        // First within the bounds, then wherever there is room: a bound evens out, it doesn't refuse.
        let part = |node: usize| most_blocks(total, self.nodes[node].size, lent);
        add(even, &|node| most(node).min(part(node)));
        if self.racks() > 0 && widest > even {
            // Evenly over racks rather than over nodes, but not at any cost: one in a small rack would have
            // to take a part of everything.
            add(even, &|node| most(node).min(part(node).saturating_mul(2)));
            add(widest, &|node| most(node).min(part(node)));
        }
        let count = add(widest, &most);
        // A block that leaves anyway is better whole, and better spread over racks, than a node's load slow.
        let are_enough = || {
            let mut taking =
                (0..sizes.len()).filter(|node| has_room(*node) && self.nodes[*node].used < most(*node));
            redundancy.data() > 0 && taking.nth(redundancy.data() - 1).is_some()
        };
        if count >= redundancy.data() || are_enough() {
            add(widest, &|_| u64::MAX);
        }
        let may_grant =
            |node: &&NodeChunks| is_among(node) && node.size > 0 && !node.is_full && node.free.is_empty();
        let is_below =
            |node: &NodeChunks| node.rack.is_none_or(|rack| in_racks.count_in(rack) < redundancy.parity());
        let is_exposed = redundancy.parity() > 0 && in_racks.fullest() > redundancy.parity();
        Choice {
            could_be_more: self.nodes.iter().any(|node| may_grant(&node)),
            could_be_wider: is_exposed && self.nodes.iter().filter(may_grant).any(is_below),
            nodes: chosen,
        }
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
