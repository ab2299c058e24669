//! `farmem bench faults`: access patterns over more data than local memory, under Farmem and under the
//! kernel's swap.

mod case;
mod measure;
mod records;
mod report;
mod target;

use std::collections::BTreeMap;
use std::path::PathBuf;

use farmem_machine::Description;
use farmem_page::ByteCount;

use case::{Case, Peers};
pub use case::{CaseName, PeerName};
use measure::{Harness, Sample};
pub(crate) use report::Figure;
use report::PeerNote;
pub use report::Report;
pub(crate) use target::{judge, wanted_of_zram};

use crate::interrupt::Interrupt;
use crate::steps::Steps;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Data of the workload; `None` for 256 MiB, or 64 MiB when quick.
    pub data: Option<ByteCount>,
    /// Less data and fewer repetitions.
    pub quick: bool,
    /// Repetitions; `None` for 3, or 1 when quick.
    pub repeat: Option<u32>,
    /// The cases to measure; empty for all.
    pub only: Vec<CaseName>,
    /// The peers to measure; empty for all.
    pub peers: Vec<PeerName>,
    /// Whether to tell what each step of Farmem's faults cost.
    pub steps: bool,
    /// Where swap files are made.
    pub swap_folder: PathBuf,
    /// The `farmem` program.
    pub farmem: PathBuf,
}

/// How many times more data than local memory.
pub(crate) const OVERSUBSCRIPTION: u64 = 4;
const DATA_BYTES: ByteCount = ByteCount::new(256 << 20);
const DATA_QUICK_BYTES: ByteCount = ByteCount::new(64 << 20);
const REPETITIONS: u32 = 3;

/// Measures; progress goes to standard error. Peers take turns within each repetition of each case, so that
/// what else happens on the machine meets all of them alike.
///
/// # Errors
/// When interrupted, and when the machine can't be changed back. A peer that can't be offered, and a run that
/// fails, is no error: it is named in the report.
pub fn run(options: &Options) -> anyhow::Result<Report> {
    let interrupt = Interrupt::listen()?;
    let data = options.data.unwrap_or(if options.quick { DATA_QUICK_BYTES } else { DATA_BYTES });
    let local = ByteCount::new(data.get() / OVERSUBSCRIPTION);
    let repetitions = options.repeat.unwrap_or(if options.quick { 1 } else { REPETITIONS });
    let mut peers = Peers::new(&options.peers);
    let mut harness = Harness::new(options, data, local, interrupt)?;
    let mut samples: BTreeMap<(CaseName, PeerName), Vec<Sample>> = BTreeMap::new();
    let cases: Vec<Case> = Case::selected(&options.only);
    for repetition in 1..=repetitions {
        for case in &cases {
            for peer in peers.in_turn(case, repetition) {
                eprintln!("farmem: {repetition}/{repetitions} {} {}", case.name, peer);
                let sample = match harness.measure(case, peer) {
                    // The kernel's out-of-memory killer sometimes ends a process whose memory it could have
                    // swapped.
                    Err(measure::Failure::Run(_)) if peer.swap().is_some() => harness.measure(case, peer),
                    first => first,
                };
                match sample {
                    Ok(sample) => samples.entry((case.name, peer)).or_default().push(sample),
                    Err(measure::Failure::Interrupted(error)) => return Err(error),
                    Err(measure::Failure::Unavailable(reason)) => {
                        eprintln!("farmem: {peer} left out: {reason}");
                        peers.leave_out(peer, reason);
                    }
                    Err(measure::Failure::Run(reason)) => {
                        eprintln!("farmem: {} {peer} failed: {reason}", case.name);
                        peers.failed(case.name, peer, reason);
                    }
                }
            }
        }
    }
    let figures: Vec<Figure> =
        samples.iter().map(|(&(case, peer), samples)| Figure::median(case, peer, samples)).collect();
    let notes: Vec<PeerNote> = peers.notes(&harness);
    let steps = figures
        .iter()
        .filter(|_| options.steps)
        .filter_map(|figure| Steps::of(figure.case.to_string(), figure.farmem_statistics.as_ref()?));
    let steps = steps.collect();
    let targets = judge(&figures, Some(local));
    Ok(Report {
        version: env!("CARGO_PKG_VERSION"),
        machine: Description::current(),
        data_bytes: data.get(),
        local_bytes: local.get(),
        repetitions,
        peers: notes,
        failures: peers.failures(),
        steps,
        figures: report::with_ratios(figures),
        targets,
    })
}
