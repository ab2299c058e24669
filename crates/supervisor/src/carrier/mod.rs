//! The carrier: what of the application's far memory lies on other machines, and the threads that carry it
//! there and back.
//!
//! ```text
//!  readers in the program ──calls──► lanes ──┐
//!  mover ──────────────────────────► writer ─┼──► links ──► nodes
//!                              node monitor ─┤
//!                                 rebuilder ─┘
//! ```
//! Each thread owns its links, one to each node, and nobody waits for another's. What they share is behind
//! one lock, held for as long as it takes to look something up: which chunk holds what (the block table), and
//! which node is up. Where a block lies is known here alone: no program can name an address on a node.
//!
//! Nodes join, are emptied and leave while all of this runs ([`membership`]): a node is a number, numbers
//! grow, and what becomes of a node is a state of its number.
//!
//! A node that fails is *away* first: it is asked by the node monitor's link, its links are made again, and
//! if the same incarnation of it answers, all is well. When a try after five seconds fails, or when another
//! incarnation answers, what it held is lost: blocks of which too little is left are marked so, and their
//! pages become a SIGBUS for whoever touches them. The others are made whole again on nodes that are left. A
//! link that one thread can't make, or that ends, takes no node away: the node monitor asks the node by its
//! own.

mod blocks;
mod figures;
mod held;
mod lane;
mod link;
mod links;
mod many;
mod membership;
mod node_monitor;
mod prepared;
mod rebuilder;
mod sharing;
mod slots;
mod stock;
#[cfg(test)]
mod tests;
mod timing;
mod tuning;
mod ways;
mod writer;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use farmem_remote::{
    BlockTable, Checker, Health, Lateness, Located, LostChunk, Member, Piece, Redundancy, Reserve, Reunion,
    Span,
};
use farmem_store::{NodesConfig, SLAB_BYTES};
use farmem_transport::{
    ClientIdentity, Connector, Destination, LinkError, NodeDescription, Order, Request, Security, Ticket,
    Traffic, Transport, Travel,
};

use crate::application::{Application, SharedPool};
use crate::say::say;
use crate::threads::worker::Worker;

use farmem_page::ByteCount;
use figures::Counts;
pub(crate) use figures::NodeFigures;
use lane::Lane;
use link::tell_to_forget;
use links::Links;
pub use membership::MembershipOptions;
use membership::NodeSlot;
use node_monitor::NodeMonitor;
use prepared::Prepared;
use rebuilder::Rebuilder;
pub(crate) use sharing::{LinkFigures, Sharing};
use slots::{JOINS, Slots};
pub use tuning::NodeTuning;
pub(crate) use writer::NodeWriter;

/// Lanes of the wire, by their owners: one for each of the pool's, for what threads wait for; these; and one
/// more for each of the pool's, for what nobody waits for yet, so that it holds up nothing else.
const WRITER_LANE: u8 = 64;
const MONITOR_LANE: u8 = 65;
const LEAVING_LANE: u8 = 66;
const REBUILD_LANE: u8 = 67;
const AHEAD_LANE: u8 = 128;
const _: () = assert!(WRITER_LANE <= u8::MAX - AHEAD_LANE, "each lane of the pool has a second number");
/// Making a connection takes no longer; a node that needs more is away.
const CONNECT_PATIENCE: Duration = Duration::from_secs(1);
/// What nodes lend that join while a run goes on can be used up to so many times what there was at its start,
/// and up to this in any case.
const GROWTH_TIMES: u64 = 4;
const GROWTH_LEAST: u64 = 64 << 30;
/// At the end, nodes are told so for no longer.
const LEAVE_PATIENCE: Duration = Duration::from_millis(300);

/// Where a memory node listens.
pub type NodeAddress = Destination;

/// What a run uses of memory nodes.
#[derive(Clone, Debug)]
pub struct NodesOptions {
    /// The nodes.
    pub nodes: Vec<NodeAddress>,
    /// How many copies they hold, or how blocks are cut and coded.
    pub redundancy: Redundancy,
    /// What goes at most, in a second, to make good what was lost with a node; read and written together.
    pub rebuild_per_second: ByteCount,
    /// What protects the way to them.
    pub security: Security,
    /// How reads and writes travel there.
    pub travel: Travel,
    /// The RDMA device for that, by its name; without it the one with the address of a connection.
    pub device: Option<String>,
    /// How much is read, kept and held ahead.
    pub tuning: NodeTuning,
    /// Where it is said which nodes there are, if that may change.
    pub membership: Option<MembershipOptions>,
    /// What has named them, where the command that starts the program has not: a few words for messages about
    /// nodes that can't be used.
    pub named_by: Option<String>,
}

