//! `farmem bench nodes`: memory nodes compared with bare connections that go the same way, programs whose far
//! memory is there, in the pool or on disk, what the loss of a node costs, how programs share a link, how
//! evenly many programs load many nodes, and what many threads get of one that is far away.

mod apart;
mod bare;
mod client;
mod end;
mod kernel;
mod loss;
mod namespace;
mod program;
mod records;
mod report;
mod route;
mod shared;
mod spaces;
mod speed_up;
mod spread;
mod sweep;
mod threads;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use farmem_machine::Description;
use farmem_page::ByteCount;

use apart::apart;
use client::CLIENT_BYTES;
use end::{Amount, measure};
use kernel::Kernels;
pub use loss::LossFigure;
use program::{PATTERNS, ProgramTier, Sample};
pub use report::Report;
use report::{LeftOut, ProgramFigure, Side, WayFigure, judge};
use route::Route;
pub use shared::SharedFigure;
use spaces::Spaces;
pub use spaces::{Classes, PartFigure, SpacesFigure, Walk, WalkFigure};
use speed_up::SpeedUp;
pub use speed_up::SpeedUpFigure;
pub use spread::SpreadFigure;
pub use sweep::SweepFigure;
pub use threads::{BystanderFigure, RateFigure, ThreadsFigure};

use crate::interrupt::Interrupt;
use crate::option;
use crate::run::Runner;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Data of the programs; `None` for 256 MiB, or 32 MiB when quick.
    pub data: Option<ByteCount>,
    /// Less data, fewer requests and fewer repetitions.
    pub quick: bool,
    /// Repetitions; `None` for 3, or 1 when quick.
    pub repeat: Option<u32>,
    /// Where swap files are made.
    pub swap_folder: PathBuf,
    /// Only these parts; empty for all.
    pub only: Vec<Part>,
    /// The `farmem` program.
    pub farmem: PathBuf,
}

/// A part of what is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Part {
    /// Ways to a node, compared with bare connections.
    Ways,
    /// Links with a rate, shared by three spaces, and with a flood of what is fetched ahead.
    Shared,
    /// The same by programs under `farmem run`: three that share a link, and one that walks through its data
    /// next to a flood.
    Spaces,
    /// Programs with their far memory in several places.
    Programs,
    /// Kernels with a part of their data local, compared with the kernel's swap to a file.
    SpeedUp,
    /// What is read at once, kept, and granted ahead of need, over a wide range.
    Sweeps,
    /// A node of six that is killed while Redis runs.
    Loss,
    /// Twelve nodes that ten programs use at once.
    Spread,
    /// A node two milliseconds away that 1, 4 and 16 threads read from, and a thread that wants nothing of
    /// it.
    Threads,
}

/// How long the server is asked before a node is killed, and when all is whole again.
const SPELL: Duration = Duration::from_secs(10);
const SPELL_QUICK: Duration = Duration::from_secs(3);
const DATA_BYTES: ByteCount = ByteCount::new(256 << 20);
const DATA_QUICK_BYTES: ByteCount = ByteCount::new(32 << 20);
/// Data of each of several programs at once.
const EACH_BYTES: ByteCount = ByteCount::new(64 << 20);
const EACH_QUICK_BYTES: ByteCount = ByteCount::new(32 << 20);
/// Data of the program whose threads read from a node that is far away.
const THREADS_BYTES: ByteCount = ByteCount::new(96 << 20);
const THREADS_QUICK_BYTES: ByteCount = ByteCount::new(48 << 20);
/// How long each number of threads reads.
const THREADS_SPELL: Duration = Duration::from_secs(4);
const THREADS_SPELL_QUICK: Duration = Duration::from_secs(1);
const REPETITIONS: u32 = 3;
const AMOUNT: Amount = Amount { fetches: 10_000, at_most: Duration::from_secs(3), bytes: 256 << 20 };
const AMOUNT_QUICK: Amount = Amount { fetches: 2_000, at_most: Duration::from_secs(1), bytes: 64 << 20 };
/// Links between network namespaces: as fast as the machine, and as a network that many have.
const RATES: [Option<&str>; 2] = [None, Some("1gbit")];

