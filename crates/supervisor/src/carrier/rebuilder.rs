//! The rebuilder: makes shards anew that were lost with a node, from those that are left, at a bounded rate.

use std::time::Duration;

use farmem_remote::{Allotment, Located, Pace};
use farmem_transport::{Answer, Request};

use super::blocks::{read_shards, restore};
use super::link::NodeLink;
use super::stock::Stock;
use super::{Carrier, REBUILD_LANE};
use crate::worker::Worker;

/// A write that takes longer is given up.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks whether anything is lacking, and after what could not be done.
const LOOK: Duration = Duration::from_millis(50);
/// Chunks of each node that are asked for while something is lacking.
const CHUNKS: usize = 8;

pub(super) struct Rebuilder {
    carrier: &'static Carrier,
    links: Vec<NodeLink>,
    stock: Stock,
    pace: Pace,
    is_rebuilding: bool,
}

impl Rebuilder {
    pub(super) fn start(carrier: &'static Carrier) -> Worker {
        let mut rebuilder = Self::new(carrier);
        Worker::start(move || rebuilder.step())
    }

    fn new(carrier: &'static Carrier) -> Self {
        let links = NodeLink::all(carrier, REBUILD_LANE);
        let pace = Pace::new(carrier.rebuild_bytes_per_second);
        Self { carrier, links, stock: Stock::new(carrier), pace, is_rebuilding: false }
    }

    /// Makes one block whole, as far as nodes have room for it. How long to pause.
    fn step(&mut self) -> Duration {
        if !self.carrier.state().books.is_bare() {
            if std::mem::take(&mut self.is_rebuilding) {
                tracing::info!("all that lay on lost nodes is redundant again");
            }
            return LOOK;
        }
        if !std::mem::replace(&mut self.is_rebuilding, true) {
            tracing::info!("copies and parity that were lost are made anew");
        }
        let pause = self.pace.wait(self.carrier.now());
        if !pause.is_zero() {
            return pause.min(LOOK);
        }
        self.stock.replenish(&mut self.links, CHUNKS);
        let now = self.carrier.now();
        let found = {
            let mut state = self.carrier.state();
            let most: Vec<u64> = state.health.iter().map(|health| health.most_blocks(now)).collect();
            state.books.next_bare(|node| most[node])
        };
        match found {
            Some((located, allotment)) if self.rebuild(&located, &allotment) => Duration::ZERO,
            _ => LOOK,
        }
    }

    fn rebuild(&mut self, located: &Located, allotment: &Allotment) -> bool {
        let Some(shards) = read_shards(self.carrier, &mut self.links, allotment.block, located) else {
            self.carrier.state().books.cancel(allotment);
            return false;
        };
        let redundancy = self.carrier.redundancy();
        let mut written = Vec::new();
        for (shard, address) in allotment.shards.iter() {
            let Some(data) = restore(redundancy, &shards, shard) else { continue };
            let request = Request::Write { at: address.frame.offset(), data };
            let link = &mut self.links[usize::from(address.node)];
            if let Some((_, Ok(Answer::Written))) = link.exchange(vec![request], PATIENCE).pop().flatten() {
                written.push(shard);
            }
        }
        let moved = shards.len() + allotment.shards.count();
        self.pace.went((moved * redundancy.order().bytes()) as u64);
        let mut state = self.carrier.state();
        state.books.settle_rebuilt(located, allotment, |shard| written.contains(&shard)) > 0
    }
}
