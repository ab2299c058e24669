//! Chunks of nodes: asked for ahead of need, given back when there are too many.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use farmem_remote::{Standing, WrittenBy};
use farmem_transport::{Answer, Chunk, MOST_CHUNKS, Request};

use super::Carrier;
use super::link::NodeLink;
use super::links::Links;

/// Longer than this an answer is not waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// A node that is full is asked again after this time.
const FULL: Duration = Duration::from_secs(1);

/// One thread's dealings in chunks, by its links.
pub(super) struct Stock {
    carrier: &'static Carrier,
    by: WrittenBy,
    full_since: HashMap<usize, Instant>,
}

impl Stock {
    pub(super) fn new(carrier: &'static Carrier, by: WrittenBy) -> Self {
        Self { carrier, by, full_since: HashMap::new() }
    }

    /// Gives chunks back that a node granted in vain (COMEX §4.4: in batches): those that this thread's writes have spoiled, and, for the mover, those
    /// that nobody needs.
    pub(super) fn give_back(&mut self, link: &mut NodeLink) {
        let (node, order) = (link.node(), self.carrier.order());
        let frames = {
            let mut state = self.carrier.state();
            if state.health[node].standing() != Standing::Up {
                return;
            }
            let in_hand = state.books.in_hand(node);
            let surplus = match self.by {
                WrittenBy::Rebuilder => 0,
                WrittenBy::Mover if state.books.is_leaving(node) && !state.books.needs_leaving() => in_hand,
                WrittenBy::Mover => state.reserves[node].surplus(in_hand),
            };
            state.books.give_back(node, self.by, surplus)
        };
        let chunks: Vec<Chunk> = frames.iter().filter_map(|&frame| Chunk::new(frame, order)).collect();
        let requests: Vec<Request> =
            chunks.chunks(MOST_CHUNKS).map(|chunks| Request::Release { chunks: chunks.to_vec() }).collect();
        if !requests.is_empty() {
            // What a node has not heard of comes back to it with the lease.
            link.exchange(requests, PATIENCE);
        }
    }

    /// Asks nodes for chunks where fewer are in hand than will be needed (COMEX §3.3.3).
    pub(super) fn replenish(&mut self, links: &mut Links, needed: usize) {
        let order = self.carrier.order();
        for link in links {
            let node = link.node();
            let wanted = self.wanted(node, needed);
            if wanted == 0 {
                continue;
            }
            let began = Instant::now();
            let life = self.carrier.life(node);
            let count = wanted.min(MOST_CHUNKS) as u16;
            let outcome = link.exchange(vec![Request::Grant { order, count }], PATIENCE).pop().flatten();
            let mut state = self.carrier.state();
            if state.books.life(node) != life {
                continue;
            }
            match outcome {
                Some((_, Ok(Answer::Granted(frames)))) if !frames.is_empty() => {
                    state.reserves[node].answered(began.elapsed());
                    state.books.granted(node, &frames);
                }
                // For whatever reason it grants none: others don't wait for it.
                _ => {
                    state.books.set_full(node, true);
                    self.full_since.insert(node, Instant::now());
                }
            }
        }
    }

    fn wanted(&mut self, node: usize, needed: usize) -> usize {
        let mut state = self.carrier.state();
        if state.health[node].standing() != Standing::Up {
            return 0;
        }
        if state.books.is_leaving(node) && !state.books.needs_leaving() {
            return 0;
        }
        if state.books.is_full(node) {
            // Another thread may have heard it.
            let since = self.full_since.entry(node).or_insert_with(Instant::now);
            if since.elapsed() < FULL {
                return 0;
            }
            state.books.set_full(node, false);
        }
        self.full_since.remove(&node);
        let in_hand = state.books.in_hand(node);
        state.reserves[node].wanted(in_hand).max(needed.saturating_sub(in_hand))
    }
}
