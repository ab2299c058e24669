//! What was lost with a node is rebuilt, and what lies on nodes that are leaving, or is too much for its
//! rack, goes elsewhere, as the supervisor's rebuilder does it. What comes next and where it goes is
//! `farmem_remote::BlockTable`', how fast is `farmem_remote::Pace`'s.

use std::cell::Cell;
use std::collections::BTreeSet;

use farmem_remote::{Allotment, Located, Member};

use super::Client;
use crate::clock::{Time, ns};
use crate::cost::Decision;
use crate::machines::Presence;
use crate::shared::{Event, Shared};

/// Between two looks whether anything is lacking, and after what could not be done.
const LOOK: Time = 50_000_000;
/// Between two looks whether what one rack holds too much of can be spread, when last it couldn't.
const SPREAD: Time = 1_000_000_000;
/// A node that doesn't send a shard is waited for so long; all of them together, so long.
const PATIENCE: Time = 2_000_000_000;
const ALL_PATIENCE: Time = 3_000_000_000;
/// Chunks of each node that are asked for while something is lacking.
const CHUNKS: usize = 8;

/// A block on its way to being whole.
pub(super) struct Piece {
    located: Located,
    allotment: Allotment,
    /// Shards that could be read; those that were made of them.
    read: usize,
    made: Vec<usize>,
}

impl Client {
    /// Has the rebuilder look soon, unless it does anyway.
    pub(super) fn mend_soon(&mut self, shared: &mut Shared) {
        let pause = self.chance.between(0.0, LOOK as f64) as Time;
        self.mend_after(shared, pause);
    }

    fn mend_after(&mut self, shared: &mut Shared, pause: Time) {
        if self.piece.is_none() && !std::mem::replace(&mut self.is_mend_due, true) {
            shared.clock.after(pause, Event::Mend(self.number));
        }
    }

    /// Makes one block whole, or moves its shards, as far as nodes have room for it.
    pub(crate) fn mend(&mut self, shared: &mut Shared) {
        self.is_mend_due = false;
        self.note_whole(shared);
        let is_exposed = self.block_table.exposed() > 0;
        if !self.block_table.is_bare() && !self.block_table.is_any_leaving() && !is_exposed {
            return;
        }
        let pause = self.pace.wait(shared.clock.elapsed());
        if !pause.is_zero() {
            return self.mend_after(shared, ns(pause).min(LOOK));
        }
        self.replenish(shared, CHUNKS, false);
        match self.next_piece(shared) {
            Some((located, allotment, is_bare)) => self.begin_piece(shared, located, allotment, is_bare),
            None => {
                let is_urgent = self.block_table.is_bare() || self.block_table.is_any_leaving();
                self.mend_after(shared, if is_urgent { LOOK } else { SPREAD });
            }
        }
    }

    fn next_piece(&mut self, shared: &mut Shared) -> Option<(Located, Allotment, bool)> {
        let now = shared.clock.elapsed();
        let most: Vec<u64> = self.health.iter().map(|health| health.most_blocks(now)).collect();
        let (block_table, steps) = (&mut self.block_table, Cell::new(most.len() as u64));
        let bound = |node: usize| {
            steps.set(steps.get() + 1);
            most[node]
        };
        shared.costs.of(Decision::Repair, || {
            let bare = block_table.next_bare(bound).map(|(located, allotment)| (located, allotment, true));
            let next = bare.or_else(|| {
                let moved = block_table.next_leaving(bound).or_else(|| block_table.next_exposed(bound));
                moved.map(|(located, allotment)| (located, allotment, false))
            });
            (next, steps.get())
        })
    }

    fn begin_piece(&mut self, shared: &mut Shared, located: Located, allotment: Allotment, is_bare: bool) {
        let redundancy = shared.options.redundancy;
        let bytes = redundancy.order().bytes() as u64;
        let wanted: BTreeSet<usize> = allotment.shards.iter().map(|(shard, _)| shard).collect();
        let (mut took, mut read, mut copied) = (0, 0, Vec::new());
        for (shard, address) in located.shards.iter() {
            let is_source = if is_bare { read < redundancy.data() } else { wanted.contains(&shard) };
            if !is_source || took > ALL_PATIENCE {
                continue;
            }
            if self.is_reachable(shared, address.node) {
                took += self.bulk(shared, address.node, bytes);
                read += 1;
                copied.push(shard);
            } else if shared.machines.presence(address.node.into()) == Presence::Silent {
                took += PATIENCE;
            }
        }
        let made: Vec<usize> = match is_bare {
            true if read == redundancy.data() => wanted.into_iter().collect(),
            true => Vec::new(),
            false => copied,
        };
        if made.is_empty() {
            self.block_table.cancel(&allotment);
            return self.mend_after(shared, took.max(LOOK));
        }
        for shard in &made {
            let Some(address) = allotment.shards.get(*shard) else { continue };
            took += match shared.machines.presence(address.node.into()) {
                Presence::Up => self.bulk(shared, address.node, bytes),
                Presence::Silent => PATIENCE,
                Presence::Refusing => 0,
            };
        }
        self.piece = Some(Piece { located, allotment, read, made });
        shared.clock.after(took, Event::Mended(self.number));
    }

    /// A piece of it has been done.
    pub(crate) fn mended(&mut self, shared: &mut Shared) {
        let Some(Piece { located, allotment, read, made }) = self.piece.take() else { return };
        let moved = read + made.len();
        self.pace.went((moved * shared.options.redundancy.order().bytes()) as u64);
        let is_there = |shard: &usize| {
            let address = allotment.shards.get(*shard);
            address.is_some_and(|address| self.is_reachable(shared, address.node))
        };
        let written: BTreeSet<usize> = made.into_iter().filter(is_there).collect();
        let settled = self.block_table.settle_rebuilt(&located, &allotment, |shard| written.contains(&shard));
        self.note_whole(shared);
        self.count_lacking(shared);
        self.part_with_emptied(shared);
        self.mend_after(shared, if settled > 0 { 0 } else { LOOK });
    }

    fn note_whole(&mut self, shared: &mut Shared) {
        if !self.block_table.is_bare()
            && let Some(since) = self.bare_since.take()
        {
            shared.figures.bare_clients -= 1;
            shared.figures.repaired(shared.clock.now() - since);
        }
    }

    /// Parts with nodes that are leaving and hold nothing any more.
    pub(super) fn part_with_emptied(&mut self, shared: &mut Shared) {
        let is_emptied = |node: &u16| {
            let node = usize::from(*node);
            self.members[node] == Member::Leaving && self.block_table.used_on(node) == 0
        };
        let emptied: Vec<u16> = self.leaving.iter().copied().filter(is_emptied).collect();
        emptied.into_iter().for_each(|node| self.part(shared, node));
    }
}
