//! Chunks of nodes: asked for ahead of need, given back when there are too many. One request for a node is
//! under way at a time, and its answer is heard at a later turn: no node keeps anybody waiting who has chunks
//! of another in hand.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use farmem_remote::WrittenBy;
use farmem_transport::{Answer, Chunk, Frame, MOST_CHUNKS, Request};

use super::Carrier;
use super::link::{NodeLink, Reply, SLICE, wait_for_any};
use super::links::Links;

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

    /// Hears what nodes have answered. Whether any has.
    pub(super) fn hear(&mut self, links: &mut Links) -> bool {
        self.hear_from(links, false)
    }

    fn hear_from(&mut self, links: &mut Links, is_waiting: bool) -> bool {
        let (mut is_answered, mut may_connect) = (false, true);
        for link in links {
            // A link that has just ended is made again at once: that may be an accident. But nobody waits for
            // one node after the other.
            let has_ended = !link.listen(is_waiting) && !self.carrier.nodes[link.node()].has_left();
            let is_needed = link.is_asked() && !link.is_open() && self.carrier.is_up(link.node());
            if may_connect && (has_ended || is_needed) {
                may_connect = link.open();
                link.listen(is_waiting);
            }
            if let Some(reply) = link.take_reply() {
                is_answered = true;
                self.apply(link, reply);
            }
            self.note_silence(link);
        }
        is_answered
    }

    /// Until a node has answered what it owes, nothing more is left with it.
    fn note_silence(&self, link: &NodeLink) {
        if self.by == WrittenBy::Mover {
            self.carrier.state().block_table.set_silent(link.node(), link.owes());
        }
    }

    fn apply(&mut self, link: &mut NodeLink, reply: Reply) {
        let node = link.node();
        let mut state = self.carrier.state();
        let is_current = state.block_table.incarnation(node) == reply.incarnation;
        match (reply.request, reply.result) {
            (Request::Grant { .. }, Some(Ok(Answer::Granted(frames)))) if !frames.is_empty() => {
                if is_current {
                    if let Some(took) = reply.took {
                        state.reserves[node].answered(took);
                    }
                    state.block_table.granted(node, &frames);
                } else if reply.is_fresh {
                    // The node was given up, or has left. It is there nevertheless, and nobody else knows of
                    // these.
                    drop(state);
                    self.release(link, &frames);
                }
            }
            // For whatever reason it grants none: others don't wait for it.
            (Request::Grant { .. }, Some(_)) if is_current => {
                state.block_table.set_full(node, true);
                self.full_since.insert(node, Instant::now());
            }
            _ => {}
        }
    }

    /// Gives chunks back that a node granted in vain (COMEX §4.4: in batches): those that this thread's
    /// writes have spoiled, and, for the mover, those that nobody needs.
    pub(super) fn give_back(&mut self, link: &mut NodeLink) {
        if link.is_asked() {
            return;
        }
        let node = link.node();
        let frames = {
            let mut state = self.carrier.state();
            if !state.health[node].is_up() {
                return;
            }
            let in_hand = state.block_table.in_hand(node);
            let surplus = match self.by {
                WrittenBy::Rebuilder => 0,
                WrittenBy::Mover
                    if state.block_table.is_leaving(node) && !state.block_table.needs_leaving() =>
                {
                    in_hand
                }
                WrittenBy::Mover => state.reserves[node].surplus(in_hand),
            };
            state.block_table.give_back(node, self.by, surplus)
        };
        self.release(link, &frames);
    }

    /// What a node never hears of comes back to it with the lease.
    fn release(&self, link: &mut NodeLink, frames: &[Frame]) {
        let chunk = |&frame: &Frame| Chunk::new(frame, self.carrier.order());
        let chunks: Vec<Chunk> = frames.iter().filter_map(chunk).take(MOST_CHUNKS).collect();
        if !chunks.is_empty() {
            link.ask(Request::Release { chunks });
        }
    }

    /// Asks a node that owes an answer whether it is there again.
    pub(super) fn probe(&self, link: &mut NodeLink) {
        if link.owes() && !link.is_asked() && self.carrier.is_up(link.node()) {
            link.ask(Request::Renew);
        }
    }

    /// Asks nodes for chunks where fewer are in hand than will be needed (COMEX §3.3.3). What they answer is
    /// heard later.
    pub(super) fn replenish(&mut self, links: &mut Links, needed: usize) {
        let order = self.carrier.order();
        for link in links {
            if link.is_asked() {
                continue;
            }
            let count = self.wanted(link.node(), needed).min(MOST_CHUNKS);
            if count > 0 {
                link.ask(Request::Grant { order, count: count as u16 });
            }
        }
    }

    /// Waits until a node has answered what it was asked. False when there is none to wait for: what is long
    /// overdue isn't.
    pub(super) fn wait(&mut self, links: &mut Links) -> bool {
        loop {
            if self.hear_from(links, true) {
                return true;
            }
            let is_awaited = |link: &&NodeLink| link.is_asked() && link.is_open() && !link.owes();
            let mut awaited = links.known().iter().filter(is_awaited).peekable();
            if awaited.peek().is_none() {
                return false;
            }
            wait_for_any(awaited, SLICE);
        }
    }

    fn wanted(&mut self, node: usize, needed: usize) -> usize {
        let mut state = self.carrier.state();
        if !state.health[node].is_up() {
            return 0;
        }
        if state.block_table.is_leaving(node) && !state.block_table.needs_leaving() {
            return 0;
        }
        if state.block_table.is_full(node) {
            // Another thread may have heard it.
            let since = self.full_since.entry(node).or_insert_with(Instant::now);
            if since.elapsed() < FULL {
                return 0;
            }
            state.block_table.set_full(node, false);
        }
        self.full_since.remove(&node);
        let in_hand = state.block_table.in_hand(node);
        state.reserves[node].wanted(in_hand).max(needed.saturating_sub(in_hand))
    }
}
