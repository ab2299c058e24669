//! `farmem bench prefetch`: one program under each policy of prefetching, with the same budget.

mod conversation;
mod name;
mod oracle;
mod prepare;
mod records;
mod report;
mod run;
mod subject;
mod tier;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::ValueEnum;
use farmem_machine::Description;
use farmem_page::ByteCount;
use farmem_policy::PrefetchPolicy;

pub use name::SubjectName;
use prepare::Workshop;
pub use report::Report;
use report::{Figure, judge};
use run::measure;
use subject::{Ran, Subject};
pub use tier::SubjectTier;

use crate::interrupt::Interrupt;
use crate::option;
use crate::run::Runner;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Data of each program; `None` for 256 MiB, or 64 MiB when quick.
    pub data: Option<ByteCount>,
    /// Less data and fewer repetitions.
    pub quick: bool,
    /// Repetitions; `None` for 3, or 1 when quick.
    pub repeat: Option<u32>,
    /// The policies to measure; empty for all.
    pub policies: Vec<PrefetchPolicy>,
    /// Local memory; `None` for a quarter of what the program has resident where nothing limits it.
    pub local: Option<ByteCount>,
    /// What to measure; empty for all.
    pub only: Vec<SubjectName>,
    /// Where far memory is.
    pub far: SubjectTier,
    /// A program of one's own to measure instead, and its arguments; empty for none.
    pub program: Vec<OsString>,
    /// A Python that has numpy and XGBoost.
    pub python: PathBuf,
    /// The `farmem` program.
    pub farmem: PathBuf,
}

const OVERSUBSCRIPTION: u64 = 4;
const DATA_BYTES: ByteCount = ByteCount::new(256 << 20);
const DATA_QUICK_BYTES: ByteCount = ByteCount::new(64 << 20);
const REPETITIONS: u32 = 3;
/// So many times as often is run what must be told from chance to a few parts of a hundred.
const EXACT: u32 = 5;
/// Less than this holds no program's start.
const LEAST_LOCAL: ByteCount = ByteCount::new(4 << 20);

/// Measures; progress goes to standard error. Policies take turns within each repetition, so that what else
/// happens on the machine meets all of them alike.
///
/// # Errors
/// When interrupted, when a run fails, and when a program's output is another one than with all of its memory
/// local.
pub fn run(options: &Options) -> anyhow::Result<Report> {
    let interrupt = Interrupt::listen()?;
    let repetitions = options.repeat.unwrap_or(if options.quick { 1 } else { REPETITIONS });
    let policies =
        if options.policies.is_empty() { PrefetchPolicy::ALL.to_vec() } else { options.policies.clone() };
    let folder = tempfile::tempdir()?;
    let (subjects, left_out) = subjects(options, folder.path());
    let runner = Runner::new(&options.farmem, interrupt)?;
    let below = options.far.open(&options.farmem, folder.path())?;
    let mut figures = Vec::new();
    for subject in &subjects {
        eprintln!("farmem: {} with all of its memory", subject.name());
        let is_exact =
            options.repeat.is_none() && subject.name() == option::name(&SubjectName::UNPREDICTABLE);
        let exact = if is_exact { EXACT } else { 1 };
        // Its time doesn't count, so it doesn't matter how much of that the machine's host took.
        let whole = subject
            .run(&runner, ["--local", "100%"])
            .with_context(|| format!("{} with all of its memory", subject.name()))?;
        let quarter = ByteCount::new(whole.memory.get() / OVERSUBSCRIPTION);
        let local = options.local.unwrap_or(quarter).max(LEAST_LOCAL);
        let mut samples: BTreeMap<usize, Vec<Ran>> = BTreeMap::new();
        for repetition in 1..=repetitions * exact {
            for (at, &policy) in policies.iter().enumerate() {
                eprintln!(
                    "farmem: {repetition}/{} {} {}",
                    repetitions * exact,
                    subject.name(),
                    policy.name()
                );
                let sample = measure(&runner, &below, subject, policy, local)?;
                if whole.said != sample.said {
                    bail!("{} said something else under {}", subject.name(), policy.name());
                }
                samples.entry(at).or_default().push(sample);
            }
        }
        eprintln!("farmem: {} traced, for the oracle that knows the future", subject.name());
        let bound = oracle::contribution(&runner, subject, local)?;
        let none = policies.iter().position(|&policy| policy == PrefetchPolicy::None);
        let without = none.and_then(|at| samples.get(&at)).map(Vec::as_slice);
        for (&at, of_policy) in &samples {
            let figure = Figure::median(subject, policies[at], local, of_policy, without, bound);
            figures.push(figure.context("nothing was measured")?);
        }
    }
    Ok(Report {
        version: env!("CARGO_PKG_VERSION"),
        machine: Description::current(),
        far: options.far,
        repetitions,
        targets: if options.far == SubjectTier::Pool { judge(&figures) } else { Vec::new() },
        figures,
        left_out,
    })
}

/// What is to be measured, ready to run; with it what can't be here, and why.
fn subjects(options: &Options, folder: &Path) -> (Vec<Subject>, BTreeMap<String, String>) {
    if !options.program.is_empty() {
        return (vec![Subject::of(&options.program)], BTreeMap::new());
    }
    let data = options.data.unwrap_or(if options.quick { DATA_QUICK_BYTES } else { DATA_BYTES });
    let workshop = Workshop { python: &options.python, folder, data };
    let (mut subjects, mut left_out) = (Vec::new(), BTreeMap::new());
    for name in option::chosen(&options.only, SubjectName::value_variants()) {
        match workshop.prepare(name) {
            Ok(subject) => subjects.push(subject),
            Err(error) => _ = left_out.insert(option::name(&name), format!("{error:#}")),
        }
    }
    (subjects, left_out)
}
