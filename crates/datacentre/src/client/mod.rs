//! A client: one machine's use of nodes. What it knows and decides is the product's: block_table, health,
//! reserves, spans, pace, membership. What is here is what the supervisor's threads do with that
//! (`crates/supervisor/src/carrier`), with their constants: those threads own sockets and clocks, so that
//! they are modelled, not called. Each file names the thread that it stands for.

mod blocks;
mod fetching;
mod membership;
mod moving;
mod node_monitor;
mod repair;
mod stock;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use farmem_remote::{BlockTable, Checks, Health, Lateness, Member, Pace, Reserve, Shards, Span};

use crate::chance::Chance;
use crate::clock::Time;
use crate::cost::Decision;
use crate::demand::Demand;
use crate::lease_clients::{LOCAL_BYTES, LeaseClients, SPACES};
use crate::link::Gate;
use crate::machines::{Identity, Presence};
use crate::network::Way;
use crate::shared::{Event, Shared};
use blocks::Blocks;
pub(crate) use fetching::Reading;
use moving::Batch;
use node_monitor::Watched;
use repair::Piece;

/// Between two looks at how much memory is needed.
const DEMAND_NS: Time = 10_000_000_000;
/// Between two looks at chunks that nobody needs. The supervisor's mover looks each 200 ms; what comes of it
/// is the same.
const TIDY_EVERY: u64 = 6;
/// A block is rewritten after so long on average.
const LIFETIME_NS: f64 = 3600e9;
/// A slab's bytes in the reserve's unit.
const SLAB_BYTES: u64 = 256 << 10;
/// A client that has lacked shards for longer than this should have had them back.
pub(crate) const REPAIR_DUE: Time = 600_000_000_000;

pub(crate) struct Client {
    number: u32,
    rack: usize,
    chance: Chance,
    block_table: BlockTable,
    health: Vec<Health>,
    lateness: Lateness,
    reserves: Vec<Reserve>,
    members: Vec<Member>,
    /// As what each node is known.
    believed: Vec<Identity>,
    /// Until when answers that are not followed have been noted, by node.
    noted: Vec<Time>,
    spans: [Span; SPACES],
    pace: Pace,
    lease_clients: LeaseClients,
    demand: Demand,
    blocks: Blocks,
    /// Pages of each application that are to be far, in blocks.
    targets: [usize; SPACES],
    looks: u64,
    /// Nodes that have been asked for chunks, and those that had none.
    asked: BTreeSet<u16>,
    full_since: BTreeMap<u16, Time>,
    wrote_at: Time,
    batch: Option<Batch>,
    is_move_due: bool,
    piece: Option<Piece>,
    is_mend_due: bool,
    watched: BTreeMap<u16, Watched>,
    leaving: BTreeSet<u16>,
    /// Links on which whole shards go.
    gates: BTreeMap<u16, Gate>,
    /// When the failure was for which blocks lack shards.
    bare_since: Option<Time>,
    /// Shards that blocks lacked when it was last counted.
    lacking: u64,
    checks: Checks,
}

impl Client {
    pub(crate) fn new(shared: &Shared, number: u32) -> Self {
        let options = shared.options;
        let mut chance = Chance::new(options.seed, 1000 + u64::from(number));
        let identity = u64::from(number) << 32 ^ options.seed ^ 0x5eed_0fc1_1e47;
        let nodes = options.nodes;
        let reserve = options.reserve_bytes.map(|bytes| bytes.div_ceil(SLAB_BYTES) as usize);
        let demand = Demand::new(&mut chance, options.far_bytes as f64);
        Self {
            number,
            rack: number as usize % options.racks(),
            chance,
            block_table: BlockTable::new(identity, options.redundancy, nodes),
            health: vec![Health::default(); nodes],
            lateness: Lateness::default(),
            reserves: vec![Reserve::new(reserve); nodes],
            members: vec![Member::Active; nodes],
            believed: vec![Identity::default(); nodes],
            noted: vec![0; nodes],
            spans: [Span::default(); SPACES],
            pace: Pace::new(options.rebuild_bytes_per_second),
            lease_clients: LeaseClients::new(),
            demand,
            blocks: Blocks::default(),
            targets: [0; SPACES],
            looks: 0,
            asked: BTreeSet::new(),
            full_since: BTreeMap::new(),
            wrote_at: 0,
            batch: None,
            is_move_due: false,
            piece: None,
            is_mend_due: false,
            watched: BTreeMap::new(),
            leaving: BTreeSet::new(),
            gates: BTreeMap::new(),
            bare_since: None,
            lacking: 0,
            checks: Arc::new([]),
        }
    }

