//! The mover's side of the nodes: whole blocks, there and back.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use farmem_remote::{Allotment, Checks, Pace, WrittenBy};
use farmem_store::{BlockError, NodeBlock, Nodes, SLAB_BYTES};
use farmem_transport::{Answer, Frame, Request};

use super::blocks::{assemble, read_shards};
use super::held::Held;
use super::link::exchange;
use super::links::Links;
use super::stock::Stock;
use super::{Carrier, WRITER_LANE};

/// A batch that takes longer goes elsewhere.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks at what can be given back.
const SWEEP: Duration = Duration::from_millis(200);
/// What a node that has not refused yet is taken to have, beyond what is in hand.
const UNKNOWN_CHUNKS: usize = 8;

/// Writes for the mover. Its links are its own.
pub(crate) struct NodeWriter {
    carrier: &'static Carrier,
    links: Links,
    stock: Stock,
    held: Held,
    swept_at: Instant,
    wrote_at: Instant,
    /// What goes to disk from nodes that are to be emptied.
    lowering: Pace,
}

impl NodeWriter {
    pub(crate) fn new(carrier: &'static Carrier) -> Self {
        let now = Instant::now();
        let mut links = Links::new(carrier, WRITER_LANE);
        links.prepare();
        Self {
            carrier,
            links,
            stock: Stock::new(carrier, WrittenBy::Mover),
            held: Held::default(),
            swept_at: now,
            wrote_at: now,
            lowering: Pace::new(carrier.rebuild_bytes_per_second),
        }
    }

    /// What is to be done while nothing has to leave memory: chunks that nobody needs go back.
    pub(crate) fn tidy(&mut self) {
        if self.swept_at.elapsed() < SWEEP {
            return;
        }
        self.swept_at = Instant::now();
        let pool = self.carrier.pool;
        let unclaimed = self.held.take_unclaimed(|block| pool.is_block_claimed(block as usize));
        if !unclaimed.is_empty() {
            self.carrier.state().block_table.release(&unclaimed);
        }
        self.carrier.leave_to_disk();
        self.stock.hear(&mut self.links);
        for link in &mut self.links {
            self.stock.give_back(link);
            self.stock.probe(link);
            link.close_if_left();
            link.prepare();
        }
    }

    /// Blocks that are to go to disk by now, where it has room: nodes that are to be emptied hold them, and
    /// no other has room for them.
    pub(crate) fn wanted_on_disk(&mut self) -> Option<BTreeSet<u32>> {
        let may_begin = self.lowering.wait(self.carrier.now()).is_zero();
        if may_begin { self.carrier.stuck() } else { None }
    }

    /// So much of them went, read and written.
    pub(crate) fn lowered(&mut self, bytes: u64) {
        self.lowering.went(2 * bytes);
    }

    /// Places for blocks, as far as chunks are in hand. More are asked for ahead of need, and are there for
    /// the next ones; only a thread that has none at all waits.
    fn allot(&mut self, blocks: &[NodeBlock]) -> Vec<Option<Allotment>> {
        let mut allotments = vec![None; blocks.len()];
        let began = Instant::now();
        self.stock.hear(&mut self.links);
        loop {
            let now = self.carrier.now();
            {
                let mut state = self.carrier.state();
                let most: Vec<u64> = state.health.iter().map(|health| health.most_blocks(now)).collect();
                for (block, allotment) in blocks.iter().zip(&mut allotments) {
                    *allotment =
                        state.block_table.allot(block.block as u32, block.owner.0, |node| most[node]);
                }
            }
            let lacking = allotments.iter().filter(|allotment| allotment.is_none()).count();
            self.stock.replenish(&mut self.links, lacking);
            let has_none = lacking == blocks.len() && self.room() > 0 && began.elapsed() < PATIENCE;
            if !has_none || !self.stock.wait(&mut self.links) {
                return allotments;
            }
        }
    }
}

/// A block's parity, and what its shards are told by.
struct Coded {
    parity: Vec<u8>,
    checks: Checks,
}

