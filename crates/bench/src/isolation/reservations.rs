//! One program with several threads that write, and what becomes of the entries that its pages keep: with
//! room for all of them, and with a partition so small that hot pages must give theirs back (Canvas §5.1,
//! Figures 12 and 13).

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, ensure};
use serde::Serialize;

use super::victim::Scale;
use crate::interrupt::Interrupt;
use crate::run::Runner;
use crate::workload::{Compressibility, Outcome, Pattern};
use crate::{option, own};

const THREADS: [u32; 3] = [1, 4, 16];
const ROUNDS: u32 = 16;
/// A program may be over before its pager has come, on a busy machine: then it runs again.
const ATTEMPTS: u32 = 5;
/// Each page is written, and must be stored: one that leaves unchanged needs no entry.
const PATTERN: Pattern = Pattern::RandomWrite;
const COMPRESSIBILITY: Compressibility = Compressibility::Half;

/// How entries are treated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keeping {
    /// Pages keep them, and there is room for all.
    Kept,
    /// Pages keep them, and a partition that is hardly larger than what must be far makes hot ones give them
    /// back.
    GivenBack,
    /// Each page that leaves gets a new one.
    New,
}

impl Keeping {
    const ALL: [Self; 3] = [Self::Kept, Self::GivenBack, Self::New];

    /// What it is called in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kept => "entry kept",
            Self::GivenBack => "entry kept, partition short",
            Self::New => "entry allocated",
        }
    }

    fn options(self, scale: Scale) -> Vec<String> {
        let data = scale.data.get();
        let mut options = vec!["--pool".to_owned(), (2 * data).to_string()];
        match self {
            Self::Kept => {}
            // All pages take 0.55 of the data in slots. Three quarters of the partition, up to which entries
            // are kept, are less than that, and more than what is not local.
            Self::GivenBack => options.extend(["--partition".to_owned(), (data / 5 * 3).to_string()]),
            Self::New => options.extend(["--entries", "new"].map(str::to_owned)),
        }
        options
    }
}

/// The program, from its start to its end. Farmem waits for no lock to find an entry, so there are no waits
/// to count.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Reservations {
    /// Threads that write.
    pub threads: u32,
    /// How entries are treated.
    pub entries: Keeping,
    /// Pages that left each second.
    pub swap_outs_per_second: f64,
    /// Pages that left.
    pub swap_outs: f64,
    /// Entries that were allocated.
    pub allocated: f64,
    /// Entries that pages went back into.
    pub reused: f64,
    /// Entries that resident pages gave back.
    pub given_back: f64,
}

/// Measures, for each number of threads.
pub(super) fn measure(
    farmem: &Path,
    scale: Scale,
    interrupt: &Interrupt,
) -> anyhow::Result<Vec<Reservations>> {
    let runner = Runner::new(farmem, interrupt.clone())?;
    let mut found = Vec::new();
    for threads in THREADS {
        for entries in Keeping::ALL {
            let once = || run(&runner, scale, threads, entries).with_context(|| entries.name());
            let mut figure = once()?;
            for _ in 1..ATTEMPTS {
                if figure.swap_outs > 0.0 {
                    break;
                }
                figure = once()?;
            }
            ensure!(figure.swap_outs > 0.0, "{}: no page left before the program's end", entries.name());
            found.push(figure);
        }
    }
    Ok(found)
}

fn run(runner: &Runner, scale: Scale, threads: u32, entries: Keeping) -> anyhow::Result<Reservations> {
    let mut options = vec!["--local".to_owned(), scale.local().get().to_string()];
    options.extend(entries.options(scale));
    let mut program = vec![own::word()?, "workload".to_owned()];
    let named = [
        ("--data", scale.data.get().to_string()),
        ("--pattern", option::name(&PATTERN)),
        ("--compressibility", option::name(&COMPRESSIBILITY)),
        ("--threads", threads.to_string()),
        ("--rounds", ROUNDS.to_string()),
    ];
    program.extend(named.into_iter().flat_map(|(name, value)| [name.to_owned(), value]));
    let began = Instant::now();
    let finished = runner.run(&options, &program, Command::spawn)?;
    let seconds = began.elapsed().as_secs_f64();
    let outcome = Outcome::last_of(&finished.output).context("the workload tells nothing")?;
    ensure!(outcome.mismatches == 0, "pages came back with other bytes than were written to them");
    let swap_outs = finished.number("evicted");
    Ok(Reservations {
        threads,
        entries,
        swap_outs_per_second: swap_outs / seconds,
        swap_outs,
        allocated: finished.number("entries_allocated"),
        reused: finished.number("entries_reused"),
        given_back: finished.number("entries_released"),
    })
}