    /// Meets all nodes, and brings out what is far at the start, which takes no time.
    pub(crate) fn begin(&mut self, shared: &mut Shared) {
        for node in 0..self.health.len() as u16 {
            self.meet(shared, node);
        }
        self.look_at_demand(shared);
        self.fill(shared);
        let tick = self.chance.between(0.0, DEMAND_NS as f64) as Time;
        shared.clock.at(tick, Event::Demand(self.number));
        self.plan_fetch(shared);
    }

    /// Memory is needed, or not needed any more; and some of it is rewritten.
    pub(crate) fn look_after_demand(&mut self, shared: &mut Shared) {
        self.look_at_demand(shared);
        let mut released = Vec::new();
        for space in 0..SPACES {
            let kept = self.blocks.kept(space);
            let anew = self.chance.count(kept as f64 * DEMAND_NS as f64 / LIFETIME_NS) as usize;
            let excess = kept.saturating_sub(self.targets[space]).max(anew).min(kept);
            released.extend((0..excess).filter_map(|_| self.blocks.take_any(&mut self.chance, space)));
        }
        self.block_table.release(&released);
        let now = shared.clock.now();
        self.gates.retain(|_, gate| !gate.is_idle(now));
        self.looks += 1;
        if self.looks.is_multiple_of(TIDY_EVERY) {
            self.tidy(shared);
        }
        self.move_soon(shared, 0);
        shared.clock.after(DEMAND_NS, Event::Demand(self.number));
    }

    fn look_at_demand(&mut self, shared: &mut Shared) {
        let now = shared.clock.now();
        let wanted = self.demand.look(&mut self.chance, now, LOCAL_BYTES);
        let far = self.lease_clients.far(&mut shared.costs, shared.clock.elapsed(), wanted);
        self.targets = far.map(|pages| pages as usize / farmem_remote::BLOCK_PAGES);
    }

    fn way(&self, shared: &Shared, node: u16) -> Way {
        let node = usize::from(node);
        Way { client_rack: self.rack, node, node_rack: shared.machines.rack(node) }
    }

    /// Whether what this client has on a node is there, and can be had.
    fn is_reachable(&self, shared: &Shared, node: u16) -> bool {
        shared.machines.presence(node.into()) == Presence::Up && self.is_intact(shared, node)
    }

    /// Whether it is there still, though perhaps nobody can reach it.
    fn is_intact(&self, shared: &Shared, node: u16) -> bool {
        shared.machines.identity(node.into(), self.number) == self.believed[usize::from(node)]
            && shared.machines.is_whole(node.into())
    }

