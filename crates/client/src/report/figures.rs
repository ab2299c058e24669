//! The report's figures that no process counts, each described once for whoever shows them under its own
//! name.

use crate::report::by_class::ByClass;
use crate::report::run::Report;

/// What a figure counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FigureUnit {
    /// Things.
    Count,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// A part of a whole, from 0 to 1.
    Ratio,
}

/// A figure of an application.
#[derive(Debug)]
pub struct Figure {
    /// Its name, without unit.
    pub name: &'static str,
    /// What it is.
    pub meaning: &'static str,
    /// What it counts.
    pub unit: FigureUnit,
    /// Whether it only grows.
    pub is_total: bool,
    /// Where it stands in a report.
    pub value: FigureValue,
}

/// Where a figure stands in a report.
#[derive(Debug)]
pub enum FigureValue {
    /// As one.
    One(fn(&Report) -> f64),
    /// As one for each class of transfers; all of them together are the whole.
    ByClass(fn(&Report) -> ByClass<u64>),
}

macro_rules! is_total {
    (total) => {
        true
    };
    (total_by_class) => {
        true
    };
    (gauge) => {
        false
    };
}

macro_rules! value {
    (total_by_class $value:expr) => {
        FigureValue::ByClass($value)
    };
    ($kind:ident $value:expr) => {
        FigureValue::One($value)
    };
}

macro_rules! figures {
    ($($kind:ident $unit:ident $name:literal $meaning:literal $value:expr;)+) => {
        /// All of them.
        pub const FIGURES: &[Figure] = &[$(Figure {
            name: $name,
            meaning: $meaning,
            unit: FigureUnit::$unit,
            is_total: is_total!($kind),
            value: value!($kind $value),
        },)+];
    };
}

figures! {
    gauge Count "processes" "Processes of the application" |report| report.processes as f64;
    gauge Count "processes_managed" "Processes of the application that have a pager" |report| report.processes_managed as f64;
    total Seconds "run" "Time since the start" |report| report.wall_seconds;
    gauge Bytes "budget" "The local budget" |report| report.budget_bytes as f64;
    gauge Bytes "resident" "Memory of the program that is local now" |report| report.resident_bytes as f64;
    gauge Bytes "resident_peak" "The most that was local" |report| report.resident_peak_bytes as f64;
    gauge Bytes "managed" "Memory of mappings under management" |report| report.managed_bytes as f64;
    gauge Bytes "unmanaged" "Memory that could not be taken under management" |report| report.unmanaged_bytes as f64;
    gauge Bytes "shared_managed" "Part of managed memory that processes share" |report| report.shared_managed_bytes as f64;
    gauge Bytes "shared_resident" "Part of local memory that processes share" |report| report.shared_resident_bytes as f64;
    gauge Bytes "shared_far" "Part of far memory that processes share" |report| report.shared_far_bytes as f64;
    gauge Bytes "shared_local" "Shared memory that stays local because it has a name or a descriptor" |report| report.shared_local_bytes as f64;
    gauge Bytes "own" "Memory of the pagers themselves, without the pool" |report| report.own_bytes as f64;
    gauge Bytes "far" "Memory of the program that is in far memory now" |report| report.far_bytes() as f64;
    gauge Bytes "pool" "Memory that the pool takes" |report| report.pool_bytes as f64;
    gauge Bytes "pool_limit" "Limit of the pool" |report| report.pool_limit_bytes as f64;
    gauge Bytes "pool_leased" "What the pool may take at present" |report| report.pool_leased_bytes as f64;
    gauge Bytes "pool_stored" "Compressed pages stored in the pool and on disk" |report| report.pool_stored_bytes as f64;
    gauge Bytes "partition" "Limit of far memory" |report| report.partition_bytes as f64;
    gauge Bytes "cache" "Memory fetched ahead that is not known to have been used" |report| report.cache_bytes as f64;
    gauge Bytes "cache_limit" "Limit of the swap cache" |report| report.cache_limit_bytes as f64;
    gauge Bytes "pinned" "Memory that the program has pinned" |report| report.pinned_bytes as f64;
    gauge Bytes "node" "Memory of other machines in use" |report| report.node_bytes as f64;
    gauge Bytes "node_stored" "Memory of other machines in use, including copies and parity" |report| report.node_stored_bytes as f64;
    gauge Bytes "node_leaving" "Part of it on nodes that are to be emptied; 0 when they may be stopped" |report| report.node_leaving_bytes as f64;
    gauge Bytes "node_exposed" "Part of it that would be lost with one rack, which holds too much of it; 0 when any rack may fail" |report| report.node_exposed_bytes as f64;
    gauge Bytes "node_lacking" "Copies and parity that are missing since nodes were lost; 0 when the redundancy is whole" |report| report.node_lacking_bytes as f64;
    total Bytes "node_rebuilt" "Copies and parity that were rebuilt" |report| report.node_rebuilt_bytes as f64;
    gauge Bytes "disk" "Disk space in use" |report| report.disk_bytes as f64;
    gauge Bytes "local_for_half" "Estimated local memory with which half of the pages that came back would have stayed; 0 when unknown" |report| report.local_for_half_bytes as f64;
    gauge Bytes "local_for_most" "The same for nine tenths of them" |report| report.local_for_most_bytes as f64;
    gauge Ratio "prefetch_contribution" "Share of the faults for far pages that prefetching saved" |report| report.contribution;
    gauge Ratio "prefetch_accuracy" "Share of the prefetched pages that were used" |report| report.accuracy;
    gauge Seconds "fault_median" "Half of the faults took at most this long" |report| report.fault_p50_us / 1e6;
    gauge Seconds "fault_p99" "All but a hundredth of the faults took at most this long" |report| report.fault_p99_us / 1e6;
    total Count "node_reads" "Reads from memory nodes, of up to 16 pages each" |report| report.node_fetches as f64;
    total Count "node_reads_failed" "Reads that no node could answer" |report| report.node_fetches_failed as f64;
    total Count "node_reads_around" "Reads that were answered by other nodes than the one that has the pages" |report| report.node_reads_around as f64;
    total Count "node_reads_late" "Times that other nodes were asked as well because an answer was late" |report| report.node_reads_late as f64;
    total Count "node_ahead_dropped" "Reads ahead that were not made because they would have come too late" |report| report.node_ahead_dropped as f64;
    total Count "node_ahead_awaited" "Reads ahead that a thread came to wait for" |report| report.node_ahead_awaited as f64;
    total Count "node_damaged" "Answers of nodes that were not what had been written there" |report| report.node_damaged as f64;
    total Count "read_buffer_hits" "Pages that an earlier read from a node had brought along" |report| report.read_buffer_hits as f64;
    total Seconds "link_wait" "Time that reads from memory nodes, for which threads waited, had waited for their turn at a link" |report| report.link_wait_seconds;
    total_by_class Bytes "link_in" "Bytes read from memory nodes, by purpose" |report| report.link_in_class_bytes;
    total_by_class Bytes "link_out" "Bytes written to memory nodes, by purpose" |report| report.link_out_class_bytes;
    total Bytes "raised" "Whole slabs that came back from nodes and disk to the pool" |report| report.raised_bytes as f64;
    total Count "disk_writes_failed" "Writes that the disk refused" |report| report.disk_writes_failed as f64;
}
