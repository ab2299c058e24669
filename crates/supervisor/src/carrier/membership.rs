//! Nodes that join, are emptied, and leave while programs run (docs/adr/0044).
//!
//! What the cluster says is compared with what is, again and again; each difference is one change of state.
//! The rest follows by itself: the block table gives nothing to a node that is leaving, the rebuilder moves
//! what is there, the node monitor reaches nodes that have joined, and parts with those that hold nothing any
//! more.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farmem_page::ByteCount;
use farmem_remote::{Change, Health, Member, Roster, changes};
use farmem_transport::Destination;

use super::link::NodeLink;
use super::{Carrier, LEAVE_PATIENCE, NodeAddress, State};
use crate::cluster::source::{ClusterSource, Source};
use crate::say::say;
use crate::threads::worker::Worker;

/// Between two looks at what the cluster says. Changes are made by hand: nobody sees half a second.
const LOOK: Duration = Duration::from_millis(500);

/// A node, by its number.
pub(super) struct NodeSlot {
    pub(super) address: NodeAddress,
    /// Whether threads are to close their links to it.
    has_left: AtomicBool,
}

impl NodeSlot {
    pub(super) const fn new(address: NodeAddress) -> Self {
        Self { address, has_left: AtomicBool::new(false) }
    }

    pub(super) fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Acquire)
    }
}

/// Why a node can't be used by this run, if it can't.
type Unfit = dyn Fn(&Destination) -> Option<String> + Send + Sync;

/// A membership that may change.
#[derive(Clone)]
pub struct MembershipOptions {
    /// Where it is said which nodes there are.
    pub source: ClusterSource,
    /// At the start it was decided how nodes are reached, and what protects the way: the reason why one that
    /// would join is not fit for that.
    pub unfit: Arc<Unfit>,
}

impl fmt::Debug for MembershipOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("MembershipOptions").field(&self.source).finish()
    }
}

/// Starts the thread that follows the cluster.
pub(super) fn start(carrier: &'static Carrier, options: &MembershipOptions) -> Worker {
    let mut watch = Watch {
        carrier,
        unfit: Arc::clone(&options.unfit),
        name: options.source.to_string(),
        source: options.source.open(),
        roster: None,
        said: BTreeSet::new(),
    };
    Worker::start(move || watch.step())
}

struct Watch {
    carrier: &'static Carrier,
    unfit: Arc<Unfit>,
    name: String,
    source: Box<dyn Source>,
    /// What was wanted last, and made sense.
    roster: Option<Roster>,
    /// What is wrong at present, and was said.
    said: BTreeSet<String>,
}

impl Watch {
    fn step(&mut self) -> Duration {
        if let Some(seen) = self.source.look() {
            match seen.and_then(|text| self.roster_of(&text)) {
                Ok(roster) => self.roster = Some(roster),
                Err(reason) => {
                    say(&format!("cannot use --cluster {}: {reason}; the nodes stay as they are", self.name));
                }
            }
        }
        if let Some(roster) = &self.roster {
            let troubles = self.carrier.follow(roster);
            troubles.difference(&self.said).for_each(|trouble| say(trouble));
            self.said = troubles;
        }
        LOOK
    }

    fn roster_of(&self, text: &str) -> Result<Roster, String> {
        let roster = Roster::parse(text).map_err(|error| error.to_string())?;
        let reason = roster.active().find_map(|address| (self.unfit)(address));
        reason.map_or(Ok(roster), Err)
    }
}

