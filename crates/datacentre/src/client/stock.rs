//! Chunks of nodes, asked for ahead of need and given back: what the supervisor's `stock.rs` does. How many
//! is `farmem_remote::Reserve`'s.

use std::time::Duration;

use farmem_remote::WrittenBy;
use farmem_transport::MOST_CHUNKS;

use super::Client;
use crate::clock::Time;
use crate::cost::Decision;
use crate::machines::Presence;
use crate::shared::{Event, Grant, Shared};

/// A node that is full is asked again after this time.
const FULL: Time = 1_000_000_000;
/// An answer that has not come after so long is overdue.
const PATIENCE: Time = 2_000_000_000;

impl Client {
    /// Asks nodes for chunks where fewer are in hand than will be needed. `is_instant` at the start, before
    /// there is time.
    pub(super) fn replenish(&mut self, shared: &mut Shared, needed: usize, is_instant: bool) {
        let now = shared.clock.now();
        let nodes = self.health.len();
        let mut costs = std::mem::take(&mut shared.costs);
        let wanted: Vec<(u16, usize)> = costs.of(Decision::Reserve, || {
            let wanted = |node: u16| (node, self.wanted(node, needed, now));
            let wanted = (0..nodes as u16).map(wanted).filter(|(_, count)| *count > 0).collect();
            (wanted, nodes as u64)
        });
        shared.costs = costs;
        for (node, count) in wanted {
            self.ask(shared, node, count, is_instant);
        }
    }

    fn wanted(&mut self, node: u16, needed: usize, now: Time) -> usize {
        let at = usize::from(node);
        if !self.health[at].is_up() || self.block_table.is_leaving(at) || self.asked.contains(&node) {
            return 0;
        }
        if self.block_table.is_full(at) {
            let since = *self.full_since.entry(node).or_insert(now);
            if now - since < FULL {
                return 0;
            }
            self.block_table.set_full(at, false);
            self.full_since.remove(&node);
        }
        let in_hand = self.block_table.in_hand(at);
        self.reserves[at].wanted(in_hand).max(needed.saturating_sub(in_hand)).min(MOST_CHUNKS)
    }

    fn ask(&mut self, shared: &mut Shared, node: u16, count: usize, is_instant: bool) {
        let at = usize::from(node);
        let identity = self.believed[at];
        if !self.is_reachable(shared, node) {
            // Where links have ended that is noticed at once.
            if shared.machines.presence(at) == Presence::Silent {
                self.asked.insert(node);
                shared.clock.after(PATIENCE, Event::Doubt(self.number, node, identity));
            }
            return;
        }
        let frames = shared.machines.grant(at, self.number, count);
        shared.machines.message(at);
        shared.figures.messages.grants += 1;
        let way = self.way(shared, node);
        let took = shared.network.round_trip(&mut self.chance, way);
        let grant = Grant { node, identity, frames, took };
        if is_instant {
            return self.granted(shared, grant);
        }
        self.asked.insert(node);
        shared.clock.after(took, Event::Granted(self.number, grant));
    }

    /// A node has answered.
    pub(crate) fn granted(&mut self, shared: &mut Shared, grant: Grant) {
        let Grant { node, identity, frames, took } = grant;
        let at = usize::from(node);
        self.asked.remove(&node);
        if identity != self.believed[at] || !self.health[at].is_up() {
            // What was granted to somebody else by now goes with the lease.
            return;
        }
        if frames.is_empty() {
            self.block_table.set_full(at, true);
            self.full_since.insert(node, shared.clock.now());
            return;
        }
        self.reserves[at].answered(Duration::from_nanos(took));
        self.block_table.granted(at, &frames);
    }

    /// Gives back what was granted in vain.
    pub(super) fn tidy(&mut self, shared: &mut Shared) {
        for at in 0..self.health.len() {
            if !self.health[at].is_up() {
                continue;
            }
            let in_hand = self.block_table.in_hand(at);
            let surplus =
                if self.block_table.is_leaving(at) { in_hand } else { self.reserves[at].surplus(in_hand) };
            let mut frames = self.block_table.give_back(at, WrittenBy::Mover, surplus);
            frames.append(&mut self.block_table.give_back(at, WrittenBy::Rebuilder, 0));
            if !frames.is_empty() && self.is_reachable(shared, at as u16) {
                shared.machines.release(at, self.number, frames);
                shared.machines.message(at);
                shared.figures.messages.releases += 1;
            }
        }
    }
}
