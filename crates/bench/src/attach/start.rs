//! What a program that does nothing pays for being managed.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use farmem_page::ByteCount;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::conversation::{Conversation, LOOK, PATIENCE};
use super::workshop::Program;
use super::{Bench, Found};
use crate::interrupt::Interrupt;
use crate::median::median;
use crate::record::Measurement;
use crate::run::end;

/// A budget that nobody comes near to, and one that is always so near that the supervisor looks at each
/// program that begins.
const PLENTY: ByteCount = ByteCount::new(4 << 30);
const LITTLE: ByteCount = ByteCount::new(16 << 20);
/// Runs of a child, and how many natively and how many under Farmem come in turn.
const CHILDREN: usize = 500;
const CHILDREN_QUICK: usize = 100;
const IN_TURN: usize = 25;
/// Whole runs.
const WHOLE: usize = 100;
const WHOLE_QUICK: usize = 10;

pub(super) const CHILD: &str = "child";
pub(super) const WHOLE_RUN: &str = "whole run";
pub(super) const EXTRA_TIME: &str = "extra time of a program";
pub(super) const TIME: &str = "time of a program";
pub(super) const THREADS: &str = "extra threads";
pub(super) const DESCRIPTORS: &str = "extra descriptors";
pub(super) const LINES: &str = "lines on standard error";

pub(super) fn measure(bench: &Bench<'_>) -> Result<Found> {
    let mut found = Found::default();
    let dynamic = bench.workshop.make(Program::Nothing)?;
    let mut programs = vec![("", dynamic)];
    match bench.workshop.make(Program::NothingStatic) {
        Ok(program) => programs.push((", static", program)),
        Err(error) => found.left_out.push(("a static program".to_owned(), format!("{error:#}"))),
    }
    for (kind, program) in programs {
        for (room, local) in [("", PLENTY), (", little memory left", LITTLE)] {
            children(bench, &program, &format!("{CHILD}{kind}{room}"), local, &mut found)?;
        }
        whole(bench, &program, &format!("{WHOLE_RUN}{kind}"), &mut found)?;
    }
    Ok(found)
}

/// Children of a program that starts one after the other: natively, and under Farmem, in turn.
fn children(
    bench: &Bench<'_>,
    program: &Path,
    case: &str,
    local: ByteCount,
    found: &mut Found,
) -> Result<()> {
    let starts = bench.workshop.make(Program::Starts)?;
    let errors = bench.workshop.folder.join("errors");
    let interrupt = bench.farmem.interrupt();
    let mut native = Conversation::begin(Command::new(&starts).arg(program), interrupt)?;
    let mut command = bench.farmem.run(&bench.farmem.name(), local, &starts);
    let mut managed = Conversation::begin(command.arg(program).stderr(File::create(&errors)?), interrupt)?;
    let counts = [&mut native, &mut managed].map(|starts| starts.ask("count"));
    let [before, after] = counts.map(|line| numbers(&line?));
    let (before, after) = (before?, after?);
    ensure!(before.len() == 2 && after.len() == 2, "the program doesn't say what it has");
    // What is loaded and opened for the first time.
    native.ask("10")?;
    managed.ask("10")?;
    let (mut natively, mut under): (Vec<f64>, Vec<f64>) = Default::default();
    for turn in 0..bench.amount(CHILDREN, CHILDREN_QUICK) / IN_TURN {
        let line = IN_TURN.to_string();
        // Neither is always the first.
        if turn % 2 == 0 {
            natively.extend(numbers(&native.ask(&line)?)?);
            under.extend(numbers(&managed.ask(&line)?)?);
        } else {
            under.extend(numbers(&managed.ask(&line)?)?);
            natively.extend(numbers(&native.ask(&line)?)?);
        }
    }
    drop(managed);
    let lines = std::fs::read_to_string(&errors).context("standard error")?.lines().count();
    let count = |measure, value| Measurement::less(case, "farmem", measure, value, "");
    found.measurements.extend(times(case, natively, under));
    found.measurements.extend([
        count(THREADS, after[0] - before[0]),
        count(DESCRIPTORS, after[1] - before[1]),
        count(LINES, lines as f64),
    ]);
    Ok(())
}

/// The program, and `farmem run` with it, as whoever calls it waits for it.
fn whole(bench: &Bench<'_>, program: &Path, case: &str, found: &mut Found) -> Result<()> {
    let mut all: BTreeMap<bool, Vec<f64>> = BTreeMap::new();
    let mut lines = 0;
    for turn in 0..2 * bench.amount(WHOLE, WHOLE_QUICK) {
        let is_managed = turn % 2 == 1;
        let mut command = if is_managed {
            bench.farmem.run(&bench.farmem.name(), PLENTY, program)
        } else {
            Command::new(program)
        };
        command.stdin(Stdio::null()).stdout(Stdio::null());
        // To a file: a pipe would stay open as long as the supervisor.
        let errors = bench.workshop.folder.join("errors");
        command.stderr(File::create(&errors)?);
        let (took, status) = run_to_end(&mut command, bench.farmem.interrupt())?;
        all.entry(is_managed).or_default().push(took.as_nanos() as f64);
        ensure!(status.success(), "it ended with {status}");
        lines += std::fs::read_to_string(&errors).context("standard error")?.lines().count();
    }
    let [natively, under] = [false, true].map(|managed| all.remove(&managed).unwrap_or_default());
    found.measurements.extend(times(case, natively, under));
    found.measurements.push(Measurement::less(case, "farmem", LINES, lines as f64, ""));
    Ok(())
}

/// Runs a command; how long it took, and how it ended.
fn run_to_end(command: &mut Command, interrupt: &Interrupt) -> Result<(Duration, ExitStatus)> {
    let began = Instant::now();
    let mut child = command.spawn().context("it cannot be started")?;
    if let Err(error) = wait_for_end(&child, interrupt) {
        end(&mut child);
        return Err(error);
    }
    let status = child.wait()?;
    Ok((began.elapsed(), status))
}

/// Waits for a program's end without looking again and again, which would show in the time.
fn wait_for_end(child: &Child, interrupt: &Interrupt) -> Result<()> {
    let handle = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let began = Instant::now();
    while poll(&mut [PollFd::from_borrowed_fd(handle.as_fd(), PollFlags::IN)], Some(&LOOK))? == 0 {
        interrupt.check()?;
        ensure!(began.elapsed() < PATIENCE, "it has not ended after {} s", PATIENCE.as_secs());
    }
    Ok(())
}

/// Medians of times in nanoseconds, and what the one is more than the other.
fn times(case: &str, natively: Vec<f64>, under: Vec<f64>) -> [Measurement; 3] {
    let [natively, under] = [natively, under].map(|times| median(times) / 1e6);
    [
        Measurement::less(case, "native", TIME, natively, "ms"),
        Measurement::less(case, "farmem", TIME, under, "ms"),
        Measurement::less(case, "farmem", EXTRA_TIME, under - natively, "ms"),
    ]
}

fn numbers(line: &str) -> Result<Vec<f64>> {
    line.split_whitespace().map(|word| word.parse().context("a program says no number")).collect()
}
