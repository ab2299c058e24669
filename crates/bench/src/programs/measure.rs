//! One run of a program: with all the memory that it wants, or under a peer.

use std::cell::Cell;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use farmem_page::ByteCount;
use procfs::process::Process;

use super::name::Peer;
use crate::peer::{Group, Swap};
use crate::run::Runner;
use crate::stolen::{self, Times};
use crate::undo::Journal;

/// The longest that a run may take.
const PATIENCE: Duration = Duration::from_secs(900);
/// Swap beyond the data, for what else a process has.
const SWAP_SPARE: u64 = 64 << 20;
/// Begins the line by which a program says how many seconds the part took that is measured, where that isn't
/// all of its run.
const MEASURED: &str = "measured seconds: ";
/// Looks at a program between two corrections of its control group's limit.
const CALIBRATE_EVERY: u32 = 20;

/// Why there is no sample.
#[derive(Debug)]
pub(super) enum Failure {
    /// The benchmark is to end: it was asked to, or Farmem did what it should not.
    Fatal(anyhow::Error),
    /// The machine doesn't offer this peer.
    Unavailable(String),
    /// The kernel has ended this run, or it took too long.
    Run(String),
}

/// What one run showed.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Ran {
    /// Its whole run, or what it says by [`MEASURED`].
    pub(super) seconds: f64,
    /// The largest amount of resident anonymous memory.
    pub(super) resident_peak: ByteCount,
    /// What it wrote to standard output, without the line of [`MEASURED`].
    pub(super) said: Vec<u8>,
    /// The part of the processors' time that the machine's host took.
    pub(super) stolen_share: f64,
}

/// How much memory a run may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// What the program has without a limit.
    pub(super) whole: ByteCount,
    /// What of it is local.
    pub(super) local: ByteCount,
}

/// Runs programs, one at a time.
pub(super) struct Harness {
    runner: Runner,
    swap_folder: PathBuf,
    /// Opened when the machine is first to be changed.
    journal: Option<Rc<Journal>>,
}

impl Harness {
    pub(super) fn new(runner: Runner, swap_folder: PathBuf) -> Self {
        Self { runner, swap_folder, journal: None }
    }

    /// Runs a program with all the memory that it wants.
    ///
    /// # Errors
    /// When it fails.
    pub(super) fn run_native(&self, command: &[OsString]) -> Result<Ran> {
        let best = least_stolen(|| self.watch(plain(command)?, || Ok(())));
        best.context("with all of its memory")
    }

    /// Runs a program under a peer; again while the machine's host takes much of the processors' time, and
    /// keeps the run that lost least. All changes of the machine are undone when it returns.
    pub(super) fn run(&mut self, command: &[OsString], peer: Peer, room: Room) -> Result<Ran, Failure> {
        if peer == Peer::Farmem {
            return least_stolen(|| self.run_managed(command, room)).map_err(Failure::Fatal);
        }
        let mut run = || self.run_swapped(command, peer, room);
        match least_stolen(&mut run) {
            // The kernel now and then ends a program whose memory it could have swapped.
            Err(Failure::Run(reason)) => {
                eprintln!("farmem: once more: {reason}");
                run()
            }
            result => result,
        }
    }

    fn run_managed(&self, command: &[OsString], room: Room) -> Result<Ran> {
        self.runner.check()?;
        let options = ["--local", &room.local.get().to_string()];
        let (before, began) = (Times::now(), Instant::now());
        let look = || patient(began);
        let finished = self.runner.run_looking(options, command, Command::spawn, look);
        let (finished, seconds) = (finished.context("under Farmem")?, began.elapsed().as_secs_f64());
        let (said, measured) = without_measured(&finished.output);
        Ok(Ran {
            seconds: measured.unwrap_or(seconds),
            resident_peak: ByteCount::new(finished.number("resident_peak_bytes") as u64),
            said,
            stolen_share: Times::now().stolen_share_since(before),
        })
    }

    fn run_swapped(&mut self, command: &[OsString], peer: Peer, room: Room) -> Result<Ran, Failure> {
        self.runner.check().map_err(Failure::Fatal)?;
        let unavailable = |error: anyhow::Error| Failure::Unavailable(format!("{error:#}"));
        let (kind, readahead) =
            peer.swap().ok_or_else(|| Failure::Unavailable("it has no swap".to_owned()))?;
        let journal = self.journal().map_err(unavailable)?;
        let size = ByteCount::new(room.whole.get() + room.whole.get() / 4 + SWAP_SPARE);
        let _swap = Swap::on(kind, readahead, size, &self.swap_folder, &journal).map_err(unavailable)?;
        // Gone before swap is turned off: nothing of its processes is left then.
        let group = Group::create(&journal, "program", room.local).map_err(unavailable)?;
        group.spare_processes().map_err(unavailable)?;
        let result = self.run_in(&group, command);
        self.runner.check().map_err(Failure::Fatal)?;
        result.map_err(|error| Failure::Run(format!("{error:#}")))
    }

