//! `farmem bench all`: every benchmark in turn, one line for each measurement, and a report of them.

mod beside;
mod estimate;
mod folder;
mod page;
mod plan;

use std::path::{Path, PathBuf};
use std::time::Instant;

use farmem_machine::Description;
use farmem_page::ByteCount;

use beside::Other;
use estimate::Estimate;
use folder::{Folder, REPORT, Setup};
use plan::{Step, Work};

use crate::compare::{Comparison, compare};
use crate::faults::PeerName;
use crate::interrupt::Interrupt;
use crate::record::{Findings, LeftOut, Record};
use crate::{attach, faults, isolation, micro, nodes, option, paper, prefetch, programs};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where results are kept.
    pub out: PathBuf,
    /// Less data and fewer repetitions.
    pub quick: bool,
    /// Repetitions; `None` for 5, or 1 when quick.
    pub repeat: Option<u32>,
    /// Data of each program; `None` for what each benchmark takes.
    pub data: Option<ByteCount>,
    /// Names of benchmarks and of parts of them; empty for all.
    pub only: Vec<String>,
    /// The peers of the access patterns; empty for all.
    pub peers: Vec<PeerName>,
    /// A Python that has XGBoost.
    pub python: PathBuf,
    /// Where swap files are made.
    pub swap_folder: PathBuf,
    /// The `farmem` program.
    pub farmem: PathBuf,
    /// The `farmem` program of another build, to be measured in turn with this one.
    pub beside: Option<PathBuf>,
    /// The commit that this build was made from, for the records.
    pub commit: String,
}

/// How it came out.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// The report.
    pub report: PathBuf,
    /// What this machine could not run.
    pub left_out: Vec<LeftOut>,
    /// Measurements that the folder has now.
    pub records: usize,
    /// Of those that were measured in turn with another build.
    pub beside: Option<Beside>,
}

/// What another build found.
#[derive(Clone, PartialEq, Debug)]
pub struct Beside {
    /// Its report.
    pub report: PathBuf,
    /// What changed from it to this build.
    pub comparison: Comparison,
}

