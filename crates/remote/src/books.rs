//! Which chunks a client holds on which node, and what is in them.
//!
//! A chunk is in exactly one of these hands: *free* (granted, nothing in it), *allotted* (being written), *kept* (a shard of a block), or *spoiled*
//! (nobody knows whether a write to it will still take effect, or its node lies: it goes back and is not used again). Each life of a node has a number:
//! what was allotted in an earlier one is worth nothing.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;

use farmem_transport::{Frame, RemoteAddress};

use crate::checks::Checks;
use crate::placement::{STRIPE_BLOCKS, chain, most_blocks};
use crate::redundancy::{MOST_SHARDS, Redundancy};

/// Blocks that are looked at for one that can be made whole, before others get a turn.
const TRIES: usize = 64;

/// Where shards of a block are, those of its own bytes first. No two are on the same node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shards([Option<RemoteAddress>; MOST_SHARDS]);

impl Shards {
    /// Where one is.
    pub fn get(&self, shard: usize) -> Option<RemoteAddress> {
        self.0.get(shard).copied().flatten()
    }
    /// Those there are, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (usize, RemoteAddress)> + use<> {
        self.0.into_iter().enumerate().filter_map(|(shard, address)| Some((shard, address?)))
    }
    /// How many there are.
    pub fn count(&self) -> usize {
        self.iter().count()
    }
    fn set(&mut self, shard: usize, address: RemoteAddress) {
        if let Some(place) = self.0.get_mut(shard) {
            *place = Some(address);
        }
    }
    fn clear(&mut self, shard: usize) {
        if let Some(place) = self.0.get_mut(shard) {
            *place = None;
        }
    }
    fn on(&self, node: usize) -> Option<usize> {
        self.iter().find(|(_, address)| usize::from(address.node) == node).map(|(shard, _)| shard)
    }
}

impl FromIterator<(usize, RemoteAddress)> for Shards {
    fn from_iter<T: IntoIterator<Item = (usize, RemoteAddress)>>(addresses: T) -> Self {
        let mut shards = Self::default();
        addresses.into_iter().for_each(|(shard, address)| shards.set(shard, address));
        shards
    }
}

/// Chunks for shards of a block that are about to be written: for all of a new block, or for those that it lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allotment {
    /// The block.
    pub block: u32,
    /// Where its shards go.
    pub shards: Shards,
    owner: u16,
    lives: [u32; MOST_SHARDS],
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

#[derive(Clone, Debug, Default)]
struct NodeBooks {
    /// Chunks that it lends to all its clients; zero while it can't be used.
    size: u64,
    is_usable: bool,
    /// Whether it gets nothing more, and what is on it goes elsewhere.
    is_leaving: bool,
    /// Whether its latest answer was that nothing is left.
    is_full: bool,
    life: u32,
    free: Vec<Frame>,
    spoiled: Vec<Frame>,
    /// Shards kept there, and being written.
    used: u64,
}

impl NodeBooks {
    /// Whether it can be given something.
    fn takes_part(&self) -> bool {
        self.is_usable && !self.is_leaving
    }
}

/// Those of these blocks that are looked at next, after the one that was last.
fn turns(blocks: &BTreeSet<u32>, last: u32) -> Vec<u32> {
    let after = (Bound::Excluded(last), Bound::Unbounded);
    blocks.range(after).chain(blocks.range(..=last)).copied().take(TRIES).collect()
}

/// A client's books.
#[derive(Clone, Debug)]
pub struct Books {
    identity: u64,
    redundancy: Redundancy,
    nodes: Vec<NodeBooks>,
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
    /// Whether nodes that are leaving take what no other has room for: it has no other place.
    is_last_resort: bool,
    serial: u64,
    rebuilt: u64,
}

impl Books {
    /// Empty books of a client for so many nodes. `identity` is the client's.
    pub fn new(identity: u64, redundancy: Redundancy, nodes: usize) -> Self {
        Self {
            identity,
            redundancy,
            nodes: vec![NodeBooks::default(); nodes],
            blocks: HashMap::new(),
            left: HashMap::new(),
            bare: BTreeSet::new(),
            looked_at: 0,
            leaving: BTreeSet::new(),
            left_at: 0,
            is_last_resort: false,
            serial: 0,
            rebuilt: 0,
        }
    }

    /// One more node, with the next number.
    pub fn add_node(&mut self) {
        self.nodes.push(NodeBooks::default());
    }

    /// From now on a node gets nothing more, and its shards are for [`Books::next_leaving`]; or it takes part again.
    pub fn set_leaving(&mut self, node: usize, is_leaving: bool) {
        let Some(books) = self.nodes.get_mut(node) else { return };
        books.is_leaving = is_leaving;
        if is_leaving {
            let on_node = |kept: &Kept| kept.located.shards.on(node).is_some();
            self.leaving
                .extend(self.blocks.iter().filter(|(_, kept)| on_node(kept)).map(|(block, _)| *block));
        }
    }

