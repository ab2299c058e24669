//! What an application looks like inside: its processes, and the regions of one. For `farmem stat --regions`, `farmem top` and `farmem web`.
//!
//! Processes are told from the ledger. Regions only the process itself knows: it is asked by way of the ledger's board, one process at a time, and the supervisor goes on meanwhile.

use std::collections::VecDeque;
use std::fs;
use std::time::{Duration, Instant};

use farmem_page::PAGE_SHIFT;
use farmem_policy::absence::Absences;
use farmem_telemetry::{ABSENCE_SPANS, Counter, Gathered, Ledger, ProcessSlot, RegionFigures, SlotState};
use serde::{Deserialize, Serialize};

use crate::processes::Query;

/// Processes that are told, so that the answer stays a packet.
const MOST_PROCESSES: usize = 128;
/// A process answers within some rounds of its bookkeeper; one that is stopped doesn't. Shorter than who asks waits for the supervisor.
const PATIENCE: Duration = Duration::from_millis(800);
/// Questions that may wait for the one before.
const MOST_WAITING: usize = 8;

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
    /// Refault distance: half of the pages that came back would have stayed with so much more local memory; `None` when none came back.
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
    /// Far pages by how long they have been away: while less than a quarter of the local memory left, less than all of it, less than four times as much, and longer.
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

    /// Part of its far pages that have been away while all of the local memory left, or longer: what nobody seems to need.
    pub fn idle(&self) -> Option<f64> {
        let idle: u64 = self.away_bytes.iter().skip(2).fold(0, |sum, &more| sum.saturating_add(more));
        (self.far_bytes > 0).then(|| idle as f64 / self.far_bytes as f64)
    }
}

impl RegionsReport {
    fn of(process: u32, gathered: &Gathered) -> Self {
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

fn name_of(process: u32) -> String {
    let name = fs::read(format!("/proc/{process}/comm")).unwrap_or_default();
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

/// Questions for regions: one that a process is asked, and those that wait.
pub(crate) struct Inside {
    ledger: Ledger<'static>,
    asked: Option<Asked>,
    waiting: VecDeque<(Query, u32)>,
}

struct Asked {
    query: Option<Query>,
    process: u32,
    slot: usize,
    question: u64,
    deadline: Instant,
}

impl Inside {
    pub(crate) fn new(ledger: Ledger<'static>) -> Self {
        Self { ledger, asked: None, waiting: VecDeque::new() }
    }

    /// Takes a question for the regions of a process.
    pub(crate) fn take(&mut self, query: Query, process: u32) {
        if self.waiting.len() < MOST_WAITING {
            self.waiting.push_back((query, process));
        } else {
            refuse(&query, "too many ask for regions at once; try again");
        }
    }

    /// Goes on with what was asked: to be called often.
    pub(crate) fn look(&mut self) {
        self.hear();
        while self.asked.is_none()
            && let Some((query, process)) = self.waiting.pop_front()
        {
            let is_it = |slot: &ProcessSlot<'_>| slot.process() == process && slot.state() != SlotState::Free;
            let Some(slot) = self.ledger.slots().find(is_it) else {
                refuse(&query, &format!("process {process} is none of this application's"));
                continue;
            };
            let Some(question) = self.ledger.board().ask(slot.index()) else {
                refuse(&query, "the process that was asked before has not answered yet; try again");
                continue;
            };
            let deadline = Instant::now() + PATIENCE;
            self.asked = Some(Asked { query: Some(query), process, slot: slot.index(), question, deadline });
        }
    }

    fn hear(&mut self) {
        let Some(asked) = &mut self.asked else { return };
        let board = self.ledger.board();
        if let Some(gathered) = board.answer(asked.question) {
            if let Some(query) = asked.query.take() {
                query.answer(&to_json(&RegionsReport::of(asked.process, &gathered)));
            }
            self.asked = None;
            return;
        }
        let slot = self.ledger.slot(asked.slot);
        let has_gone =
            slot.is_none_or(|slot| slot.state() == SlotState::Free || slot.process() != asked.process);
        if !has_gone && Instant::now() < asked.deadline {
            return;
        }
        if let Some(query) = asked.query.take() {
            refuse(
                &query,
                &format!("process {} doesn't answer: it is stopped, or has just ended", asked.process),
            );
        }
        if board.take_back(asked.question, has_gone) {
            self.asked = None;
        }
    }
}

fn refuse(query: &Query, reason: &str) {
    query.answer(&to_json(&reason));
}

/// Numbers and names: always JSON.
pub(crate) fn to_json(answer: &(impl Serialize + ?Sized)) -> String {
    serde_json::to_string(answer).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use farmem_page::{PageCount, PageIndex, PageRange};
    use farmem_sys::link::Link;

    use super::*;
    use crate::application::Application;
    use crate::processes::Question;

    const PROCESS: u32 = 77;

    fn with_process() -> (Ledger<'static>, Inside) {
        let ledger = Application::for_test().ledger;
        ledger.header(farmem_telemetry::Header::SlotsUsed).store(2, std::sync::atomic::Ordering::Release);
        ledger.slot(1).unwrap().assign(PROCESS);
        (ledger, Inside::new(ledger))
    }

    fn ask(inside: &mut Inside, process: u32) -> Link {
        let (query, end) = Query::for_test(Question::Regions(process));
        inside.take(query, process);
        inside.look();
        end
    }

    fn answer(end: &Link) -> Vec<u8> {
        let mut text = vec![0; 64 << 10];
        let (length, _) = end.receive(&mut text).unwrap();
        text.truncate(length);
        text
    }

    #[test]
    fn what_a_process_tells_is_passed_on() {
        let (ledger, mut inside) = with_process();
        let first = ask(&mut inside, PROCESS);
        let second = ask(&mut inside, PROCESS);
        for _ in 0..2 {
            let question = ledger.board().question(1).unwrap();
            let range = PageRange::at(PageIndex::new(16), PageCount::new(8));
            let mut gathered = Gathered::new();
            gathered.add(RegionFigures { resident: 3, hot: 2, ..RegionFigures::new(range) });
            assert!(ledger.board().tell(question, &gathered));
            inside.look();
        }

        for end in [first, second] {
            let report: RegionsReport = serde_json::from_slice(&answer(&end)).unwrap();
            let region = &report.regions[0];
            assert_eq!((report.process, report.count, region.start, region.end), (PROCESS, 1, 65536, 98304));
            assert_eq!((region.resident_bytes, region.hot_bytes, region.idle()), (12288, 8192, None));
        }
    }

    #[test]
    fn who_asks_for_a_stranger_or_one_that_ends_is_told_why_not() {
        let (ledger, mut inside) = with_process();
        let end = ask(&mut inside, 5);
        assert!(serde_json::from_slice::<String>(&answer(&end)).unwrap().contains("none of this"));

        let end = ask(&mut inside, PROCESS);
        ledger.slot(1).unwrap().set_state(SlotState::Free);
        inside.look();
        assert!(serde_json::from_slice::<String>(&answer(&end)).unwrap().contains("doesn't answer"));
        assert_eq!(ledger.board().question(1), None, "the question was taken back");
    }

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
        assert!(to_json(&vec![process; MOST_PROCESSES]).len() < 64 << 10);
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
        let regions = vec![region; farmem_telemetry::BOARD_REGIONS + 1];
        assert!(to_json(&RegionsReport { regions, ..RegionsReport::default() }).len() < 64 << 10);
    }
}
