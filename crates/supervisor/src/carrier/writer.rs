//! The mover's side of the nodes: whole blocks, there and back.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use farmem_remote::Allotment;
use farmem_store::{BlockError, NodeBlock, Nodes, SLAB_BYTES};
use farmem_transport::{Answer, Chunk, Failure, Frame, MOST_CHUNKS, Order, Refusal, RemoteAddress, Request};

use super::link::{NodeLink, Outcome};
use super::{Carrier, WRITER_LANE};

/// A batch that takes longer goes elsewhere.
const PATIENCE: Duration = Duration::from_secs(2);
/// A node that is full is asked again after this time.
const FULL: Duration = Duration::from_secs(1);
/// Between two looks at what can be given back.
const SWEEP: Duration = Duration::from_millis(200);
/// What a node that has not refused yet is taken to have, beyond what is in hand.
const UNKNOWN_CHUNKS: usize = 8;
/// Copies made anew at a time, between other work: at most 40 MiB each second with the mover's pauses.
const REBUILT_AT_ONCE: usize = 2;

/// Writes for the mover. Its links are its own.
pub(crate) struct NodeWriter {
    carrier: &'static Carrier,
    links: Vec<NodeLink>,
    full_since: HashMap<usize, Instant>,
    swept_at: Instant,
    wrote_at: Instant,
}

impl NodeWriter {
    pub(crate) fn new(carrier: &'static Carrier) -> Self {
        let now = Instant::now();
        Self {
            carrier,
            links: NodeLink::all(carrier, WRITER_LANE),
            full_since: HashMap::new(),
            swept_at: now,
            wrote_at: now,
        }
    }

    /// What is to be done while nothing has to leave memory: chunks that nobody needs go back, lost copies are made anew.
    pub(crate) fn tidy(&mut self) {
        if self.swept_at.elapsed() < SWEEP {
            return;
        }
        self.swept_at = Instant::now();
        let pool = self.carrier.pool;
        self.carrier.state().books.sweep(|block| pool.is_block_claimed(block as usize));
        for node in 0..self.links.len() {
            self.give_back(node);
        }
        if self.carrier.state().books.is_bare() {
            self.replenish(REBUILT_AT_ONCE);
        }
        for _ in 0..REBUILT_AT_ONCE {
            if !self.rebuild_one() {
                break;
            }
        }
    }

    /// Gives chunks back that a node granted in vain (COMEX §4.4: in batches).
    fn give_back(&mut self, node: usize) {
        let frames = {
            let mut state = self.carrier.state();
            if state.health[node].standing() != farmem_remote::Standing::Up {
                return;
            }
            let surplus = state.reserves[node].surplus(state.books.in_hand(node));
            state.books.give_back(node, surplus)
        };
        let chunks: Vec<Chunk> = frames.iter().filter_map(|&frame| Chunk::new(frame, Order::SLAB)).collect();
        let requests: Vec<Request> =
            chunks.chunks(MOST_CHUNKS).map(|chunks| Request::Release { chunks: chunks.to_vec() }).collect();
        if !requests.is_empty() {
            // What a node has not heard of comes back to it with the lease.
            self.links[node].exchange(requests, PATIENCE);
        }
    }

    /// Asks nodes for chunks where fewer are in hand than will be needed (COMEX §3.3.3).
    fn replenish(&mut self, needed: usize) {
        for node in 0..self.links.len() {
            let wanted = {
                let mut state = self.carrier.state();
                if state.health[node].standing() != farmem_remote::Standing::Up {
                    continue;
                }
                if self.full_since.get(&node).is_some_and(|since| since.elapsed() > FULL) {
                    self.full_since.remove(&node);
                    state.books.set_full(node, false);
                }
                let in_hand = state.books.in_hand(node);
                if state.books.is_full(node) {
                    0
                } else {
                    state.reserves[node].wanted(in_hand).max(needed.saturating_sub(in_hand))
                }
            };
            if wanted == 0 {
                continue;
            }
            let began = Instant::now();
            let life = self.carrier.life(node);
            let count = wanted.min(MOST_CHUNKS) as u16;
            let outcome = self.links[node]
                .exchange(vec![Request::Grant { order: Order::SLAB, count }], PATIENCE)
                .pop()
                .flatten();
            let mut state = self.carrier.state();
            if state.books.life(node) != life {
                continue;
            }
            match outcome {
                Some((_, Ok(Answer::Granted(frames)))) => {
                    state.reserves[node].answered(began.elapsed());
                    state.books.granted(node, &frames);
                }
                Some((_, Err(Failure::Refused(Refusal::Full | Refusal::Draining)))) => {
                    state.books.set_full(node, true);
                    self.full_since.insert(node, Instant::now());
                }
                _ => {}
            }
        }
    }

