//! A report as records.

use super::case::{CaseName, PeerName};
use super::report::{Figure, Report};
use crate::record::{Findings, Measurement};

impl Report {
    /// What it found.
    pub(crate) fn findings(&self) -> Findings {
        let left_out = self.peers.iter().filter(|note| !note.available);
        let left_out = left_out.map(|note| (note.peer.to_string(), note.note.clone()));
        let failed = self.failures.iter();
        let failed =
            failed.map(|failed| (format!("{} under {}", failed.case, failed.peer), failed.reason.clone()));
        Findings {
            measurements: self.figures.iter().flat_map(measurements).collect(),
            data_bytes: Some(self.data_bytes),
            left_out: left_out.chain(failed).collect(),
        }
    }
}

fn measurements(figure: &Figure) -> Vec<Measurement> {
    let (case, peer) = (figure.case.to_string(), figure.peer.to_string());
    let less = |measure, value, unit| Measurement::less(case.clone(), peer.clone(), measure, value, unit);
    let faults = figure.major_faults_per_access + figure.minor_faults_per_access;
    let mut found = vec![
        less("time of an access", figure.nanoseconds_per_access / 1e3, "µs"),
        less("processor time of an access", figure.cpu_nanoseconds_per_access / 1e3, "µs"),
        less("faults of an access", faults, "faults"),
        less("time taken by the machine's host", figure.stolen_share * 100.0, "%"),
    ];
    if figure.peer != PeerName::Native && figure.case != CaseName::Fits {
        found.push(less("resident peak", figure.resident_peak_bytes as f64 / f64::from(1 << 20), "MiB"));
    }
    found
}
