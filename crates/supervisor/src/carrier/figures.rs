//! How the application's memory on nodes stands, in figures.

use std::sync::atomic::{AtomicU64, Ordering};

use farmem_store::SLAB_BYTES;

use super::Carrier;

/// What is on nodes, and what is lacking there.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeFigures {
    /// How blocks lie on nodes, as `--redundancy` says it.
    pub(crate) redundancy: String,
    /// Memory of nodes that is in use, copies and parity included.
    pub(crate) stored_bytes: u64,
    /// Nodes that take part: neither emptied nor gone.
    pub(crate) members: u64,
    /// Of what is stored, what is on nodes that are to be emptied.
    pub(crate) leaving_bytes: u64,
    /// Of what is stored, what would be lost with one rack, which holds too much of it.
    pub(crate) exposed_bytes: u64,
    /// Racks that nodes have named.
    pub(crate) racks: u64,
    /// What copies and parity are lacking.
    pub(crate) lacking_bytes: u64,
    /// What of them was rebuilt since the start.
    pub(crate) rebuilt_bytes: u64,
    /// Reads for which other nodes were asked than the one that has the pages.
    pub(crate) reads_around: u64,
    /// Reads for which others were asked as well, because an answer was late.
    pub(crate) reads_late: u64,
    /// Reads ahead that were not made, because they would have come too late.
    pub(crate) ahead_dropped: u64,
    /// Reads ahead that a thread came to wait for.
    pub(crate) ahead_awaited: u64,
    /// Answers that were not what had been written.
    pub(crate) damaged: u64,
}

/// What is counted as it happens.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) around: AtomicU64,
    pub(super) late: AtomicU64,
    pub(super) ahead_dropped: AtomicU64,
    pub(super) ahead_awaited: AtomicU64,
    pub(super) damaged: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Carrier {
    /// How it stands at this moment.
    pub(crate) fn figures(&self) -> NodeFigures {
        let state = self.state();
        let shard_bytes = self.order().bytes() as u64;
        let counted = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        NodeFigures {
            redundancy: self.redundancy.to_string(),
            stored_bytes: state.block_table.used().sum::<u64>() * shard_bytes,
            members: state.members.iter().filter(|member| !member.is_leaving()).count() as u64,
            leaving_bytes: state
                .block_table
                .used()
                .zip(&state.members)
                .filter(|(_, member)| member.is_leaving())
                .map(|(used, _)| used * shard_bytes)
                .sum(),
            exposed_bytes: state.block_table.exposed() * SLAB_BYTES as u64,
            racks: state.block_table.racks() as u64,
            lacking_bytes: state.block_table.lacking() * shard_bytes,
            rebuilt_bytes: state.block_table.rebuilt() * shard_bytes,
            reads_around: counted(&self.counts.around),
            reads_late: counted(&self.counts.late),
            ahead_dropped: counted(&self.counts.ahead_dropped),
            ahead_awaited: counted(&self.counts.ahead_awaited),
            damaged: counted(&self.counts.damaged),
        }
    }
}