/// Why it ended before its end.
#[derive(Debug)]
pub enum Error {
    /// What was asked for can't be done; a sentence.
    Unusable(String),
    /// It was asked to stop. What was measured is kept.
    Interrupted,
    /// It went wrong on the way.
    Failed(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Error {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Enough that a comparison can tell a difference from chance.
const REPETITIONS: u32 = 5;

/// Measures, and keeps what it found after each step; progress goes to standard error. Goes on where an
/// earlier call with the same folder stopped.
///
/// # Errors
/// When there is no such benchmark, the folder holds something else, or it is interrupted. A step that fails
/// is named in the report, and tried again by the next call.
pub fn run(options: &Options) -> Result<Outcome, Error> {
    let repetitions = options.repeat.unwrap_or(if options.quick { 1 } else { REPETITIONS });
    let steps = plan::steps(&options.only, repetitions).map_err(Error::Unusable)?;
    let setup = Setup {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: options.commit.clone(),
        quick: options.quick,
        data_bytes: options.data.map(ByteCount::get),
        peers: options.peers.iter().map(option::name).collect(),
        machine: Description::current(),
    };
    let other = options.beside.as_ref().map(|farmem| Other::new(farmem, options));
    other.as_ref().map_or(Ok(()), Other::check).map_err(Error::Unusable)?;
    let mut folder = Folder::open(&options.out, setup).map_err(Error::Unusable)?;
    let interrupt = Interrupt::listen()?;
    let mut estimate = Estimate::default();
    for step in &steps {
        if let Some(took) = folder.time_of(&step.name()) {
            estimate.learn(step.work, options.quick, took);
        }
    }
    let is_done = |&(step, build): &(Step, Build)| match (build, &other) {
        (Build::This, _) => folder.is_done(&step.name()),
        // Whether it can measure at all shows before anything takes long.
        (Build::Other, Some(other)) => !step.is_first() && other.is_done(&step.name()),
        (Build::Other, None) => true,
    };
    let remaining: Vec<(Step, Build)> =
        steps.into_iter().flat_map(in_turn).filter(|turn| !is_done(turn)).collect();
    let mut failed = Vec::new();
    for (at, &(step, build)) in remaining.iter().enumerate() {
        let rest = estimate.of(remaining[at..].iter().map(|(step, _)| step.work), options.quick);
        let other = other.as_ref().filter(|_| build == Build::Other);
        eprintln!(
            "farmem: step {} of {}, {}, repetition {}{}; {} left",
            at + 1,
            remaining.len(),
            step.work.name(),
            step.repetition,
            other.map_or_else(String::new, |other| format!(", by {}", other.name())),
            estimate::words(rest)
        );
        let began = Instant::now();
        let outcome = match other {
            None => measure(step.work, options).map(Some).map_err(Error::Failed),
            Some(other) => other.measure(&step, &interrupt).map(|()| None),
        };
        if interrupt.check().is_err() {
            return Err(Error::Interrupted);
        }
        let left_out = |(what, reason)| LeftOut { bench: step.work.bench().to_owned(), what, reason };
        let mut leave_out = |reason: String| {
            eprintln!("farmem: {} left out: {reason}", step.work.name());
            failed.push(left_out((step.work.name(), reason)));
        };
        match outcome {
            Ok(Some(findings)) => {
                folder.leave_out(findings.left_out.iter().cloned().map(left_out));
                let records = records(step, &findings, &options.commit);
                folder.keep(step.name(), records, began.elapsed().as_secs_f64())?;
            }
            Ok(None) => {}
            Err(Error::Unusable(sentence)) if step.is_first() => return Err(Error::Unusable(sentence)),
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(Error::Unusable(reason)) => leave_out(reason),
            Err(Error::Failed(error)) => leave_out(format!("{error:#}")),
        }
        estimate.learn(step.work, options.quick, began.elapsed());
        write_report(&folder, &failed)?;
    }
    let report = write_report(&folder, &failed)?;
    let beside = other.map(|other| Beside {
        report: other.report(),
        comparison: compare(&other.records(), folder.records()),
    });
    Ok(Outcome {
        report,
        left_out: folder.left_out().iter().cloned().chain(failed).collect(),
        records: folder.records().len(),
        beside,
    })
}

/// The build that makes a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Build {
    This,
    Other,
}

/// The step by both builds, one right after the other, since a machine changes in the course of hours. In
/// each repetition another one is first.
fn in_turn(step: Step) -> [(Step, Build); 2] {
    let mut builds = [Build::Other, Build::This];
    if step.repetition.is_multiple_of(2) {
        builds.reverse();
    }
    builds.map(|build| (step, build))
}

/// Makes the report again from records, such as those of another machine.
///
/// # Errors
/// When it can't be written.
pub fn render(records: &[Record], to: &Path) -> anyhow::Result<()> {
    Ok(std::fs::write(to, page::page(records, &[]))?)
}

fn write_report(folder: &Folder, failed: &[LeftOut]) -> anyhow::Result<PathBuf> {
    let left_out: Vec<LeftOut> = folder.left_out().iter().chain(failed).cloned().collect();
    folder.replace(REPORT, page::page(folder.records(), &left_out).as_bytes())?;
    Ok(folder.path(REPORT))
}

fn records(step: Step, findings: &Findings, commit: &str) -> Vec<Record> {
    let bench = step.work.bench();
    let machine = Description::current();
    let measurements = findings.measurements.iter().filter(|measurement| measurement.value.is_finite());
    measurements
        .map(|measurement| Record {
            bench: bench.to_owned(),
            case: measurement.case.clone(),
            peer: measurement.peer.clone(),
            measure: measurement.measure.to_owned(),
            repetition: step.repetition,
            value: measurement.value,
            unit: measurement.unit.to_owned(),
            better: measurement.better,
            paper: paper::of(bench, &measurement.case, measurement.measure).map(Into::into),
            data_bytes: findings.data_bytes,
            machine: machine.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: commit.to_owned(),
        })
        .collect()
}

/// One repetition of one part of a benchmark.
fn measure(work: Work, options: &Options) -> anyhow::Result<Findings> {
    let (quick, data, repeat) = (options.quick, options.data, Some(1));
    let (farmem, swap_folder) = (options.farmem.clone(), options.swap_folder.clone());
    Ok(match work {
        Work::Micro => micro::run(&micro::Options { quick, repeat: None })?.findings(),
        Work::Attach(part) => {
            attach::run(&attach::Options { quick, repeat, only: vec![part], farmem })?.findings()
        }
        Work::Faults(case) => {
            let (only, peers) = (vec![case], options.peers.clone());
            let report = faults::run(&faults::Options {
                data,
                quick,
                repeat,
                only,
                peers,
                steps: false,
                swap_folder,
                farmem,
            })?;
            anyhow::ensure!(!report.has_mismatches(), "pages came back with other bytes than were written");
            report.findings()
        }
        Work::Programs(program) => programs::run(&programs::Options {
            quick,
            repeat,
            only: vec![program],
            peers: Vec::new(),
            shares: Vec::new(),
            python: options.python.clone(),
            swap_folder,
            farmem,
        })?
        .findings(),
        Work::Prefetch(subject) => prefetch::run(&prefetch::Options {
            data,
            quick,
            repeat,
            policies: Vec::new(),
            local: None,
            only: vec![subject],
            far: prefetch::SubjectTier::default(),
            program: Vec::new(),
            python: options.python.clone(),
            farmem,
        })?
        .findings(),
        Work::Isolation(part) => isolation::run(&isolation::Options {
            data,
            quick,
            repeat,
            only: vec![part],
            peers: Vec::new(),
            far: isolation::CoRunsTier::default(),
            python: options.python.clone(),
            swap_folder,
            farmem,
        })?
        .findings(),
        Work::Nodes(part) => {
            nodes::run(&nodes::Options { data, quick, repeat, swap_folder, only: vec![part], farmem })?
                .findings()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_take_turns_within_each_step_and_at_being_first() {
        let turns: Vec<(u32, Build)> = plan::steps(&["micro".to_owned()], 2)
            .unwrap()
            .into_iter()
            .flat_map(in_turn)
            .map(|(step, build)| (step.repetition, build))
            .collect();
        assert_eq!(turns, [(1, Build::Other), (1, Build::This), (2, Build::This), (2, Build::Other)]);
    }
}
