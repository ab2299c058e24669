//! The application's figures, gathered.

use std::sync::atomic::Ordering;
use std::time::Duration;

use farmem_client::{LostPage, ManagedBy, Report};
use farmem_page::PageCount;
use farmem_policy::PrefetchPolicy;
use farmem_policy::absence::Absences;
use farmem_store::PoolUsage;
use farmem_telemetry::{COUNTERS, Counter, Header, Kind, Ledger, SlotState};
use farmem_wire::host::{LEASED_SLAB_BYTES, Terms};

use crate::carrier::{LinkFigures, NodeFigures};
use crate::processes::attacher::SharedMemory;
use crate::reporting::totals::Totals;

/// A sample of fewer pages says too little.
const LEAST_PROBES: u64 = 16;

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

/// How it is.
pub(crate) fn report(source: &Source<'_>) -> Report {
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
    Report {
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
        node_exposed_bytes: source.nodes.exposed_bytes,
        node_racks: source.nodes.racks,
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