/// Measures; progress goes to standard error. Ways and programs take turns within each repetition, so that
/// what else happens on the machine meets all of them alike.
///
/// # Errors
/// When interrupted, when a node or a program does what it should not. A link that this machine can't make is
/// no error: it is named in the report.
pub fn run(options: &Options) -> anyhow::Result<Report> {
    let runner = Runner::new(&options.farmem, Interrupt::listen()?)?;
    let repetitions = options.repeat.unwrap_or(if options.quick { 1 } else { REPETITIONS });
    let amount = if options.quick { AMOUNT_QUICK } else { AMOUNT };
    let data = options.data.unwrap_or(if options.quick { DATA_QUICK_BYTES } else { DATA_BYTES });
    let data_of_each = options.data.unwrap_or(if options.quick { EACH_QUICK_BYTES } else { EACH_BYTES });
    // Three clients, and a program that may write all of its data before any of it is given back.
    let memory = ByteCount::new(3 * CLIENT_BYTES + 2 * data.get());
    let folder = tempfile::tempdir().context("cannot make a folder for sockets")?;
    let mut routes = Route::local(folder.path(), memory)?;
    let mut left_out = Vec::new();
    for rate in RATES {
        match Route::linked(rate, memory) {
            Ok(route) => routes.push(route),
            Err(error) => {
                let reason = format!("{error:#}");
                eprintln!("farmem: a link of {} left out: {reason}", rate.unwrap_or("any rate"));
                left_out.push(LeftOut { rate: rate.map(str::to_owned), reason });
            }
        }
    }
    let is_wanted = |part: Part| option::is_chosen(&options.only, &part);
    let ways = match is_wanted(Part::Ways) {
        true => measure_ways(&runner, &routes, amount, repetitions)?,
        false => Vec::new(),
    };
    let shared = match is_wanted(Part::Shared) {
        true => measure_shared(&runner, &routes, amount.at_most, repetitions)?,
        false => Vec::new(),
    };
    // Why a link can't be made is said of that link.
    let (spaces, walks) = match is_wanted(Part::Spaces) && left_out.is_empty() {
        true => {
            let (interrupt, farmem) = (runner.interrupt(), &options.farmem);
            Spaces { interrupt, farmem, data: data_of_each, repetitions, quick: options.quick }.measure()?
        }
        false => (Vec::new(), Vec::new()),
    };
    let programs = match is_wanted(Part::Programs) {
        true => measure_programs(&runner, &routes, data, repetitions)?,
        false => Vec::new(),
    };
    let kernels = |node| Kernels { runner: &runner, node, data, repetitions, quick: options.quick };
    let (speed_ups, swap_left_out) = match (is_wanted(Part::SpeedUp), routes.first()) {
        (true, Some(node)) => {
            SpeedUp { kernels: kernels(node), swap_folder: options.swap_folder.clone() }.measure()?
        }
        _ => (Vec::new(), None),
    };
    let sweeps = match (is_wanted(Part::Sweeps), routes.first()) {
        (true, Some(node)) => sweep::measure(&kernels(node))?,
        _ => Vec::new(),
    };
    let loss_left_out = loss::hindrance().filter(|_| is_wanted(Part::Loss));
    let losses = match is_wanted(Part::Loss) && loss_left_out.is_none() {
        true => {
            let spell = if options.quick { SPELL_QUICK } else { SPELL };
            loss::measure(runner.interrupt(), &options.farmem, data, spell)?
        }
        false => Vec::new(),
    };
    let spreads = match is_wanted(Part::Spread) {
        true => vec![spread::measure(runner.interrupt(), &options.farmem, data_of_each)?],
        false => Vec::new(),
    };
    let threads = match is_wanted(Part::Threads) {
        true => {
            let (data, spell) = match options.quick {
                true => (THREADS_QUICK_BYTES, THREADS_SPELL_QUICK),
                false => (THREADS_BYTES, THREADS_SPELL),
            };
            let data = options.data.unwrap_or(data);
            vec![threads::measure(runner.interrupt(), &options.farmem, data, spell, repetitions)?]
        }
        false => Vec::new(),
    };
    Ok(Report {
        version: env!("CARGO_PKG_VERSION"),
        machine: Description::current(),
        data_bytes: data.get(),
        repetitions,
        left_out,
        targets: judge(&ways, &shared)
            .into_iter()
            .chain(spaces.iter().filter_map(SpacesFigure::target))
            .chain(spreads.iter().map(SpreadFigure::target))
            .chain(threads.iter().flat_map(ThreadsFigure::targets))
            .collect(),
        ways,
        shared,
        spaces,
        walks,
        programs,
        speed_ups,
        swap_left_out,
        sweeps_not_set: if sweeps.is_empty() { Vec::new() } else { sweep::NOT_SET.to_vec() },
        sweeps,
        losses,
        loss_left_out,
        spreads,
        threads,
    })
}

