//! What is in a trace, counted.

use std::collections::{BTreeMap, BTreeSet};

use farmem_telemetry::{TraceKind, TraceRecord};
use serde::Serialize;

use crate::error::TraceError;
use crate::file::{TraceEntry, TraceHeader};

/// A trace in figures.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Summary {
    /// Budget when the recording began.
    pub budget_bytes: u64,
    /// Which policy of prefetching was at work.
    pub prefetch: &'static str,
    /// Whether the recording came to its end.
    pub is_complete: bool,
    /// Records that are missing.
    pub lost: u64,
    /// From the first record to the last.
    pub seconds: f64,
    /// Records of each kind.
    pub records: BTreeMap<&'static str, u64>,
    /// Each process's part; those that took the same slot one after another count as one.
    pub processes: Vec<ProcessSummary>,
}

/// A process of a trace in figures.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ProcessSummary {
    /// Its slot in the ledger.
    pub slot: u16,
    /// Faults on stored pages.
    pub faults: u64,
    /// Pages that they were on.
    pub pages: u64,
    /// Faults of each thread.
    pub threads: BTreeMap<u32, u64>,
}

#[derive(Default)]
struct Process {
    pages: BTreeSet<u64>,
    threads: BTreeMap<u32, u64>,
}

/// Counts what is in a trace.
///
/// # Errors
/// The trace's first.
pub fn summarise(
    header: TraceHeader,
    entries: impl Iterator<Item = Result<TraceEntry, TraceError>>,
) -> Result<Summary, TraceError> {
    let mut summary = Summary {
        budget_bytes: header.budget.bytes().get(),
        prefetch: header.policy.name(),
        records: TraceKind::ALL.iter().map(|kind| (kind.name(), 0)).collect(),
        ..Summary::default()
    };
    let mut processes: BTreeMap<u16, Process> = BTreeMap::new();
    let (mut first_ns, mut last_ns) = (u64::MAX, 0);
    for entry in entries {
        match entry? {
            // Whoever wrote the file may have written any number.
            TraceEntry::Lost(count) => summary.lost = summary.lost.saturating_add(count),
            TraceEntry::End => summary.is_complete = true,
            TraceEntry::Record(TraceRecord { kind, slot, page, detail, time_ns }) => {
                *summary.records.entry(kind.name()).or_default() += 1;
                (first_ns, last_ns) = (first_ns.min(time_ns), last_ns.max(time_ns));
                let process = processes.entry(slot).or_default();
                if matches!(kind, TraceKind::Fault | TraceKind::WriteFault) {
                    process.pages.insert(page.get());
                    *process.threads.entry(detail).or_default() += 1;
                }
            }
        }
    }
    summary.seconds = last_ns.saturating_sub(first_ns) as f64 / 1e9;
    summary.processes = processes
        .into_iter()
        .map(|(slot, process)| ProcessSummary {
            slot,
            faults: process.threads.values().sum(),
            pages: process.pages.len() as u64,
            threads: process.threads,
        })
        .collect();
    Ok(summary)
}
