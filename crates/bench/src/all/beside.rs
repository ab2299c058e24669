//! Another build of Farmem, measured in turn with this one: each step is run by its own `farmem bench all`,
//! with the same arguments and a folder of its own, which also knows which steps it has done. So it may be of
//! any version that has the command.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use farmem_page::ByteCount;
use rustix::process::{Pid, Signal, kill_process};

use super::folder::{self, REPORT};
use super::plan::{Step, StepName};
use super::{Error, Options};
use crate::interrupt::Interrupt;
use crate::option;
use crate::record::{self, Record};

/// Where its results are, in the folder of this one's.
const FOLDER: &str = "beside";
/// What it says while it makes a step.
const WORDS: &str = "beside.log";
/// How often it is looked at.
const POLL: Duration = Duration::from_millis(20);
/// How long it may take to undo what it has changed on the machine once it was asked to stop. If it is killed
/// then, its watcher does that.
const END: Duration = Duration::from_secs(30);
/// The status of a `farmem` that can't do what was asked for.
const UNUSABLE: i32 = 2;

/// The other build.
pub(super) struct Other<'a> {
    farmem: &'a Path,
    out: PathBuf,
    options: &'a Options,
}

impl<'a> Other<'a> {
    /// `farmem` is its program.
    pub(super) fn new(farmem: &'a Path, options: &'a Options) -> Self {
        Self { farmem, out: options.out.join(FOLDER), options }
    }

    /// Whether it can be started at all.
    ///
    /// # Errors
    /// A sentence, when it can't.
    pub(super) fn check(&self) -> Result<(), String> {
        let output = Command::new(self.farmem).arg("--version").stdin(Stdio::null()).output();
        let cannot = |error: String| format!("cannot start {}: {error}", self.name());
        match output {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(cannot(format!("it ended with {}", output.status))),
            Err(error) => Err(cannot(error.to_string())),
        }
    }

    /// What it is called.
    pub(super) fn name(&self) -> String {
        self.farmem.display().to_string()
    }

    /// Whether it has done a step in an earlier call.
    pub(super) fn is_done(&self, step: &StepName) -> bool {
        folder::done_in(&self.out).contains(step)
    }

    /// Its records so far.
    pub(super) fn records(&self) -> Vec<Record> {
        record::read(&self.out).unwrap_or_default()
    }

    /// Its report, once there is one.
    pub(super) fn report(&self) -> PathBuf {
        self.out.join(REPORT)
    }

    /// Has it make a step. A step that it has done is none.
    ///
    /// # Errors
    /// When it was interrupted; when it can't measure at all, or has no such step; when the step failed.
    pub(super) fn measure(&self, step: &Step, interrupt: &Interrupt) -> Result<(), Error> {
        let words = self.options.out.join(WORDS);
        let mut command = self.command(step);
        // Of a terminal's signals it hears by this process, which passes on one: a second would end it before
        // it has tidied up.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(&words).with_context(|| format!("cannot write {}", words.display()))?);
        let child = command
            .spawn()
            .map_err(|error| Error::Unusable(format!("cannot start {}: {error}", self.name())))?;
        let status = Running(child).wait(interrupt)?;
        let text = fs::read(&words).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        // It is no part of the results, and written again by the next step.
        let _ = fs::remove_file(&words);
        let last = text.lines().next_back().unwrap_or("no word why").trim_start_matches("farmem: ");
        let sentence = || format!("{} ended with {status}: {last}", self.name());
        if status.code() == Some(UNUSABLE) {
            return Err(Error::Unusable(sentence()));
        }
        // It succeeds as well when a step failed, which it has left out by name then.
        if !status.success() || !self.is_done(&step.name()) {
            return Err(Error::Failed(anyhow!(sentence())));
        }
        Ok(())
    }

    /// It takes this repetition, and of those before it what is not done.
    fn command(&self, step: &Step) -> Command {
        let options = self.options;
        let mut command = Command::new(self.farmem);
        command.args(["bench", "all", "--only", &step.work.name(), "--repeat", &step.repetition.to_string()]);
        command.arg("--out").arg(&self.out).arg("--python").arg(&options.python);
        command.arg("--swap-folder").arg(&options.swap_folder);
        if options.quick {
            command.arg("--quick");
        }
        if let Some(data) = options.data.map(ByteCount::get) {
            command.args(["--data", &data.to_string()]);
        }
        for peer in &options.peers {
            command.args(["--peer", &option::name(peer)]);
        }
        command
    }
}

/// It runs. Ended when dropped.
struct Running(Child);

impl Running {
    fn wait(mut self, interrupt: &Interrupt) -> Result<ExitStatus, Error> {
        loop {
            interrupt.check().map_err(|_| Error::Interrupted)?;
            if let Some(status) = self.0.try_wait()? {
                return Ok(status);
            }
            thread::sleep(POLL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            // Fails when it has ended by itself, as do the others.
            let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
            let deadline = Instant::now() + END;
            while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < deadline {
                thread::sleep(POLL);
            }
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}
