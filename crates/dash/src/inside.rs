//! What the screen shows of an application's inside: its processes, and the regions of one of them.

use std::time::Instant;

use farmem_client::{ProcessReport, RegionReport, RegionsReport};

/// How deep the screen looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Level {
    /// All applications.
    #[default]
    Applications,
    /// The processes of this one, named by its program's process.
    Processes { application: u32 },
    /// The regions of one of its processes.
    Regions { application: u32, process: u32 },
}

/// A process as it is shown.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ProcessRow {
    pub(crate) report: ProcessReport,
    pub(crate) faults_per_second: f64,
    /// The part of a thread's time that its threads waited for pages.
    pub(crate) stall: f64,
}

/// What was found inside.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inside {
    pub(crate) processes: Vec<ProcessRow>,
    looked: Option<Instant>,
    /// The process that is selected stays so while others come and go.
    selected: Option<u32>,
    /// Those with most pages first.
    pub(crate) regions: RegionsReport,
    /// The region that is selected.
    region: usize,
    /// Why nothing is known.
    pub(crate) problem: String,
}

impl Inside {
    /// Shows the processes that there are at this moment.
    pub(crate) fn update_processes(&mut self, found: Result<Vec<ProcessReport>, String>, now: Instant) {
        let found = self.take(found);
        let before = std::mem::take(&mut self.processes);
        let seconds = self.looked.replace(now).map(|looked| now.duration_since(looked).as_secs_f64());
        let row = |report: ProcessReport| {
            let earlier = before.iter().find(|row| row.report.process == report.process);
            let rate = |figure: fn(&ProcessReport) -> u64| match (earlier, seconds) {
                (Some(row), Some(seconds)) if seconds > 0.0 => {
                    figure(&report).saturating_sub(figure(&row.report)) as f64 / seconds
                }
                _ => 0.0,
            };
            let (faults_per_second, stall) =
                (rate(|report| report.faults), rate(|report| report.stall_ns) / 1e9);
            ProcessRow { report, faults_per_second, stall }
        };
        self.processes = found.into_iter().map(row).collect();
        if self.process_position().is_none() {
            self.selected = self.processes.first().map(|row| row.report.process);
        }
    }

    /// Shows the regions of a process.
    pub(crate) fn update_regions(&mut self, found: Result<RegionsReport, String>) {
        self.regions = self.take(found);
        let held = |region: &RegionReport| region.resident_bytes.saturating_add(region.far_bytes);
        self.regions.regions.sort_by_key(|region| (std::cmp::Reverse(held(region)), region.start));
        self.region = self.region.min(self.regions.regions.len().saturating_sub(1));
    }

    fn take<T: Default>(&mut self, found: Result<T, String>) -> T {
        match found {
            Ok(found) => {
                self.problem.clear();
                found
            }
            Err(problem) => {
                self.problem = problem;
                T::default()
            }
        }
    }

    /// Which process is selected.
    pub(crate) fn process_position(&self) -> Option<usize> {
        self.processes.iter().position(|row| Some(row.report.process) == self.selected)
    }

    pub(crate) fn selected_process(&self) -> Option<u32> {
        self.process_position().and(self.selected)
    }

    /// Which region is selected.
    pub(crate) fn region_position(&self) -> Option<usize> {
        (!self.regions.regions.is_empty()).then_some(self.region)
    }

    pub(crate) fn select_process(&mut self, step: isize) {
        let Some(position) = self.process_position() else { return };
        let next = position.saturating_add_signed(step).min(self.processes.len() - 1);
        self.selected = Some(self.processes[next].report.process);
    }

    pub(crate) fn select_region(&mut self, step: isize) {
        let last = self.regions.regions.len().saturating_sub(1);
        self.region = self.region.saturating_add_signed(step).min(last);
    }

    /// The first region is selected, and none is known.
    pub(crate) fn forget_regions(&mut self) {
        (self.regions, self.region) = (RegionsReport::default(), 0);
    }
}
