//! What each node lends and holds, and its coming and going.

use farmem_transport::{Frame, MOST_CHUNKS, Rack};

use super::{BlockTable, Kept, WrittenBy};

#[derive(Clone, Debug, Default)]
pub(super) struct NodeChunks {
    /// Chunks that it lends to all its clients; zero while it can't be used.
    pub(super) size: u64,
    is_usable: bool,
    /// Whether it gets nothing more, and what is on it goes elsewhere.
    pub(super) is_leaving: bool,
    /// Whether its latest answer was that nothing is left.
    pub(super) is_full: bool,
    /// Whether its writer waits for an answer that is long overdue.
    is_silent: bool,
    pub(super) incarnation: u32,
    /// The number of the rack that it is in, if that is known.
    pub(super) rack: Option<u16>,
    pub(super) free: Vec<Frame>,
    /// By the thread that has written to them.
    spoiled: [Vec<Frame>; 2],
    /// Shards kept there, and being written.
    pub(super) used: u64,
}

impl NodeChunks {
    /// Whether something could be written there.
    pub(super) fn answers(&self) -> bool {
        self.is_usable && !self.is_silent
    }

    /// Whether it can be given something.
    pub(super) fn takes_part(&self) -> bool {
        self.answers() && !self.is_leaving
    }

    /// Chunks that this one is to give back.
    pub(super) fn spoiled(&mut self, by: WrittenBy) -> &mut Vec<Frame> {
        let [mover, rebuilder] = &mut self.spoiled;
        match by {
            WrittenBy::Mover => mover,
            WrittenBy::Rebuilder => rebuilder,
        }
    }
}

impl BlockTable {
    /// One more node, with the next number.
    pub fn add_node(&mut self) {
        self.nodes.push(NodeChunks::default());
    }

    /// A node can be used; it lends so many chunks.
    pub fn admit(&mut self, node: usize, size: u64) {
        if let Some(chunks) = self.nodes.get_mut(node) {
            (chunks.size, chunks.is_usable) = (size, true);
        }
    }

    /// A node says that it is in this rack, or in none that it knows of.
    pub fn set_rack(&mut self, node: usize, rack: Option<Rack>) {
        let number = rack.map(|rack| self.racks.number(rack));
        let Some(chunks) = self.nodes.get_mut(node).filter(|chunks| chunks.rack != number) else { return };
        chunks.rack = number;
        self.on_node(node).into_iter().for_each(|block| self.note_exposed(block));
    }

    /// Blocks with a shard on a node.
    fn on_node(&self, node: usize) -> Vec<u32> {
        let is_there = |kept: &Kept| kept.located.shards.on(node).is_some();
        self.blocks.iter().filter(|(_, kept)| is_there(kept)).map(|(block, _)| *block).collect()
    }

    /// A node can't be used for now. What it holds is still there.
    pub fn suspend(&mut self, node: usize) {
        if let Some(chunks) = self.nodes.get_mut(node) {
            chunks.is_usable = false;
        }
    }

    /// What a node held is lost, what was granted there too. The blocks of which too little is left.
    pub fn lose(&mut self, node: usize) -> Vec<u32> {
        let Some(chunks) = self.nodes.get_mut(node) else { return Vec::new() };
        chunks.incarnation = chunks.incarnation.wrapping_add(1);
        chunks.free.clear();
        chunks.spoiled = Default::default();
        (chunks.used, chunks.is_usable, chunks.is_full, chunks.is_silent) = (0, false, false, false);
        let least = self.redundancy.data();
        let (mut gone, mut exposed) = (Vec::new(), Vec::new());
        for (&block, kept) in &mut self.blocks {
            let shards = &mut kept.located.shards;
            if let Some(shard) = shards.on(node) {
                shards.clear(shard);
                if shards.count() < least {
                    gone.push(block);
                } else {
                    self.bare.insert(block);
                    exposed.extend(self.exposed.contains(&block).then_some(block));
                }
            }
        }
        exposed.into_iter().for_each(|block| self.note_exposed(block));
        gone.iter().for_each(|block| self.forget(*block));
        gone
    }

