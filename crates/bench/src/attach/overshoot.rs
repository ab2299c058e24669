//! A program that takes more than its budget faster than anybody looks.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use farmem_page::{ByteCount, mebibytes};
use rustix::event::Timespec;

use super::Bench;
use super::conversation::Conversation;
use super::managed::resident;
use super::workshop::Program;
use crate::record::Measurement;

/// What is taken, and the budget, in mebibytes.
const TAKEN: u64 = 1024;
const TAKEN_QUICK: u64 = 128;
const BUDGET_PART: u64 = 4;
/// Between two looks at the program.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// So much above the budget is within it: faults bring in pages before others leave.
const TOLERATED_BYTES: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) const BACK: &str = "time until it is within its budget";
pub(super) const PEAK: &str = "peak above the budget";

pub(super) fn measure(bench: &Bench<'_>) -> Result<Vec<Measurement>> {
    let taken = bench.amount(TAKEN, TAKEN_QUICK);
    let budget = ByteCount::new((taken / BUDGET_PART) << 20);
    let case = format!("{taken} MiB at once, {} MiB of them local", taken / BUDGET_PART);
    let program = bench.workshop.make(Program::Fill)?;
    let native = fill(bench, Command::new(&program), taken, None)?;
    let managed = bench.farmem.run(&bench.farmem.name(), budget, &program);
    let managed = fill(bench, managed, taken, Some(budget))?;
    const FILLING: &str = "time of the filling";
    let over = mebibytes(managed.peak.get().saturating_sub(budget.get()));
    Ok(vec![
        Measurement::less(&case, "native", FILLING, native.filling_seconds, "s"),
        Measurement::less(&case, "farmem", FILLING, managed.filling_seconds, "s"),
        Measurement::less(&case, "farmem", PEAK, over, "MiB"),
        Measurement::less(&case, "farmem", BACK, managed.back.as_secs_f64(), "s"),
    ])
}

struct Filled {
    filling_seconds: f64,
    peak: ByteCount,
    /// From the end of the filling until it had no more than its budget.
    back: Duration,
}

fn fill(bench: &Bench<'_>, mut command: Command, taken: u64, budget: Option<ByteCount>) -> Result<Filled> {
    let mut program = Conversation::begin(command.arg(taken.to_string()), bench.farmem.interrupt())?;
    let began = Instant::now();
    let mut peak = ByteCount::ZERO;
    let mut filled = None;
    program.say("")?;
    loop {
        let now = resident(program.process()).context("it has ended early")?;
        peak = peak.max(now);
        if filled.is_none()
            && let Some(line) = program.hear_within(LOOK)?
        {
            filled = Some((line.parse().context("the program says no number")?, Instant::now()));
        }
        let is_within = budget.is_none_or(|budget| now.get() <= budget.get() + TOLERATED_BYTES);
        if let Some((filling_seconds, end)) = filled {
            if is_within {
                return Ok(Filled { filling_seconds, peak, back: end.elapsed() });
            }
            std::thread::sleep(Duration::from_nanos(LOOK.tv_nsec as u64));
        }
        bench.farmem.interrupt().check()?;
        ensure!(began.elapsed() < PATIENCE, "not within its budget after {} s", PATIENCE.as_secs());
    }
}
