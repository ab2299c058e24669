//! What came out, as a table and as JSON.

use std::fmt;

use comfy_table::{CellAlignment, Table};
use farmem_machine::Description;
use farmem_page::mebibytes;
use serde::Serialize;

use super::loss::LossFigure;
use super::program::Sample;
use super::shared::SharedFigure;
use super::spaces::{Classes, PartFigure, SpacesFigure, Walk, WalkFigure};
use super::speed_up::SpeedUpFigure;
use super::spread::SpreadFigure;
use super::sweep::SweepFigure;
use super::threads::ThreadsFigure;
use crate::median::median;
use crate::table::table;
use crate::target::Target;

/// A page from a node is to take at most so many times as long as a bare answer of its size.
const FETCH: f64 = 1.5;
/// It is to take at most so many times as long while as much as possible is read as well.
pub(super) const FLOODED: f64 = 1.2;
/// A bare stream may be so many times as fast: at least 0.9 of it is to be reached.
const STREAM: f64 = 1.11;
/// The ways that the targets are for: plain TCP.
const JUDGED: [&str; 3] = ["tcp", "veth", "veth-1gbit"];

/// All that was measured, and on what.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Version of Farmem.
    pub version: &'static str,
    /// The machine, which was both sides of each way.
    pub machine: Description,
    /// Data of each program; a quarter of it is kept local.
    pub data_bytes: u64,
    /// Turns that each figure is the median of.
    pub repetitions: u32,
    /// Links that could not be made.
    pub left_out: Vec<LeftOut>,
    /// The ways to a node.
    pub ways: Vec<WayFigure>,
    /// Programs, by where their far memory was.
    pub programs: Vec<ProgramFigure>,
    /// Links that spaces share.
    pub shared: Vec<SharedFigure>,
    /// Programs that share a link.
    pub spaces: Vec<SpacesFigure>,
    /// Programs that walk through their data, alone and next to a flood.
    pub walks: Vec<WalkFigure>,
    /// Kernels with a part of their data local.
    pub speed_ups: Vec<SpeedUpFigure>,
    /// Why they were not measured with the kernel's swap to a file, where they could not be.
    pub swap_left_out: Option<String>,
    /// Kernels with T, P and B at several values.
    pub sweeps: Vec<SweepFigure>,
    /// Values of COMEX's sweeps that can't be set, with the reason; none where none of them was measured.
    pub sweeps_not_set: Vec<(&'static str, &'static str)>,
    /// What the loss of a node cost.
    pub losses: Vec<LossFigure>,
    /// Why that was not measured, where it could not be.
    pub loss_left_out: Option<String>,
    /// How evenly many programs loaded many nodes.
    pub spreads: Vec<SpreadFigure>,
    /// What threads of one program got of a node that is far away.
    pub threads: Vec<ThreadsFigure>,
    /// The targets.
    pub targets: Vec<Target>,
}

/// A link between network namespaces that could not be made.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LeftOut {
    /// Its rate; `None` for one as fast as the machine.
    pub rate: Option<String>,
    /// Why.
    pub reason: String,
}

/// One way to a node, compared with a bare connection that goes the same way.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WayFigure {
    /// Which.
    pub way: String,
    /// Pages of 4 KiB, writes of 256 KiB, reads of 16 pages.
    pub node: Side,
    /// Answers of the size of a page's, and streams of bytes.
    pub bare: Side,
}

/// What was measured of one connection.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Side {
    /// One page after the other.
    pub page: Latency,
    /// The same while another connection reads as much as goes.
    pub page_under_load: Latency,
    /// Throughput of writes, several under way at a time.
    pub write_bytes_per_second: f64,
    /// Throughput of reads, several under way at a time.
    pub read_bytes_per_second: f64,
}

/// How long something took, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Latency {
    /// Half of them took no longer.
    pub p50_us: f64,
    /// All but a hundredth took no longer.
    pub p99_us: f64,
}