fn measure_ways(
    runner: &Runner,
    routes: &[Route],
    amount: Amount,
    repetitions: u32,
) -> anyhow::Result<Vec<WayFigure>> {
    let mut samples: Vec<Vec<[Side; 2]>> = vec![Vec::new(); routes.len()];
    for repetition in 1..=repetitions {
        for (route, samples) in routes.iter().zip(&mut samples) {
            eprintln!("farmem: {repetition}/{repetitions} {}", route.name);
            runner.check()?;
            let (mut end, mut load) = (route.bare()?, route.bare()?);
            let bare = apart(&[end.far(), load.far()], || measure(&mut end, &mut load, amount))?;
            runner.check()?;
            let (mut end, mut load) = (route.client(1)?, route.client(2)?);
            let node = apart(&[route.far()], || measure(&mut end, &mut load, amount))
                .with_context(|| format!("a node by {}", route.name))?;
            samples.push([node, bare]);
        }
    }
    Ok(routes.iter().zip(&samples).map(|(route, samples)| WayFigure::median(&route.name, samples)).collect())
}

/// Links with a rate are those that are worth sharing.
fn measure_shared(
    runner: &Runner,
    routes: &[Route],
    time: Duration,
    repetitions: u32,
) -> anyhow::Result<Vec<SharedFigure>> {
    let limited = routes.iter().filter(|route| route.is_limited());
    let figure = |route: &Route| -> anyhow::Result<SharedFigure> {
        let mut samples = Vec::new();
        for repetition in 1..=repetitions {
            eprintln!("farmem: {repetition}/{repetitions} {} shared by three spaces", route.name);
            runner.check()?;
            samples.push(shared::measure(route, time).with_context(|| format!("{} shared", route.name))?);
        }
        Ok(SharedFigure::median(&samples))
    };
    limited.map(figure).collect()
}

fn measure_programs(
    runner: &Runner,
    routes: &[Route],
    data: ByteCount,
    repetitions: u32,
) -> anyhow::Result<Vec<ProgramFigure>> {
    let fars: Vec<ProgramTier<'_>> = [ProgramTier::Pool, ProgramTier::Disk]
        .into_iter()
        .chain(routes.iter().map(ProgramTier::Node))
        .collect();
    let mut figures = Vec::new();
    for pattern in PATTERNS {
        let name = option::name(&pattern);
        let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); fars.len()];
        for repetition in 1..=repetitions {
            for (far, samples) in fars.iter().zip(&mut samples) {
                eprintln!("farmem: {repetition}/{repetitions} {name}, far memory: {}", far.name());
                samples.push(program::run(runner, pattern, far, data)?);
            }
        }
        figures.extend(
            fars.iter().zip(&samples).map(|(far, samples)| ProgramFigure::median(&name, far.name(), samples)),
        );
    }
    Ok(figures)
}
