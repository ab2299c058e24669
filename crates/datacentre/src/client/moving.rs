//! Blocks leave memory in batches, as the supervisor's mover writes them (`writer.rs`). Where each shard goes
//! is `farmem_remote::BlockTable`'.

use std::cell::Cell;
use std::time::Duration;

use farmem_policy::links::Class;
use farmem_remote::{Allotment, STRIPE_BLOCKS};

use super::Client;
use super::blocks::space_of;
use crate::clock::Time;
use crate::cost::Decision;
use crate::lease_clients::SPACES;
use crate::link::BULK;
use crate::machines::Presence;
use crate::shared::{Event, Shared};

/// A batch that takes longer goes elsewhere.
const PATIENCE: Time = 2_000_000_000;
/// When nothing could be placed, that is tried again after so long.
const AGAIN: Time = 200_000_000;

/// Blocks that are leaving memory.
pub(super) struct Batch {
    allotments: Vec<Allotment>,
    began: Time,
}

impl Client {
    /// Has more leave memory, after a pause, unless that is to come anyway.
    pub(super) fn move_soon(&mut self, shared: &mut Shared, pause: Time) {
        if self.batch.is_none() && !std::mem::replace(&mut self.is_move_due, true) {
            shared.clock.after(pause, Event::Move(self.number));
        }
    }

    /// All that is to be far at the start.
    pub(super) fn fill(&mut self, shared: &mut Shared) {
        self.replenish(shared, 0, true);
        while let Some(blocks) = self.next_blocks() {
            let allotments = self.place(shared, blocks);
            self.replenish(shared, STRIPE_BLOCKS as usize, true);
            if allotments.is_empty() {
                break;
            }
            self.settle(shared, &allotments, 1_000_000_000);
        }
    }

    /// The next batch begins.
    pub(crate) fn move_out(&mut self, shared: &mut Shared) {
        self.is_move_due = false;
        let Some(blocks) = self.next_blocks().filter(|_| self.batch.is_none()) else { return };
        let count = blocks.len();
        let allotments = self.place(shared, blocks);
        self.replenish(shared, count - allotments.len(), false);
        if allotments.is_empty() {
            return self.move_soon(shared, AGAIN);
        }
        let (now, bytes) = (shared.clock.now(), shared.options.redundancy.order().bytes() as u64);
        let mut longest = 0;
        for (_, address) in allotments.iter().flat_map(|allotment| allotment.shards.iter()) {
            let node = address.node;
            longest = longest.max(match shared.machines.presence(node.into()) {
                Presence::Up => self.bulk(shared, node, bytes),
                Presence::Silent => PATIENCE,
                Presence::Refusing => 0,
            });
        }
        self.batch = Some(Batch { allotments, began: now });
        shared.clock.after(longest, Event::Moved(self.number));
    }

    /// The batch has been written, as far as nodes were there.
    pub(crate) fn moved(&mut self, shared: &mut Shared) {
        let Some(Batch { allotments, began }) = self.batch.take() else { return };
        let now = shared.clock.now();
        let between = now - self.wrote_at.min(began);
        self.settle(shared, &allotments, between);
        self.wrote_at = now;
        self.move_soon(shared, 0);
    }

    /// Numbers for blocks that are to leave, up to a batch, of the application that has more to let go.
    fn next_blocks(&mut self) -> Option<Vec<u32>> {
        let lacking = |space: usize| self.targets[space].saturating_sub(self.blocks.kept(space));
        let (count, space) = (0..SPACES).map(|space| (lacking(space), space)).max()?;
        let count = count.min(STRIPE_BLOCKS as usize);
        (count > 0).then(|| (0..count).map(|_| self.blocks.number(space)).collect())
    }

    /// Places for them, as far as there are any.
    fn place(&mut self, shared: &mut Shared, blocks: Vec<u32>) -> Vec<Allotment> {
        let now = shared.clock.elapsed();
        let most: Vec<u64> = self.health.iter().map(|health| health.most_blocks(now)).collect();
        let mut allotments = Vec::new();
        for block in blocks {
            let (block_table, steps) = (&mut self.block_table, Cell::new(most.len() as u64));
            let bound = |node: usize| {
                steps.set(steps.get() + 1);
                most[node]
            };
            let owner = space_of(block) as u16;
            let placed =
                shared.costs.of(Decision::Place, || (block_table.allot(block, owner, bound), steps.get()));
            match placed {
                Some(allotment) => allotments.push(allotment),
                None => self.blocks.give_back(block),
            }
        }
        allotments
    }

    fn settle(&mut self, shared: &mut Shared, allotments: &[Allotment], between: Time) {
        let all = shared.options.redundancy.shards();
        let mut written = std::collections::BTreeMap::<u16, usize>::new();
        for allotment in allotments {
            for (_, address) in allotment.shards.iter() {
                *written.entry(address.node).or_default() += 1;
            }
            let at = allotment.shards;
            let is_written: Vec<bool> = (0..all)
                .map(|shard| at.get(shard).is_some_and(|address| self.is_reachable(shared, address.node)))
                .collect();
            let checks = self.checks.clone();
            if self.block_table.settle(allotment, |shard| is_written[shard], checks) {
                self.blocks.keep(allotment.block);
                shared.figures.placed += 1;
                shared.figures.placed_bare += u64::from(at.count() < all);
            } else {
                self.blocks.give_back(allotment.block);
                let silent = |(_, address): &(usize, farmem_transport::RemoteAddress)| {
                    shared.machines.presence(address.node.into()) == Presence::Silent
                };
                let silent: Vec<u16> = at.iter().filter(silent).map(|(_, address)| address.node).collect();
                silent.into_iter().for_each(|node| self.doubt(shared, node));
            }
        }
        for (node, chunks) in written {
            self.reserves[usize::from(node)].used(chunks, Duration::from_nanos(between));
        }
        let is_bare = self.block_table.is_bare() && self.bare_since.is_none();
        if is_bare || self.block_table.exposed() > 0 {
            // Nodes had no room for all of it, or racks hadn't: that is no failure's doing, and repaired if
            // it can be.
            self.mend_soon(shared);
        }
    }

    /// How long a whole shard takes to or from a node, its turn at the link included.
    pub(super) fn bulk(&mut self, shared: &mut Shared, node: u16, bytes: u64) -> Time {
        let (now, way) = (shared.clock.now(), self.way(shared, node));
        let slowness = shared.machines.slowness(node.into());
        let takes = shared.network.transfer(&mut self.chance, now, way, bytes, slowness);
        shared.network.went(now, way, bytes);
        takes + self.gates.entry(node).or_default().pass(now, BULK, Class::Bulk, bytes, takes)
    }
}
