//! Which chunks a client holds on which node, and what is in them.
//!
//! A chunk is in exactly one of these hands: *free* (granted, nothing in it), *allotted* (being written), *kept* (a copy of a block), or *spoiled*
//! (nobody knows whether a write to it will still take effect: it goes back to its node and is not used again). Each life of a node has a number:
//! what was allotted in an earlier one is worth nothing.

use std::collections::HashMap;

use farmem_transport::{Frame, RemoteAddress};

use crate::placement::{STRIPE_BLOCKS, chain, most_blocks};

/// How many copies of a block nodes hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Redundancy {
    /// One: a node that is lost takes it along.
    #[default]
    None,
    /// Two, on different nodes.
    Mirror,
}

impl Redundancy {
    /// That number.
    pub const fn copies(self) -> usize {
        match self {
            Self::None => 1,
            Self::Mirror => 2,
        }
    }
}

/// Where copies of a block are, at most two.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Copies([Option<RemoteAddress>; 2]);

impl Copies {
    /// The addresses of those there are.
    pub fn iter(&self) -> impl Iterator<Item = RemoteAddress> + use<> {
        self.0.into_iter().flatten()
    }
    /// How many there are.
    pub fn count(&self) -> usize {
        self.iter().count()
    }
    fn push(&mut self, address: RemoteAddress) {
        if let Some(place) = self.0.iter_mut().find(|place| place.is_none()) {
            *place = Some(address);
        }
    }
    fn without(self, node: u16) -> Self {
        Self(self.0.map(|place| place.filter(|address| address.node != node)))
    }
    fn is_on(&self, node: usize) -> bool {
        self.iter().any(|address| usize::from(address.node) == node)
    }
}

/// Chunks for a block that is about to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allotment {
    /// The block.
    pub block: u32,
    /// Where its copies go.
    pub copies: Copies,
    owner: u16,
    lives: [u32; 2],
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    owner: u16,
    copies: Copies,
}