/// One pattern of access, with its far memory in one place.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ProgramFigure {
    /// The pattern.
    pub pattern: String,
    /// Where the far memory was: `pool`, `disk`, or the way to a node.
    pub far: String,
    /// Time of an access: of the middle round of each run.
    pub access_us: f64,
    /// The same, of the slowest round of all.
    pub slowest_us: f64,
    /// What threads that faulted waited.
    pub fault: Latency,
    /// Reads from the node.
    pub node_fetches: f64,
    /// Pages that an earlier read had brought along.
    pub read_buffer_hits: f64,
    /// The largest part of the processors' time in one of the runs that the machine's host took.
    pub stolen_share: f64,
}

impl Side {
    fn median(samples: &[Self]) -> Self {
        let of = |figure: &dyn Fn(&Self) -> f64| median(samples.iter().map(figure).collect());
        let latency = |figure: &dyn Fn(&Self) -> Latency| Latency {
            p50_us: of(&|side| figure(side).p50_us),
            p99_us: of(&|side| figure(side).p99_us),
        };
        Self {
            page: latency(&|side| side.page),
            page_under_load: latency(&|side| side.page_under_load),
            write_bytes_per_second: of(&|side| side.write_bytes_per_second),
            read_bytes_per_second: of(&|side| side.read_bytes_per_second),
        }
    }
}

impl WayFigure {
    /// Of samples of node and bare connection.
    pub(super) fn median(way: &str, samples: &[[Side; 2]]) -> Self {
        let side = |which: usize| Side::median(&samples.iter().map(|sides| sides[which]).collect::<Vec<_>>());
        Self { way: way.to_owned(), node: side(0), bare: side(1) }
    }

    fn targets(&self) -> [Target; 5] {
        let Self { way, node, bare } = self;
        let target = |name: &str, at_most, ratio| Target::new(format!("{way}: {name}"), at_most, Some(ratio));
        [
            target("p50 of a page, of a bare answer's", FETCH, node.page.p50_us / bare.page.p50_us),
            target("p99 of a page, of a bare answer's", FETCH, node.page.p99_us / bare.page.p99_us),
            target(
                "p99 of a page under load, of without",
                FLOODED,
                node.page_under_load.p99_us / node.page.p99_us,
            ),
            target(
                "a bare stream's rate, of that of writes",
                STREAM,
                bare.write_bytes_per_second / node.write_bytes_per_second,
            ),
            target(
                "a bare stream's rate, of that of reads",
                STREAM,
                bare.read_bytes_per_second / node.read_bytes_per_second,
            ),
        ]
    }
}

impl ProgramFigure {
    pub(super) fn median(pattern: &str, far: &str, samples: &[Sample]) -> Self {
        let of = |figure: &dyn Fn(&Sample) -> f64| median(samples.iter().map(figure).collect());
        Self {
            pattern: pattern.to_owned(),
            far: far.to_owned(),
            access_us: of(&|sample| sample.access_us),
            slowest_us: samples.iter().map(|sample| sample.slowest_us).fold(0.0, f64::max),
            fault: Latency {
                p50_us: of(&|sample| sample.fault_p50_us),
                p99_us: of(&|sample| sample.fault_p99_us),
            },
            node_fetches: of(&|sample| sample.node_fetches),
            read_buffer_hits: of(&|sample| sample.read_buffer_hits),
            stolen_share: samples.iter().map(|sample| sample.stolen_share).fold(0.0, f64::max),
        }
    }
}

