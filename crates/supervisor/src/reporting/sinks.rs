//! Where reports go without being asked for: the statistics file, the line on standard error, the log, the
//! summary at the end.

use farmem_client::Report;

use crate::options::Options;
use crate::program::end::End;
use crate::reporting::progress::Progress;
use crate::reporting::statistics::StatisticsFile;
use crate::reporting::waiting::Waiting;
use crate::say::{self, say};

/// Those that a run has.
pub(crate) struct Sinks {
    /// The application's name.
    name: String,
    statistics: Option<StatisticsFile>,
    progress: Option<Progress>,
    waiting: Waiting,
    has_summary: bool,
}

impl Sinks {
    pub(crate) fn of(options: &Options) -> Self {
        Self {
            name: options.name.clone(),
            statistics: options.stats.as_deref().map(StatisticsFile::at),
            progress: options.progress.then(Progress::new),
            waiting: Waiting::new(),
            has_summary: options.summary,
        }
    }

    /// Whether one of them is to be given a report.
    pub(crate) fn is_due(&self) -> bool {
        self.progress.as_ref().is_some_and(Progress::is_due) || self.is_waiting_due()
    }

    fn is_waiting_due(&self) -> bool {
        is_logged() && self.waiting.is_due()
    }

    /// Shows how it goes, and logs when the program begins to wait for most of its time, and when it no
    /// longer does, as far as these are due.
    pub(crate) fn follow(&mut self, now: Report) {
        if let Some(progress) = self.progress.as_mut().filter(|progress| progress.is_due()) {
            progress.show(now.clone());
        }
        if self.is_waiting_due()
            && let Some(change) = self.waiting.judge(now)
        {
            change.tell(&self.name);
        }
    }

    /// Takes away the line that shows how it goes.
    pub(crate) fn end_progress(&mut self) {
        self.progress = None;
    }

    /// Logs how the program has ended, with the last report, which is made only if there is a log.
    pub(crate) fn log_end(&self, end: End, report: impl FnOnce() -> Report) {
        if !is_logged() {
            return;
        }
        let report = report();
        tracing::info!(
            application = self.name,
            end = ?end,
            wall_seconds = report.wall_seconds,
            resident_peak_bytes = report.resident_peak_bytes,
            faults = report.counter("faults"),
            stall_seconds = report.counter("stall_ns") as f64 / 1e9,
            "program ended"
        );
    }

    /// Writes the last report of the program.
    pub(crate) fn finish(&mut self, report: &Report) {
        if let Some(file) = &mut self.statistics {
            say_failed(file.write(report));
        }
        if self.has_summary {
            say::write(&report.summary());
        }
    }

    /// Writes the last report of those that the program has left behind.
    pub(crate) fn finish_background(&mut self, report: &Report) {
        if let Some(file) = &mut self.statistics {
            say_failed(file.write_anew(report));
        }
    }
}

fn is_logged() -> bool {
    tracing::dispatcher::has_been_set()
}

/// Statistics that could not be written are no reason to end otherwise than the program did.
fn say_failed(written: anyhow::Result<()>) {
    if let Err(error) = written {
        say(&format!("{error:#}"));
    }
}