    /// Whether a node gets nothing more.
    pub fn is_leaving(&self, node: usize) -> bool {
        self.nodes.get(node).is_some_and(|books| books.is_leaving)
    }

    /// Shards on a node, and being written there.
    pub fn used_on(&self, node: usize) -> u64 {
        self.nodes.get(node).map_or(0, |books| books.used)
    }

    /// Chunks that nodes lend to all their clients.
    pub fn lent(&self) -> u64 {
        self.nodes.iter().map(|books| books.size).sum()
    }

    /// Nothing is expected of a node any more. What is still there is lost.
    pub fn retire(&mut self, node: usize) -> Vec<u32> {
        let gone = self.lose(node);
        if let Some(books) = self.nodes.get_mut(node) {
            books.size = 0;
        }
        gone
    }

    /// Whether there is nowhere else to go than nodes: then those that are leaving take what the others have no room for.
    pub fn set_last_resort(&mut self, is_last_resort: bool) {
        self.is_last_resort = is_last_resort;
    }

    /// Whether nodes that are leaving have to take something.
    pub fn needs_leaving(&self) -> bool {
        self.is_last_resort && self.room_on(NodeBooks::takes_part, 1) == 0
    }

    /// How blocks lie on nodes.
    pub fn redundancy(&self) -> Redundancy {
        self.redundancy
    }

    /// A node can be used; it lends so many chunks.
    pub fn admit(&mut self, node: usize, size: u64) {
        if let Some(books) = self.nodes.get_mut(node) {
            (books.size, books.is_usable) = (size, true);
        }
    }

    /// A node can't be used for now. What it holds is still there.
    pub fn suspend(&mut self, node: usize) {
        if let Some(books) = self.nodes.get_mut(node) {
            books.is_usable = false;
        }
    }

    /// What a node held is lost, what was granted there too. The blocks of which too little is left.
    pub fn lose(&mut self, node: usize) -> Vec<u32> {
        let Some(books) = self.nodes.get_mut(node) else { return Vec::new() };
        books.life = books.life.wrapping_add(1);
        books.free.clear();
        books.spoiled.clear();
        (books.used, books.is_usable, books.is_full) = (0, false, false);
        let least = self.redundancy.data();
        let mut gone = Vec::new();
        for (&block, kept) in &mut self.blocks {
            let shards = &mut kept.located.shards;
            if let Some(shard) = shards.on(node) {
                shards.clear(shard);
                if shards.count() < least {
                    gone.push(block);
                } else {
                    self.bare.insert(block);
                }
            }
        }
        gone.iter().for_each(|block| self.forget(*block));
        gone
    }

    /// One shard turns out not to be there, or not to be what was written. Whether too little of the block is left. Nothing happens if the block was
    /// written or freed meanwhile.
    pub fn lose_shard(&mut self, block: u32, located: &Located, shard: usize, chunk: LostChunk) -> bool {
        let Some(kept) = self.blocks.get_mut(&block).filter(|kept| kept.located.serial == located.serial)
        else {
            return false;
        };
        let shards = &mut kept.located.shards;
        if let Some(address) = shards.get(shard).filter(|address| located.shards.get(shard) == Some(*address))
        {
            shards.clear(shard);
            if let Some(books) = self.nodes.get_mut(usize::from(address.node)) {
                books.used = books.used.saturating_sub(1);
                if chunk == LostChunk::Returned {
                    books.spoiled.push(address.frame);
                }
            }
            self.bare.insert(block);
        }
        let is_gone = shards.count() < self.redundancy.data();
        if is_gone {
            self.forget(block);
        }
        is_gone
    }

    /// A node has granted chunks of a shard's size.
    pub fn granted(&mut self, node: usize, frames: &[Frame]) {
        if let Some(books) = self.nodes.get_mut(node) {
            books.free.extend_from_slice(frames);
            books.is_full = false;
        }
    }

    /// A node has no such chunk left, or has again.
    pub fn set_full(&mut self, node: usize, is_full: bool) {
        if let Some(books) = self.nodes.get_mut(node) {
            books.is_full = is_full;
        }
    }

    /// Whether a node said that nothing is left.
    pub fn is_full(&self, node: usize) -> bool {
        self.nodes.get(node).is_some_and(|books| books.is_full)
    }

    /// Free chunks of a node.
    pub fn in_hand(&self, node: usize) -> usize {
        self.nodes.get(node).map_or(0, |books| books.free.len())
    }

    /// Which life of a node it is.
    pub fn life(&self, node: usize) -> u32 {
        self.nodes.get(node).map_or(0, |books| books.life)
    }

