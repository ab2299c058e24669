//! The application's figures, as the user gets them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use farmem_page::PageCount;
use farmem_policy::PrefetchPolicy;
use farmem_policy::absence::Absences;
use farmem_store::PoolUsage;
use farmem_telemetry::{COUNTERS, Counter, Header, Kind, Ledger, SlotState};
use farmem_wire::host::{LEASED_SLAB_BYTES, Terms};
use serde::{Deserialize, Serialize};

use crate::carrier::{ByClass, LinkFigures, NodeFigures};
use crate::options::ManagedBy;
use crate::processes::attacher::SharedMemory;
use crate::reporting::summary::summary;
use crate::reporting::totals::Totals;

/// A sample of fewer pages says too little.
const LEAST_PROBES: u64 = 16;

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

/// What a report is made of.
pub(crate) struct Source<'a> {
    pub(crate) name: &'a str,
    pub(crate) managed_by: Option<&'a ManagedBy>,
    pub(crate) process: u32,
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
    pub(crate) ledger: Ledger<'a>,
    pub(crate) totals: Totals,
    /// What has happened under the present budget.
    pub(crate) absences: Absences,
    pub(crate) processes: u64,
    pub(crate) started: u64,
    /// What is local in processes without a pager.
    pub(crate) apart: PageCount,
    pub(crate) shared: SharedMemory,
    /// What is agreed with the host, and how it stands with it.
    pub(crate) terms: Terms,
    pub(crate) standing: &'static str,
    /// The budget before the application was shrunk.
    pub(crate) shrunk_from: PageCount,
    /// The pool now, or after the program's end when it held most.
    pub(crate) usage: PoolUsage,
    /// What is on nodes now.
    pub(crate) nodes: NodeFigures,
    /// What went over links to nodes.
    pub(crate) links: LinkFigures,
}

impl Report {
    /// Memory of the program that is in far memory now, unpacked.
    pub const fn far_bytes(&self) -> u64 {
        PageCount::new(self.far_pages).bytes().get()
    }

