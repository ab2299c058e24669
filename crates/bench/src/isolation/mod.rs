//! `farmem bench isolation`: how far applications on one host disturb each other through paging.

mod client;
mod co_runs;
mod efficiency;
mod entries;
mod growth;
mod kept;
mod records;
mod recovery;
mod report;
mod reservations;
mod server;
mod setting;
mod site;
mod swap_in;
mod swapper;
mod victim;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use clap::ValueEnum;
use farmem_machine::Description;
use farmem_page::ByteCount;

use crate::interrupt::Interrupt;
use crate::option;
use crate::stolen::{self, Times};
pub use co_runs::{CoRuns, Figures, Program, Run, Spread};
use co_runs::{Programs, Terms};
pub use efficiency::Efficiency;
pub use entries::Entries;
pub(crate) use growth::SECOND;
pub use growth::{Growth, Size};
pub use kept::Kept;
pub use recovery::Recovery;
pub use report::{Report, Victim};
pub use reservations::{Keeping, Reservations};
pub use setting::Peer;
use setting::Setting;
pub use site::CoRunsTier;
pub use swap_in::SwapIn;
use victim::Scale;
pub use victim::{Service, Turn};

/// A part of what is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Part {
    /// A server next to a program that swaps as fast as it can.
    Victim,
    /// How soon a server is itself again after it was given memory.
    Recovery,
    /// What it takes to bring pages back.
    SwapIn,
    /// What stored pages take of memory.
    Efficiency,
    /// What it takes to find an entry for a page that leaves, and what programs have of keeping it.
    Entries,
    /// Redis while its data outgrows its memory, and after it was given more.
    Growth,
    /// Programs of several kinds side by side, each with a quarter of its memory local.
    CoRuns,
    /// The same with half of it local.
    CoRunsHalf,
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Data of each application; `None` for 256 MiB, or 64 MiB when quick.
    pub data: Option<ByteCount>,
    /// Less data, shorter measurements and fewer repetitions.
    pub quick: bool,
    /// Repetitions; `None` for 3, or 1 when quick.
    pub repeat: Option<u32>,
    /// The parts to measure; empty for all.
    pub only: Vec<Part>,
    /// The peers to measure; empty for Farmem and each kind of swap, of which some are measured without the
    /// kernel's readahead as well.
    pub peers: Vec<Peer>,
    /// Where far memory of programs side by side is, under Farmem.
    pub far: CoRunsTier,
    /// A Python that has XGBoost.
    pub python: PathBuf,
    /// Where swap files are made.
    pub swap_folder: PathBuf,
    /// The `farmem` program.
    pub farmem: PathBuf,
}

const REPETITIONS: u32 = 3;
/// Local memory of programs side by side: theirs divided by it.
const QUARTER: u64 = 4;
const HALF: u64 = 2;
/// A tenth of what the server can answer from the pool: what counts is how long a request takes, not how many
/// wait.
const REQUESTS_PER_SECOND: f64 = 2000.0;

impl Options {
    fn wants(&self, part: Part) -> bool {
        option::is_chosen(&self.only, &part)
    }

    fn scale(&self) -> Scale {
        let (data, seconds) = if self.quick { (64 << 20, 2) } else { (256 << 20, 7) };
        Scale {
            data: self.data.unwrap_or(ByteCount::new(data)),
            requests_per_second: REQUESTS_PER_SECOND,
            measured: Duration::from_secs(seconds),
        }
    }
}

