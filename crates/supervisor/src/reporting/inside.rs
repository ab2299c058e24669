//! What an application looks like inside: its processes, and the regions of one. For `farmem stat --regions`,
//! `farmem top` and `farmem web`.
//!
//! Processes are told from the ledger. Regions only the process itself knows (`queries/regions.rs`).

use std::fs;

use farmem_page::PAGE_SHIFT;
use farmem_policy::absence::Absences;
use farmem_telemetry::{ABSENCE_SPANS, Counter, Gathered, Ledger, ProcessSlot, RegionFigures, SlotState};
use serde::{Deserialize, Serialize};

use crate::processes::attacher::PAGER_NAME;

/// Processes that are told, so that the answer stays a packet.
const MOST_PROCESSES: usize = 128;

/// A process of an application, in figures.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessReport {
    /// Its number.
    pub process: u32,
    /// Its name, as the kernel has it.
    pub name: String,
    /// Whether its memory is under management. Before the budget comes near it isn't.
    pub is_managed: bool,
    /// Local memory that it may have.
    pub limit_bytes: u64,
    /// Local memory that it has.
    pub resident_bytes: u64,
    /// Its pages in far memory.
    pub far_bytes: u64,
    /// Mappings under management.
    pub managed_bytes: u64,
    /// Faults so far.
    pub faults: u64,
    /// Pages that a thread waited for and that came from far memory, so far.
    pub fetches: u64,
    /// Pages that left, so far.
    pub evicted: u64,
    /// Time that its threads waited for pages, so far.
    pub stall_ns: u64,
    /// Refault distance: half of the pages that came back would have stayed with so much more local memory;
    /// `None` when none came back.
    pub refault_distance_bytes: Option<u64>,
}

/// A region of a process's memory, in figures.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RegionReport {
    /// Its first address; 0 of several regions together.
    pub start: u64,
    /// The address behind it.
    pub end: u64,
    /// Pages that are local.
    pub resident_bytes: u64,
    /// Of these, those that came back soon after they had last left.
    pub hot_bytes: u64,
    /// Pages in far memory.
    pub far_bytes: u64,
    /// Of these, those that take room in the pool; the others are zeros, or one word repeated.
    pub stored_bytes: u64,
    /// The room that these take, compressed.
    pub packed_bytes: u64,
    /// Far pages by how long they have been away: while less than a quarter of the local memory left, less
    /// than all of it, less than four times as much, and longer.
    pub away_bytes: [u64; ABSENCE_SPANS],
}

/// The regions of a process.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RegionsReport {
    /// The process.
    pub process: u32,
    /// The regions with most pages, in the order of addresses.
    pub regions: Vec<RegionReport>,
    /// How many there are in all.
    pub count: u64,
    /// Those that are not among `regions`, together.
    pub rest: RegionReport,
}

fn bytes(pages: u64) -> u64 {
    pages.saturating_mul(1 << PAGE_SHIFT)
}

impl RegionReport {
    fn of(figures: &RegionFigures) -> Self {
        Self {
            start: bytes(figures.range.start.get()),
            end: bytes(figures.range.end.get()),
            resident_bytes: bytes(figures.resident),
            hot_bytes: bytes(figures.hot),
            far_bytes: bytes(figures.far),
            stored_bytes: bytes(figures.stored),
            packed_bytes: figures.stored_bytes,
            away_bytes: figures.absences.map(bytes),
        }
    }

    /// Part of its local pages that came back soon after they had last left: how hot it is.
    pub fn heat(&self) -> f64 {
        self.hot_bytes as f64 / self.resident_bytes.max(1) as f64
    }

    /// What its far pages take of their size, zeros and repeated words included; `None` without far pages.
    pub fn packed_share(&self) -> Option<f64> {
        (self.far_bytes > 0).then(|| self.packed_bytes as f64 / self.far_bytes as f64)
    }