    /// Nothing is expected of a node any more. What is still there is lost.
    pub fn retire(&mut self, node: usize) -> Vec<u32> {
        let gone = self.lose(node);
        if let Some(chunks) = self.nodes.get_mut(node) {
            chunks.size = 0;
        }
        gone
    }

    /// From now on a node gets nothing more, and its shards are for [`BlockTable::next_leaving`]; or it takes
    /// part again.
    pub fn set_leaving(&mut self, node: usize, is_leaving: bool) {
        let Some(chunks) = self.nodes.get_mut(node) else { return };
        chunks.is_leaving = is_leaving;
        if is_leaving {
            let blocks = self.on_node(node);
            self.leaving.extend(blocks);
        }
    }

    /// Whether a node gets nothing more.
    pub fn is_leaving(&self, node: usize) -> bool {
        self.nodes.get(node).is_some_and(|chunks| chunks.is_leaving)
    }

    /// Which incarnation of a node it is, counted here from 0: the node's own number says which is another
    /// one, not which is later.
    pub fn incarnation(&self, node: usize) -> u32 {
        self.nodes.get(node).map_or(0, |chunks| chunks.incarnation)
    }

    /// A node has granted chunks of a shard's size.
    pub fn granted(&mut self, node: usize, frames: &[Frame]) {
        if let Some(chunks) = self.nodes.get_mut(node) {
            chunks.free.extend_from_slice(frames);
            chunks.is_full = false;
        }
    }

    /// A node has no such chunk left, or has again.
    pub fn set_full(&mut self, node: usize, is_full: bool) {
        if let Some(chunks) = self.nodes.get_mut(node) {
            chunks.is_full = is_full;
        }
    }

    /// Whether a node said that nothing is left.
    pub fn is_full(&self, node: usize) -> bool {
        self.nodes.get(node).is_some_and(|chunks| chunks.is_full)
    }

    /// A node owes an answer to the thread that brings blocks out of memory, and gets nothing until that has
    /// come; or it has. What it holds is still there.
    pub fn set_silent(&mut self, node: usize, is_silent: bool) {
        if let Some(chunks) = self.nodes.get_mut(node) {
            chunks.is_silent = is_silent;
        }
    }

    /// Whether a node gets nothing because it owes an answer.
    pub fn is_silent(&self, node: usize) -> bool {
        self.nodes.get(node).is_some_and(|chunks| chunks.is_silent)
    }

    /// Free chunks of a node.
    pub fn in_hand(&self, node: usize) -> usize {
        self.nodes.get(node).map_or(0, |chunks| chunks.free.len())
    }

    /// Chunks that a writer is to give back to a node, by the lane that it writes by: those that its writes
    /// have spoiled, and `surplus` free ones; as many as one request gives back.
    pub fn give_back(&mut self, node: usize, by: WrittenBy, surplus: usize) -> Vec<Frame> {
        let Some(chunks) = self.nodes.get_mut(node) else { return Vec::new() };
        let spoiled = chunks.spoiled(by);
        let mut frames = spoiled.split_off(spoiled.len().saturating_sub(MOST_CHUNKS));
        let kept = chunks.free.len().saturating_sub(surplus.min(MOST_CHUNKS - frames.len()));
        frames.append(&mut chunks.free.split_off(kept));
        frames
    }

    /// Shards on a node, and being written there.
    pub fn used_on(&self, node: usize) -> u64 {
        self.nodes.get(node).map_or(0, |chunks| chunks.used)
    }

    /// Shards on each node.
    pub fn used(&self) -> impl Iterator<Item = u64> {
        self.nodes.iter().map(|node| node.used)
    }

    /// Chunks that nodes lend to all their clients.
    pub fn lent(&self) -> u64 {
        self.nodes.iter().map(|chunks| chunks.size).sum()
    }

    /// What nodes lend; nothing, those that are not among these.
    pub(super) fn sizes(&self, is_among: fn(&NodeChunks) -> bool) -> Vec<u64> {
        self.nodes.iter().map(|node| if is_among(node) { node.size } else { 0 }).collect()
    }
}