/// Measures; progress goes to standard error. Peers take turns.
///
/// # Errors
/// When interrupted, when there is only one processor, and when the machine can't be changed back. A peer or
/// program that can't be offered or fails is named in the report.
pub fn run(options: &Options) -> anyhow::Result<Report> {
    ensure!(
        std::thread::available_parallelism()?.get() >= 2,
        "isolation is measured with a processor for each application: two are needed"
    );
    let interrupt = Interrupt::listen()?;
    let scale = options.scale();
    let repetitions = options.repeat.unwrap_or(if options.quick { 1 } else { REPETITIONS });
    let mut peers = option::chosen(&options.peers, &Peer::USUAL);
    let mut read_at_once = BTreeMap::new();
    for &peer in &peers {
        if let Some(pages) = peer.read_at_once()? {
            read_at_once.insert(peer, pages);
        }
    }
    let mut attempts = Attempts { interrupt: &interrupt, left_out: BTreeMap::new() };
    let programs = if [Part::CoRuns, Part::CoRunsHalf].iter().any(|&part| options.wants(part)) {
        let (programs, missing) = Programs::prepare(&options.python, scale.data, options.quick, &interrupt)?;
        attempts.left_out.extend(missing.iter().map(|(program, why)| (option::name(program), why.clone())));
        Some(programs)
    } else {
        None
    };
    let mut turns: BTreeMap<Peer, Vec<Measured>> = BTreeMap::new();
    let parts = [(Part::CoRuns, QUARTER), (Part::CoRunsHalf, HALF)];
    let parts = parts.into_iter().filter(|(part, _)| options.wants(*part)).map(|(_, local)| local);
    let parts: Vec<u64> = parts.collect();
    let mut runs: BTreeMap<(u64, Peer), Vec<Run>> = BTreeMap::new();
    for repetition in 1..=repetitions {
        for &peer in &peers {
            let name = option::name(&peer);
            eprintln!("farmem: {repetition}/{repetitions} {name}");
            turns
                .entry(peer)
                .or_default()
                .extend(attempts.make(&name, || turn(options, peer, scale, &interrupt))?);
            for &part in &parts {
                let Some(programs) = &programs else { continue };
                let terms = Terms {
                    peer,
                    far: options.far,
                    part,
                    farmem: &options.farmem,
                    swap_folder: &options.swap_folder,
                    interrupt: &interrupt,
                };
                let work = || programs.turn(terms);
                let found = attempts.make(&format!("{name} co-runs, 1/{part} local"), work)?;
                runs.entry((part, peer)).or_default().extend(found.into_iter().flatten());
            }
        }
        let first = 1.min(peers.len());
        peers.rotate_left(first);
    }
    let entries = if options.wants(Part::Entries) {
        eprintln!("farmem: entries of the pool");
        entries::measure(&interrupt)?
    } else {
        Vec::new()
    };
    let kept = if options.wants(Part::Entries) {
        eprintln!("farmem: programs whose pages keep their entries, and not");
        let work = || kept::measure(&options.farmem, &options.swap_folder, scale, &interrupt);
        attempts.make("programs without kept entries", work)?
    } else {
        None
    };
    let reservations = if options.wants(Part::Entries) {
        eprintln!("farmem: entries of a program with several threads");
        let work = || reservations::measure(&options.farmem, scale, &interrupt);
        attempts.make("entries of a program with several threads", work)?.unwrap_or_default()
    } else {
        Vec::new()
    };
    let victim: BTreeMap<Peer, Victim> = each(&turns, |turns| {
        let victims: Vec<Turn> = turns.iter().filter_map(|turn| turn.victim).collect();
        (!victims.is_empty()).then(|| Victim::of(victims.into_iter()))
    });
    let recovery = each(&turns, |turns| {
        some(turns.iter().filter_map(|turn| turn.recovery.clone()).collect::<Vec<Recovery>>())
    });
    let swap_in =
        each(&turns, |turns| some(turns.iter().filter_map(|turn| turn.swap_in).collect::<Vec<SwapIn>>()));
    // Pages are the same in all turns.
    let efficiency = each(&turns, |turns| some(turns.last()?.efficiency.clone()));
    let growth = each(&turns, |turns| {
        some(turns.iter().filter_map(|turn| turn.growth.clone()).collect::<Vec<Growth>>())
    });
    let co_runs_of = |part: u64| -> BTreeMap<Peer, CoRuns> {
        let of_part = runs.iter().filter(|((local, _), _)| *local == part);
        of_part.filter_map(|(&(_, peer), runs)| Some((peer, CoRuns::of(runs.clone())?))).collect()
    };
    let (co_runs, co_runs_half) = (co_runs_of(QUARTER), co_runs_of(HALF));
    let targets = report::judge(&victim, &recovery, &co_runs);
    Ok(Report {
        version: env!("CARGO_PKG_VERSION"),
        machine: Description::current(),
        data_bytes: scale.data.get(),
        repetitions,
        read_at_once,
        far: options.far,
        victim,
        recovery,
        swap_in,
        efficiency,
        entries,
        kept,
        reservations,
        growth,
        co_runs,
        co_runs_half,
        left_out: attempts.left_out,
        targets,
    })
}

