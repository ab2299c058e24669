//! Programs that several benchmarks run: their sources, which the tests run, too, and whether what they need
//! is installed.

use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

/// Trains trees (XGBoost, in Python).
pub(crate) const TREES: &str = include_str!("../../../tests/programs/train_trees.py");
/// What it takes of memory for a row of its data.
pub(crate) const TREES_ROW_BYTES: u64 = 640;
/// Works on arrays (numpy, in Python).
pub(crate) const ARRAYS: &str = include_str!("../../../tests/programs/arrays.py");
/// Builds, walks and changes a graph of objects (in Java).
pub(crate) const GRAPH: &str = include_str!("../../../tests/programs/Graph.java");

/// Runs a command that says nothing.
///
/// # Errors
/// When it can't be started or fails, with its last words.
pub(crate) fn works(command: &mut Command) -> anyhow::Result<()> {
    let name = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {name}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name}: {}", said.trim().lines().last().unwrap_or("failed"));
    Ok(())
}