    /// Part of its far pages that have been away while all of the local memory left, or longer: what nobody
    /// seems to need.
    pub fn idle(&self) -> Option<f64> {
        let idle: u64 = self.away_bytes.iter().skip(2).fold(0, |sum, &more| sum.saturating_add(more));
        (self.far_bytes > 0).then(|| idle as f64 / self.far_bytes as f64)
    }
}

impl RegionsReport {
    pub(crate) fn of(process: u32, gathered: &Gathered) -> Self {
        let mut regions: Vec<RegionReport> = gathered.regions().iter().map(RegionReport::of).collect();
        regions.sort_by_key(|region| region.start);
        Self { process, regions, count: gathered.count() as u64, rest: RegionReport::of(gathered.rest()) }
    }
}

impl ProcessReport {
    fn of(slot: &ProcessSlot<'_>) -> Self {
        let process = slot.process();
        let limit = slot.limit().get();
        let more = Absences::new(slot.returns(), slot.get(Counter::Evicted)).more_for(0.5);
        Self {
            process,
            name: name_of(process),
            is_managed: slot.state() == SlotState::Managing,
            limit_bytes: bytes(limit),
            resident_bytes: bytes(slot.get(Counter::ResidentPages)),
            far_bytes: bytes(slot.get(Counter::FarPages)),
            managed_bytes: bytes(slot.get(Counter::ManagedPages)),
            faults: slot.get(Counter::Faults),
            fetches: slot.get(Counter::Fetches),
            evicted: slot.get(Counter::Evicted),
            stall_ns: slot.get(Counter::StallNs),
            refault_distance_bytes: more.map(|budgets| (budgets * bytes(limit) as f64) as u64),
        }
    }
}

/// The process that stands for what others share is the pager of it: each other pager is told of by the name
/// of its program.
fn name_of(process: u32) -> String {
    let name = fs::read(format!("/proc/{process}/comm")).unwrap_or_default();
    if name.trim_ascii_end() == PAGER_NAME.as_bytes() {
        return "shared memory".to_owned();
    }
    // It goes to terminals.
    String::from_utf8_lossy(&name).trim_end().replace(char::is_control, "?")
}

/// The processes of an application, those with most memory first.
pub(crate) fn processes(ledger: &Ledger<'_>) -> Vec<ProcessReport> {
    let living = ledger.slots().filter(|slot| slot.state() != SlotState::Free);
    let mut slots: Vec<ProcessSlot<'_>> = living.collect();
    let held =
        |slot: &ProcessSlot<'_>| slot.get(Counter::ResidentPages).saturating_add(slot.get(Counter::FarPages));
    slots.sort_by_key(|slot| std::cmp::Reverse(held(slot)));
    slots.iter().take(MOST_PROCESSES).map(ProcessReport::of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_of_all_processes_at_their_longest_fit_a_packet() {
        let process = ProcessReport {
            process: u32::MAX,
            name: "?".repeat(15),
            is_managed: false,
            limit_bytes: u64::MAX,
            resident_bytes: u64::MAX,
            far_bytes: u64::MAX,
            managed_bytes: u64::MAX,
            faults: u64::MAX,
            fetches: u64::MAX,
            evicted: u64::MAX,
            stall_ns: u64::MAX,
            refault_distance_bytes: Some(u64::MAX),
        };
        assert!(serde_json::to_string(&vec![process; MOST_PROCESSES]).unwrap().len() < 64 << 10);
        let region = RegionReport {
            start: u64::MAX,
            end: u64::MAX,
            resident_bytes: u64::MAX,
            hot_bytes: u64::MAX,
            far_bytes: u64::MAX,
            stored_bytes: u64::MAX,
            packed_bytes: u64::MAX,
            away_bytes: [u64::MAX; ABSENCE_SPANS],
        };
        let regions = vec![region; farmem_telemetry::REPORTED_REGIONS + 1];
        let report = RegionsReport { regions, ..RegionsReport::default() };
        assert!(serde_json::to_string(&report).unwrap().len() < 64 << 10);
    }
}