impl NodesOptions {
    /// How many nodes may join.
    pub(crate) fn joins(&self) -> usize {
        if self.membership.is_some() { JOINS } else { 0 }
    }

    /// To follow a sentence about nodes.
    fn origin(&self) -> String {
        self.named_by.as_ref().map_or_else(String::new, |who| format!("; {who}"))
    }
}

/// Makes a link to a node, as one of this client's lanes.
type Connect =
    Box<dyn Fn(&NodeAddress, ClientIdentity, Traffic) -> Result<Box<dyn Transport>, LinkError> + Send + Sync>;

/// Links over the network.
///
/// # Errors
/// RDMA is wanted, and can't be had on this machine.
pub(crate) fn connector(options: &NodesOptions) -> Result<Connect> {
    let connector = Connector::new(options.security.clone(), options.travel, options.device.as_deref())?;
    Ok(Box::new(move |node, client, traffic| connector.connect(node, client, traffic, CONNECT_PATIENCE)))
}

/// What a lane is for.
fn traffic_of(lane: u8) -> Traffic {
    match lane {
        MONITOR_LANE | LEAVING_LANE => Traffic::Control,
        WRITER_LANE | REBUILD_LANE | AHEAD_LANE.. => Traffic::Background,
        _ => Traffic::Demand,
    }
}

/// Nodes that have been asked how much they lend, before there is a pool.
pub(crate) struct Reached {
    nodes: Vec<NodeAddress>,
    redundancy: Redundancy,
    /// What checks of shards are taken with. Nodes must not know it.
    check_seed: u64,
    rebuild_bytes_per_second: u64,
    tuning: NodeTuning,
    membership: Option<MembershipOptions>,
    space: u128,
    connect: Connect,
    descriptions: Vec<Option<NodeDescription>>,
}

impl Reached {
    /// Asks all nodes. Some may be away; those are tried again later.
    ///
    /// # Errors
    /// No node answers, or fewer are named than a block lies on.
    pub(crate) fn reach(options: &NodesOptions, space: u128, connect: Connect) -> Result<Self> {
        let (named, needed) = (options.nodes.len(), options.redundancy.shards());
        if named < needed {
            bail!(
                "--redundancy {} needs {needed} nodes, and {named} are named; name more, or use none{}",
                options.redundancy,
                options.origin()
            );
        }
        let mut descriptions = Vec::new();
        let mut refusals = Vec::new();
        // As pages will travel: a way that can't be had shows now.
        let client = ClientIdentity { space, lane: MONITOR_LANE };
        let ask = |node: &NodeAddress| Ok(connect(node, client, Traffic::Background)?.node());
        for (node, reached) in options.nodes.iter().zip(many::ask_all(&options.nodes, ask)) {
            descriptions.push(reached.as_ref().ok().cloned());
            refusals.extend(reached.err().map(|error| (node, error)));
        }
        if refusals.len() == options.nodes.len()
            && let Some((node, error)) = refusals.pop()
        {
            if let LinkError::Rdma(_) = error {
                return Err(error).with_context(|| format!("cannot use node {node}{}", options.origin()));
            }
            return Err(error).with_context(|| {
                let origin = options.origin();
                format!("cannot use node {node}; start `farmem node` there, or name another one{origin}")
            });
        }
        for (node, error) in refusals {
            say(&format!("node {node} can't be reached: {error}; it is tried again"));
        }
        let nodes = options.nodes.clone();
        let rebuild_bytes_per_second = options.rebuild_per_second.get();
        Ok(Self {
            nodes,
            redundancy: options.redundancy,
            check_seed: new_space()? as u64,
            rebuild_bytes_per_second,
            tuning: options.tuning,
            membership: options.membership.clone(),
            space,
            connect,
            descriptions,
        })
    }

