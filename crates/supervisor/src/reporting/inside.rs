//! What an application looks like inside, gathered: its processes are told from the ledger. Regions only the
//! process itself knows (`queries/regions.rs`).

use std::fs;

use farmem_client::{ProcessReport, RegionReport, RegionsReport};
use farmem_machine::process::PAGER_NAME;
use farmem_page::PAGE_SHIFT;
use farmem_policy::absence::Absences;
use farmem_telemetry::{Counter, Gathered, Ledger, ProcessSlot, RegionFigures, SlotState};

/// Processes that are told, so that the answer stays a packet.
const MOST_PROCESSES: usize = 128;

fn bytes(pages: u64) -> u64 {
    pages.saturating_mul(1 << PAGE_SHIFT)
}

fn region(figures: &RegionFigures) -> RegionReport {
    RegionReport {
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

/// The regions that a process has told of.
pub(crate) fn regions(process: u32, gathered: &Gathered) -> RegionsReport {
    let mut regions: Vec<RegionReport> = gathered.regions().iter().map(region).collect();
    regions.sort_by_key(|region| region.start);
    RegionsReport { process, regions, count: gathered.count() as u64, rest: region(gathered.rest()) }
}

fn process(slot: &ProcessSlot<'_>) -> ProcessReport {
    let process = slot.process();
    let limit = slot.limit().get();
    let more = Absences::new(slot.returns(), slot.get(Counter::Evicted)).more_for(0.5);
    ProcessReport {
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
    slots.iter().take(MOST_PROCESSES).map(process).collect()
}

#[cfg(test)]
mod tests {
    use farmem_telemetry::ABSENCE_SPANS;

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
