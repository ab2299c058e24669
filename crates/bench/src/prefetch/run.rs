//! One run of a program under one policy.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use farmem_page::ByteCount;
use farmem_policy::PrefetchPolicy;
use serde_json::Value;
use tempfile::TempDir;

use super::subject::Subject;
use crate::interrupt::Interrupt;
use crate::stolen::{self, Times};

/// How often a program is looked at.
const POLL: Duration = Duration::from_millis(5);

/// What one run showed.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// The time that counts.
    pub(super) seconds: f64,
    /// The part of the processors' time that the machine's host took.
    pub(super) stolen_share: f64,
    pub(super) resident_peak: ByteCount,
    /// What the program wrote to standard output.
    pub(super) output: Vec<u8>,
    /// What `farmem run --stats` wrote.
    pub(super) statistics: Value,
}

/// Runs programs, one at a time.
pub(super) struct Runner {
    farmem: PathBuf,
    interrupt: Interrupt,
    scratch: TempDir,
}

impl Runner {
    pub(super) fn new(farmem: &Path, interrupt: Interrupt) -> anyhow::Result<Self> {
        Ok(Self { farmem: farmem.to_owned(), interrupt, scratch: tempfile::tempdir()? })
    }

    /// Runs it; again while the machine's host takes much of the processors' time, and keeps the run that lost least.
    pub(super) fn measure(
        &self,
        subject: &Subject,
        policy: PrefetchPolicy,
        local: ByteCount,
    ) -> anyhow::Result<Sample> {
        let mut best = self.measure_once(subject, policy, local)?;
        for _ in 1..stolen::ATTEMPTS {
            if best.stolen_share <= stolen::TOLERATED {
                break;
            }
            let again = self.measure_once(subject, policy, local)?;
            if again.stolen_share < best.stolen_share {
                best = again;
            }
        }
        Ok(best)
    }

    fn measure_once(
        &self,
        subject: &Subject,
        policy: PrefetchPolicy,
        local: ByteCount,
    ) -> anyhow::Result<Sample> {
        let [statistics, output, errors] =
            ["statistics.json", "output", "errors"].map(|name| self.scratch.path().join(name));
        let mut command = Command::new(&self.farmem);
        command.args(["run", "--host", "none", "--local", &local.get().to_string()]);
        command
            .args(["--prefetch", policy.name(), "--stats"])
            .arg(&statistics)
            .arg("--")
            .args(subject.command());
        command.stdin(Stdio::null()).stdout(File::create(&output)?).stderr(File::create(&errors)?);
        let before = Times::now();
        let child = command.spawn().with_context(|| format!("cannot start {}", subject.name()))?;
        let status = Running(child).wait(&self.interrupt)?;
        let stolen_share = Times::now().stolen_share_since(before);
        if !status.success() {
            let words = fs::read_to_string(&errors).unwrap_or_default();
            let last =
                words.lines().next_back().unwrap_or("no word why").trim_start_matches("farmem: ").to_owned();
            bail!("{} ended with {status} under {}: {last}", subject.name(), policy.name());
        }
        let statistics: Value =
            serde_json::from_slice(&fs::read(&statistics).context("no statistics were written")?)?;
        let output = fs::read(&output)?;
        let number = |key: &str| statistics[key].as_f64().unwrap_or(0.0);
        Ok(Sample {
            seconds: subject.seconds(number("wall_seconds"), &output),
            stolen_share,
            resident_peak: ByteCount::new(number("resident_peak_bytes") as u64),
            output,
            statistics,
        })
    }
}

/// A program that runs. Ended when dropped.
struct Running(Child);

impl Running {
    fn wait(mut self, interrupt: &Interrupt) -> anyhow::Result<ExitStatus> {
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status);
            }
            interrupt.check()?;
            thread::sleep(POLL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            // Both only fail when it has ended by itself.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}