    /// What the pool needs for them. With a disk, and one copy on nodes, every block has its second copy
    /// there; else the disk takes what nodes don't.
    pub(crate) fn config(&self, has_disk: bool, local: ByteCount) -> NodesConfig {
        let slabs = |description: &NodeDescription| description.frames / u64::from(Order::SLAB.frames());
        let lent: u64 = self.descriptions.iter().flatten().map(slabs).sum();
        let alone = match (self.redundancy, has_disk) {
            (Redundancy::NONE, true) => 0,
            (redundancy, _) => lent * redundancy.data() as u64 / redundancy.shards() as u64,
        };
        let is_fixed = self.membership.is_none() || (self.redundancy, has_disk) == (Redundancy::NONE, true);
        let alone_bytes = alone * SLAB_BYTES as u64;
        let most = if is_fixed { alone_bytes } else { (alone_bytes * GROWTH_TIMES).max(GROWTH_LEAST) };
        let lanes =
            std::thread::available_parallelism().map_or(1, |count| count.get().min(WRITER_LANE.into()));
        // Each lane may be filling one, and not displace with it what another one has just filled.
        let entries = self.tuning.entries(local).max(2 * lanes as u64);
        NodesConfig {
            alone: ByteCount::new(alone_bytes),
            spare: ByteCount::new(most.saturating_sub(alone_bytes)),
            lanes: lanes as u16,
            entries: entries as u16,
        }
    }
}

/// See the module's text.
pub(crate) struct Carrier {
    pool: &'static SharedPool,
    nodes: Slots<NodeSlot>,
    membership: Option<MembershipOptions>,
    space: u128,
    connect: Connect,
    prepared: Prepared,
    redundancy: Redundancy,
    rebuild_bytes_per_second: u64,
    tuning: NodeTuning,
    checker: Checker,
    counts: Counts,
    sharing: Sharing,
    began: Instant,
    state: Mutex<State>,
}

/// What the carrier's threads share.
struct State {
    block_table: BlockTable,
    members: Vec<Member>,
    /// Whether nodes that are leaving hold what no other has room for.
    is_stuck: bool,
    health: Vec<Health>,
    lateness: Lateness,
    reserves: Vec<Reserve>,
    /// How much is read at once for each process.
    spans: HashMap<u16, Span>,
    /// That of a process that has read nothing yet.
    first_span: Span,
}

impl Carrier {
    pub(crate) fn new(pool: &'static SharedPool, reached: Reached, sharing: Sharing) -> Self {
        let Reached {
            nodes,
            redundancy,
            check_seed,
            rebuild_bytes_per_second,
            tuning,
            membership,
            space,
            connect,
            descriptions,
        } = reached;
        let count = nodes.len();
        let joins = if membership.is_some() { JOINS } else { 0 };
        let state = State {
            block_table: BlockTable::new(space as u64, redundancy, count),
            members: vec![Member::Active; count],
            is_stuck: false,
            health: vec![Health::default(); count],
            lateness: Lateness::default(),
            reserves: vec![tuning.reserve(); count],
            spans: HashMap::new(),
            first_span: tuning.span(),
        };
        let carrier = Self {
            pool,
            nodes: Slots::new(nodes.into_iter().map(NodeSlot::new).collect(), joins),
            membership,
            space,
            connect,
            prepared: Prepared::new(),
            redundancy,
            rebuild_bytes_per_second,
            tuning,
            checker: Checker::new(check_seed),
            counts: Counts::default(),
            sharing,
            began: Instant::now(),
            state: Mutex::new(state),
        };
        for (node, description) in descriptions.iter().enumerate() {
            if let Some(description) = description {
                carrier.met(node, carrier.incarnation(node), description);
            }
        }
        carrier
    }

    /// How its links are shared.
    pub(crate) fn sharing(&self) -> &Sharing {
        &self.sharing
    }

    /// Starts its threads.
    pub(crate) fn start(&'static self) -> Vec<Worker> {
        self.pool.clear_buffer();
        self.prepared.clear();
        let lanes = (0..self.pool.lanes()).map(|number| Lane::start(self, number));
        let is_rebuilding = self.redundancy.parity() > 0 || self.membership.is_some();
        let rebuilder = is_rebuilding.then(|| Rebuilder::start(self));
        let watch = self.membership.as_ref().map(|options| membership::start(self, options));
        lanes.chain([NodeMonitor::start(self), prepared::start(self)]).chain(rebuilder).chain(watch).collect()
    }