    /// Chunks to be given back to a node: those that are spoiled, and `surplus` free ones.
    pub fn give_back(&mut self, node: usize, surplus: usize) -> Vec<Frame> {
        let Some(books) = self.nodes.get_mut(node) else { return Vec::new() };
        let kept = books.free.len().saturating_sub(surplus);
        let mut frames = books.free.split_off(kept);
        frames.append(&mut books.spoiled);
        frames
    }

    /// How many blocks could be placed now. A node that has not refused yet is taken to have `unknown` more than is in hand.
    pub fn room(&self, unknown: usize) -> usize {
        match self.room_on(NodeBooks::takes_part, unknown) {
            0 if self.is_last_resort => self.room_on(|books| books.is_usable, unknown),
            room => room,
        }
    }

    fn room_on(&self, is_among: impl Fn(&NodeBooks) -> bool, unknown: usize) -> usize {
        let of_node = |books: &NodeBooks| match (is_among(books), books.is_full) {
            (false, _) => 0,
            (true, true) => books.free.len(),
            (true, false) => books.free.len() + unknown,
        };
        let mut rooms: Vec<usize> = self.nodes.iter().map(of_node).filter(|room| *room > 0).collect();
        rooms.sort_unstable();
        let shards = self.redundancy.shards().min(rooms.len());
        if shards < self.redundancy.data() {
            return 0;
        }
        // Two shards of a block never are on the same node. So whatever the roomiest nodes have, each block needs the others for the rest.
        (0..shards)
            .map(|roomiest| rooms[..rooms.len() - roomiest].iter().sum::<usize>() / (shards - roomiest))
            .min()
            .unwrap_or(0)
    }

    /// Chunks for a block of a process: of the nodes that its stripe prefers, passing over those that have none or more than their part, or hold
    /// `most` shards already. What was kept of the block before is free. `None` when too few nodes have any.
    ///
    /// A block gets fewer shards than it should only where no other node could take the rest: it is bare then. A node that has merely no chunk in
    /// hand could, once it has been asked: until then there is nothing for the block, which so stays where it is.
    pub fn allot(&mut self, block: u32, owner: u16, most: impl Fn(usize) -> u64) -> Option<Allotment> {
        self.forget(block);
        let left = self.left.get(&owner).copied().unwrap_or(0);
        let (mut chosen, mut could_be_more) = self.choose(owner, left, NodeBooks::takes_part, &most);
        if chosen.len() < self.redundancy.data() && !could_be_more && self.is_last_resort {
            (chosen, could_be_more) = self.choose(owner, left, |node| node.is_usable, &most);
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
        Some(self.take_chunks(block, owner, chosen.into_iter().enumerate()))
    }

    /// The nodes among some for a block that is the `left`th of its process to leave, as many as it has shards or fewer; and whether one of these nodes
    /// that has no chunk in hand may grant some.
    fn choose(
        &self,
        owner: u16,
        left: u64,
        is_among: fn(&NodeBooks) -> bool,
        most: impl Fn(usize) -> u64,
    ) -> (Vec<usize>, bool) {
        let sizes = self.sizes(is_among);
        let chain = chain(self.identity ^ u64::from(owner), left / STRIPE_BLOCKS, &sizes);
        let total = self.nodes.iter().map(|node| node.used).sum();
        let mut chosen: Vec<usize> = Vec::new();
        let mut add = |bound: &dyn Fn(usize) -> u64| {
            for &node in &chain {
                let books = &self.nodes[node];
                if chosen.len() < self.redundancy.shards()
                    && !chosen.contains(&node)
                    && books.used < bound(node)
                    && !books.free.is_empty()
                {
                    chosen.push(node);
                }
            }
            chosen.len()
        };
        // First within the bounds, then wherever there is room: a bound evens out, it doesn't refuse.
        add(&|node| most(node).min(most_blocks(total, self.nodes[node].size, &sizes)));
        let count = add(&most);
        // A block that leaves anyway is better whole than a node's load slow.
        if count >= self.redundancy.data() {
            add(&|_| u64::MAX);
        }
        let may_grant =
            |node: &NodeBooks| is_among(node) && node.size > 0 && !node.is_full && node.free.is_empty();
        (chosen, self.nodes.iter().any(may_grant))
    }

    /// Free chunks of nodes that have some, for the shards named.
    fn take_chunks(
        &mut self,
        block: u32,
        owner: u16,
        places: impl Iterator<Item = (usize, usize)>,
    ) -> Allotment {
        let mut allotment = Allotment { block, shards: Shards::default(), owner, lives: [0; MOST_SHARDS] };
        for (shard, node) in places {
            let books = &mut self.nodes[node];
            if let Some(frame) = books.free.pop() {
                books.used += 1;
                allotment.lives[shard] = books.life;
                allotment.shards.set(shard, RemoteAddress { node: node as u16, frame });
            }
        }
        allotment
    }

    /// The block was written. `is_written` says for each shard whether it is there for certain; the chunks of the others are spoiled. Whether the
    /// block is kept now: all shards are there, and no node was lost meanwhile.
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
        self.note_leaving(allotment.block);
        true
    }

