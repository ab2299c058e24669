//! What came out, as a table and as JSON.

use std::fmt;

use comfy_table::Table;
use farmem_machine::Description;
use farmem_page::mebibytes;
use serde::Serialize;
use serde_json::Value;

use super::case::{CaseName, PeerName};
use super::measure::Sample;
use crate::median::median;
use crate::steps::Steps;
use crate::table::table;
use crate::target::Target;

/// All that was measured, and on what.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Version of Farmem.
    pub version: &'static str,
    /// The machine.
    pub machine: Description,
    /// Data of the workload.
    pub data_bytes: u64,
    /// Local memory that each peer but native may keep of it.
    pub local_bytes: u64,
    /// Runs that each figure is the median of.
    pub repetitions: u32,
    /// The peers that took part, and those that couldn't.
    pub peers: Vec<PeerNote>,
    /// Runs that failed.
    pub failures: Vec<FailedRun>,
    /// The figures.
    pub figures: Vec<Figure>,
    /// What each step of a fault cost Farmem in the last run of each case, if that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Steps>,
    /// The targets.
    pub targets: Vec<Target>,
}

impl Report {
    /// Whether any page came back with other bytes than were written.
    pub fn has_mismatches(&self) -> bool {
        self.figures.iter().any(|figure| figure.mismatches > 0)
    }
}

/// What there is to know of a peer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PeerNote {
    /// The peer.
    pub peer: PeerName,
    /// Whether it took part.
    pub available: bool,
    /// How it was set up, or why it was left out.
    pub note: String,
}

/// A run that failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FailedRun {
    /// The case.
    pub case: CaseName,
    /// The peer.
    pub peer: PeerName,
    /// Why.
    pub reason: String,
}

/// Medians over the runs of one case under one peer.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Figure {
    /// The case.
    pub case: CaseName,
    /// The peer.
    pub peer: PeerName,
    /// Wall-clock time, divided by the accesses of all threads.
    pub nanoseconds_per_access: f64,
    /// The smallest and the largest of the runs' times.
    pub nanoseconds_range: [f64; 2],
    /// Faults with I/O, as the kernel counts them, for each access.
    pub major_faults_per_access: f64,
    /// Other faults for each access.
    pub minor_faults_per_access: f64,
    /// Processor time for each access, the pager's included. Kernel threads (zswap's, a loop device's) are
    /// not.
    pub cpu_nanoseconds_per_access: f64,
    /// The part of the processors' time that the machine's host took; of the run that lost most.
    pub stolen_share: f64,
    /// The largest resident memory of any run, private and shared.
    pub resident_peak_bytes: u64,
    /// The limit of the control group, for kernel peers: the local bytes, and what else is counted towards
    /// it.
    pub group_limit_bytes: Option<u64>,
    /// What else is counted towards it.
    pub group_overhead_bytes: Option<u64>,
    /// Pages with wrong bytes, over all runs.
    pub mismatches: u64,
    /// This time divided by that of the best other peer that had the same limit.
    pub ratio_to_best_peer: Option<f64>,
    /// This time divided by zram-lz4's.
    pub ratio_to_zram_lz4: Option<f64>,
    /// What Farmem counted in the last run.
    pub farmem_statistics: Option<Value>,
}

impl Figure {
    pub(crate) fn empty(case: CaseName, peer: PeerName) -> Self {
        Self {
            case,
            peer,
            nanoseconds_per_access: 0.0,
            nanoseconds_range: [0.0; 2],
            major_faults_per_access: 0.0,
            minor_faults_per_access: 0.0,
            cpu_nanoseconds_per_access: 0.0,
            stolen_share: 0.0,
            resident_peak_bytes: 0,
            group_limit_bytes: None,
            group_overhead_bytes: None,
            mismatches: 0,
            ratio_to_best_peer: None,
            ratio_to_zram_lz4: None,
            farmem_statistics: None,
        }
    }

    /// The medians over `samples`; over the rounds of each of them first.
    pub(super) fn median(case: CaseName, peer: PeerName, samples: &[Sample]) -> Self {
        let of_rounds = |value: &dyn Fn(&crate::workload::Round) -> f64| -> Vec<f64> {
            samples.iter().map(|sample| median(sample.outcome.rounds.iter().map(value).collect())).collect()
        };
        let accesses = samples.first().map_or(1.0, |sample| sample.outcome.accesses as f64);
        let times = of_rounds(&|round| round.nanoseconds_per_access);
        let helper = median(
            samples
                .iter()
                .map(|sample| sample.helper_cpu_seconds / sample.outcome.rounds.len().max(1) as f64)
                .collect(),
        );
        let cpu_seconds = median(of_rounds(&|round| round.cpu_seconds)) + helper;
        let last = samples.last();
        let local = last.and_then(|sample| sample.local);
        Self {
            nanoseconds_range: [
                times.iter().copied().fold(f64::INFINITY, f64::min),
                times.iter().copied().fold(0.0, f64::max),
            ],
            nanoseconds_per_access: median(times),
            major_faults_per_access: median(of_rounds(&|round| round.major_faults as f64)) / accesses,
            minor_faults_per_access: median(of_rounds(&|round| round.minor_faults as f64)) / accesses,
            cpu_nanoseconds_per_access: cpu_seconds * 1e9 / accesses,
            stolen_share: samples.iter().map(|sample| sample.stolen_share).fold(0.0, f64::max),
            resident_peak_bytes: samples.iter().map(|sample| sample.resident_peak.get()).max().unwrap_or(0),
            group_limit_bytes: local.map(|local| local.limit.get()),
            group_overhead_bytes: local.map(|local| local.overhead.get()),
            mismatches: samples.iter().map(|sample| sample.outcome.mismatches).sum(),
            farmem_statistics: last.and_then(|sample| sample.statistics.clone()),
            ..Self::empty(case, peer)
        }
    }
}