    /// What a node held is lost, as far as this client is concerned.
    fn lose(&mut self, shared: &mut Shared, node: u16) {
        self.asked.remove(&node);
        self.set_aware(shared, node);
        let at_stake = self.at_stake(node);
        let (block_table, kept) = (&mut self.block_table, self.blocks.all());
        let mut gone = match block_table.used_on(node.into()) {
            // That is no decision.
            0 => block_table.lose(node.into()),
            _ => shared.costs.of(Decision::Lose, || (block_table.lose(node.into()), kept as u64)),
        };
        gone.sort_unstable();
        let data = shared.options.redundancy.data();
        let is_overdue = self.bare_since.is_some_and(|since| shared.clock.now() - since > REPAIR_DUE);
        for block in gone {
            self.blocks.lose(block);
            let Some(shards) = at_stake.get(&block) else { continue };
            let count = |is_so: &dyn Fn(u16) -> bool| shards.iter().filter(|(_, at)| is_so(at.node)).count();
            let reachable = count(&|node| self.is_reachable(shared, node));
            let intact = count(&|node| self.is_intact(shared, node));
            shared.figures.lost_blocks += 1;
            shared.figures.covered_blocks += u64::from(reachable >= data || is_overdue);
            shared.figures.given_up_blocks += u64::from(reachable < data && intact >= data);
        }
        if self.block_table.is_bare() {
            if self.bare_since.is_none() {
                let failed_at = shared.machines.failed_at(node.into());
                self.bare_since = Some(failed_at.unwrap_or(shared.clock.now()));
                shared.figures.bare_clients += 1;
            }
            self.mend_soon(shared);
        }
        self.count_lacking(shared);
    }

    fn count_lacking(&mut self, shared: &mut Shared) {
        let lacking = if self.block_table.is_bare() { self.block_table.lacking() } else { 0 };
        shared.figures.lack(lacking, std::mem::replace(&mut self.lacking, lacking));
    }

    /// Blocks that have as many shards as they need, one of them on this node, and where all of them are.
    fn at_stake(&self, node: u16) -> BTreeMap<u32, Shards> {
        if self.block_table.used_on(node.into()) == 0 {
            return BTreeMap::new();
        }
        let least = self.block_table.redundancy().data();
        let is_at_stake = |shards: &Shards| {
            shards.count() <= least && shards.iter().any(|(_, address)| address.node == node)
        };
        let located = |block: u32| Some((block, self.block_table.located(block)?.shards));
        self.blocks.iter().filter_map(located).filter(|(_, shards)| is_at_stake(shards)).collect()
    }

    /// Shards on each node, added to what others have there.
    pub(crate) fn add_stored(&self, stored: &mut [u64]) {
        stored.iter_mut().zip(self.block_table.used()).for_each(|(sum, used)| *sum += used);
    }

    /// Blocks that are far.
    pub(crate) fn kept(&self) -> u64 {
        self.blocks.all() as u64
    }

    /// Blocks of which one rack holds too much.
    pub(crate) fn exposed(&self) -> u64 {
        self.block_table.exposed()
    }

    /// Shards that were rebuilt.
    pub(crate) fn rebuilt(&self) -> u64 {
        self.block_table.rebuilt()
    }

    /// Nodes that have been well for a while, and which it takes for slow all the same: reads go around them.
    pub(crate) fn shunned(&mut self, shared: &mut Shared) -> u64 {
        let nodes: Vec<u16> = self.shunned_nodes(shared).collect();
        // Where nothing of its is, it reads nothing, and can't know.
        let read: Vec<u16> = nodes.into_iter().filter(|node| self.note_reads(shared, *node)).collect();
        self.shunned_nodes(shared).filter(|node| read.contains(node)).count() as u64
    }

    fn shunned_nodes(&self, shared: &Shared) -> impl Iterator<Item = u16> {
        const QUICK: std::time::Duration = std::time::Duration::from_millis(1);
        /// After so long clients should have found out.
        const KNOWN: Time = 30_000_000_000;
        let is_shunned = move |(node, health): &(usize, &Health)| {
            health.is_up()
                && health.answer_time() > QUICK
                && shared.machines.slowness(*node) <= 1.0
                && shared.machines.presence(*node) == Presence::Up
                && shared.clock.now() - shared.machines.changed_at(*node) > KNOWN
        };
        self.health.iter().enumerate().filter(is_shunned).map(|(node, _)| node as u16)
    }
}