/// What plain TCP is to reach.
pub(super) fn judge(ways: &[WayFigure], shared: &[SharedFigure]) -> Vec<Target> {
    let judged = ways.iter().filter(|way| JUDGED.contains(&way.way.as_str()));
    judged.flat_map(WayFigure::targets).chain(shared.iter().flat_map(SharedFigure::targets)).collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ways = table(
            &[
                "way",
                "page p50 µs",
                "bare",
                "p99 µs",
                "bare",
                "loaded p50 µs",
                "bare",
                "p99 µs",
                "bare",
                "write MB/s",
                "bare",
                "read MB/s",
                "bare",
            ],
            1,
        );
        for WayFigure { way, node, bare } in &self.ways {
            let us = |figure: &dyn Fn(&Side) -> f64| [node, bare].map(|side| format!("{:.1}", figure(side)));
            let rates =
                |figure: &dyn Fn(&Side) -> f64| [node, bare].map(|side| format!("{:.0}", figure(side) / 1e6));
            let figures = [
                us(&|side| side.page.p50_us),
                us(&|side| side.page.p99_us),
                us(&|side| side.page_under_load.p50_us),
                us(&|side| side.page_under_load.p99_us),
                rates(&|side| side.write_bytes_per_second),
                rates(&|side| side.read_bytes_per_second),
            ];
            ways.add_row([way.clone()].into_iter().chain(figures.into_iter().flatten()));
        }
        let mut programs = table(
            &[
                "pattern",
                "far memory",
                "µs/access",
                "slowest",
                "fault p50 µs",
                "p99 µs",
                "node fetches",
                "buffer hits",
                "stolen",
            ],
            1,
        );
        for figure in &self.programs {
            programs.add_row([
                figure.pattern.clone(),
                figure.far.clone(),
                format!("{:.2}", figure.access_us),
                format!("{:.2}", figure.slowest_us),
                format!("{:.1}", figure.fault.p50_us),
                format!("{:.1}", figure.fault.p99_us),
                format!("{:.0}", figure.node_fetches),
                format!("{:.0}", figure.read_buffer_hits),
                format!("{:.0}%", figure.stolen_share * 100.0),
            ]);
        }
        if let Some(column) = programs.column_mut(1) {
            column.set_cell_alignment(CellAlignment::Left);
        }
        let parts = [
            (self.ways.len(), ways),
            (self.shared.len(), self.shared()),
            (self.spaces.len(), self.spaces()),
            (self.walks.len(), self.walks()),
            (self.programs.len(), programs),
            (self.speed_ups.len(), self.speed_ups()),
            (self.sweeps.len(), self.sweeps()),
            (self.losses.len(), self.losses()),
            (self.spreads.len(), self.spreads()),
            (self.threads.len(), self.threads()),
            (self.threads.len(), self.bystanders()),
        ];
        for (_, table) in parts.iter().filter(|(rows, _)| *rows > 0) {
            writeln!(f, "{table}\n")?;
        }
        if let Some(reason) = &self.swap_left_out {
            writeln!(f, "left out: the kernel's swap to a file: {reason}")?;
        }
        for (value, reason) in &self.sweeps_not_set {
            writeln!(f, "left out: {value}: {reason}")?;
        }
        if let Some(reason) = &self.loss_left_out {
            writeln!(f, "left out: the loss of a node: {reason}")?;
        }
        for LeftOut { rate, reason } in &self.left_out {
            writeln!(f, "left out: a link of {}: {reason}", rate.as_deref().unwrap_or("any rate"))?;
        }
        self.targets.iter().try_for_each(|target| writeln!(f, "{target}"))
    }
}

impl Report {
    fn shared(&self) -> Table {
        let mut shared = table(
            &[
                "shared link",
                "weights 1, 2, 4: MB/s",
                "ratio",
                "16 pages p99 µs",
                "flooded p99 µs",
                "ahead p90 µs",
                "ahead MB/s",
                "late ones dropped: p99 µs",
                "ahead p90 µs",
                "ahead MB/s",
                "dropped %",
                "in one class: p99 µs",
                "ahead p90 µs",
                "no schedule: p99 µs",
                "ahead p90 µs",
                "ahead MB/s",
            ],
            1,
        );
        for figure in &self.shared {
            let parts: Vec<String> =
                figure.bytes_per_second.iter().map(|rate| format!("{:.1}", rate / 1e6)).collect();
            shared.add_row([
                figure.way.clone(),
                parts.join(" "),
                format!("{:.3}", figure.ratio),
                format!("{:.1}", figure.demand_p99_us),
                format!("{:.1}", figure.flooded_p99_us),
                format!("{:.1}", figure.ahead_p90_us),
                format!("{:.1}", figure.ahead_bytes_per_second / 1e6),
                format!("{:.1}", figure.dropping_p99_us),
                format!("{:.1}", figure.dropping_p90_us),
                format!("{:.1}", figure.dropping_bytes_per_second / 1e6),
                format!("{:.1}", figure.dropped * 100.0),
                format!("{:.1}", figure.one_class_p99_us),
                format!("{:.1}", figure.one_class_p90_us),
                format!("{:.1}", figure.unscheduled_p99_us),
                format!("{:.1}", figure.unscheduled_p90_us),
                format!("{:.1}", figure.unscheduled_bytes_per_second / 1e6),
            ]);
        }
        shared
    }