    /// The shards that are there for certain, on nodes that were not lost meanwhile. The chunks of the others are spoiled.
    fn written(&mut self, allotment: &Allotment, is_written: impl Fn(usize) -> bool) -> Shards {
        let mut kept = Shards::default();
        for (shard, address) in allotment.shards.iter() {
            let Some(books) = self.nodes.get_mut(usize::from(address.node)) else { continue };
            if books.life != allotment.lives[shard] {
                continue;
            }
            if is_written(shard) {
                kept.set(shard, address);
            } else {
                books.used = books.used.saturating_sub(1);
                books.spoiled.push(address.frame);
            }
        }
        kept
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

    /// Frees the chunks of blocks that belong to no slab any more. How many blocks.
    pub fn sweep(&mut self, is_claimed: impl Fn(u32) -> bool) -> usize {
        let unclaimed: Vec<u32> = self.blocks.keys().copied().filter(|block| !is_claimed(*block)).collect();
        unclaimed.iter().for_each(|block| self.forget(*block));
        unclaimed.len()
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
            if let Some(allotment) = self.elsewhere(block, owner, located.shards, lacking, &most) {
                return Some((located, allotment));
            }
        }
        None
    }

    /// A block with shards on nodes that are leaving, and chunks for some of these shards, on nodes that have none of its.
    pub fn next_leaving(&mut self, most: impl Fn(usize) -> u64) -> Option<(Located, Allotment)> {
        for block in turns(&self.leaving, self.left_at) {
            self.left_at = block;
            let Some(Kept { owner, located }) = self.blocks.get(&block).cloned() else {
                self.leaving.remove(&block);
                continue;
            };
            let shards: Vec<usize> = self.shards_leaving(located.shards).collect();
            if shards.is_empty() {
                self.leaving.remove(&block);
            } else if let Some(allotment) = self.elsewhere(block, owner, located.shards, shards, &most) {
                return Some((located, allotment));
            }
        }
        None
    }

    /// Chunks for shards of a block, on nodes that have none of its; `None` when no node has any.
    fn elsewhere(
        &mut self,
        block: u32,
        owner: u16,
        known: Shards,
        wanted: Vec<usize>,
        most: impl Fn(usize) -> u64,
    ) -> Option<Allotment> {
        let sizes = self.sizes(NodeBooks::takes_part);
        let chain = chain(self.identity ^ u64::from(owner), u64::from(block) / STRIPE_BLOCKS, &sizes);
        let fits = |node: &usize| {
            let books = &self.nodes[*node];
            known.on(*node).is_none() && !books.free.is_empty() && books.used < most(*node)
        };
        let places: Vec<(usize, usize)> = wanted.into_iter().zip(chain.into_iter().filter(fits)).collect();
        (!places.is_empty()).then(|| self.take_chunks(block, owner, places.into_iter()))
    }

    /// Frees the blocks with shards on nodes that are leaving which are somewhere else as well. Those blocks.
    pub fn drop_leaving(&mut self, is_elsewhere: impl Fn(u32) -> bool) -> Vec<u32> {
        let dropped: Vec<u32> = self.leaving.iter().copied().filter(|block| is_elsewhere(*block)).collect();
        dropped.iter().for_each(|block| self.forget(*block));
        dropped
    }

    /// Blocks with shards on nodes that are leaving, and perhaps some that had one.
    pub fn leaving(&self) -> impl Iterator<Item = u32> {
        self.leaving.iter().copied()
    }

