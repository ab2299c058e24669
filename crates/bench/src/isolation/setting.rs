//! Where applications run: under Farmem, or in control groups of their own over the kernel's swap.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use farmem_page::ByteCount;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::Serialize;

use crate::peer::{Group, Kind, PoolUse, Swap};
use crate::undo::Journal;

/// How long an application may take to end once it was asked to.
const END: Duration = Duration::from_secs(20);
/// More than any application here has.
const UNLIMITED: ByteCount = ByteCount::new(1 << 40);
const POLL: Duration = Duration::from_millis(10);

/// Who provides memory to the applications.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Peer {
    /// `farmem run` for each.
    Farmem,
    /// Kernel swap on zram with lz4.
    Zram,
    /// Kernel swap on a file, behind zswap.
    Zswap,
    /// Kernel swap on a file.
    File,
    /// Kernel swap on a loop device over tmpfs.
    Loop,
}

impl Peer {
    fn swap(self) -> Option<Kind> {
        match self {
            Self::Farmem => None,
            Self::Zram => Some(Kind::ZramLz4),
            Self::Zswap => Some(Kind::Zswap),
            Self::File => Some(Kind::File),
            Self::Loop => Some(Kind::Loop),
        }
    }
}

/// Where applications run, for one turn of one peer. All changes of the machine are undone when it goes.
pub(super) struct Setting {
    farmem: PathBuf,
    kernel: Option<(Rc<Journal>, Swap)>,
}

impl Setting {
    /// Prepares the machine for `peer`; applications have up to `data` bytes together.
    ///
    /// # Errors
    /// When this machine or user can't offer the peer.
    pub(super) fn prepare(
        peer: Peer,
        farmem: &Path,
        data: ByteCount,
        swap_folder: &Path,
    ) -> anyhow::Result<Self> {
        let farmem = farmem.to_owned();
        let Some(kind) = peer.swap() else { return Ok(Self { farmem, kernel: None }) };
        if !rustix::process::geteuid().is_root() {
            bail!("kernel swap needs root");
        }
        let journal = Journal::open()?;
        let size = ByteCount::new(data.get() + data.get() / 4);
        let mut swap = Swap::on(kind, size, swap_folder, &journal)?;
        swap.stop_readahead(&journal)?;
        Ok(Self { farmem, kernel: Some((journal, swap)) })
    }

    /// What the application of that name, the only one that runs, has in compressed memory.
    pub(super) fn pool_use(&self, name: &str) -> anyhow::Result<Option<PoolUse>> {
        if let Some((_, swap)) = &self.kernel {
            return swap.pool_use();
        }
        let output =
            Command::new(&self.farmem).args(["stat", name, "--json"]).stdin(Stdio::null()).output()?;
        let applications: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let figure =
            |name: &str| applications[0][name].as_u64().context("farmem stat tells less than it should");
        Ok(Some(PoolUse {
            stored_bytes: figure("pool_stored_pages")? * farmem_page::PAGE_BYTES as u64,
            used_bytes: figure("pool_bytes")?,
        }))
    }

    /// Starts an application on one processor, with `local` bytes of local memory for its data. Its standard input and output are
    /// pipes. `name` is the space's or the control group's.
    pub(super) fn start(
        &self,
        name: &str,
        local: ByteCount,
        processor: usize,
        command: &[String],
    ) -> anyhow::Result<Application> {
        let (group, mut start) = match &self.kernel {
            None => {
                let mut start = Command::new(&self.farmem);
                start.args(["run", "--name", name, "--local", &local.get().to_string(), "--"]).args(command);
                (None, start)
            }
            Some((journal, _)) => {
                let mut start = Command::new(&command[0]);
                start.args(&command[1..]);
                (Some(Group::create(journal, name, UNLIMITED)?), start)
            }
        };
        start.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = on_processor(processor, || start.spawn())?
            .with_context(|| format!("cannot start {}", command[0]))?;
        let application =
            Application { local, farmem: self.farmem.clone(), name: name.to_owned(), group, child };
        if let Some(group) = &application.group {
            group.add(application.child.id())?;
        }
        Ok(application)
    }
}

/// An application that runs. Ended when dropped.
pub(super) struct Application {
    // Gone after the process: a group with processes can't be removed.
    pub(super) child: Child,
    group: Option<Group>,
    local: ByteCount,
    farmem: PathBuf,
    name: String,
}

impl Application {
    /// From now on the application's data has the local bytes that were asked for, whatever else the kernel counts. Under
    /// Farmem it had no more from the start; the kernel often ends a server with several threads while it fills so little.
    pub(super) fn limit(&mut self) -> anyhow::Result<()> {
        match &mut self.group {
            Some(group) => group.set_local(self.local),
            None => Ok(()),
        }
    }

    /// Gives the application's data another amount of local memory while it runs.
    pub(super) fn set_local(&mut self, local: ByteCount) -> anyhow::Result<()> {
        if let Some(group) = &mut self.group {
            return group.set_local(local);
        }
        let output = Command::new(&self.farmem)
            .args(["set", &self.name, &format!("local={}", local.get())])
            .stdin(Stdio::null())
            .output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(())
    }

    /// An error when it has ended.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("it ended early: {status}"),
        }
    }

    /// Asks it to end, and waits until it has.
    pub(super) fn end(&mut self) -> anyhow::Result<ExitStatus> {
        let process = Pid::from_child(&self.child);
        let deadline = Instant::now() + END;
        if self.child.try_wait()?.is_none() {
            kill_process(process, Signal::TERM)?;
        }
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                self.child.kill()?;
                return Ok(self.child.wait()?);
            }
            thread::sleep(POLL);
        }
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        // What can't be ended now is ended with its control group, or by who started the benchmark.
        let _ = self.end();
    }
}

/// Runs `work` on one processor; processes that it starts stay there.
pub(super) fn on_processor<T: Send>(processor: usize, work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
    thread::scope(|scope| {
        let worker = scope.spawn(move || {
            let mut only = CpuSet::new();
            only.set(processor);
            sched_setaffinity(None, &only)?;
            anyhow::Ok(work())
        });
        match worker.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
