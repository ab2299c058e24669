//! What came out, as a table and as JSON.

use std::fmt;

use clap::ValueEnum;
use farmem_machine::Description;
use farmem_page::mebibytes;
use serde::Serialize;

use super::local_of;
use super::measure::Ran;
use super::name::{Peer, ProgramName};
use crate::median::median;
use crate::table::table;

/// All that was measured, and on what.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Version of Farmem.
    pub version: &'static str,
    /// The machine.
    pub machine: Description,
    /// Runs that each figure is the median of.
    pub repetitions: u32,
    /// Each program with each share of its memory.
    pub rows: Vec<Row>,
    /// Programs and peers that this machine can't run.
    pub left_out: Vec<LeftOut>,
    /// Runs that the kernel has ended, or that took too long.
    pub failures: Vec<FailedRun>,
}

/// What this machine can't run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LeftOut {
    /// The program or the peer.
    pub what: String,
    /// Why.
    pub reason: String,
}

/// A run that failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FailedRun {
    /// The program.
    pub program: ProgramName,
    /// The part of its memory that was local.
    pub share_percent: u32,
    /// The peer.
    pub peer: Peer,
    /// Why.
    pub reason: String,
}

/// A program with a part of its memory local.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// The program.
    pub program: ProgramName,
    /// The part of its memory that was local.
    pub share_percent: u32,
    /// That part.
    pub local_bytes: u64,
    /// The most that it had resident with all of its memory, of the first run.
    pub native_peak_bytes: u64,
    /// The time that it took with all of its memory.
    pub native_seconds: f64,
    /// The same under the peers.
    pub peers: Vec<PeerFigure>,
    /// Farmem's time divided by zram's: by the shorter one, if it ran with and without readahead.
    pub of_zram: Option<f64>,
    /// The same of zswap.
    pub of_zswap: Option<f64>,
}

/// A program under a peer.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PeerFigure {
    /// The peer.
    pub peer: Peer,
    /// From the program's start to its end.
    pub seconds: f64,
    /// The smallest and the largest of the runs' times.
    pub seconds_range: [f64; 2],
    /// The largest resident anonymous memory of any run.
    pub resident_peak_bytes: u64,
    /// The part of the processors' time that the machine's host took; of the run that lost most.
    pub stolen_share: f64,
}

impl PeerFigure {
    fn median(peer: Peer, samples: &[Ran]) -> Self {
        let times: Vec<f64> = samples.iter().map(|ran| ran.seconds).collect();
        Self {
            peer,
            seconds_range: [
                times.iter().copied().fold(f64::INFINITY, f64::min),
                times.iter().copied().fold(0.0, f64::max),
            ],
            seconds: median(times),
            resident_peak_bytes: samples.iter().map(|ran| ran.resident_peak.get()).max().unwrap_or(0),
            stolen_share: samples.iter().map(|ran| ran.stolen_share).fold(0.0, f64::max),
        }
    }
}

impl Row {
    pub(super) fn median<'a>(
        program: ProgramName,
        share_percent: u32,
        natives: &[Ran],
        peers: impl Iterator<Item = (Peer, &'a [Ran])>,
    ) -> Self {
        let peers: Vec<PeerFigure> = peers.map(|(peer, samples)| PeerFigure::median(peer, samples)).collect();
        let seconds = |peer| peers.iter().find(|figure| figure.peer == peer).map(|figure| figure.seconds);
        let of = |peers: [Peer; 2]| {
            Some(seconds(Peer::Farmem)? / peers.into_iter().filter_map(seconds).reduce(f64::min)?)
        };
        let whole = natives.first().map(|native| native.resident_peak).unwrap_or_default();
        Self {
            program,
            share_percent,
            local_bytes: local_of(whole, share_percent).get(),
            native_peak_bytes: whole.get(),
            native_seconds: median(natives.iter().map(|native| native.seconds).collect()),
            of_zram: of(Peer::OF_ZRAM),
            of_zswap: of(Peer::OF_ZSWAP),
            peers,
        }
    }

