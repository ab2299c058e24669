//! A report as records.

use farmem_page::mebibytes;

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
        found.push(less("resident peak", mebibytes(figure.resident_peak_bytes), "MiB"));
    }
    if figure.case == CaseName::RandomRead {
        found.extend(parts(figure).into_iter().flatten().map(|(part, microseconds)| {
            Measurement::less(part, peer.clone(), "part of the time of a fault", microseconds, "µs")
        }));
    }
    found
}

/// Where the time of a fault goes that brings a page from the pool: what the pager counts of it, and the rest
/// of what the thread waits. How long faults wait for room is known only of all together, those that filled
/// the memory among them. `None` of others than Farmem, and of a run that was so disturbed that what the
/// pager counted, a mean over all of it, is more than what an access took, a median of rounds.
fn parts(figure: &Figure) -> Option<[(&'static str, f64); 3]> {
    let statistics = figure.farmem_statistics.as_ref()?;
    let count = |name: &str| statistics[name].as_f64();
    let fetches = count("fetches")? - count("fetches_from_nodes")? - count("fetches_from_disk")?;
    let each = |name: &str| Some(count(name)? / 1e3 / fetches);
    let faults = figure.major_faults_per_access + figure.minor_faults_per_access;
    if fetches <= 0.0 || faults <= 0.0 {
        return None;
    }
    let whole = figure.nanoseconds_per_access / 1e3 / faults;
    let (pool, unpacking) = (each("stall_pool_ns")?, each("unpack_ns")?);
    (unpacking <= pool && pool <= whole).then_some([
        ("trap, message, wake-ups, waiting for room", whole - pool),
        ("the pager, until the page is mapped", pool - unpacking),
        ("copying, unpacking and checking", unpacking),
    ])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parts_of_a_fault_add_up_to_what_a_thread_waits_or_are_not_told() {
        let statistics = json!({ "fetches": 120, "fetches_from_nodes": 15, "fetches_from_disk": 5,
            "stall_pool_ns": 800_000, "unpack_ns": 300_000 });
        let figure = |nanoseconds_per_access| Figure {
            nanoseconds_per_access,
            major_faults_per_access: 0.75,
            farmem_statistics: Some(statistics.clone()),
            ..Figure::empty(CaseName::RandomRead, PeerName::Farmem)
        };

        let parts = super::parts(&figure(9_000.0)).unwrap().map(|(_, microseconds)| microseconds);

        assert_eq!(parts, [4.0, 5.0, 3.0]);
        assert_eq!(parts.iter().sum::<f64>(), 12.0);
        assert_eq!(super::parts(&figure(5_000.0)), None);
    }

    #[test]
    fn who_counts_nothing_has_no_parts() {
        assert_eq!(super::parts(&Figure::empty(CaseName::RandomRead, PeerName::ZramLz4)), None);
    }
}
