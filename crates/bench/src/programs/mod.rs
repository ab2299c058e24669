//! `farmem bench programs`: real programs, unmodified, with a part of their memory local: under Farmem, and
//! under the kernel's swap.

mod measure;
mod name;
mod prepare;
mod records;
mod report;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use farmem_machine::Description;
use farmem_page::ByteCount;

use measure::{Failure, Harness, Ran, Room};
pub use name::{Peer, ProgramName};
use prepare::{Prepared, Workshop};
pub(crate) use records::{NATIVE, PEAK, TIME};
use report::{FailedRun, LeftOut};
pub use report::{PeerFigure, Report, Row};

use crate::interrupt::Interrupt;
use crate::option;
use crate::run::Runner;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Less data and fewer repetitions.
    pub quick: bool,
    /// Repetitions; `None` for 3, or 1 when quick.
    pub repeat: Option<u32>,
    /// The programs to measure; empty for all.
    pub only: Vec<ProgramName>,
    /// The peers to measure; empty for the usual ones.
    pub peers: Vec<Peer>,
    /// How much of what a program has without a limit is local, in percent; empty for 50 and 25.
    pub shares: Vec<u32>,
    /// A Python that has the modules of the programs.
    pub python: PathBuf,
    /// Where swap files are made.
    pub swap_folder: PathBuf,
    /// The `farmem` program.
    pub farmem: PathBuf,
}

const REPETITIONS: u32 = 3;
/// In percent.
const SHARES: [u32; 2] = [50, 25];
/// Less than this holds no program's start.
const LEAST_LOCAL: ByteCount = ByteCount::new(4 << 20);

/// Measures; progress goes to standard error. In each repetition a program runs with all of its memory and
/// then under all peers in turn, so that what else happens on the machine meets all of them alike.
///
/// # Errors
/// When interrupted, when a program fails natively or under Farmem, and when it says something else than the
/// first time, under whomever. A peer that can't be offered, and a run that the kernel ends, is no error: it
/// is named in the report.
pub fn run(options: &Options) -> Result<Report> {
    let interrupt = Interrupt::listen()?;
    let folder = tempfile::tempdir()?;
    let workshop = Workshop { python: &options.python, folder: folder.path(), quick: options.quick };
    let mut turn = Turn {
        repetitions: options.repeat.unwrap_or(if options.quick { 1 } else { REPETITIONS }),
        shares: shares(&options.shares),
        peers: option::chosen(&options.peers, &Peer::USUAL),
        harness: Harness::new(Runner::new(&options.farmem, interrupt)?, options.swap_folder.clone()),
        left_out: Vec::new(),
        failures: Vec::new(),
    };
    let mut rows = Vec::new();
    for name in option::chosen(&options.only, ProgramName::value_variants()) {
        match workshop.prepare(name) {
            Ok(prepared) => rows.extend(turn.measure(name, &prepared).with_context(|| name.to_string())?),
            Err(error) => {
                let reason = format!("{error:#}");
                eprintln!("farmem: {name} left out: {reason}");
                turn.left_out.push(LeftOut { what: name.to_string(), reason });
            }
        }
    }
    Ok(Report {
        version: env!("CARGO_PKG_VERSION"),
        machine: Description::current(),
        repetitions: turn.repetitions,
        rows,
        left_out: turn.left_out,
        failures: turn.failures,
    })
}

/// Those that were named, each once, or the usual ones.
fn shares(named: &[u32]) -> Vec<u32> {
    let mut shares = Vec::new();
    for &share in if named.is_empty() { &SHARES } else { named } {
        if !shares.contains(&share) {
            shares.push(share);
        }
    }
    shares
}

/// What is measured of each program.
struct Turn {
    repetitions: u32,
    shares: Vec<u32>,
    /// Those that this machine offers, as far as is known.
    peers: Vec<Peer>,
    harness: Harness,
    left_out: Vec<LeftOut>,
    failures: Vec<FailedRun>,
}