impl Coded {
    fn new(carrier: &Carrier, content: &[u8]) -> Self {
        let redundancy = carrier.redundancy();
        let parity = if redundancy.parity() > 0 { redundancy.parity_of(content) } else { Vec::new() };
        let checks = carrier.checker.of(content).chain(carrier.checker.of(&parity)).collect();
        Self { parity, checks }
    }

    /// A shard's bytes. Parity lies behind the content.
    fn shard<'a>(&'a self, content: &'a [u8], shard: usize, bytes: usize) -> &'a [u8] {
        let at = shard * bytes;
        match at.checked_sub(content.len()) {
            None => &content[at..at + bytes],
            Some(at) => &self.parity[at..at + bytes],
        }
    }
}

impl Nodes for NodeWriter {
    fn room(&self) -> usize {
        self.carrier.room(UNKNOWN_CHUNKS)
    }

    fn write(&mut self, blocks: &[NodeBlock], content: &[u8], kept: &mut [bool]) {
        let shard_bytes = self.carrier.order().bytes();
        let contents: Vec<&[u8]> = content.chunks(SLAB_BYTES).collect();
        let coded: Vec<Coded> = contents.iter().map(|content| Coded::new(self.carrier, content)).collect();
        let allotments = self.allot(blocks);
        // For each node: which shard of which block.
        let mut writes: Vec<Vec<(usize, usize, Frame)>> = vec![Vec::new(); self.carrier.nodes.len()];
        for (nth, allotment) in allotments.iter().enumerate() {
            for (shard, address) in allotment.iter().flat_map(|allotment| allotment.shards.iter()) {
                writes[usize::from(address.node)].push((nth, shard, address.frame));
            }
        }
        let mut are_written: Vec<Vec<usize>> = vec![Vec::new(); blocks.len()];
        let began = Instant::now();
        let request = |&(nth, shard, frame): &(usize, usize, Frame)| Request::Write {
            at: frame.offset(),
            data: coded[nth].shard(contents[nth], shard, shard_bytes).to_vec(),
        };
        let (nodes, requests): (Vec<usize>, Vec<_>) = writes
            .iter()
            .enumerate()
            .filter(|(_, writes)| !writes.is_empty())
            .map(|(node, writes)| (node, (node, writes.iter().map(request).collect())))
            .unzip();
        let outcomes = exchange(self.links.all(), requests, PATIENCE);
        let between = self.wrote_at.elapsed().max(began.elapsed());
        for (node, outcomes) in nodes.into_iter().zip(outcomes) {
            for (&(nth, shard, _), outcome) in writes[node].iter().zip(&outcomes) {
                if matches!(outcome, Some((_, Ok(Answer::Written)))) {
                    are_written[nth].push(shard);
                }
            }
            self.carrier.state().reserves[node].used(writes[node].len(), between);
        }
        self.wrote_at = Instant::now();
        let mut state = self.carrier.state();
        for (nth, (allotment, kept)) in allotments.iter().zip(kept).enumerate() {
            let is_written = |shard: usize| are_written[nth].contains(&shard);
            let checks = Checks::clone(&coded[nth].checks);
            if let Some(allotment) = allotment {
                self.held.insert(allotment.block);
            }
            *kept =
                allotment.is_some_and(|allotment| state.block_table.settle(&allotment, is_written, checks));
        }
    }

    fn has(&self, block: usize) -> bool {
        self.carrier.state().block_table.located(block as u32).is_some()
    }

    fn read(&mut self, block: usize, out: &mut [u8; SLAB_BYTES]) -> Result<(), BlockError> {
        let located =
            self.carrier.state().block_table.located(block as u32).cloned().ok_or(BlockError::Failed)?;
        let content = read_shards(self.carrier, &mut self.links, block as u32, &located)
            .and_then(|shards| assemble(self.carrier.redundancy(), &shards))
            .ok_or(BlockError::Failed)?;
        out.copy_from_slice(&content);
        Ok(())
    }
}
