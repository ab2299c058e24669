//! A program under `farmem run` that fills its memory, waits, and then looks whether it is still as it was.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use farmem_page::ByteCount;
use rustix::process::{Pid, Signal, kill_process};

use crate::own;
use crate::workload::Event;

/// Local memory: data divided by it.
const PART: u64 = 4;
/// How many times more data than pool, and the least pool.
const BEYOND: u64 = 16;
const LEAST_POOL: u64 = 4 << 20;

/// A program that runs. Ended when dropped.
pub(super) struct Program {
    farmem: PathBuf,
    name: String,
    output: PathBuf,
    errors: PathBuf,
    process: Child,
}

impl Program {
    /// More than one has granted of a node ahead of need.
    pub(super) const RESERVE_BYTES: u64 = 16 << 20;

    /// Starts one with so much data. `folder` is for what it says.
    pub(super) fn start(
        farmem: &Path,
        folder: &Path,
        number: usize,
        data: ByteCount,
        nodes: &[&str],
    ) -> Result<Self> {
        let name = format!("bench-spread-{number}");
        let [output, errors] = ["output", "errors"].map(|what| folder.join(format!("{name}-{what}")));
        let (local, pool) = (data.get() / PART, (data.get() / BEYOND).max(LEAST_POOL));
        let mut command = Command::new(farmem);
        command.args(["run", "--host", "none", "--plain", "--name", &name, "--local", &local.to_string()]);
        command.args(["--pool", &pool.to_string(), "--node", &nodes.join(","), "--"]).arg(own::program()?);
        command.args([
            "workload",
            "--paced",
            "--data",
            &data.get().to_string(),
            "--compressibility",
            "random",
        ]);
        command.args(["--pattern", "sequential", "--warm-up", "0", "--rounds", "1", "--accesses", "1"]);
        command.stdin(Stdio::piped()).stdout(File::create(&output)?).stderr(File::create(&errors)?);
        let process = command.spawn().context("cannot start a program")?;
        let mut program = Self { farmem: farmem.to_owned(), name, output, errors, process };
        // It waits before it fills its memory.
        program.send(1)?;
        Ok(program)
    }

    /// Whether all of its data was written.
    pub(super) fn is_filled(&mut self) -> Result<bool> {
        let output = fs::read(&self.output)?;
        let mut events =
            output.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
        let is_filled = events.any(|event: Event| event == Event::Filled);
        if !is_filled && self.process.try_wait()?.is_some() {
            bail!("a program ended before its time: {}", self.last_word());
        }
        Ok(is_filled)
    }

    /// What it has on nodes.
    pub(super) fn kept_bytes(&self) -> Result<u64> {
        let output =
            Command::new(&self.farmem).args(["stat", &self.name, "--json"]).stdin(Stdio::null()).output()?;
        let applications: serde_json::Value =
            serde_json::from_slice(&output.stdout).context("a program has ended")?;
        applications[0]["node_stored_bytes"].as_u64().context("farmem stat doesn't tell node_stored_bytes")
    }

    /// Lets it go on to its end.
    pub(super) fn go_on(&mut self) -> Result<()> {
        // and when it is filled, and before what is measured.
        self.send(2)
    }

    /// Whether it has ended, having found what it wrote.
    pub(super) fn has_ended_well(&mut self) -> Result<bool> {
        match self.process.try_wait()? {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(status) => bail!("a program ended with {status}: {}", self.last_word()),
        }
    }

    fn send(&mut self, lines: usize) -> Result<()> {
        let input = self.process.stdin.as_mut().context("a program has no input")?;
        input.write_all(&vec![b'\n'; lines]).context("a program has ended before its time")
    }

    fn last_word(&self) -> String {
        let words = fs::read_to_string(&self.errors).unwrap_or_default();
        let last = words.lines().next_back().unwrap_or("no word why");
        last.trim_start_matches("farmem: ").to_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            // `farmem run` passes it on. If it has ended meanwhile, waiting says so.
            let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
            let _ = self.process.wait();
        }
    }
}