    fn allot(&mut self, blocks: &[NodeBlock]) -> Vec<Option<Allotment>> {
        let now = self.carrier.now();
        let mut state = self.carrier.state();
        let most: Vec<u64> = state.health.iter().map(|health| health.most_blocks(now)).collect();
        blocks
            .iter()
            .map(|block| state.books.allot(block.block as u32, block.owner.0, |node| most[node]))
            .collect()
    }

    /// Adds one copy to a block that has too few. Whether there was one to add.
    fn rebuild_one(&mut self) -> bool {
        let now = self.carrier.now();
        let (from, allotment) = {
            let mut state = self.carrier.state();
            if !state.books.is_bare() {
                return false;
            }
            let most: Vec<u64> = state.health.iter().map(|health| health.most_blocks(now)).collect();
            match state.books.bare_block(|node| most[node]) {
                Some(found) => found,
                None => return false,
            }
        };
        let to = allotment.copies.iter().next();
        let is_written = match (self.read_from(from), to) {
            (Some(content), Some(to)) => {
                let request = Request::Write { at: to.frame.offset(), data: content };
                let outcome =
                    self.links[usize::from(to.node)].exchange(vec![request], PATIENCE).pop().flatten();
                matches!(outcome, Some((_, Ok(Answer::Written))))
            }
            _ => false,
        };
        self.carrier.state().books.settle_copy(from, &allotment, is_written)
    }

    fn read_from(&mut self, address: RemoteAddress) -> Option<Vec<u8>> {
        let request =
            Request::Read { at: address.frame.offset(), length_bytes: SLAB_BYTES as u32, buffer: Vec::new() };
        match self.links[usize::from(address.node)].exchange(vec![request], PATIENCE).pop().flatten() {
            Some((Request::Read { buffer, .. }, Ok(Answer::Read))) if buffer.len() == SLAB_BYTES => {
                Some(buffer)
            }
            _ => None,
        }
    }
}

impl Nodes for NodeWriter {
    fn room(&self) -> usize {
        self.carrier.state().books.room(UNKNOWN_CHUNKS)
    }

    fn write(&mut self, blocks: &[NodeBlock], content: &[u8], kept: &mut [bool]) {
        self.replenish(blocks.len());
        let allotments = self.allot(blocks);
        // For each node: which copy of which block.
        let mut writes: Vec<Vec<(usize, usize, Frame)>> = vec![Vec::new(); self.links.len()];
        for (nth, allotment) in allotments.iter().enumerate() {
            for (copy, address) in allotment.iter().flat_map(|allotment| allotment.copies.iter().enumerate())
            {
                writes[usize::from(address.node)].push((nth, copy, address.frame));
            }
        }
        let mut are_written = vec![[false; 2]; blocks.len()];
        for (node, writes) in writes.iter().enumerate().filter(|(_, writes)| !writes.is_empty()) {
            let began = Instant::now();
            let request = |&(nth, _, frame): &(usize, usize, Frame)| Request::Write {
                at: frame.offset(),
                data: content[nth * SLAB_BYTES..(nth + 1) * SLAB_BYTES].to_vec(),
            };
            let outcomes: Vec<Outcome> =
                self.links[node].exchange(writes.iter().map(request).collect(), PATIENCE);
            for (&(nth, copy, _), outcome) in writes.iter().zip(&outcomes) {
                are_written[nth][copy] = matches!(outcome, Some((_, Ok(Answer::Written))));
            }
            let between = self.wrote_at.elapsed().max(began.elapsed());
            self.carrier.state().reserves[node].used(writes.len(), between);
        }
        self.wrote_at = Instant::now();
        let mut state = self.carrier.state();
        for ((allotment, are_written), kept) in allotments.iter().zip(are_written).zip(kept) {
            *kept = allotment.is_some_and(|allotment| state.books.settle(&allotment, are_written));
        }
    }

    fn read(&mut self, block: usize, out: &mut [u8; SLAB_BYTES]) -> Result<(), BlockError> {
        let copies = self.carrier.state().books.copies(block as u32);
        for address in copies.iter() {
            if let Some(content) = self.read_from(address) {
                out.copy_from_slice(&content);
                return Ok(());
            }
        }
        Err(BlockError::Failed)
    }
}