    fn spaces(&self) -> Table {
        let mut spaces = table(
            &[
                "three programs at a link",
                "weights 1, 2, 4: MB/s",
                "ratio",
                "MB/s of all",
                "waited for %",
                "ahead %",
                "slabs %",
                "reads waiting",
            ],
            1,
        );
        for figure in &self.spaces {
            let each = |words: &dyn Fn(&PartFigure) -> String| {
                figure.parts.iter().map(words).collect::<Vec<_>>().join(" ")
            };
            let sum = |class: &dyn Fn(&Classes) -> f64| {
                let bytes: f64 = figure.parts.iter().map(|part| class(&part.class_bytes_per_second)).sum();
                format!("{:.1}", bytes / figure.bytes_per_second * 100.0)
            };
            spaces.add_row([
                figure.way.clone(),
                each(&|part| format!("{:.1}", part.bytes_per_second / 1e6)),
                format!("{:.3}", figure.ratio),
                format!("{:.1}", figure.bytes_per_second / 1e6),
                sum(&|classes| classes.demand),
                sum(&|classes| classes.ahead),
                sum(&|classes| classes.bulk),
                each(&|part| format!("{:.1}", part.reads_waiting)),
            ]);
        }
        spaces
    }

    fn walks(&self) -> Table {
        let mut walks = table(
            &[
                "walk",
                "beside",
                "fault p50 µs",
                "p99 µs",
                "µs/access",
                "waited for MB",
                "ahead MB",
                "dropped",
                "awaited",
                "contribution",
                "accuracy",
                "flood: waited for MB/s",
                "ahead MB/s",
            ],
            2,
        );
        let mb = |bytes: f64| format!("{:.1}", bytes / 1e6);
        for figure in &self.walks {
            let flood = figure.flood_bytes_per_second;
            let rows = [
                ("nothing", figure.alone, [String::new(), String::new()]),
                ("a flood", figure.flooded, [mb(flood.demand), mb(flood.ahead)]),
            ];
            for (beside, walk, flood) in rows {
                let Walk { fault_p50_us, fault_p99_us, access_us, ahead_dropped, ahead_awaited, .. } = walk;
                walks.add_row(
                    [
                        format!("{}, {}", figure.pattern, figure.way),
                        beside.to_owned(),
                        format!("{fault_p50_us:.1}"),
                        format!("{fault_p99_us:.1}"),
                        format!("{access_us:.2}"),
                        mb(walk.class_bytes.demand),
                        mb(walk.class_bytes.ahead),
                        format!("{ahead_dropped:.0}"),
                        format!("{ahead_awaited:.0}"),
                        format!("{:.2}", walk.contribution),
                        format!("{:.2}", walk.accuracy),
                    ]
                    .into_iter()
                    .chain(flood),
                );
            }
        }
        walks
    }

    fn speed_ups(&self) -> Table {
        let mut speed_ups = table(
            &["kernel", "local", "native s", "swap file s", "pool s", "node s", "node, of swap file"],
            1,
        );
        for figure in &self.speed_ups {
            let seconds = |seconds: f64| format!("{seconds:.2}");
            let more = if figure.is_swap_file_ended { "> " } else { "" };
            speed_ups.add_row([
                figure.kernel.to_string(),
                format!("1/{}", figure.part),
                seconds(figure.native_seconds),
                figure.swap_file_seconds.map_or_else(String::new, |took| format!("{more}{took:.2}")),
                seconds(figure.pool_seconds),
                seconds(figure.node_seconds),
                figure.speed_up().map_or_else(String::new, |times| format!("{more}{times:.1} ×")),
            ]);
        }
        speed_ups
    }