impl Turn {
    /// A row for each share.
    fn measure(&mut self, name: ProgramName, prepared: &Prepared) -> Result<Vec<Row>> {
        let command = &prepared.command;
        let repetitions = self.repetitions;
        let mut natives: Vec<Ran> = Vec::new();
        let mut samples: BTreeMap<(usize, Peer), Vec<Ran>> = BTreeMap::new();
        for repetition in 1..=repetitions {
            eprintln!("farmem: {repetition}/{repetitions} {name} with all of its memory");
            let mut native = self.harness.run_native(command)?;
            native.resident_peak = ByteCount::new(native.resident_peak.get() + prepared.shared.get());
            let first = natives.first().unwrap_or(&native);
            let (said, whole) = (first.said.clone(), first.resident_peak);
            ensure!(!said.is_empty(), "it says nothing");
            ensure!(native.said == said, "it says something else each time");
            natives.push(native);
            for (at, share) in self.shares.clone().into_iter().enumerate() {
                let room = Room { whole, local: local_of(whole, share) };
                for peer in in_turn(&self.peers, repetition) {
                    eprintln!("farmem: {repetition}/{repetitions} {name} {share}% {peer}");
                    if let Some(ran) = self.run(name, command, (share, peer), room)? {
                        ensure!(
                            ran.said == said,
                            "under {peer}, {share}% of its memory local, it says something else: {} instead of {}",
                            words(&ran.said),
                            words(&said)
                        );
                        samples.entry((at, peer)).or_default().push(ran);
                    }
                }
            }
        }
        let rows = self.shares.iter().enumerate().map(|(at, &share)| {
            let of_share = samples.iter().filter(|((of, _), _)| *of == at);
            Row::median(name, share, &natives, of_share.map(|((_, peer), ran)| (*peer, ran.as_slice())))
        });
        Ok(rows.collect())
    }

    /// `None` if the kernel could not run it, which is noted.
    fn run(
        &mut self,
        name: ProgramName,
        command: &[OsString],
        (share, peer): (u32, Peer),
        room: Room,
    ) -> Result<Option<Ran>> {
        match self.harness.run(command, peer, room) {
            Ok(ran) => Ok(Some(ran)),
            Err(Failure::Fatal(error)) => Err(error.context(format!("{share}% of its memory local"))),
            Err(Failure::Unavailable(reason)) => {
                eprintln!("farmem: {peer} left out: {reason}");
                self.peers.retain(|other| *other != peer);
                self.left_out.push(LeftOut { what: peer.to_string(), reason });
                Ok(None)
            }
            Err(Failure::Run(reason)) => {
                eprintln!("farmem: {name} {share}% {peer} failed: {reason}");
                self.failures.push(FailedRun { program: name, share_percent: share, peer, reason });
                Ok(None)
            }
        }
    }
}

fn local_of(whole: ByteCount, share: u32) -> ByteCount {
    ByteCount::new(whole.get() / 100 * u64::from(share)).max(LEAST_LOCAL)
}

/// In each repetition another peer is first.
fn in_turn(peers: &[Peer], repetition: u32) -> Vec<Peer> {
    let mut peers = peers.to_vec();
    let first = repetition as usize % peers.len().max(1);
    peers.rotate_left(first);
    peers
}

/// The last line of an output.
fn words(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    text.trim_end().lines().next_back().unwrap_or("nothing").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_take_turns_at_being_first() {
        let firsts = [1, 2, 3, 4].map(|repetition| in_turn(&Peer::USUAL, repetition)[0]);
        assert_eq!(firsts, [Peer::Zram, Peer::ZramNoReadahead, Peer::Zswap, Peer::Farmem]);
        assert_eq!(in_turn(&[], 1), []);
    }

    #[test]
    fn shares_that_were_named_are_chosen_once() {
        assert_eq!((shares(&[25, 80, 25]), shares(&[])), (vec![25, 80], vec![50, 25]));
    }

    #[test]
    fn a_share_is_of_the_programs_own_peak_and_holds_its_start() {
        assert_eq!(local_of(ByteCount::new(400 << 20), 25), ByteCount::new(100 << 20));
        assert_eq!(local_of(ByteCount::new(1 << 20), 25), LEAST_LOCAL);
    }
}
