//! An application's figures, as the user gets them.

use farmem_page::PageCount;
use serde::{Deserialize, Serialize};

use crate::report::by_class::ByClass;
use crate::report::managed_by::ManagedBy;
use crate::report::summary::summary;

/// A run in figures.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// The application's name.
    pub name: String,
    /// The host's rule by which it is managed, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<ManagedBy>,
    /// The program's process.
    pub process: u32,
    /// Processes of the application, by the latest look at them.
    pub processes: u64,
    /// Those that have a pager now.
    pub processes_managed: u64,
    /// Processes that have connected or were forked since the start.
    pub processes_started: u64,
    /// Time since the start.
    pub wall_seconds: f64,
    /// Processor time of the program with all that it has waited for, the pager's included.
    pub cpu_seconds: f64,
    /// Of that, the pager's.
    pub pager_cpu_seconds: f64,
    /// The local budget.
    pub budget_bytes: u64,
    /// Memory of the program that is local now, in processes with a pager and without.
    pub resident_bytes: u64,
    /// The most that it was.
    pub resident_peak_bytes: u64,
    /// Memory of mappings under management now.
    pub managed_bytes: u64,
    /// The most that it was.
    pub managed_peak_bytes: u64,
    /// Memory that could not be taken under management, of those mappings that looked as if it could.
    pub unmanaged_bytes: u64,
    /// Part of managed memory that processes share.
    pub shared_managed_bytes: u64,
    /// Part of local memory that processes share; each page counts once.
    pub shared_resident_bytes: u64,
    /// Part of far memory that processes share.
    pub shared_far_bytes: u64,
    /// Memory that processes share and that stays local: it has a name or a descriptor, or no pager has come
    /// for it. It is part of no other figure.
    pub shared_local_bytes: u64,
    /// The time that threads have waited for pages that processes share, seconds.
    pub shared_stall_seconds: f64,
    /// Memory of the pagers themselves, without the pool.
    pub own_bytes: u64,
    /// Memory of the pool's own tables, at most.
    pub pool_metadata_bytes: u64,
    /// Pages that are in far memory now.
    pub far_pages: u64,
    /// Share of the faults for far pages that prefetching saved (Canvas §6.4.2).
    pub contribution: f64,
    /// Share of the prefetched pages that were used.
    pub accuracy: f64,
    /// Memory that the pool takes now; after the program's end, what it took when it held most.
    pub pool_bytes: u64,
    /// Limit of the pool.
    pub pool_limit_bytes: u64,
    /// Limit of what is in the pool and on disk together.
    pub partition_bytes: u64,
    /// The swap cache: what was fetched ahead and is not known to have been used; part of what is resident,
    /// unless it has left.
    pub cache_bytes: u64,
    /// Limit of the swap cache.
    pub cache_limit_bytes: u64,
    /// Memory that the program has pinned.
    pub pinned_bytes: u64,
    /// Of the pool's limit, what it may take at present.
    pub pool_leased_bytes: u64,
    /// Of that, what the host guarantees.
    pub pool_guaranteed_bytes: u64,
    /// How it stands with the machine's broker: `attached`, `lost` while it looks for a new one, or `none`.
    pub host: String,
    /// The part against others of the same host.
    pub weight: u32,
    /// What decides which pages are fetched ahead.
    pub prefetch: String,
    /// The application's own local memory; what the budget is beyond it is borrowed, what it is below is lent
    /// or not needed.
    pub local_bytes: u64,
    /// The budget that it had before it was shrunk, and that it grows to again; 0 when it isn't shrunk.
    pub shrunk_from_bytes: u64,
    /// Compressed pages stored in the pool and on disk.
    pub pool_stored_bytes: u64,
    /// How many pages that is.
    pub pool_stored_pages: u64,
    /// Disk space in use.
    pub disk_bytes: u64,
    /// Memory of other machines in use, each slab counted once.
    pub node_bytes: u64,
    /// How slabs lie on nodes: `none`, `mirror`, or `K+M`; empty without nodes.
    pub redundancy: String,
    /// Memory of nodes that is in use, copies and parity included.
    pub node_stored_bytes: u64,
    /// Nodes that take part: those that are to be emptied, or have left, don't.
    pub nodes: u64,
    /// Of what is stored, what is on nodes that are to be emptied; zero when they may be stopped.
    pub node_leaving_bytes: u64,
    /// What would be lost with one rack, which holds more of it than the redundancy can lose.
    pub node_exposed_bytes: u64,
    /// Racks that nodes have named.
    pub node_racks: u64,
    /// What copies and parity lack since nodes were lost; zero when the redundancy is whole.
    pub node_lacking_bytes: u64,
    /// What of them was rebuilt since the start.
    pub node_rebuilt_bytes: u64,
    /// Reads that were answered by other nodes than the one that has the pages.
    pub node_reads_around: u64,
    /// Times that others were asked as well because an answer was late.
    pub node_reads_late: u64,
    /// Reads ahead from memory nodes that were not made, because they would have come too late.
    pub node_ahead_dropped: u64,
    /// Reads ahead that a thread came to wait for, and that were made for it from then on.
    pub node_ahead_awaited: u64,
    /// Answers of nodes that were not what had been written there.
    pub node_damaged: u64,
    /// Reads from memory nodes, of up to 16 pages each.
    pub node_fetches: u64,
    /// Reads that no node could answer; what was wanted came from disk, or is lost.
    pub node_fetches_failed: u64,
    /// Pages that an earlier read from a node had brought along.
    pub read_buffer_hits: u64,
    /// How long reads that threads waited for had waited for their turn at a link, seconds.
    pub link_wait_seconds: f64,
    /// Bytes that were read from nodes.
    pub link_in_bytes: u64,
    /// The same by class.
    pub link_in_class_bytes: ByClass<u64>,
    /// Bytes that were written to nodes.
    pub link_out_bytes: u64,
    /// The same by class.
    pub link_out_class_bytes: ByClass<u64>,
    /// Whole slabs that came back from nodes and disk to the pool.
    pub raised_bytes: u64,
    /// Writes that the disk refused; what was to be written stayed in the pool.
    pub disk_writes_failed: u64,
    /// The first pages that could not be read back; `lost` counts them all.
    pub lost_pages: Vec<LostPage>,
    /// The local memory with which half of the pages that came back would have stayed, as an estimate; 0 when
    /// too few have come back.
    pub local_for_half_bytes: u64,
    /// The same for nine tenths of them.
    pub local_for_most_bytes: u64,
    /// Half of the faults took at most this long.
    pub fault_p50_us: f64,
    /// All but a hundredth of the faults took at most this long.
    pub fault_p99_us: f64,
    /// Every counter by its name.
    #[serde(flatten)]
    pub counters: serde_json::Map<String, serde_json::Value>,
}

/// A page that could not be read back: whoever touches it gets a SIGBUS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LostPage {
    /// The process that it belonged to.
    pub process: u32,
    /// The address of its first byte.
    pub address: u64,
}

impl Report {
    /// Memory of the program that is in far memory now, unpacked.
    pub const fn far_bytes(&self) -> u64 {
        PageCount::new(self.far_pages).bytes().get()
    }

    /// Whether some of its memory may lie on memory nodes.
    pub fn has_nodes(&self) -> bool {
        !self.redundancy.is_empty()
    }

    /// The value of a counter.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0)
    }

    /// Ten lines for a person, and what has gone wrong.
    pub fn summary(&self) -> String {
        summary(self)
    }
}