    pub(crate) fn new(source: &Source<'_>) -> Self {
        let Source { ledger, totals, usage, .. } = source;
        let living = || ledger.slots().filter(|slot| slot.state() != SlotState::Free);
        let gauge = |counter| living().map(|slot| slot.get(counter)).sum::<u64>();
        let bytes = |pages: u64| PageCount::new(pages).bytes().get();
        let shared = source.shared.pager.and_then(|pager| living().find(|slot| slot.process() == pager));
        let of_shared = |counter| bytes(shared.map_or(0, |slot| slot.get(counter)));
        let latency = totals.latency();
        let used = prefetched_used(totals);
        let far_faults = totals.get(Counter::Fetches) + used;
        let prefetch = PrefetchPolicy::from_number(ledger.header(Header::Prefetch).load(Ordering::Relaxed));
        let mut counters = serde_json::Map::new();
        for (counter, name, kind, _) in COUNTERS {
            if *kind == Kind::Total {
                counters.insert((*name).to_owned(), totals.get(*counter).into());
            }
        }
        Self {
            name: source.name.to_owned(),
            managed_by: source.managed_by.cloned(),
            process: source.process,
            processes: source.processes,
            processes_managed: living().count() as u64,
            processes_started: source.started,
            wall_seconds: source.wall.as_secs_f64(),
            cpu_seconds: source.cpu.as_secs_f64(),
            pager_cpu_seconds: totals.get(Counter::PagerCpuNs) as f64 / 1e9,
            budget_bytes: ledger.budget().bytes().get(),
            resident_bytes: (ledger.resident() + source.apart).bytes().get(),
            resident_peak_bytes: header_bytes(ledger, Header::ResidentPeakPages),
            managed_bytes: bytes(gauge(Counter::ManagedPages)),
            managed_peak_bytes: header_bytes(ledger, Header::ManagedPeakPages),
            unmanaged_bytes: bytes(gauge(Counter::UnmanagedPages)),
            shared_managed_bytes: of_shared(Counter::ManagedPages),
            shared_resident_bytes: shared.map_or(0, |slot| slot.resident().bytes().get()),
            shared_far_bytes: of_shared(Counter::FarPages),
            shared_local_bytes: source.shared.local.bytes().get(),
            shared_stall_seconds: shared.map_or(0.0, |slot| slot.get(Counter::StallNs) as f64 / 1e9),
            own_bytes: bytes(gauge(Counter::OwnPages)),
            pool_metadata_bytes: usage.metadata_bytes.get(),
            far_pages: gauge(Counter::FarPages),
            contribution: ratio(used, far_faults),
            accuracy: ratio(used, totals.get(Counter::Prefetched)),
            pool_bytes: usage.slab_bytes_in_memory.get(),
            pool_limit_bytes: source.terms.pool_most * LEASED_SLAB_BYTES,
            partition_bytes: usage.partition.get(),
            cache_bytes: bytes(gauge(Counter::CachedPages)),
            pinned_bytes: bytes(gauge(Counter::PinnedPages)),
            cache_limit_bytes: ledger.cache().bytes().get(),
            pool_leased_bytes: usage.limit.get(),
            pool_guaranteed_bytes: source.terms.pool_guaranteed * LEASED_SLAB_BYTES,
            host: source.standing.to_owned(),
            weight: source.terms.weight,
            prefetch: prefetch.name().to_owned(),
            local_bytes: bytes(source.terms.local_own),
            shrunk_from_bytes: source.shrunk_from.bytes().get(),
            pool_stored_bytes: usage.stored_bytes.get(),
            pool_stored_pages: usage.stored_pages.get(),
            disk_bytes: usage.disk_bytes.get(),
            node_bytes: usage.node_bytes.get(),
            redundancy: source.nodes.redundancy.clone(),
            node_stored_bytes: source.nodes.stored_bytes,
            nodes: source.nodes.members,
            node_leaving_bytes: source.nodes.leaving_bytes,
            node_lacking_bytes: source.nodes.lacking_bytes,
            node_rebuilt_bytes: source.nodes.rebuilt_bytes,
            node_reads_around: source.nodes.reads_around,
            node_reads_late: source.nodes.reads_late,
            node_ahead_dropped: source.nodes.ahead_dropped,
            node_ahead_awaited: source.nodes.ahead_awaited,
            node_damaged: source.nodes.damaged,
            node_fetches: usage.fetches,
            node_fetches_failed: usage.fetches_failed,
            read_buffer_hits: usage.buffer_hits,
            link_wait_seconds: source.links.wait.as_secs_f64(),
            link_in_bytes: source.links.in_bytes.sum(),
            link_in_class_bytes: source.links.in_bytes,
            link_out_bytes: source.links.out_bytes.sum(),
            link_out_class_bytes: source.links.out_bytes,
            raised_bytes: usage.slabs_raised * LEASED_SLAB_BYTES,
            disk_writes_failed: usage.disk_writes_failed,
            lost_pages: ledger
                .lost()
                .map(|lost| LostPage { process: lost.process, address: lost.page.addr().get() })
                .collect(),
            local_for_half_bytes: local_for(source, 0.5),
            local_for_most_bytes: local_for(source, 0.9),
            fault_p50_us: latency.quantile_ns(500) as f64 / 1e3,
            fault_p99_us: latency.quantile_ns(990) as f64 / 1e3,
            counters,
        }
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

/// Fewer pages that came back say nothing of others.
const TELLING: u64 = 256;

/// The budget under which the share `share` of the pages that came back would have stayed: never more than
/// all that there was.
fn local_for(source: &Source<'_>, share: f64) -> u64 {
    let Source { ledger, absences, .. } = source;
    let Some(more) = absences.more_for(share).filter(|_| absences.returned() >= TELLING) else { return 0 };
    let budget = ledger.budget().bytes().get();
    let enough = header_bytes(ledger, Header::ManagedPeakPages).max(budget);
    ((budget as f64 * (1.0 + more)) as u64).min(enough)
}

fn header_bytes(ledger: &Ledger<'_>, word: Header) -> u64 {
    PageCount::new(ledger.header(word).load(Ordering::Relaxed)).bytes().get()
}

/// Pages that came ahead and were used: those known to be, and of the doubtful ones as many as the sample of
/// them says.
fn prefetched_used(totals: &Totals) -> u64 {
    let known = totals.get(Counter::PrefetchUsed);
    let probes = totals.get(Counter::PrefetchProbes);
    if probes < LEAST_PROBES {
        return known;
    }
    let share = ratio(totals.get(Counter::PrefetchProbesUsed), probes).min(1.0);
    known + (totals.get(Counter::PrefetchDoubtful) as f64 * share) as u64
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
