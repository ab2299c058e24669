//! Farmem as its users call it: `run`, `attach`, `detach` and `stat`.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use farmem_page::ByteCount;
use serde_json::Value;

use crate::interrupt::Interrupt;
use crate::run::Runner;
use crate::supervisor::processes;

/// The longest that a command, or what is waited for, may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at what is waited for.
const PAUSE: Duration = Duration::from_millis(10);

/// An application that `farmem attach` manages. Detached by [`Farmem::detach`]; it ends with its processes in
/// any case.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) name: String,
    /// How long the command took: until the processes were within their budget.
    pub(super) took: Duration,
    /// What it printed.
    pub(super) standing: Value,
}

/// The command.
pub(super) struct Farmem<'a> {
    runner: &'a Runner,
    names: Cell<u32>,
}

impl<'a> Farmem<'a> {
    pub(super) fn new(runner: &'a Runner) -> Self {
        Self { runner, names: Cell::new(0) }
    }

    pub(super) fn interrupt(&self) -> &'a Interrupt {
        self.runner.interrupt()
    }

    /// A name that no other application has.
    pub(super) fn name(&self) -> String {
        self.names.set(self.names.get() + 1);
        format!("bench-attach-{}-{}", std::process::id(), self.names.get())
    }

    /// `farmem run` as whoever types it calls it, with a name and a budget.
    pub(super) fn run(&self, name: &str, local: ByteCount, program: &Path) -> Command {
        let mut command = Command::new(self.runner.farmem());
        command.args(["run", "--host", "none", "--name", name, "--local", &local.get().to_string(), "--"]);
        command.arg(program);
        command
    }

    /// Attaches to a process and those below it, and returns when they are within their budget, or can't be.
    pub(super) fn attach(&self, process: u32, local: ByteCount) -> Result<Attached> {
        let name = self.name();
        let local = local.get().to_string();
        let process = process.to_string();
        let words = ["attach", "--host", "none", "--json", "--name", &name, "--local", &local, &process];
        let began = Instant::now();
        let output = self.call(words).context("farmem attach")?;
        let took = began.elapsed();
        let standing = serde_json::from_slice(&output).context("farmem attach says no JSON")?;
        Ok(Attached { name, took, standing })
    }

    /// Brings back what is far, and leaves.
    pub(super) fn detach(&self, attached: &Attached) -> Result<()> {
        self.call(["detach", &attached.name]).context("farmem detach").map(drop)
    }

    /// Processes of an application that have a pager. None where the supervisor doesn't answer: on a busy
    /// machine it may take longer than anybody waits for it.
    fn managed(&self, name: &str) -> Result<u64> {
        let Ok(output) = self.call(["stat", name, "--json"]) else { return Ok(0) };
        let applications: Value = serde_json::from_slice(&output).context("farmem stat says no JSON")?;
        Ok(applications[0]["processes_managed"].as_u64().unwrap_or(0))
    }

    /// Waits until so many processes have a pager.
    pub(super) fn wait_for_pagers(&self, name: &str, processes: u64) -> Result<()> {
        self.wait_for("a pager for each process", || Ok((self.managed(name)? >= processes).then_some(())))
    }

    /// Waits until that is there.
    pub(super) fn wait_for<T>(&self, what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        let began = Instant::now();
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            self.runner.check()?;
            ensure!(began.elapsed() < PATIENCE, "{what} has not come within {} s", PATIENCE.as_secs());
            thread::sleep(PAUSE);
        }
    }

    /// Sleeps, unless the benchmark is to end.
    pub(super) fn sleep(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.runner.check()?;
            thread::sleep(PAUSE.min(end.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    fn call<Word: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = Word>) -> Result<Vec<u8>> {
        let mut command = Command::new(self.runner.farmem());
        let began = Instant::now();
        let look = || {
            ensure!(began.elapsed() < PATIENCE, "not done after {} s", PATIENCE.as_secs());
            Ok(())
        };
        self.runner.run_command(command.args(words), Command::spawn, look)
    }
}

/// The pagers that a supervisor has started.
pub(super) fn pagers(supervisor: u32) -> Vec<u32> {
    let is_child = |process: &u32| {
        fs::read_to_string(format!("/proc/{process}/status"))
            .is_ok_and(|status| status.lines().any(|line| line == format!("PPid:\t{supervisor}")))
    };
    processes().filter(is_child).collect()
}

/// The processor time that a process has taken, over all its threads, in nanoseconds.
pub(super) fn processor_time(process: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let times = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    times.sum()
}

/// Anonymous memory of a process that is resident.
pub(super) fn resident(process: u32) -> Option<ByteCount> {
    let text = fs::read_to_string(format!("/proc/{process}/statm")).ok()?;
    let mut pages = text.split(' ').skip(1).map_while(|field| field.parse::<u64>().ok());
    let (resident, of_files) = pages.next().zip(pages.next())?;
    Some(ByteCount::new(resident.saturating_sub(of_files) * farmem_page::PAGE_BYTES as u64))
}

/// The same, of a process's children.
pub(super) fn resident_below(process: u32) -> ByteCount {
    let path = format!("/proc/{process}/task/{process}/children");
    let children = fs::read_to_string(path).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|word| word.parse().ok());
    ByteCount::new(children.filter_map(resident).map(ByteCount::get).sum())
}
