//! A program that has more than its budget when it is attached to.

use std::process::Command;

use anyhow::{Result, ensure};
use farmem_page::ByteCount;

use super::Bench;
use super::conversation::Conversation;
use super::workshop::Program;
use crate::record::Measurement;

/// What the program has above its budget, and its budget, in mebibytes.
const OVER: u64 = 300;
const OVER_QUICK: u64 = 48;
const LOCAL: u64 = 100;
const LOCAL_QUICK: u64 = 16;

pub(super) const TIME: &str = "time until it is within its budget";

pub(super) fn measure(bench: &Bench<'_>) -> Result<Vec<Measurement>> {
    let (over, local) = (bench.amount(OVER, OVER_QUICK), bench.amount(LOCAL, LOCAL_QUICK));
    let mut command = Command::new(bench.workshop.make(Program::Sleepers)?);
    command.args(["1".to_owned(), (over + local).to_string()]);
    let mut program = Conversation::begin(&mut command, bench.farmem.interrupt())?;
    program.hear()?;
    let attached = bench.farmem.attach(program.process(), ByteCount::new(local << 20))?;
    let [resident, budget] =
        ["resident_bytes", "budget_bytes"].map(|key| attached.standing[key].as_u64().unwrap_or(u64::MAX));
    ensure!(resident <= budget.saturating_add(1 << 20), "it stays above its budget: {}", attached.standing);
    bench.farmem.detach(&attached)?;
    let case = format!("{over} MiB over its budget");
    Ok(vec![Measurement::less(case, "attach", TIME, attached.took.as_secs_f64(), "s")])
}
