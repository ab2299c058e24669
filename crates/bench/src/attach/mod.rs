//! `farmem bench attach`: what pagers that come from outside cost the programs that they come to.
//!
//! - [`start`]: a program that needs no pager, below one that is managed;
//! - [`idle`]: many processes that sleep, which the supervisor looks at all the same;
//! - [`stop`]: threads that are busy while a pager comes and leaves;
//! - [`early`]: calls that wait while a pager comes;
//! - [`descent`]: a program that has more than its budget when it is attached to;
//! - [`overshoot`]: a program that takes more than its budget faster than anybody looks.

mod conversation;
mod descent;
mod early;
mod idle;
mod managed;
mod overshoot;
mod records;
mod report;
mod start;
mod stop;
mod workshop;

use std::path::PathBuf;

use clap::ValueEnum;
use farmem_machine::Description;
use serde::Serialize;

use managed::Farmem;
pub use report::{Early, Figure, LeftOut, Report};
use workshop::Workshop;

use crate::interrupt::Interrupt;
use crate::option;
use crate::record::Measurement;
use crate::run::Runner;

/// A part of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Programs that do nothing, started by themselves and by a program that is managed.
    Start,
    /// The supervisor of many processes that sleep.
    Idle,
    /// How long busy threads stand still.
    Stop,
    /// Calls of the kernel that return before their time.
    EarlyReturns,
    /// From an attach until a program has no more than its budget.
    IntoBudget,
    /// A program that takes four times its budget at once.
    Overshoot,
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Fewer and smaller programs, and one repetition.
    pub quick: bool,
    /// Repetitions; `None` for 3, or 1 when quick.
    pub repeat: Option<u32>,
    /// The parts to measure; empty for all.
    pub only: Vec<Part>,
    /// The `farmem` program.
    pub farmem: PathBuf,
}

const REPETITIONS: u32 = 3;

/// What the parts need.
struct Bench<'a> {
    farmem: Farmem<'a>,
    workshop: Workshop<'a>,
    quick: bool,
}

impl Bench<'_> {
    /// How much of something: the one, or the other when it is to be quick.
    fn amount<T>(&self, whole: T, quick: T) -> T {
        if self.quick { quick } else { whole }
    }
}

/// What one repetition of a part has found.
#[derive(Debug, Default)]
struct Found {
    measurements: Vec<Measurement>,
    early: Vec<Early>,
    /// What of it could not be measured, and why.
    left_out: Vec<(String, String)>,
}

impl From<Vec<Measurement>> for Found {
    fn from(measurements: Vec<Measurement>) -> Self {
        Self { measurements, ..Self::default() }
    }
}

/// Measures; progress goes to standard error.
///
/// # Errors
/// When interrupted. A part that can't be measured is named in the report.
pub fn run(options: &Options) -> anyhow::Result<Report> {
    let interrupt = Interrupt::listen()?;
    let runner = Runner::new(&options.farmem, interrupt)?;
    let folder = tempfile::tempdir()?;
    let bench = Bench {
        farmem: Farmem::new(&runner),
        workshop: Workshop { folder: folder.path() },
        quick: options.quick,
    };
    let repetitions = options.repeat.unwrap_or(if options.quick { 1 } else { REPETITIONS });
    let mut report = Report::new(Description::current(), repetitions);
    for part in option::chosen(&options.only, Part::value_variants()) {
        let mut found = Vec::new();
        for repetition in 1..=repetitions {
            eprintln!("farmem: {repetition}/{repetitions} {}", option::name(&part));
            match measure(part, &bench) {
                Ok(one) => found.push(one),
                Err(error) => {
                    runner.check()?;
                    let reason = format!("{error:#}");
                    eprintln!("farmem: {} left out: {reason}", option::name(&part));
                    report.leave_out(option::name(&part), reason);
                    break;
                }
            }
        }
        report.add(part, found);
    }
    report.judge();
    Ok(report)
}

fn measure(part: Part, bench: &Bench<'_>) -> anyhow::Result<Found> {
    match part {
        Part::Start => start::measure(bench),
        Part::Idle => idle::measure(bench).map(Found::from),
        Part::Stop => stop::measure(bench).map(Found::from),
        Part::EarlyReturns => early::measure(bench),
        Part::IntoBudget => descent::measure(bench).map(Found::from),
        Part::Overshoot => overshoot::measure(bench).map(Found::from),
    }
}
