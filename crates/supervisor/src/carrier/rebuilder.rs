//! The rebuilder: rebuilds shards that were lost with a node from those that are left, and moves away those
//! on nodes that are to be emptied, or of which one rack has too many; at a bounded rate.

use std::time::{Duration, Instant};

use farmem_remote::{Allotment, Located, Pace, WrittenBy};
use farmem_transport::{Answer, Request};

use super::blocks::{read_right, read_shards, restore};
use super::links::Links;
use super::stock::Stock;
use super::{Carrier, REBUILD_LANE};
use crate::threads::worker::Worker;

/// A write that takes longer is given up.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks whether anything is lacking, and after what could not be done.
const LOOK: Duration = Duration::from_millis(50);
/// Between two looks whether what one rack holds too much of can be spread, when last it couldn't.
const SPREAD: Duration = Duration::from_secs(1);
/// Chunks of each node that are asked for while something is lacking.
const CHUNKS: usize = 8;
/// When for so long no node had room for what is to leave another one, that is said. Longer than a node that
/// is full is not asked again, and than one that has joined gets next to nothing.
const STUCK: Duration = Duration::from_secs(3);

pub(super) struct Rebuilder {
    carrier: &'static Carrier,
    links: Links,
    stock: Stock,
    pace: Pace,
    is_rebuilding: bool,
    /// When there was room for what is to leave a node, or nothing to leave, the last time.
    had_room_at: Instant,
    /// When to look again at what one rack holds too much of.
    spread_at: Instant,
}

impl Rebuilder {
    pub(super) fn start(carrier: &'static Carrier) -> Worker {
        let mut rebuilder = Self::new(carrier);
        Worker::start(move || rebuilder.step())
    }

    fn new(carrier: &'static Carrier) -> Self {
        let links = Links::new(carrier, REBUILD_LANE);
        let pace = Pace::new(carrier.rebuild_bytes_per_second);
        let now = Instant::now();
        let stock = Stock::new(carrier, WrittenBy::Rebuilder);
        Self { carrier, links, stock, pace, is_rebuilding: false, had_room_at: now, spread_at: now }
    }

    /// Makes one block whole, or moves its shards from nodes that are leaving or from a rack that has too
    /// many of them, as far as others have room for it. How long to pause.
    fn step(&mut self) -> Duration {
        let (is_bare, is_leaving, is_exposed) = {
            let state = self.carrier.state();
            (
                state.block_table.is_bare(),
                state.block_table.is_any_leaving(),
                state.block_table.exposed() > 0 && self.spread_at <= Instant::now(),
            )
        };
        if is_bare != std::mem::replace(&mut self.is_rebuilding, is_bare) {
            match is_bare {
                true => tracing::info!("copies and parity that were lost are rebuilt"),
                false => tracing::info!("all that lay on lost nodes is redundant again"),
            }
        }
        if !is_leaving {
            self.note_room(true);
        }
        self.stock.hear(&mut self.links);
        (&mut self.links).into_iter().for_each(|link| self.stock.give_back(link));
        if !is_bare && !is_leaving && !is_exposed {
            (&mut self.links).into_iter().for_each(|link| link.close_if_left());
            return LOOK;
        }
        let pause = self.pace.wait(self.carrier.now());
        if !pause.is_zero() {
            return pause.min(LOOK);
        }
        self.stock.replenish(&mut self.links, CHUNKS);
        let now = self.carrier.now();
        let (bare, leaving, exposed) = {
            let mut state = self.carrier.state();
            let most: Vec<u64> = state.health.iter().map(|health| health.most_blocks(now)).collect();
            let most = |node: usize| most[node];
            // What is lacking comes first.
            let bare = state.block_table.next_bare(most);
            let leaving = if bare.is_none() { state.block_table.next_leaving(most) } else { None };
            let is_next = is_exposed && bare.is_none() && leaving.is_none();
            let exposed = if is_next { state.block_table.next_exposed(most) } else { None };
            (bare, leaving, exposed)
        };
        if bare.is_none() {
            self.note_room(leaving.is_some() || !is_leaving);
        }
        let is_done = match (bare, leaving.or(exposed)) {
            (Some((located, allotment)), _) => self.rebuild(&located, &allotment),
            (None, Some((located, allotment))) => self.relocate(&located, &allotment),
            (None, None) => {
                self.spread_at = Instant::now() + SPREAD;
                false
            }
        };
        if is_done { Duration::ZERO } else { LOOK }
    }

    /// Whether nodes have room for what is to leave others.
    fn note_room(&mut self, has_room: bool) {
        if has_room {
            self.had_room_at = Instant::now();
        }
        self.carrier.state().is_stuck = self.had_room_at.elapsed() > STUCK;
    }

    fn rebuild(&mut self, located: &Located, allotment: &Allotment) -> bool {
        let Some(shards) = read_shards(self.carrier, &mut self.links, allotment.block, located) else {
            self.carrier.state().block_table.cancel(allotment);
            return false;
        };
        let redundancy = self.carrier.redundancy();
        let made = allotment
            .shards
            .iter()
            .filter_map(|(shard, _)| Some((shard, restore(redundancy, &shards, shard)?)));
        self.write(located, allotment, made.collect(), shards.len())
    }

    /// Copies shards from nodes that are leaving. What can't be had from there is made from the others.
    fn relocate(&mut self, located: &Located, allotment: &Allotment) -> bool {
        let mut copied = Vec::new();
        for (shard, _) in allotment.shards.iter() {
            let Some(address) = located.shards.get(shard) else { continue };
            let link = &mut self.links[usize::from(address.node)];
            if let Ok(bytes) = read_right(self.carrier, link, allotment.block, located, (shard, address)) {
                copied.push((shard, bytes));
            }
        }
        match copied.len() {
            0 if self.carrier.redundancy().parity() > 0 => self.rebuild(located, allotment),
            0 => {
                self.carrier.state().block_table.cancel(allotment);
                false
            }
            read => self.write(located, allotment, copied, read),
        }
    }

    /// Writes shards to where they were allotted. So many were read for that.
    fn write(
        &mut self,
        located: &Located,
        allotment: &Allotment,
        shards: Vec<(usize, Vec<u8>)>,
        read: usize,
    ) -> bool {
        let moved = read + shards.len();
        let mut written = Vec::new();
        for (shard, data) in shards {
            let Some(address) = allotment.shards.get(shard) else { continue };
            let request = Request::Write { at: address.frame.offset(), data };
            let link = &mut self.links[usize::from(address.node)];
            if let Some((_, Ok(Answer::Written))) = link.exchange(vec![request], PATIENCE).pop().flatten() {
                written.push(shard);
            }
        }
        self.pace.went((moved * self.carrier.redundancy().order().bytes()) as u64);
        let mut state = self.carrier.state();
        state.block_table.settle_rebuilt(located, allotment, |shard| written.contains(&shard)) > 0
    }
}
