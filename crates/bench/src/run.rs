//! One run of a program under `farmem run`, and what came of it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::interrupt::Interrupt;
use crate::stolen::Times;

/// How often a program is looked at.
const POLL: Duration = Duration::from_millis(5);
/// How long one that is asked to end may take.
const END: Duration = Duration::from_secs(10);

/// What one run showed.
#[derive(Clone, Debug)]
pub(crate) struct Finished {
    /// The part of the processors' time that the machine's host took.
    pub(crate) stolen_share: f64,
    /// What the program wrote to standard output.
    pub(crate) output: Vec<u8>,
    /// What `farmem run --stats` wrote.
    pub(crate) statistics: Value,
}

impl Finished {
    /// A figure of the statistics; zero where there is none.
    pub(crate) fn number(&self, key: &str) -> f64 {
        self.statistics[key].as_f64().unwrap_or(0.0)
    }
}

/// Runs programs, one at a time.
pub(crate) struct Runner {
    farmem: PathBuf,
    interrupt: Interrupt,
    scratch: TempDir,
}

impl Runner {
    pub(crate) fn new(farmem: &Path, interrupt: Interrupt) -> anyhow::Result<Self> {
        Ok(Self { farmem: farmem.to_owned(), interrupt, scratch: tempfile::tempdir()? })
    }

    /// The `farmem` program.
    pub(crate) fn farmem(&self) -> &Path {
        &self.farmem
    }

    /// Whether the benchmark was asked to stop.
    pub(crate) fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// An error once the benchmark was asked to stop.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        self.interrupt.check()
    }

    /// Runs a program to its end, with these options for `farmem run`. `start` starts it.
    ///
    /// # Errors
    /// When it can't be started, fails, or the benchmark is to stop; it has ended then.
    pub(crate) fn run<Word: AsRef<OsStr>>(
        &self,
        options: impl IntoIterator<Item: AsRef<OsStr>>,
        program: &[Word],
        start: impl FnOnce(&mut Command) -> io::Result<Child>,
    ) -> anyhow::Result<Finished> {
        self.run_looking(options, program, start, || Ok(()))
    }

    /// The same. `look` is called now and then while it runs.
    ///
    /// # Errors
    /// As for [`Runner::run`], and when `look` fails.
    pub(crate) fn run_looking<Word: AsRef<OsStr>>(
        &self,
        options: impl IntoIterator<Item: AsRef<OsStr>>,
        program: &[Word],
        start: impl FnOnce(&mut Command) -> io::Result<Child>,
        look: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<Finished> {
        let statistics = self.scratch.path().join("statistics.json");
        let mut command = Command::new(&self.farmem);
        command.args(["run", "--host", "none"]).args(options).arg("--stats").arg(&statistics);
        command.arg("--").args(program);
        let before = Times::now();
        let output = self.run_command(&mut command, start, look)?;
        let stolen_share = Times::now().stolen_share_since(before);
        let statistics =
            serde_json::from_slice(&fs::read(&statistics).context("no statistics were written")?)?;
        Ok(Finished { stolen_share, output, statistics })
    }

    /// Runs a command to its end, and returns what it wrote to standard output. `look` is called now and
    /// then.
    ///
    /// # Errors
    /// As for [`Runner::run`], and when `look` fails.
    pub(crate) fn run_command(
        &self,
        command: &mut Command,
        start: impl FnOnce(&mut Command) -> io::Result<Child>,
        look: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<Vec<u8>> {
        let [output, errors] = ["output", "errors"].map(|name| self.scratch.path().join(name));
        command.stdin(Stdio::null()).stdout(File::create(&output)?).stderr(File::create(&errors)?);
        let child = start(command).context("it cannot be started")?;
        let status = Running(child).wait(&self.interrupt, look)?;
        if !status.success() {
            let words = fs::read_to_string(&errors).unwrap_or_default();
            let last = words.lines().next_back().unwrap_or("no word why").trim_start_matches("farmem: ");
            bail!("it ended with {status}: {last}");
        }
        Ok(fs::read(&output)?)
    }
}

/// A program that runs. Ended when dropped.
struct Running(Child);

impl Running {
    fn wait(
        mut self,
        interrupt: &Interrupt,
        mut look: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<ExitStatus> {
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status);
            }
            interrupt.check()?;
            look()?;
            thread::sleep(POLL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

/// Ends a program that may have ended. It is asked first: `farmem run` passes that on, and would leave its
/// own program behind if it were killed.
pub(crate) fn end(child: &mut Child) {
    if !matches!(child.try_wait(), Ok(None)) {
        return;
    }
    // All of these only fail when it has ended by itself.
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
    let deadline = Instant::now() + END;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
        thread::sleep(POLL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_ended_early_is_asked_first() {
        let folder = TempDir::new().unwrap();
        let script = "trap 'touch asked; exit' TERM; touch ready; while :; do sleep 0.01; done";
        let mut child = Command::new("sh").args(["-c", script]).current_dir(folder.path()).spawn().unwrap();
        while !folder.path().join("ready").exists() {
            thread::sleep(POLL);
        }

        end(&mut child);

        assert!(folder.path().join("asked").exists());
    }
}
