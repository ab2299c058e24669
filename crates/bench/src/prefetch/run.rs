//! One run of a program under one policy.

use anyhow::Context;
use farmem_page::ByteCount;
use farmem_policy::PrefetchPolicy;

use super::subject::{Ran, Subject};
use super::tier;
use crate::below::Below;
use crate::run::Runner;
use crate::stolen;

/// Runs it; again while the machine's host takes much of the processors' time, and keeps the run that lost
/// least. A program that ends before its pager has come shows nothing: it is run again as well.
pub(super) fn measure(
    runner: &Runner,
    below: &Below,
    subject: &Subject,
    policy: PrefetchPolicy,
    local: ByteCount,
) -> anyhow::Result<Ran> {
    let measure_once = || {
        let mut options = tier::options(below);
        let own = ["--local", &local.get().to_string(), "--prefetch", policy.name()];
        options.extend(own.map(str::to_owned));
        subject.run(runner, options).with_context(|| format!("{} under {}", subject.name(), policy.name()))
    };
    let has_shown = |ran: &Ran| ran.finished.statistics["evicted"].as_f64() > Some(0.0);
    let mut best = measure_once()?;
    for _ in 1..stolen::ATTEMPTS {
        if has_shown(&best) && best.finished.stolen_share <= stolen::TOLERATED {
            break;
        }
        let again = measure_once()?;
        let is_better = again.finished.stolen_share < best.finished.stolen_share;
        if (has_shown(&again), is_better) >= (has_shown(&best), true) {
            best = again;
        }
    }
    Ok(best)
}