    fn run_in(&self, group: &Group, command: &[OsString]) -> Result<Ran> {
        let (program, arguments) = command.split_first().context("a program to start")?;
        let mut start = group.command(program);
        start.args(arguments);
        let mut looks = 0_u32;
        self.watch(start, || {
            looks = looks.wrapping_add(1);
            group.tend(looks.is_multiple_of(CALIBRATE_EVERY))
        })
    }

    /// Runs a command to its end, and looks at its memory all the while.
    fn watch(&self, mut command: Command, mut tend: impl FnMut() -> Result<()>) -> Result<Ran> {
        self.runner.check()?;
        let (process, mut resident_peak) = (Cell::new(None), 0);
        let (before, began) = (Times::now(), Instant::now());
        let start = |command: &mut Command| {
            let child = command.spawn()?;
            process.set(i32::try_from(child.id()).ok());
            Ok(child)
        };
        let look = || {
            resident_peak = resident_peak.max(process.get().and_then(resident_anonymous).unwrap_or(0));
            tend()?;
            patient(began)
        };
        let said = self.runner.run_command(&mut command, start, look)?;
        let seconds = began.elapsed().as_secs_f64();
        let (said, measured) = without_measured(&said);
        Ok(Ran {
            seconds: measured.unwrap_or(seconds),
            resident_peak: ByteCount::new(resident_peak),
            said,
            stolen_share: Times::now().stolen_share_since(before),
        })
    }

    fn journal(&mut self) -> Result<Rc<Journal>> {
        if let Some(journal) = &self.journal {
            return Ok(Rc::clone(journal));
        }
        ensure!(rustix::process::geteuid().is_root(), "kernel swap needs root");
        let journal = Journal::open()?;
        self.journal = Some(Rc::clone(&journal));
        Ok(journal)
    }
}

fn plain(command: &[OsString]) -> Result<Command> {
    let (program, arguments) = command.split_first().context("a program to start")?;
    let mut start = Command::new(program);
    start.args(arguments);
    Ok(start)
}

/// What a program has written without the line that says how long the part took that is measured, and that
/// time in seconds.
fn without_measured(said: &[u8]) -> (Vec<u8>, Option<f64>) {
    let mut measured = None;
    let rest = said.split_inclusive(|&byte| byte == b'\n').filter(|line| {
        let seconds = line.strip_prefix(MEASURED.as_bytes()).map(String::from_utf8_lossy);
        let seconds = seconds.and_then(|seconds| seconds.trim().parse().ok());
        measured = seconds.or(measured);
        seconds.is_none()
    });
    (rest.flatten().copied().collect(), measured)
}

fn patient(began: Instant) -> Result<()> {
    ensure!(began.elapsed() < PATIENCE, "not done after {} s", PATIENCE.as_secs());
    Ok(())
}

/// The run of several that lost least of the processors' time to the machine's host.
fn least_stolen<E>(mut run: impl FnMut() -> Result<Ran, E>) -> Result<Ran, E> {
    let mut best = run()?;
    for _ in 1..stolen::ATTEMPTS {
        if best.stolen_share <= stolen::TOLERATED {
            break;
        }
        let again = run()?;
        // What it said is looked at all the same, whichever is kept.
        if again.stolen_share < best.stolen_share || again.said != best.said {
            best = again;
        }
    }
    Ok(best)
}

/// Resident anonymous memory of a process, in bytes.
fn resident_anonymous(process: i32) -> Option<u64> {
    let status = Process::new(process).and_then(|process| process.status()).ok()?;
    status.rssanon.map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_may_say_which_part_is_measured() {
        let (said, measured) = without_measured(b"16/16\nmeasured seconds: 4.250\nt|t\n");
        assert_eq!((said.as_slice(), measured), (b"16/16\nt|t\n".as_slice(), Some(4.25)));
        let (said, measured) = without_measured(b"measured seconds: soon");
        assert_eq!((said.as_slice(), measured), (b"measured seconds: soon".as_slice(), None));
        assert_eq!(without_measured(b""), (Vec::new(), None));
    }
}