    pub(super) fn of(&self, peer: Peer) -> Option<&PeerFigure> {
        self.peers.iter().find(|figure| figure.peer == peer)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.2}"));
        let of_any = |peer: &Peer| self.rows.iter().any(|row| row.of(*peer).is_some());
        let peers: Vec<Peer> = Peer::value_variants().iter().copied().filter(of_any).collect();
        let times = peers.iter().map(|peer| format!("{peer} s"));
        let peaks = peers.iter().map(|peer| format!("{peer} peak MiB"));
        let header: Vec<String> = ["program", "local", "MiB", "native s"]
            .into_iter()
            .map(str::to_owned)
            .chain(times)
            .chain(["of zram", "of zswap"].map(str::to_owned))
            .chain(peaks)
            .collect();
        let mut figures = table(&header, 1);
        for row in &self.rows {
            let figures_of = |cell: fn(&PeerFigure) -> String| {
                peers.iter().map(move |peer| row.of(*peer).map_or_else(String::new, cell))
            };
            let start = [
                row.program.to_string(),
                format!("{}%", row.share_percent),
                mib(row.local_bytes),
                number(Some(row.native_seconds)),
            ];
            let ratios = [number(row.of_zram), number(row.of_zswap)];
            let seconds = figures_of(|figure| format!("{:.2}", figure.seconds));
            let peaks = figures_of(|figure| mib(figure.resident_peak_bytes));
            figures.add_row(start.into_iter().chain(seconds).chain(ratios).chain(peaks));
        }
        writeln!(f, "{figures}\n")?;
        for LeftOut { what, reason } in &self.left_out {
            writeln!(f, "left out: {what}: {reason}")?;
        }
        for FailedRun { program, share_percent, peer, reason } in &self.failures {
            writeln!(f, "{program} under {peer}, {share_percent}% local, failed: {reason}")?;
        }
        Ok(())
    }
}

fn mib(bytes: u64) -> String {
    format!("{:.1}", mebibytes(bytes))
}

#[cfg(test)]
mod tests {
    use farmem_page::ByteCount;

    use super::*;

    fn ran(seconds: f64, peak: u64) -> Ran {
        Ran { seconds, resident_peak: ByteCount::new(peak << 20), said: Vec::new(), stolen_share: 0.0 }
    }

    #[test]
    fn a_row_has_medians_the_largest_peak_and_ratios_to_those_that_ran() {
        let (farmem, zram) = ([ran(4.0, 50), ran(2.0, 52), ran(3.0, 51)], [ran(6.0, 49)]);
        let peers = [(Peer::Farmem, &farmem[..]), (Peer::Zram, &zram[..])];

        let row = Row::median(ProgramName::Polars, 50, &[ran(1.0, 100)], peers.into_iter());

        let ours = row.of(Peer::Farmem).unwrap();
        assert_eq!((ours.seconds, ours.seconds_range), (3.0, [2.0, 4.0]));
        assert_eq!((ours.resident_peak_bytes, row.local_bytes), (52 << 20, (100 << 20) / 100 * 50));
        assert_eq!((row.of_zram, row.of_zswap), (Some(0.5), None));
    }

    #[test]
    fn the_ratio_is_to_the_peer_as_it_is_faster_and_the_table_has_those_that_ran() {
        let (farmem, zram, without) = ([ran(4.0, 50)], [ran(6.0, 49)], [ran(5.0, 48)]);
        let peers =
            [(Peer::Farmem, &farmem[..]), (Peer::Zram, &zram[..]), (Peer::ZramNoReadahead, &without[..])];

        let row = Row::median(ProgramName::Polars, 50, &[ran(1.0, 100)], peers.into_iter());

        assert_eq!((row.of_zram, row.of_zswap), (Some(0.8), None));
        let (machine, rows) = (Description::current(), vec![row]);
        let (left_out, failures) = (Vec::new(), Vec::new());
        let report = Report { version: "1", machine, repetitions: 1, rows, left_out, failures }.to_string();
        assert!(report.contains("zram-no-readahead s"), "{report}");
        assert!(!report.contains("zswap s"), "{report}");
    }
}