/// Adds to each figure how it compares with the others of its case.
pub(super) fn with_ratios(figures: Vec<Figure>) -> Vec<Figure> {
    let compared = |figure: &Figure| {
        let limited = figure.peer != PeerName::Native;
        let others = || figures.iter().filter(|other| other.case == figure.case && other.peer != figure.peer);
        let best = others()
            .filter(|other| !matches!(other.peer, PeerName::Native))
            .map(|other| other.nanoseconds_per_access)
            .reduce(f64::min);
        let zram = others().find(|other| other.peer == PeerName::ZramLz4);
        let ratio = |other: f64| figure.nanoseconds_per_access / other;
        Figure {
            ratio_to_best_peer: best.filter(|_| limited).map(ratio),
            ratio_to_zram_lz4: zram.filter(|_| limited).map(|zram| ratio(zram.nanoseconds_per_access)),
            ..figure.clone()
        }
    };
    figures.iter().map(compared).collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} MiB of data, {} MiB of it local; medians of {} on {} cores ({}{}), Linux {}",
            mebibytes(self.data_bytes),
            mebibytes(self.local_bytes),
            self.repetitions,
            self.machine.cores,
            self.machine.processor,
            if self.machine.is_virtual { ", virtual" } else { "" },
            self.machine.kernel
        )?;
        writeln!(f)?;
        writeln!(f, "{}", self.table())?;
        writeln!(f)?;
        for note in &self.peers {
            match (note.available, note.note.as_str()) {
                (true, "") => {}
                (true, words) => writeln!(f, "{}: {words}", note.peer)?,
                (false, words) => writeln!(f, "{} left out: {words}", note.peer)?,
            }
        }
        for failure in &self.failures {
            writeln!(f, "{} under {} failed: {}", failure.case, failure.peer, failure.reason)?;
        }
        writeln!(f)?;
        for steps in &self.steps {
            writeln!(f, "{steps}")?;
        }
        for target in &self.targets {
            writeln!(f, "{target}")?;
        }
        Ok(())
    }
}

impl Report {
    fn table(&self) -> Table {
        let mut table = table(
            &[
                "case",
                "peer",
                "µs/access",
                "range",
                "faults/access",
                "µs cpu/access",
                "stolen",
                "peak MiB",
                "of best",
                "of zram-lz4",
            ],
            2,
        );
        let mut case = None;
        for figure in &self.figures {
            let first_of_case = case.replace(figure.case) != Some(figure.case);
            let ratio = |ratio: Option<f64>| ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
            let [least, most] = figure.nanoseconds_range.map(|time| time / 1e3);
            table.add_row([
                if first_of_case { figure.case.to_string() } else { String::new() },
                figure.peer.to_string(),
                format!("{:.3}", figure.nanoseconds_per_access / 1e3),
                format!("{least:.3}-{most:.3}"),
                format!("{:.2}", figure.major_faults_per_access + figure.minor_faults_per_access),
                format!("{:.3}", figure.cpu_nanoseconds_per_access / 1e3),
                format!("{:.0}%", figure.stolen_share * 100.0),
                format!("{:.1}", mebibytes(figure.resident_peak_bytes)),
                ratio(figure.ratio_to_best_peer),
                ratio(figure.ratio_to_zram_lz4),
            ]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_to_peers_with_the_same_limit() {
        let figure =
            |peer, time| Figure { nanoseconds_per_access: time, ..Figure::empty(CaseName::Zipf, peer) };
        let figures = with_ratios(vec![
            figure(PeerName::Native, 1.0),
            figure(PeerName::Farmem, 50.0),
            figure(PeerName::ZramLz4, 100.0),
            figure(PeerName::Zswap, 80.0),
        ]);

        assert_eq!(figures[0].ratio_to_best_peer, None);
        assert_eq!(figures[1].ratio_to_best_peer, Some(50.0 / 80.0));
        assert_eq!(figures[1].ratio_to_zram_lz4, Some(0.5));
    }
}