    fn sweeps(&self) -> Table {
        let mut sweeps =
            table(&["kernel", "set", "pages", "s", "of default", "node fetches", "buffer hits"], 1);
        for figure in &self.sweeps {
            sweeps.add_row([
                figure.kernel.to_string(),
                figure.parameter.to_owned(),
                figure.pages.map_or_else(|| "default".to_owned(), |pages| pages.to_string()),
                format!("{:.2}", figure.seconds),
                format!("{:.2}", figure.relative),
                format!("{:.0}", figure.node_fetches),
                format!("{:.0}", figure.read_buffer_hits),
            ]);
        }
        sweeps
    }

    fn losses(&self) -> Table {
        let mut losses = table(
            &[
                "one of six nodes killed",
                "requests",
                "failed",
                "before p50 µs",
                "p99 µs",
                "during p50 µs",
                "p99 µs",
                "after p50 µs",
                "p99 µs",
                "longest ms",
                "away s",
                "whole after s",
                "rebuilt MiB",
                "memory",
            ],
            1,
        );
        for figure in &self.losses {
            let us = |latency: &Latency| [latency.p50_us, latency.p99_us].map(|us| format!("{us:.0}"));
            losses.add_row(
                [figure.redundancy.clone(), figure.requests.to_string(), figure.failed.to_string()]
                    .into_iter()
                    .chain([&figure.before, &figure.during, &figure.after].into_iter().flat_map(us))
                    .chain([
                        format!("{:.1}", figure.longest_ms),
                        format!("{:.1}", figure.seconds_away),
                        format!("{:.1}", figure.seconds_to_whole),
                        format!("{:.1}", mebibytes(figure.rebuilt_bytes)),
                        format!("{:.2}×", figure.stored_bytes as f64 / figure.kept_bytes.max(1) as f64),
                    ]),
            );
        }
        losses
    }

    fn spreads(&self) -> Table {
        let mut spreads = table(
            &[
                "bytes on nodes",
                "data MiB",
                "on nodes MiB",
                "mean of a node",
                "least, of it",
                "largest",
                "deviation",
                "granted: least",
                "largest",
            ],
            1,
        );
        let mib = |bytes: f64| format!("{:.1}", bytes / f64::from(1 << 20));
        for figure in &self.spreads {
            let (written, granted) = (&figure.written, &figure.granted);
            let share = |share: f64| format!("{share:.2}");
            spreads.add_row([
                format!("{} programs, {} nodes", figure.programs, figure.written_bytes.len()),
                mib(figure.data_bytes as f64),
                mib(figure.kept_bytes as f64),
                mib(written.mean_bytes),
                share(written.least),
                share(written.largest),
                share(written.deviation),
                share(granted.least),
                share(granted.largest),
            ]);
        }
        spreads
    }

    fn threads(&self) -> Table {
        let mut threads = table(&["threads, a node away", "MiB of data", "pages a second", "of one's"], 1);
        for figure in &self.threads {
            for rate in &figure.rates {
                threads.add_row([
                    format!("{}, {:.0} ms", rate.threads, figure.round_trip_ms),
                    format!("{}", figure.data_bytes >> 20),
                    format!("{:.0}", rate.pages_per_second),
                    format!("{:.2}×", rate.of_one),
                ]);
            }
        }
        threads
    }

    fn bystanders(&self) -> Table {
        let mut bystanders =
            table(&["beside threads that wait", "steps", "faults", "longest step ms", "of all"], 1);
        for bystander in self.threads.iter().map(|figure| figure.bystander) {
            bystanders.add_row([
                bystander.threads.to_string(),
                format!("{:.0}", bystander.steps),
                format!("{:.0}", bystander.pool_faults),
                format!("{:.1}", bystander.longest_step_ms),
                format!("{:.1}", bystander.longest_of_all_ms),
            ]);
        }
        bystanders
    }
}
