//! `farmem bench prefetch`: one program under each policy of prefetching, with the same budget.

mod java;
mod oracle;
mod records;
mod report;
mod run;
mod subject;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, bail};
use farmem_machine::{Description, Memory};
use farmem_page::ByteCount;
use farmem_policy::PrefetchPolicy;

pub use report::Report;
use report::{Figure, judge};
use run::{Sample, measure};
use subject::Subject;

use crate::interrupt::Interrupt;
use crate::run::Runner;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Data of the patterns; `None` for 256 MiB, or 64 MiB when quick.
    pub data: Option<ByteCount>,
    /// Less data and fewer repetitions.
    pub quick: bool,
    /// Repetitions; `None` for 3, or 1 when quick.
    pub repeat: Option<u32>,
    /// The policies to measure; empty for all.
    pub policies: Vec<PrefetchPolicy>,
    /// Local memory; `None` for a quarter of what the program has resident where nothing limits it.
    pub local: Option<ByteCount>,
    /// A program to measure, and its arguments; empty for patterns of access.
    pub program: Vec<OsString>,
    /// The `farmem` program.
    pub farmem: PathBuf,
}

const OVERSUBSCRIPTION: u64 = 4;
const DATA_BYTES: ByteCount = ByteCount::new(256 << 20);
const DATA_QUICK_BYTES: ByteCount = ByteCount::new(64 << 20);
const REPETITIONS: u32 = 3;
/// Less than this holds no program's start.
const LEAST_LOCAL: ByteCount = ByteCount::new(4 << 20);

/// Measures; progress goes to standard error. Policies take turns within each repetition, so that what else happens on the
/// machine meets all of them alike.
///
/// # Errors
/// When interrupted, when a run fails, and when a program's output is another one than with all of its memory local.
pub fn run(options: &Options) -> anyhow::Result<Report> {
    let interrupt = Interrupt::listen()?;
    let repetitions = options.repeat.unwrap_or(if options.quick { 1 } else { REPETITIONS });
    let policies =
        if options.policies.is_empty() { PrefetchPolicy::ALL.to_vec() } else { options.policies.clone() };
    let data = options.data.unwrap_or(if options.quick { DATA_QUICK_BYTES } else { DATA_BYTES });
    let compiled = tempfile::tempdir()?;
    let mut left_out = BTreeMap::new();
    let subjects = if options.program.is_empty() {
        let mut subjects = Subject::patterns(&options.farmem, data);
        match java::subjects(compiled.path(), data) {
            Ok(java) => subjects.extend(java),
            Err(error) => _ = left_out.insert("programs in Java".to_owned(), format!("{error:#}")),
        }
        subjects
    } else {
        vec![Subject::of(&options.program)]
    };
    let runner = Runner::new(&options.farmem, interrupt)?;
    let everything = Memory::current()?.total;
    let mut figures = Vec::new();
    for subject in &subjects {
        eprintln!("farmem: {} with all of its memory", subject.name());
        let whole = measure(&runner, subject, PrefetchPolicy::None, everything)?;
        let quarter = ByteCount::new(whole.memory.get() / OVERSUBSCRIPTION);
        let local = options.local.unwrap_or(quarter).max(LEAST_LOCAL);
        let mut samples: BTreeMap<usize, Vec<Sample>> = BTreeMap::new();
        for repetition in 1..=repetitions {
            for (at, &policy) in policies.iter().enumerate() {
                eprintln!("farmem: {repetition}/{repetitions} {} {}", subject.name(), policy.name());
                let sample = measure(&runner, subject, policy, local)?;
                if !subject.is_same(&whole.output, &sample.output) {
                    bail!("{} said something else under {}", subject.name(), policy.name());
                }
                samples.entry(at).or_default().push(sample);
            }
        }
        eprintln!("farmem: {} traced, for who knows the future", subject.name());
        let bound = oracle::contribution(&runner, subject, local)?;
        let of_subject =
            samples.iter().map(|(&at, samples)| Figure::median(subject, policies[at], local, samples, bound));
        figures.extend(of_subject.collect::<anyhow::Result<Vec<_>>>().context("nothing was measured")?);
    }
    let figures = report::with_ratios(figures);
    Ok(Report {
        version: env!("CARGO_PKG_VERSION"),
        machine: Description::current(),
        repetitions,
        targets: judge(&figures),
        figures,
        left_out,
    })
}
