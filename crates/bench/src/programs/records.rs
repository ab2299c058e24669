//! A report as records.

use farmem_page::mebibytes;

use super::report::{FailedRun, Report, Row};
use crate::record::{Findings, Measurement};

/// What is measured of a program, and of its memory.
pub(crate) const TIME: &str = "time of a program";
pub(crate) const PEAK: &str = "resident peak of a program";
/// What a program with all of its memory stands below.
pub(crate) const NATIVE: &str = "native";

impl Report {
    /// What it found.
    pub(crate) fn findings(&self) -> Findings {
        let left_out = self.left_out.iter().map(|left| (left.what.clone(), left.reason.clone()));
        let failed = self.failures.iter().map(|FailedRun { program, share_percent, peer, reason }| {
            (format!("{program} under {peer}, {share_percent}% local"), reason.clone())
        });
        Findings {
            measurements: self.rows.iter().flat_map(measurements).collect(),
            data_bytes: None,
            left_out: left_out.chain(failed).collect(),
        }
    }
}

fn measurements(row: &Row) -> Vec<Measurement> {
    let case = format!("{}, {}% local", row.program, row.share_percent);
    let mut found = vec![Measurement::less(&case, NATIVE, TIME, row.native_seconds, "s")];
    for figure in &row.peers {
        let peer = figure.peer.to_string();
        let peak = mebibytes(figure.resident_peak_bytes);
        found.extend([
            Measurement::less(&case, &peer, TIME, figure.seconds, "s"),
            Measurement::less(&case, &peer, PEAK, peak, "MiB"),
        ]);
    }
    found
}