#[derive(Clone, Debug, Default)]
struct NodeBooks {
    /// Blocks that it lends to all its clients; zero while it can't be used.
    size: u64,
    is_usable: bool,
    /// Whether its latest answer was that nothing is left.
    is_full: bool,
    life: u32,
    free: Vec<Frame>,
    spoiled: Vec<Frame>,
    /// Copies kept there, and being written.
    used: u64,
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
    /// Blocks that have fewer copies than they should.
    bare: Vec<u32>,
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
            bare: Vec::new(),
        }
    }

    /// A node can be used; it lends so many blocks.
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

    /// What a node held is lost, what was granted there too. The blocks of which no copy is left.
    pub fn lose(&mut self, node: usize) -> Vec<u32> {
        let Some(books) = self.nodes.get_mut(node) else { return Vec::new() };
        books.life = books.life.wrapping_add(1);
        books.free.clear();
        books.spoiled.clear();
        (books.used, books.is_usable, books.is_full) = (0, false, false);
        let mut gone = Vec::new();
        for (&block, kept) in &mut self.blocks {
            if kept.copies.is_on(node) {
                kept.copies = kept.copies.without(node as u16);
                if kept.copies.count() == 0 { &mut gone } else { &mut self.bare }.push(block);
            }
        }
        self.blocks.retain(|_, kept| kept.copies.count() > 0);
        gone
    }

    /// One copy turns out not to be there. Whether none is left.
    pub fn lose_copy(&mut self, block: u32, node: u16) -> bool {
        let Some(kept) = self.blocks.get_mut(&block) else { return true };
        if kept.copies.is_on(node.into()) {
            kept.copies = kept.copies.without(node);
            if let Some(books) = self.nodes.get_mut(usize::from(node)) {
                books.used = books.used.saturating_sub(1);
            }
            self.bare.push(block);
        }
        let is_gone = kept.copies.count() == 0;
        if is_gone {
            self.blocks.remove(&block);
        }
        is_gone
    }

    /// A node has granted chunks of a slab's size.
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
        let of_node = |books: &NodeBooks| match (books.is_usable, books.is_full) {
            (false, _) => 0,
            (true, true) => books.free.len(),
            (true, false) => books.free.len() + unknown,
        };
        let mut rooms: Vec<usize> = self.nodes.iter().map(of_node).filter(|room| *room > 0).collect();
        rooms.sort_unstable();
        match (self.redundancy, rooms.split_last()) {
            (_, None) => 0,
            (Redundancy::None, _) | (Redundancy::Mirror, Some((_, []))) => rooms.iter().sum(),
            // Two copies of one block never are on the same node.
            (Redundancy::Mirror, Some((most, others))) => {
                let others: usize = others.iter().sum();
                others.min((others + most) / 2)
            }
        }
    }

    /// Chunks for a block of a process: of the nodes that its stripe prefers, passing over those that have none or more than their part, or hold
    /// `most` blocks already. What was kept of the block before is free. `None` when no node has any.
    ///
    /// A block that should have two copies gets one where only one node has room: it is among [`Books::bare_block`] then.
    pub fn allot(&mut self, block: u32, owner: u16, most: impl Fn(usize) -> u64) -> Option<Allotment> {
        self.forget(block);
        let sizes: Vec<u64> =
            self.nodes.iter().map(|node| if node.is_usable { node.size } else { 0 }).collect();
        let left = self.left.entry(owner).or_default();
        let chain = chain(self.identity ^ u64::from(owner), *left / STRIPE_BLOCKS, &sizes);
        *left += 1;
        let total = self.nodes.iter().map(|node| node.used).sum();
        let mut allotment = Allotment { block, copies: Copies::default(), owner, lives: [0; 2] };
        // First within the bounds, then wherever there is room: a bound evens out, it doesn't refuse.
        for is_bounded in [true, false] {
            for &node in &chain {
                let nth = allotment.copies.count();
                let books = &mut self.nodes[node];
                let bound = most(node).min(if is_bounded {
                    most_blocks(total, books.size, &sizes)
                } else {
                    u64::MAX
                });
                if nth == self.redundancy.copies() || allotment.copies.is_on(node) || books.used >= bound {
                    continue;
                }
                if let Some(frame) = books.free.pop() {
                    books.used += 1;
                    allotment.lives[nth] = books.life;
                    allotment.copies.push(RemoteAddress { node: node as u16, frame });
                }
            }
        }
        (allotment.copies.count() > 0).then_some(allotment)
    }

    /// The block was written. `are_written` says for each copy whether it is there for certain; the chunks of the others are spoiled. Whether the
    /// block is kept now: all copies are there, and no node was lost meanwhile.
    pub fn settle(&mut self, allotment: &Allotment, are_written: [bool; 2]) -> bool {
        let mut kept = Copies::default();
        for ((address, life), is_written) in allotment.copies.iter().zip(allotment.lives).zip(are_written) {
            let Some(books) = self.nodes.get_mut(usize::from(address.node)) else { continue };
            if books.life != life {
                continue;
            }
            if is_written {
                kept.push(address);
            } else {
                books.used = books.used.saturating_sub(1);
                books.spoiled.push(address.frame);
            }
        }
        if kept.count() < allotment.copies.count() {
            self.free_all(kept);
            return false;
        }
        if kept.count() < self.redundancy.copies() {
            self.bare.push(allotment.block);
        }
        self.blocks.insert(allotment.block, Kept { owner: allotment.owner, copies: kept });
        true
    }

    /// Where a block's copies are.
    pub fn copies(&self, block: u32) -> Copies {
        self.blocks.get(&block).map(|kept| kept.copies).unwrap_or_default()
    }

    /// Frees the chunks of blocks that belong to no slab any more. How many blocks.
    pub fn sweep(&mut self, is_claimed: impl Fn(u32) -> bool) -> usize {
        let unclaimed: Vec<u32> = self.blocks.keys().copied().filter(|block| !is_claimed(*block)).collect();
        unclaimed.iter().for_each(|block| self.forget(*block));
        unclaimed.len()
    }

    /// A block that has fewer copies than it should: its number, where it is, and a chunk for another copy, on a node that has none.
    pub fn bare_block(&mut self, most: impl Fn(usize) -> u64) -> Option<(RemoteAddress, Allotment)> {
        while let Some(block) = self.bare.pop() {
            let Some(kept) = self.blocks.get(&block).copied() else { continue };
            let Some(from) = kept.copies.iter().next() else { continue };
            if kept.copies.count() >= self.redundancy.copies() {
                continue;
            }
            let sizes: Vec<u64> =
                self.nodes.iter().map(|node| if node.is_usable { node.size } else { 0 }).collect();
            let chain =
                chain(self.identity ^ u64::from(kept.owner), u64::from(block) / STRIPE_BLOCKS, &sizes);
            let fits = |node: &usize| {
                let books = &self.nodes[*node];
                !kept.copies.is_on(*node) && !books.free.is_empty() && books.used < most(*node)
            };
            let Some(node) = chain.into_iter().find(fits) else {
                self.bare.push(block);
                return None;
            };
            let books = &mut self.nodes[node];
            let frame = books.free.pop()?;
            books.used += 1;
            let mut allotment =
                Allotment { block, copies: Copies::default(), owner: kept.owner, lives: [books.life; 2] };
            allotment.copies.push(RemoteAddress { node: node as u16, frame });
            return Some((from, allotment));
        }
        None
    }

    /// A copy was added to a block, or not. Not, either, when the block was written or freed meanwhile: `from` is where it was read.
    pub fn settle_copy(&mut self, from: RemoteAddress, allotment: &Allotment, is_written: bool) -> bool {
        let Some(address) = allotment.copies.iter().next() else { return false };
        let Some(books) = self.nodes.get_mut(usize::from(address.node)) else { return false };
        if books.life != allotment.lives[0] {
            self.bare.push(allotment.block);
            return false;
        }
        let kept = self.blocks.get_mut(&allotment.block);
        match kept.filter(|kept| is_written && kept.copies.iter().any(|copy| copy == from)) {
            Some(kept) if kept.copies.count() < 2 => {
                kept.copies.push(address);
                true
            }
            _ => {
                books.used = books.used.saturating_sub(1);
                if is_written { &mut books.free } else { &mut books.spoiled }.push(address.frame);
                self.bare.push(allotment.block);
                false
            }
        }
    }

    /// Whether blocks have fewer copies than they should.
    pub fn is_bare(&self) -> bool {
        !self.bare.is_empty()
    }

    /// Copies on each node.
    pub fn used(&self) -> impl Iterator<Item = u64> {
        self.nodes.iter().map(|node| node.used)
    }

    fn forget(&mut self, block: u32) {
        if let Some(kept) = self.blocks.remove(&block) {
            self.free_all(kept.copies);
        }
    }

    fn free_all(&mut self, copies: Copies) {
        for address in copies.iter() {
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

    fn books(redundancy: Redundancy, nodes: usize, chunks: u32) -> Books {
        let mut books = Books::new(99, redundancy, nodes);
        for node in 0..nodes {
            books.admit(node, u64::from(chunks));
            books.granted(node, &(0..chunks).map(|chunk| Frame::new(chunk * 64)).collect::<Vec<_>>());
        }
        books
    }

    fn keep(books: &mut Books, block: u32) -> Copies {
        let allotment = books.allot(block, 1, ANY).unwrap();
        assert!(books.settle(&allotment, [true; 2]));
        allotment.copies
    }

    #[test]
    fn a_mirrored_block_survives_one_node_and_is_mirrored_again() {
        let mut books = books(Redundancy::Mirror, 3, 8);
        let copies = keep(&mut books, 5);
        let [one, other] = [copies.0[0].unwrap(), copies.0[1].unwrap()];
        assert_ne!(one.node, other.node);
        assert_eq!(books.lose(one.node.into()), []);
        assert!(books.is_bare());
        let (from, allotment) = books.bare_block(ANY).unwrap();
        assert_eq!(from, other);
        assert!(books.settle_copy(from, &allotment, true));
        assert_eq!(books.copies(5).count(), 2);
        assert_eq!(books.lose(other.node.into()), []);
        assert_eq!(books.copies(5).iter().next(), allotment.copies.iter().next());
    }

    #[test]
    fn an_only_copy_is_lost_with_its_node() {
        let mut books = books(Redundancy::None, 1, 8);
        keep(&mut books, 5);
        assert_eq!(books.lose(0), [5]);
        assert_eq!((books.copies(5).count(), books.room(3)), (0, 0));
    }

    #[test]
    fn what_was_written_to_a_node_that_was_lost_meanwhile_is_not_kept() {
        let mut books = books(Redundancy::None, 1, 8);
        let allotment = books.allot(5, 1, ANY).unwrap();
        books.lose(0);
        books.admit(0, 8);
        assert!(!books.settle(&allotment, [true; 2]));
        assert_eq!((books.copies(5).count(), books.in_hand(0)), (0, 0));
    }

    #[test]
    fn a_chunk_whose_write_nobody_is_sure_of_is_given_back_and_not_used_again() {
        let mut books = books(Redundancy::None, 1, 1);
        let allotment = books.allot(5, 1, ANY).unwrap();
        assert!(!books.settle(&allotment, [false; 2]));
        assert_eq!(books.allot(6, 1, ANY), None);
        assert_eq!(books.give_back(0, 0), [Frame::new(0)]);
    }

    #[test]
    fn a_single_node_left_takes_one_copy_rather_than_none() {
        let mut books = books(Redundancy::Mirror, 2, 8);
        books.suspend(0);
        assert_eq!(books.room(0), 8);
        assert_eq!(keep(&mut books, 5).count(), 1);
        assert!(books.is_bare());
    }

    #[test]
    fn blocks_that_no_slab_has_any_more_are_swept() {
        let mut books = books(Redundancy::None, 1, 2);
        keep(&mut books, 5);
        keep(&mut books, 6);
        assert_eq!(books.sweep(|block| block == 6), 1);
        assert_eq!((books.copies(5).count(), books.copies(6).count(), books.in_hand(0)), (0, 1, 1));
    }

    #[test]
    fn a_node_that_may_hold_no_more_is_passed_over() {
        let mut books = books(Redundancy::None, 2, 100);
        for block in 0..20 {
            let allotment = books.allot(block, 1, |node| if node == 0 { 4 } else { u64::MAX }).unwrap();
            books.settle(&allotment, [true; 2]);
        }
        assert!(books.used().next().unwrap() <= 4);
    }

    proptest! {
        #[test]
        fn every_chunk_is_in_one_hand(
            operations in prop::collection::vec((0_u8..8, 0_u32..24, any::<bool>(), any::<bool>()), 1..300),
            mirror in any::<bool>(),
        ) {
            const CHUNKS: u32 = 10;
            let redundancy = if mirror { Redundancy::Mirror } else { Redundancy::None };
            let mut books = books(redundancy, 3, CHUNKS);
            let mut lost = [false; 3];
            let mut given = [0; 3];
            for (what, block, one, other) in operations {
                match what {
                    0..=3 => if let Some(allotment) = books.allot(block, block as u16 % 2, ANY) {
                        books.settle(&allotment, [one, other]);
                    },
                    4 => drop(books.sweep(|other| other != block)),
                    5 => if let Some((from, allotment)) = books.bare_block(ANY) {
                        books.settle_copy(from, &allotment, one);
                    },
                    6 => given[block as usize % 3] += books.give_back(block as usize % 3, 1).len(),
                    _ => if one && other {
                        books.lose(block as usize % 3);
                        lost[block as usize % 3] = true;
                    },
                }
                for node in 0..3 {
                    let mut hands: Vec<Frame> = books.nodes[node].free.clone();
                    hands.extend(&books.nodes[node].spoiled);
                    let copies: Vec<Frame> = books.blocks.values().flat_map(|kept| kept.copies.iter())
                        .filter(|copy| usize::from(copy.node) == node).map(|copy| copy.frame).collect();
                    prop_assert_eq!(copies.len() as u64, books.nodes[node].used);
                    hands.extend(copies);
                    let count = hands.len();
                    hands.sort_unstable();
                    hands.dedup();
                    prop_assert_eq!(count, hands.len(), "a chunk is in two hands");
                    prop_assert!(lost[node] || count + given[node] == CHUNKS as usize);
                }
                for kept in books.blocks.values() {
                    prop_assert!(kept.copies.count() > 0);
                    let mut nodes: Vec<u16> = kept.copies.iter().map(|copy| copy.node).collect();
                    nodes.dedup();
                    prop_assert_eq!(nodes.len(), kept.copies.count());
                }
            }
        }
    }
}