/// What came out for each peer for which anything did.
fn each<T, R>(found: &BTreeMap<Peer, Vec<T>>, of: impl Fn(&[T]) -> Option<R>) -> BTreeMap<Peer, R> {
    found.iter().filter_map(|(&peer, found)| Some((peer, of(found)?))).collect()
}

fn some<T>(found: Vec<T>) -> Option<Vec<T>> {
    (!found.is_empty()).then_some(found)
}

/// One turn of one peer: what of it is wanted.
struct Measured {
    victim: Option<Turn>,
    recovery: Option<Recovery>,
    swap_in: Option<SwapIn>,
    efficiency: Vec<Efficiency>,
    growth: Option<Growth>,
}

/// Makes turns, and knows what failed.
struct Attempts<'a> {
    interrupt: &'a Interrupt,
    left_out: BTreeMap<String, String>,
}

impl Attempts<'_> {
    /// A turn, again while the machine's host takes much of the processors' time; that which lost least. The
    /// kernel sometimes ends a program that reaches its control group's limit, though there is swap left:
    /// such a turn is tried again as well. `None` of what has failed before or does now.
    ///
    /// # Errors
    /// When interrupted.
    fn make<T>(&mut self, name: &str, work: impl Fn() -> anyhow::Result<T>) -> anyhow::Result<Option<T>> {
        if self.left_out.contains_key(name) {
            return Ok(None);
        }
        let mut best: anyhow::Result<(T, f64)> = Err(anyhow::anyhow!("not measured"));
        for _ in 0..stolen::ATTEMPTS {
            let before = Times::now();
            let now = work();
            self.interrupt.check()?;
            let now = now.map(|turn| (turn, Times::now().stolen_share_since(before)));
            let is_better = match (&best, &now) {
                (Ok((_, best)), Ok((_, now))) => now < best,
                (Ok(_), Err(_)) => false,
                (Err(_), _) => true,
            };
            if is_better {
                best = now;
            }
            if best.as_ref().is_ok_and(|(_, stolen_share)| *stolen_share <= stolen::TOLERATED) {
                break;
            }
        }
        match best {
            Ok((turn, _)) => Ok(Some(turn)),
            Err(error) => {
                eprintln!("farmem: {name} left out: {error:#}");
                self.left_out.insert(name.to_owned(), format!("{error:#}"));
                Ok(None)
            }
        }
    }
}

fn turn(options: &Options, peer: Peer, scale: Scale, interrupt: &Interrupt) -> anyhow::Result<Measured> {
    let mut measured =
        Measured { victim: None, recovery: None, swap_in: None, efficiency: Vec::new(), growth: None };
    let parts = [Part::Victim, Part::Recovery, Part::SwapIn, Part::Efficiency, Part::Growth];
    if !parts.iter().any(|&part| options.wants(part)) {
        return Ok(measured);
    }
    // Two applications, and what else they have.
    let data = ByteCount::new(scale.data.get() * 2 + (256 << 20));
    let setting = Setting::prepare(peer, &options.farmem, data, &options.swap_folder, interrupt)?;
    if options.wants(Part::Victim) {
        let folder = tempfile::tempdir()?;
        measured.victim = Some(victim::turn(&setting, folder.path(), scale)?);
    }
    if options.wants(Part::Recovery) {
        let folder = tempfile::tempdir()?;
        measured.recovery = Some(recovery::turn(&setting, folder.path(), scale)?);
    }
    if options.wants(Part::SwapIn) {
        measured.swap_in = Some(swap_in::turn(&setting, peer, scale)?);
    }
    if options.wants(Part::Efficiency) {
        measured.efficiency = efficiency::turn(&setting, scale)?;
    }
    if options.wants(Part::Growth) {
        let folder = tempfile::tempdir()?;
        measured.growth = Some(growth::turn(&setting, folder.path(), scale)?);
    }
    Ok(measured)
}
