//! What a prefetcher that knew the future would reach: a trace without prefetching, replayed.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use anyhow::Context;
use farmem_page::ByteCount;
use farmem_policy::PrefetchPolicy;
use serde_json::Value;

use super::subject::Subject;
use crate::run::Runner;

/// The contribution of the oracle, with so much local memory; `None` where nothing had to be fetched.
pub(super) fn contribution(
    runner: &Runner,
    subject: &Subject,
    local: ByteCount,
) -> anyhow::Result<Option<f64>> {
    let folder = tempfile::tempdir()?;
    let trace = folder.path().join("trace");
    let options = ["--local", &local.get().to_string(), "--prefetch", PrefetchPolicy::None.name(), "--trace"]
        .map(OsString::from);
    let options = options.into_iter().chain([trace.clone().into_os_string()]);
    subject.run(runner, options).with_context(|| format!("{} traced", subject.name()))?;
    let mut replay = Command::new(runner.farmem());
    replay.args(["trace", "replay", "--json"]).arg(&trace).stdin(Stdio::null());
    let rows = runner.run_command(&mut replay, Command::spawn, || Ok(())).context("replaying a trace")?;
    let rows: Vec<Value> = serde_json::from_slice(&rows).context("a replay wrote no JSON")?;
    let oracle = rows.iter().find(|row| row["policy"] == "oracle");
    Ok(oracle.and_then(|row| row["contribution"].as_f64()).filter(|&contribution| contribution > 0.0))
}