impl Carrier {
    /// Begins what makes the nodes in use those of the roster, as far as it can begin now. What stands
    /// against it, a sentence each.
    pub(super) fn follow(&self, roster: &Roster) -> BTreeSet<String> {
        let mut state = self.state();
        let changes = {
            let addresses = self.nodes.iter().map(|slot| &slot.address);
            let members: Vec<_> = addresses.zip(state.members.iter().copied()).collect();
            changes(&members, roster)
        };
        let mut troubles = BTreeSet::new();
        for change in changes {
            match change {
                Change::Join(address) => {
                    if !self.join(&mut state, &address) {
                        troubles.insert(format!(
                            "node {address} can't join: this run has seen too many; it is used by programs that are started from now on"
                        ));
                    }
                }
                Change::Rejoin(node) => {
                    state.health[node] = Health::joining();
                    self.nodes[node].has_left.store(false, Ordering::Release);
                    self.set_member(&mut state, node, Member::Active);
                }
                Change::Activate(node) => self.set_member(&mut state, node, Member::Active),
                Change::Drain(node) => self.set_member(&mut state, node, Member::Draining),
                Change::Leave(node) => self.set_member(&mut state, node, Member::Leaving),
            }
        }
        self.fit_pool(&state);
        for (node, member) in state.members.iter().enumerate() {
            let address = &self.nodes[node].address;
            if *member == Member::Active && state.health[node].is_awaited() {
                troubles.insert(format!("node {address} can't be reached; it is tried again"));
            }
            if state.is_stuck
                && member.is_leaving()
                && state.block_table.used_on(node) > 0
                && !self.pool.is_disk_open()
            {
                troubles.insert(format!(
                    "node {address} can't be emptied: no other node has room for what it holds, and no disk; it stays there until one has"
                ));
            }
        }
        troubles
    }

    fn join(&self, state: &mut State, address: &NodeAddress) -> bool {
        if self.nodes.is_full() || self.sharing.add(address).is_err() {
            return false;
        }
        // Whoever finds the number finds all that belongs to it.
        state.block_table.add_node();
        state.members.push(Member::Active);
        state.health.push(Health::joining());
        state.reserves.push(self.tuning.reserve());
        tracing::info!(node = %address, "node joins");
        self.nodes.add(NodeSlot::new(address.clone()))
    }

    fn set_member(&self, state: &mut State, node: usize, member: Member) {
        state.members[node] = member;
        state.block_table.set_leaving(node, member.is_leaving());
        tracing::info!(node = %self.nodes[node].address, member = ?member, "role of the node changes");
    }

    /// Where no node has room for what is to leave another one, what is on disk as well stays there alone.
    /// Only for the mover, between two batches: then it is certain what is on disk.
    pub(super) fn leave_to_disk(&self) {
        let mut state = self.state();
        if state.is_stuck {
            let left = state.block_table.drop_leaving(|block| self.pool.has_disk_copy(block as usize));
            left.iter().for_each(|&block| self.pool.forget_nodes_of(block as usize));
        }
    }

    /// Blocks with shards on nodes that are to be emptied, once no other node has had room for them for a
    /// while, and where the disk has.
    pub(super) fn stuck(&self) -> Option<BTreeSet<u32>> {
        let state = self.state();
        (state.is_stuck && self.pool.is_disk_open()).then(|| state.block_table.leaving().collect())
    }

    /// Blocks that nodes would take, those that are to be emptied only where there is no other place: a
    /// program that could store nothing would have to be ended.
    pub(super) fn room(&self, unknown: usize) -> usize {
        let mut state = self.state();
        if state.members.iter().any(|member| member.is_leaving()) {
            state.block_table.set_last_resort(!self.pool.is_disk_block_free());
        }
        state.block_table.room(unknown)
    }

    /// What may lie on nodes alone is what they lend.
    pub(super) fn fit_pool(&self, state: &State) {
        let (lent, chunk_bytes) = (state.block_table.lent(), self.order().bytes() as u64);
        let (data, shards) = (self.redundancy.data() as u64, self.redundancy.shards() as u64);
        self.pool
            .set_node_limit(ByteCount::new(lent.saturating_mul(chunk_bytes).saturating_mul(data) / shards));
    }

    /// How a node takes part, and whether nothing of this application is there.
    pub(super) fn member(&self, node: usize) -> (Member, bool) {
        let state = self.state();
        (state.members[node], state.block_table.used_on(node) == 0)
    }

    /// Parts with a node that holds nothing any more: it is told so, and links to it are closed.
    pub(super) fn part(&self, link: &mut NodeLink) {
        let node = link.node();
        {
            let mut state = self.state();
            if state.members[node] != Member::Leaving || state.block_table.used_on(node) > 0 {
                return;
            }
            state.members[node] = Member::Parting;
            // What was granted there and is not used goes with it.
            state.block_table.retire(node);
        }
        link.tell_to_forget(LEAVE_PATIENCE);
        let mut state = self.state();
        state.members[node] = Member::Left;
        state.health[node] = Health::gone();
        self.nodes[node].has_left.store(true, Ordering::Release);
        tracing::info!(node = %self.nodes[node].address, "node has left");
    }
}
