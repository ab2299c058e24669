//! One run of a program under one policy.

use anyhow::Context;
use farmem_page::ByteCount;
use farmem_policy::PrefetchPolicy;

use super::far::Site;
use super::subject::{Ran, Subject};
use crate::run::Runner;
use crate::stolen;

/// Runs it; again while the machine's host takes much of the processors' time, and keeps the run that lost
/// least.
pub(super) fn measure(
    runner: &Runner,
    site: &Site,
    subject: &Subject,
    policy: PrefetchPolicy,
    local: ByteCount,
) -> anyhow::Result<Ran> {
    let measure_once = || {
        let mut options = site.options();
        let own = ["--local", &local.get().to_string(), "--prefetch", policy.name()];
        options.extend(own.map(str::to_owned));
        subject.run(runner, options).with_context(|| format!("{} under {}", subject.name(), policy.name()))
    };
    let mut best = measure_once()?;
    for _ in 1..stolen::ATTEMPTS {
        if best.finished.stolen_share <= stolen::TOLERATED {
            break;
        }
        let again = measure_once()?;
        if again.finished.stolen_share < best.finished.stolen_share {
            best = again;
        }
    }
    Ok(best)
}