    /// Gives everything back: nobody needs it any more. Nodes that don't hear of it find out when the lease
    /// ends.
    pub(crate) fn leave(&'static self) {
        for link in &mut Links::new(self, LEAVING_LANE) {
            if self.is_up(link.node()) {
                link.exchange(vec![Request::Leave], LEAVE_PATIENCE);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A thread that panicked has left the block table as it was between two changes, or the process has
        // ended.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// A link to a node, if the node is there, and the incarnation of it that the link is to.
    fn link(&self, node: usize, lane: u8) -> Result<(Box<dyn Transport>, u32), LinkError> {
        let incarnation = self.incarnation(node);
        let client = ClientIdentity { space: self.space, lane };
        let link = (self.connect)(&self.nodes[node].address, client, traffic_of(lane))?;
        match self.met(node, incarnation, &link.node()) {
            Meeting::Use(incarnation) => Ok((link, incarnation)),
            Meeting::Remains | Meeting::Unfit => Err(LinkError::Closed),
        }
    }

    /// The node monitor's link to a node, which may have been given up: then it is told first that nobody
    /// wants what it holds, for it would keep that, and nobody else could have it.
    fn reach(&self, node: usize) -> Result<(Box<dyn Transport>, u32), LinkError> {
        let client = ClientIdentity { space: self.space, lane: MONITOR_LANE };
        // Twice, because a node lets go the links of a client that has left.
        for _ in 0..2 {
            let incarnation = self.incarnation(node);
            let mut link = (self.connect)(&self.nodes[node].address, client, traffic_of(MONITOR_LANE))?;
            match self.met(node, incarnation, &link.node()) {
                Meeting::Use(incarnation) => return Ok((link, incarnation)),
                Meeting::Unfit => break,
                Meeting::Remains => {
                    // Above all that this lane used before.
                    let ticket = Ticket(self.now().as_micros() as u64 + 1);
                    tell_to_forget(&mut *link, ticket, CONNECT_PATIENCE)?;
                    self.state().health[node].forgot();
                }
            }
        }
        Err(LinkError::Closed)
    }

    /// A node has introduced itself on a link that was begun in this incarnation of it.
    fn met(&self, node: usize, incarnation: u32, description: &NodeDescription) -> Meeting {
        let now = self.now();
        let mut state = self.state();
        if state.block_table.incarnation(node) != incarnation
            && !state.health[node].is_up_as(description.incarnation)
        {
            // Others have met another one meanwhile. Which of the two came later nobody can say.
            return Meeting::Unfit;
        }
        let was_up = state.health[node].is_up();
        let loss = match state.health[node].connected(now, description.incarnation) {
            Reunion::Same => Loss::default(),
            Reunion::Other => self.lose(&mut state, node),
            Reunion::Remains => return Meeting::Remains,
        };
        let is_up = state.health[node].is_up();
        let incarnation = state.block_table.incarnation(node);
        if is_up {
            state.block_table.set_rack(node, description.rack);
            state.block_table.admit(node, description.frames / u64::from(self.order().frames()));
            self.fit_pool(&state);
        }
        drop(state);
        loss.tell();
        if is_up && !was_up {
            tracing::info!(node = %self.nodes[node].address, "node answers");
        }
        if is_up { Meeting::Use(incarnation) } else { Meeting::Unfit }
    }

    /// This incarnation of a node doesn't answer. Of an earlier incarnation everybody knows already.
    fn failed(&self, node: usize, incarnation: u32) {
        self.take_away(node, incarnation, Health::failed);
    }

    /// A try to reach this incarnation of a node, which began at `began`, has failed.
    fn tried(&self, node: usize, incarnation: u32, began: Duration) {
        self.take_away(node, incarnation, |health, now| health.tried(began, now));
    }

    fn take_away(&self, node: usize, incarnation: u32, note: impl FnOnce(&mut Health, Duration)) {
        let now = self.now();
        let mut state = self.state();
        if state.block_table.incarnation(node) != incarnation {
            return;
        }
        let was_up = state.health[node].is_up();
        note(&mut state.health[node], now);
        state.block_table.suspend(node);
        let is_up = state.health[node].is_up();
        drop(state);
        if was_up && !is_up {
            tracing::warn!(node = %self.nodes[node].address, "node does not answer");
        }
    }

    /// One link to this incarnation of a node has ended, or could not be made, which may have reasons that
    /// are not the node's: the node monitor asks the node.
    fn doubted(&self, node: usize, incarnation: u32) {
        let mut state = self.state();
        if state.block_table.incarnation(node) == incarnation {
            state.health[node].doubt();
        }
    }

    /// Which incarnation of a node it is.
    fn incarnation(&self, node: usize) -> u32 {
        self.state().block_table.incarnation(node)
    }

    /// What a node held is lost.
    fn lose(&self, state: &mut State, node: usize) -> Loss {
        let gone = state.block_table.lose(node);
        gone.iter().for_each(|&block| self.pool.forget_nodes_of(block as usize));
        if gone.is_empty() {
            return Loss::default();
        }
        let backed = gone.iter().filter(|&&block| self.pool.has_disk_copy(block as usize)).count();
        Loss(Some(format!(
            "node {} is lost, and with it {:.1} MiB; {:.1} MiB of these are on disk as well",
            self.nodes[node].address,
            mebibytes(gone.len()),
            mebibytes(backed)
        )))
    }

    /// A node says that it hasn't got a shard.
    fn lose_shard(&self, block: u32, located: &Located, shard: usize) {
        // Both under the lock: otherwise the block might be written again in between.
        let mut state = self.state();
        if state.block_table.lose_shard(block, located, shard, LostChunk::Gone) {
            self.pool.forget_nodes_of(block as usize);
        }
    }

    /// Whether bytes can be used for what was written to that range. Where there is but one copy, whoever
    /// uses them finds out whether they are right; but they are not that copy's if it was moved elsewhere
    /// meanwhile, and its chunk is somebody else's.
    fn is_right(&self, block: u32, located: &Located, piece: Piece, content: &[u8]) -> bool {
        if self.redundancy.parity() == 0 {
            return self.state().block_table.is_there(block, located);
        }
        self.is_as_written(located, piece, content)
    }

    /// Whether bytes are what was written to that range.
    fn is_as_written(&self, located: &Located, piece: Piece, content: &[u8]) -> bool {
        let first = piece.shard * self.redundancy.shard_pages() + piece.first;
        located
            .checks
            .get(first..first + piece.count)
            .is_some_and(|checks| self.checker.is_right(content, checks))
    }

    /// A node has sent other bytes than were written to a shard: it is rebuilt elsewhere. False when the
    /// block was written or freed meanwhile, and nobody is to blame.
    fn caught(&self, block: u32, located: &Located, shard: usize) -> bool {
        let now = self.now();
        let mut state = self.state();
        if !state.block_table.is_current(block, located) {
            return false;
        }
        let known = |located: &Located| located.shards.get(shard);
        if state.block_table.located(block).and_then(known) != known(located) {
            // The shard was lost or moved while it was on its way: what came is of the node's next
            // incarnation, or somebody else's.
            return true;
        }
        figures::count(&self.counts.damaged);
        if state.block_table.lose_shard(block, located, shard, LostChunk::Returned) {
            self.pool.forget_nodes_of(block as usize);
        }
        // Where there is but one copy, what else is there is better than nothing.
        if self.redundancy.parity() > 0
            && let Some(address) = located.shards.get(shard)
            && let node = usize::from(address.node)
            && state.health[node].lied(now)
        {
            let loss = self.lose(&mut state, node);
            drop(state);
            say(&format!(
                "node {} sends other bytes than were written; nothing of it is used any more until it is restarted",
                self.nodes[node].address
            ));
            loss.tell();
        }
        true
    }

    fn redundancy(&self) -> Redundancy {
        self.redundancy
    }

    /// The chunk of a node that a shard fills.
    fn order(&self) -> Order {
        self.redundancy.order()
    }

    /// Whether a node answers, as far as is known.
    fn is_up(&self, node: usize) -> bool {
        self.state().health[node].is_up()
    }

    /// Which incarnation of a node answers, as far as is known.
    fn incarnation_up(&self, node: usize) -> Option<u32> {
        let state = self.state();
        state.health[node].is_up().then(|| state.block_table.incarnation(node))
    }
}

/// What becomes of a link that has just been made.
enum Meeting {
    /// It is to this incarnation of the node, and is to be used.
    Use(u32),
    /// The node was given up, and holds what it held then.
    Remains,
    /// It is not to be used.
    Unfit,
}

/// What is to be told of a loss, once nobody waits for the state any more: standard error may block.
#[derive(Default)]
#[must_use]
struct Loss(Option<String>);

impl Loss {
    fn tell(self) {
        self.0.iter().for_each(|words| say(words));
    }
}

impl State {
    /// What a process reads at once.
    fn span(&mut self, owner: u16) -> &mut Span {
        self.spans.entry(owner).or_insert(self.first_span)
    }

    /// How long a node takes to answer, if it is up.
    fn answer_time(&self, node: u16) -> Option<Duration> {
        self.health.get(usize::from(node))?.answer_time_if_up()
    }

    /// After which time an answer is late.
    fn late_after(&mut self, now: Duration) -> Duration {
        self.lateness.patience(now, self.health.iter())
    }
}

fn mebibytes(slabs: usize) -> f64 {
    farmem_page::mebibytes((slabs * SLAB_BYTES) as u64)
}

/// The carrier of an application that uses nodes.
pub(crate) fn start(application: Application) -> Vec<Worker> {
    application.carrier.map(Carrier::start).unwrap_or_default()
}

/// A number that only this application knows.
pub(crate) fn new_space() -> Result<u128> {
    let mut bytes = [0_u8; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u128::from_ne_bytes(bytes))
}