    /// Whether blocks have shards on nodes that are leaving.
    pub fn is_any_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Shards were added to a block, or have come from nodes that are leaving; or not. Not, either, when the block was written or freed meanwhile. How
    /// many were.
    pub fn settle_rebuilt(
        &mut self,
        located: &Located,
        allotment: &Allotment,
        is_written: impl Fn(usize) -> bool,
    ) -> usize {
        let written = self.written(allotment, is_written);
        let (mut added, mut moved) = (0, 0);
        let mut unused = Shards::default();
        let is_leaving: Vec<bool> = self.nodes.iter().map(|books| books.is_leaving).collect();
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
                        Some(before) if is_leaving.get(usize::from(before.node)) == Some(&true) => {
                            shards.set(shard, address);
                            moved += 1;
                            if let Some(books) = self.nodes.get_mut(usize::from(before.node)) {
                                books.used = books.used.saturating_sub(1);
                                books.spoiled.push(before.frame);
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
        self.note_leaving(allotment.block);
        self.free_all(unused);
        self.rebuilt += added as u64;
        added + moved
    }

    /// Nothing was written to what was allotted.
    pub fn cancel(&mut self, allotment: &Allotment) {
        let unused = self.written(allotment, |_| true);
        self.free_all(unused);
    }

    /// Whether blocks have fewer shards than they should.
    pub fn is_bare(&self) -> bool {
        !self.bare.is_empty()
    }

    /// Shards that blocks lack.
    pub fn lacking(&self) -> u64 {
        let of_block = |kept: &Kept| self.redundancy.shards().saturating_sub(kept.located.shards.count());
        self.bare.iter().filter_map(|block| self.blocks.get(block)).map(|kept| of_block(kept) as u64).sum()
    }

    /// Shards that were made anew since the start.
    pub fn rebuilt(&self) -> u64 {
        self.rebuilt
    }

    /// Shards on each node.
    pub fn used(&self) -> impl Iterator<Item = u64> {
        self.nodes.iter().map(|node| node.used)
    }

    /// What nodes lend; nothing, those that are not among these.
    fn sizes(&self, is_among: fn(&NodeBooks) -> bool) -> Vec<u64> {
        self.nodes.iter().map(|node| if is_among(node) { node.size } else { 0 }).collect()
    }

    /// A block's shards that are on nodes which are leaving.
    fn shards_leaving(&self, shards: Shards) -> impl Iterator<Item = usize> {
        shards.iter().filter(|(_, address)| self.is_leaving(address.node.into())).map(|(shard, _)| shard)
    }

    /// Notes whether a block has shards on nodes that are leaving.
    fn note_leaving(&mut self, block: u32) {
        let is_leaving =
            self.located(block).is_some_and(|located| self.shards_leaving(located.shards).next().is_some());
        if is_leaving {
            self.leaving.insert(block);
        } else {
            self.leaving.remove(&block);
        }
    }

    fn forget(&mut self, block: u32) {
        self.bare.remove(&block);
        self.leaving.remove(&block);
        if let Some(kept) = self.blocks.remove(&block) {
            self.free_all(kept.located.shards);
        }
    }

    fn free_all(&mut self, shards: Shards) {
        for (_, address) in shards.iter() {
            if let Some(books) = self.nodes.get_mut(usize::from(address.node)) {
                books.used = books.used.saturating_sub(1);
                books.free.push(address.frame);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ANY: fn(usize) -> u64 = |_| u64::MAX;
    const ALL: fn(usize) -> bool = |_| true;
    const NOTHING: fn(usize) -> bool = |_| false;

    fn coded(data: u8, parity: u8) -> Redundancy {
        Redundancy::new(data, parity).unwrap()
    }

    fn books(redundancy: Redundancy, nodes: usize, chunks: u32) -> Books {
        let mut books = Books::new(99, redundancy, nodes);
        for node in 0..nodes {
            books.admit(node, u64::from(chunks));
            books.granted(node, &(0..chunks).map(|chunk| Frame::new(chunk * 64)).collect::<Vec<_>>());
        }
        books
    }

    fn no_checks() -> Checks {
        Checks::from([])
    }

    fn keep(books: &mut Books, block: u32) -> Shards {
        let allotment = books.allot(block, 1, ANY).unwrap();
        assert!(books.settle(&allotment, ALL, no_checks()));
        allotment.shards
    }

    fn count(books: &Books, block: u32) -> usize {
        books.located(block).map_or(0, |located| located.shards.count())
    }

    #[test]
    fn a_mirrored_block_survives_one_node_and_is_mirrored_again() {
        let mut books = books(Redundancy::MIRROR, 3, 8);
        let shards = keep(&mut books, 5);
        let [one, other] = [shards.get(0).unwrap(), shards.get(1).unwrap()];
        assert_ne!(one.node, other.node);
        assert_eq!(books.lose(one.node.into()), []);
        assert_eq!((books.is_bare(), books.lacking()), (true, 1));
        let (located, allotment) = books.next_bare(ANY).unwrap();
        assert_eq!(located.shards.iter().collect::<Vec<_>>(), [(1, other)]);
        assert_eq!(books.settle_rebuilt(&located, &allotment, ALL), 1);
        assert_eq!((count(&books, 5), books.is_bare(), books.rebuilt()), (2, false, 1));
        assert_eq!(books.lose(other.node.into()), []);
        assert_eq!(books.located(5).unwrap().shards.get(0), allotment.shards.get(0));
    }

    #[test]
    fn of_a_coded_block_any_two_nodes_may_be_lost_and_the_third_takes_it_along() {
        for lost in (0_u32..1 << 6).filter(|lost| lost.count_ones() == 3) {
            let mut books = books(coded(4, 2), 6, 8);
            keep(&mut books, 5);
            let mut gone = (0..6).filter(|node| lost >> node & 1 == 1).map(|node| books.lose(node));
            assert_eq!([gone.next(), gone.next(), gone.next()], [Some(vec![]), Some(vec![]), Some(vec![5])]);
            drop(gone);
            assert_eq!((count(&books, 5), books.lacking(), books.used().sum::<u64>()), (0, 0, 0));
        }
    }

    #[test]
    fn all_that_a_block_lacks_is_made_at_once_where_nodes_have_room() {
        let mut books = books(coded(4, 2), 8, 8);
        let shards = keep(&mut books, 5);
        for shard in [0, 4] {
            books.lose(shards.get(shard).unwrap().node.into());
        }
        let (located, allotment) = books.next_bare(ANY).unwrap();
        assert_eq!(allotment.shards.iter().map(|(shard, _)| shard).collect::<Vec<_>>(), [0, 4]);
        assert_eq!(books.settle_rebuilt(&located, &allotment, |shard| shard == 4), 1);
        assert_eq!((books.lacking(), count(&books, 5)), (1, 5));
    }

    #[test]
    fn without_a_node_that_has_none_of_a_block_it_stays_bare() {
        let mut books = books(coded(4, 2), 6, 8);
        keep(&mut books, 5);
        books.lose(2);
        assert!(books.next_bare(ANY).is_none());
        books.admit(2, 8);
        books.granted(2, &[Frame::new(0)]);
        let (located, allotment) = books.next_bare(ANY).unwrap();
        assert_eq!(books.settle_rebuilt(&located, &allotment, ALL), 1);
        assert!(!books.is_bare());
    }

    #[test]
    fn what_was_rebuilt_for_a_block_that_was_written_meanwhile_is_dropped() {
        let mut books = books(coded(2, 1), 4, 8);
        keep(&mut books, 5);
        books.lose(usize::from(books.located(5).unwrap().shards.get(0).unwrap().node));
        let (located, allotment) = books.next_bare(ANY).unwrap();
        keep(&mut books, 5);
        assert!(!books.is_current(5, &located));
        assert_eq!(books.settle_rebuilt(&located, &allotment, ALL), 0);
        assert_eq!((count(&books, 5), books.used().sum::<u64>()), (3, 3));
    }

    #[test]
    fn a_node_that_leaves_gets_nothing_more_and_its_shards_go_where_the_block_has_none() {
        for redundancy in [Redundancy::NONE, Redundancy::MIRROR, coded(2, 1)] {
            let mut books = books(redundancy, redundancy.shards() + 1, 32);
            for block in 0..16 {
                keep(&mut books, block);
            }
            let node = usize::from(books.located(0).unwrap().shards.get(0).unwrap().node);
            let under_way = books.allot(16, 1, ANY).unwrap();
            assert!(!books.is_any_leaving());
            books.set_leaving(node, true);
            assert!(books.settle(&under_way, ALL, no_checks()));
            while let Some((located, allotment)) = books.next_leaving(ANY) {
                assert_eq!(books.settle_rebuilt(&located, &allotment, ALL), 1);
                let shards = books.located(allotment.block).unwrap().shards;
                assert_eq!(shards.count(), redundancy.shards());
            }
            assert_eq!((books.used_on(node), books.is_any_leaving(), books.rebuilt()), (0, false, 0));
            assert_eq!(books.used().sum::<u64>(), 17 * redundancy.shards() as u64);
            assert_eq!(books.give_back(node, usize::MAX).len(), 32, "all of it goes back");
            keep(&mut books, 17);
            assert_eq!(books.used_on(node), 0);
            assert_eq!(books.retire(node), []);
            assert_eq!(books.lent(), 32 * redundancy.shards() as u64);
        }
    }

    #[test]
    fn where_no_other_node_has_room_a_shard_stays() {
        let mut books = books(Redundancy::MIRROR, 2, 8);
        keep(&mut books, 5);
        books.set_leaving(1, true);
        assert!(books.next_leaving(ANY).is_none());
        assert_eq!((books.used_on(1), count(&books, 5), books.is_any_leaving()), (1, 2, true));
        books.set_leaving(1, false);
        assert!(books.next_leaving(ANY).is_none());
        assert!(!books.is_any_leaving());
        books.set_leaving(1, true);
        assert_eq!(books.drop_leaving(|block| block == 5), [5]);
        assert_eq!(books.used().sum::<u64>(), 0);
    }

    #[test]
    fn a_node_that_is_leaving_takes_what_has_no_other_place_at_all() {
        let mut books = books(Redundancy::NONE, 2, 2);
        books.set_leaving(1, true);
        books.set_full(0, true);
        books.set_last_resort(true);
        let nodes: Vec<u16> = (0..2).map(|block| keep(&mut books, block).get(0).unwrap().node).collect();
        assert_eq!((nodes, books.room(0), books.needs_leaving()), (vec![0, 0], 2, true));
        assert_eq!(keep(&mut books, 2).get(0).unwrap().node, 1);
        books.set_last_resort(false);
        assert_eq!((books.allot(3, 1, ANY), books.room(0), books.needs_leaving()), (None, 0, false));
        // It goes from there as soon as there is room.
        books.granted(0, &[Frame::new(640)]);
        assert_eq!(books.next_leaving(ANY).unwrap().1.block, 2);
    }

    #[test]
    fn what_was_moved_for_a_node_that_was_lost_meanwhile_takes_its_place() {
        let mut books = books(Redundancy::MIRROR, 3, 8);
        let shards = keep(&mut books, 5);
        let node = usize::from(shards.get(0).unwrap().node);
        books.set_leaving(node, true);
        let (located, allotment) = books.next_leaving(ANY).unwrap();
        books.lose(node);
        assert_eq!(books.settle_rebuilt(&located, &allotment, ALL), 1);
        assert_eq!((books.lacking(), count(&books, 5), books.used_on(node)), (0, 2, 0));
    }

    #[test]
    fn a_shard_that_was_moved_for_a_node_that_stays_after_all_is_dropped() {
        let mut books = books(Redundancy::NONE, 2, 8);
        let shards = keep(&mut books, 5);
        let node = usize::from(shards.get(0).unwrap().node);
        books.set_leaving(node, true);
        let (located, allotment) = books.next_leaving(ANY).unwrap();
        books.set_leaving(node, false);
        assert_eq!(books.settle_rebuilt(&located, &allotment, ALL), 0);
        assert_eq!((books.located(5).unwrap().shards, books.used().sum::<u64>()), (shards, 1));
    }

    #[test]
    fn a_shard_that_is_not_what_was_written_is_lost_alone() {
        let mut books = books(coded(2, 1), 3, 1);
        keep(&mut books, 5);
        let located = books.located(5).unwrap().clone();
        assert!(!books.lose_shard(5, &located, 1, LostChunk::Returned));
        assert!(!books.lose_shard(5, &located, 1, LostChunk::Returned), "it is known already");
        assert_eq!((count(&books, 5), books.lacking()), (2, 1));
        let node = usize::from(located.shards.get(1).unwrap().node);
        assert_eq!(books.give_back(node, 0), [Frame::new(0)]);
        assert!(books.lose_shard(5, &located, 0, LostChunk::Gone));
        assert_eq!((count(&books, 5), books.lacking()), (0, 0));
    }

    #[test]
    fn an_only_copy_is_lost_with_its_node() {
        let mut books = books(Redundancy::NONE, 1, 8);
        keep(&mut books, 5);
        assert_eq!(books.lose(0), [5]);
        assert_eq!((count(&books, 5), books.room(3)), (0, 0));
    }

    #[test]
    fn what_was_written_to_a_node_that_was_lost_meanwhile_is_not_kept() {
        let mut books = books(Redundancy::NONE, 1, 8);
        let allotment = books.allot(5, 1, ANY).unwrap();
        books.lose(0);
        books.admit(0, 8);
        assert!(!books.settle(&allotment, ALL, no_checks()));
        assert_eq!((count(&books, 5), books.in_hand(0)), (0, 0));
    }

    #[test]
    fn a_chunk_whose_write_nobody_is_sure_of_is_given_back_and_not_used_again() {
        let mut books = books(Redundancy::NONE, 1, 1);
        let allotment = books.allot(5, 1, ANY).unwrap();
        assert!(!books.settle(&allotment, NOTHING, no_checks()));
        assert_eq!(books.allot(6, 1, ANY), None);
        assert_eq!(books.give_back(0, 0), [Frame::new(0)]);
    }

    #[test]
    fn fewer_nodes_take_fewer_shards_as_long_as_they_are_enough() {
        let mut books = books(coded(2, 1), 3, 8);
        books.suspend(0);
        assert_eq!((books.room(0), keep(&mut books, 5).count(), books.is_bare()), (8, 2, true));
        books.suspend(1);
        assert_eq!((books.room(0), books.allot(6, 1, ANY)), (0, None));
    }

    #[test]
    fn a_block_waits_for_a_node_that_may_grant_a_chunk_for_its_other_shards() {
        let mut books = books(Redundancy::MIRROR, 2, 1);
        keep(&mut books, 5);
        books.granted(1, &[Frame::new(64)]);
        assert_eq!(books.allot(6, 1, ANY), None, "the other node has not been asked");
        books.set_full(0, true);
        assert_eq!((keep(&mut books, 6).count(), books.lacking()), (1, 1));
    }

    #[test]
    fn a_block_is_rather_whole_than_a_node_s_load_slow() {
        let mut books = books(Redundancy::MIRROR, 2, 8);
        let allotment = books.allot(5, 1, |node| if node == 0 { 0 } else { u64::MAX }).unwrap();
        assert_eq!(allotment.shards.count(), 2);
        assert_eq!(books.allot(6, 1, |_| 0), None);
    }

    #[test]
    fn room_is_what_different_nodes_have_for_each_block() {
        let mut books = Books::new(1, coded(2, 1), 4);
        for (node, chunks) in [9, 3, 2, 1].into_iter().enumerate() {
            books.admit(node, 10);
            books.granted(node, &(0..chunks).map(Frame::new).collect::<Vec<_>>());
            books.set_full(node, true);
        }
        // Two more shards for each block than the roomiest node takes must be elsewhere: 6 of them.
        assert_eq!(books.room(0), 3);
        for block in 0..3 {
            keep(&mut books, block);
        }
        assert!((0..3).all(|block| count(&books, block) >= 2));
    }

    #[test]
    fn parity_takes_turns_among_the_nodes() {
        let mut books = books(coded(4, 2), 6, 64);
        let mut parities = [0; 6];
        for block in 0..60 {
            let shards = keep(&mut books, block);
            for shard in [4, 5] {
                parities[usize::from(shards.get(shard).unwrap().node)] += 1;
            }
        }
        assert_eq!(parities, [20; 6]);
    }

    #[test]
    fn blocks_that_no_slab_has_any_more_are_swept() {
        let mut books = books(Redundancy::NONE, 1, 2);
        keep(&mut books, 5);
        keep(&mut books, 6);
        assert_eq!(books.sweep(|block| block == 6), 1);
        assert_eq!((count(&books, 5), count(&books, 6), books.in_hand(0)), (0, 1, 1));
    }

    #[test]
    fn a_node_that_may_hold_no_more_is_passed_over() {
        let mut books = books(Redundancy::NONE, 2, 100);
        for block in 0..20 {
            let allotment = books.allot(block, 1, |node| if node == 0 { 4 } else { u64::MAX }).unwrap();
            books.settle(&allotment, ALL, no_checks());
        }
        assert!(books.used().next().unwrap() <= 4);
    }

    proptest! {
        #[test]
        fn every_chunk_is_in_one_hand(
            operations in prop::collection::vec((0_u8..9, 0_u32..24, any::<u8>(), any::<bool>()), 1..300),
            redundancy in prop::sample::select(vec![Redundancy::NONE, Redundancy::MIRROR, coded(2, 1), coded(4, 2)]),
        ) {
            const CHUNKS: u32 = 10;
            const NODES: usize = 7;
            let mut books = books(redundancy, NODES, CHUNKS);
            let mut lost = [false; NODES];
            let mut given = [0; NODES];
            for (what, block, written, is_rare) in operations {
                let node = block as usize % NODES;
                let is_written = |shard: usize| written >> (shard % 8) & 1 == 1 || is_rare;
                match what {
                    0..=3 => if let Some(allotment) = books.allot(block, block as u16 % 2, ANY) {
                        books.settle(&allotment, is_written, no_checks());
                    },
                    4 => drop(books.sweep(|other| other != block)),
                    5 | 6 => if let Some((located, allotment)) = books.next_bare(ANY) {
                        books.settle_rebuilt(&located, &allotment, is_written);
                    },
                    7 if is_rare => if let Some((_, allotment)) = books.next_bare(ANY) {
                        books.cancel(&allotment);
                    },
                    7 => {
                        if let Some(located) = books.located(block).cloned() {
                            books.lose_shard(block, &located, usize::from(written) % 6, LostChunk::Returned);
                        }
                        given[node] += books.give_back(node, 1).len();
                    }
                    _ => if is_rare {
                        books.lose(node);
                        lost[node] = true;
                    },
                }
                for node in 0..NODES {
                    let mut hands: Vec<Frame> = books.nodes[node].free.clone();
                    hands.extend(&books.nodes[node].spoiled);
                    let shards: Vec<Frame> = books.blocks.values().flat_map(|kept| kept.located.shards.iter())
                        .filter(|(_, address)| usize::from(address.node) == node)
                        .map(|(_, address)| address.frame).collect();
                    prop_assert_eq!(shards.len() as u64, books.nodes[node].used);
                    hands.extend(shards);
                    let count = hands.len();
                    hands.sort_unstable();
                    hands.dedup();
                    prop_assert_eq!(count, hands.len(), "a chunk is in two hands");
                    prop_assert!(lost[node] || count + given[node] == CHUNKS as usize);
                }
                let mut lacking = 0;
                for (block, kept) in &books.blocks {
                    let count = kept.located.shards.count();
                    prop_assert!(count >= redundancy.data());
                    prop_assert_eq!(count < redundancy.shards(), books.bare.contains(block));
                    lacking += redundancy.shards() - count;
                    let mut nodes: Vec<u16> = kept.located.shards.iter().map(|(_, address)| address.node).collect();
                    nodes.sort_unstable();
                    nodes.dedup();
                    prop_assert_eq!(nodes.len(), count, "two shards are on one node");
                }
                prop_assert_eq!(lacking as u64, books.lacking());
            }
        }
    }
}
