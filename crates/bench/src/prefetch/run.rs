//! One run of a program under one policy.

use anyhow::Context;
use farmem_page::ByteCount;
use farmem_policy::PrefetchPolicy;
use serde_json::Value;

use super::subject::Subject;
use crate::run::Runner;
use crate::stolen;

/// What one run showed.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// The time that counts.
    pub(super) seconds: f64,
    /// The part of the processors' time that the machine's host took.
    pub(super) stolen_share: f64,
    /// See [`Subject::memory`].
    pub(super) memory: ByteCount,
    /// What the program wrote to standard output.
    pub(super) output: Vec<u8>,
    /// What `farmem run --stats` wrote.
    pub(super) statistics: Value,
}

/// Runs it; again while the machine's host takes much of the processors' time, and keeps the run that lost least.
pub(super) fn measure(
    runner: &Runner,
    subject: &Subject,
    policy: PrefetchPolicy,
    local: ByteCount,
) -> anyhow::Result<Sample> {
    let mut best = measure_once(runner, subject, policy, local)?;
    for _ in 1..stolen::ATTEMPTS {
        if best.stolen_share <= stolen::TOLERATED {
            break;
        }
        let again = measure_once(runner, subject, policy, local)?;
        if again.stolen_share < best.stolen_share {
            best = again;
        }
    }
    Ok(best)
}

fn measure_once(
    runner: &Runner,
    subject: &Subject,
    policy: PrefetchPolicy,
    local: ByteCount,
) -> anyhow::Result<Sample> {
    let finished = runner
        .run(
            ["--local", &local.get().to_string(), "--prefetch", policy.name()],
            subject.command(),
            std::process::Command::spawn,
        )
        .with_context(|| format!("{} under {}", subject.name(), policy.name()))?;
    Ok(Sample {
        seconds: subject.seconds(finished.number("wall_seconds"), &finished.output),
        stolen_share: finished.stolen_share,
        memory: subject
            .memory(ByteCount::new(finished.number("resident_peak_bytes") as u64), &finished.output),
        output: finished.output,
        statistics: finished.statistics,
    })
}
