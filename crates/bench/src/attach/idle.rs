//! What processes cost that do nothing.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use farmem_page::ByteCount;

use super::Bench;
use super::conversation::Conversation;
use super::managed::{pagers, processor_time};
use super::workshop::Program;
use crate::record::Measurement;
use crate::supervisor::supervisor;

const PROCESSES: u64 = 200;
const PROCESSES_QUICK: u64 = 20;
/// Far from short, even while they all take their memory at once.
const PLENTY: ByteCount = ByteCount::new(8 << 30);
/// Of each process.
const MEBIBYTES: u64 = 4;
const TIME: Duration = Duration::from_secs(15);
const TIME_QUICK: Duration = Duration::from_secs(2);
/// After the last of them has begun, or has got its pager.
const REST: Duration = Duration::from_secs(2);

pub(super) const WITHOUT: &str = "processes without a pager";
pub(super) const WITH: &str = "processes with a pager each";
pub(super) const SUPERVISOR: &str = "supervisor";
pub(super) const SHARE: &str = "share of a processor";

pub(super) fn measure(bench: &Bench<'_>) -> Result<Vec<Measurement>> {
    let processes = bench.amount(PROCESSES, PROCESSES_QUICK);
    let all = ByteCount::new((processes * MEBIBYTES) << 20);
    // Where a tenth is left nothing is far, and all have pagers.
    let near = ByteCount::new(all.get() + all.get() / 10);
    let mut found = share(bench, processes, PLENTY, WITHOUT, 0)?;
    found.extend(share(bench, processes, near, WITH, processes)?);
    Ok(found)
}

/// What the supervisor and the pagers take; it is measured when so many processes have a pager.
fn share(
    bench: &Bench<'_>,
    processes: u64,
    local: ByteCount,
    case: &str,
    managed: u64,
) -> Result<Vec<Measurement>> {
    let case = format!("{processes} {case}");
    let farmem = &bench.farmem;
    let name = farmem.name();
    let mut command = farmem.run(&name, local, &bench.workshop.make(Program::Sleepers)?);
    let words = [processes, MEBIBYTES].map(|number| number.to_string());
    let mut sleepers = Conversation::begin(command.args(words), farmem.interrupt())?;
    sleepers.hear()?;
    let supervisor = farmem.wait_for("a supervisor", || Ok(supervisor(&name)))?;
    farmem.wait_for_pagers(&name, managed)?;
    farmem.sleep(REST)?;
    let pagers = pagers(supervisor);
    ensure!(managed > 0 || pagers.is_empty(), "pagers have come although there is memory enough");
    let taken = || {
        let of_pagers: u64 = pagers.iter().map(|&pager| processor_time(pager)).sum();
        [processor_time(supervisor), of_pagers]
    };
    let (before, began) = (taken(), Instant::now());
    farmem.sleep(bench.amount(TIME, TIME_QUICK))?;
    let (after, nanoseconds) = (taken(), began.elapsed().as_nanos() as f64);
    let percent = |at: usize| after[at].saturating_sub(before[at]) as f64 / nanoseconds * 100.0;
    let mut found = vec![Measurement::less(&case, SUPERVISOR, SHARE, percent(0), "%")];
    if managed > 0 {
        found.push(Measurement::less(&case, "pagers", SHARE, percent(1), "%"));
    }
    Ok(found)
}
