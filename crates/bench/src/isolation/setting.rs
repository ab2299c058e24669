//! Where applications run: under Farmem, or in control groups of their own over the kernel's swap.

use std::ffi::OsStr;
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
use serde_json::Value;

use crate::interrupt::Interrupt;
use crate::peer::{Group, Kind, PoolUse, Readahead, Swap, UNLIMITED};
use crate::undo::Journal;

/// How long an application may take to end once it was asked to.
const END: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(10);

/// The system that provides memory to the applications.
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
    /// As zram, and the kernel reads nothing ahead.
    ZramNoReadahead,
    /// As zswap, and the kernel reads nothing ahead.
    ZswapNoReadahead,
    /// As the file, and the kernel reads nothing ahead.
    FileNoReadahead,
    /// As the loop device, and the kernel reads nothing ahead.
    LoopNoReadahead,
}

impl Peer {
    /// Those that are measured where none is named: each kind of swap as this machine has it set, and those
    /// without readahead that may well be faster or slower by it. The rest would take as much time again.
    pub(super) const USUAL: [Self; 7] = [
        Self::Farmem,
        Self::Zram,
        Self::Zswap,
        Self::File,
        Self::Loop,
        Self::ZswapNoReadahead,
        Self::FileNoReadahead,
    ];

    fn swap(self) -> Option<(Kind, Readahead)> {
        match self {
            Self::Farmem => None,
            Self::Zram => Some((Kind::ZramLz4, Readahead::AsSet)),
            Self::Zswap => Some((Kind::Zswap, Readahead::AsSet)),
            Self::File => Some((Kind::File, Readahead::AsSet)),
            Self::Loop => Some((Kind::Loop, Readahead::AsSet)),
            Self::ZramNoReadahead => Some((Kind::ZramLz4, Readahead::Off)),
            Self::ZswapNoReadahead => Some((Kind::Zswap, Readahead::Off)),
            Self::FileNoReadahead => Some((Kind::File, Readahead::Off)),
            Self::LoopNoReadahead => Some((Kind::Loop, Readahead::Off)),
        }
    }

    /// How many pages the kernel reads from swap at once at most: one where it reads nothing ahead. `None` of
    /// Farmem, which has a readahead of its own.
    pub(super) fn read_at_once(self) -> anyhow::Result<Option<u64>> {
        Ok(match self.swap() {
            None => None,
            Some((_, Readahead::Off)) => Some(1),
            Some((_, Readahead::AsSet)) => Some(Swap::read_at_once()?),
        })
    }
}

/// Where applications run, for one turn of one peer. All changes of the machine are undone when it goes.
pub(super) struct Setting {
    farmem: PathBuf,
    swap: Option<Swap>,
    /// Without root there is none: then nothing can be changed.
    journal: Option<Rc<Journal>>,
    interrupt: Interrupt,
}

/// What an application may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room<'a> {
    /// The name of its space or control group.
    pub(super) name: &'a str,
    /// Local memory for its data.
    pub(super) local: ByteCount,
    /// The processor that it runs on; `None` for all of them.
    pub(super) processor: Option<usize>,
    /// The part of a processor's time that it has, whoever else wants it or doesn't; `None` for what it can
    /// get.
    pub(super) share: Option<f64>,
    /// Where the broker of Farmem's applications listens; `None` without one.
    pub(super) broker: Option<&'a Path>,
    /// Further options of `farmem run`, where that runs it.
    pub(super) options: &'a [String],
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
        interrupt: &Interrupt,
    ) -> anyhow::Result<Self> {
        let (farmem, interrupt) = (farmem.to_owned(), interrupt.clone());
        let journal = rustix::process::geteuid().is_root().then(Journal::open).transpose()?;
        let Some((kind, readahead)) = peer.swap() else {
            return Ok(Self { farmem, swap: None, journal, interrupt });
        };
        let journal = journal.context("kernel swap needs root")?;
        let size = ByteCount::new(data.get() + data.get() / 4);
        let swap = Swap::on(kind, readahead, size, swap_folder, &journal)?;
        Ok(Self { farmem, swap: Some(swap), journal: Some(journal), interrupt })
    }

    /// An error once the benchmark was asked to stop.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        self.interrupt.check()
    }

    /// What tells that the benchmark was asked to stop.
    pub(super) fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// Pages that the applications of these names, the only ones that run, have swapped out so far; of those
    /// over the kernel's swap, all on this machine.
    pub(super) fn swapped_out(&self, names: &[&str]) -> anyhow::Result<u64> {
        if self.swap.is_some() {
            let all = procfs::vmstat()?;
            let of = |name: &str| all.get(name).copied().unwrap_or(0);
            // What goes into compressed memory in front of a file doesn't count as gone to the file.
            return Ok((of("pswpout") + of("zswpout")) as u64);
        }
        names.iter().map(|name| self.figure(name, "evicted")).sum()
    }

    /// Pages that came back to them so far: those that a thread waited for, and those that came before it
    /// asked.
    pub(super) fn swapped_in(&self, names: &[&str]) -> anyhow::Result<u64> {
        if self.swap.is_some() {
            let all = procfs::vmstat()?;
            let of = |name: &str| all.get(name).copied().unwrap_or(0);
            return Ok((of("pswpin") + of("zswpin")) as u64);
        }
        let came = ["fetches", "prefetched", "swapped_in"];
        names.iter().flat_map(|name| came.map(|figure| self.figure(name, figure))).sum()
    }

    /// A figure of the application of that name.
    fn figure(&self, application: &str, name: &str) -> anyhow::Result<u64> {
        self.figures(application)?[name].as_u64().context("farmem stat tells less than it should")
    }

    /// All figures of the application of that name, which Farmem runs.
    pub(super) fn figures(&self, application: &str) -> anyhow::Result<Value> {
        let output =
            Command::new(&self.farmem).args(["stat", application, "--json"]).stdin(Stdio::null()).output()?;
        let mut applications: Value = serde_json::from_slice(&output.stdout)?;
        applications.get_mut(0).map(Value::take).context("farmem stat doesn't know it")
    }

    /// What the application of that name, the only one that runs, has in compressed memory.
    pub(super) fn pool_use(&self, name: &str) -> anyhow::Result<Option<PoolUse>> {
        if let Some(swap) = &self.swap {
            return swap.pool_use();
        }
        Ok(Some(PoolUse {
            stored_bytes: self.figure(name, "pool_stored_pages")? * farmem_page::PAGE_BYTES as u64,
            used_bytes: self.figure(name, "pool_bytes")?,
        }))
    }

    /// Starts an application. Its standard input and output are pipes.
    pub(super) fn start(&self, room: Room<'_>, command: &[String]) -> anyhow::Result<Application> {
        let mut group = None;
        if self.swap.is_some() || room.share.is_some() {
            let journal = self.journal.as_ref().context("control groups need root")?;
            let group = group.insert(Group::create(journal, room.name, UNLIMITED)?);
            if let Some(share) = room.share {
                group.hold_processor(journal, share)?;
            }
        }
        let is_swapped = self.swap.is_some();
        let (farmem, name, options) = (self.farmem.clone(), room.name.to_owned(), room.options.to_vec());
        let broker = room.broker.map_or_else(|| "none".into(), Path::to_owned);
        let way = Way { farmem, name, broker, options, is_swapped };
        let child = way.start(room.local, room.processor, group.as_ref(), command)?;
        Ok(Application { child, group, way, local: room.local, processor: room.processor })
    }
}

/// How an application is started, and spoken of.
struct Way {
    farmem: PathBuf,
    name: String,
    /// Where it listens, or `none`.
    broker: PathBuf,
    options: Vec<String>,
    /// By the kernel, that is, and not by Farmem.
    is_swapped: bool,
}

impl Way {
    /// Whether there is an application of that name. Its supervisor may outlive it for a moment.
    fn is_known(&self) -> anyhow::Result<bool> {
        let mut stat = Command::new(&self.farmem);
        let status = stat.args(["stat", &self.name, "--json"]).stdin(Stdio::null()).output()?.status;
        Ok(status.success())
    }

    fn start(
        &self,
        local: ByteCount,
        processor: Option<usize>,
        group: Option<&Group>,
        command: &[String],
    ) -> anyhow::Result<Child> {
        let local = local.get().to_string();
        let mut run = vec![self.farmem.as_os_str()];
        run.extend(["run", "--host"].map(OsStr::new));
        run.push(self.broker.as_os_str());
        run.extend(["--name", &self.name, "--local", &local].map(OsStr::new));
        run.extend(self.options.iter().map(OsStr::new));
        run.push(OsStr::new("--"));
        let before = if self.is_swapped { &[][..] } else { &run[..] };
        let words: Vec<&OsStr> = before.iter().copied().chain(command.iter().map(OsStr::new)).collect();
        let (program, arguments) = words.split_first().context("a program to start")?;
        // All that the program starts is in the group, too.
        let mut start = group.map_or_else(|| Command::new(program), |group| group.command(program));
        start.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        on_processor(processor, || start.spawn())?
            .with_context(|| format!("cannot start {}", program.display()))
    }
}

/// An application that runs. Ended when dropped.
pub(super) struct Application {
    // Gone after the process: a group with processes can't be removed.
    pub(super) child: Child,
    group: Option<Group>,
    way: Way,
    local: ByteCount,
    processor: Option<usize>,
}

impl Application {
    /// From now on the application's data has the local bytes that were asked for, whatever else the kernel
    /// counts at this moment. Under Farmem it had no more from the start; the kernel often ends a server with
    /// several threads while it fills so little.
    pub(super) fn limit(&mut self) -> anyhow::Result<()> {
        match &mut self.group {
            Some(group) if self.way.is_swapped => group.set_local(self.local),
            _ => Ok(()),
        }
    }

    /// From now on the kernel doesn't end its processes at their limit, where it can do without; they wait
    /// there until [`Application::tend`] is called.
    pub(super) fn spare(&self) -> anyhow::Result<()> {
        match &self.group {
            Some(group) if self.way.is_swapped => group.spare_processes(),
            _ => Ok(()),
        }
    }

    /// Lets processes that wait at the kernel's limit go on, and sets the limit again if that is due.
    pub(super) fn tend(&self, is_due: bool) -> anyhow::Result<()> {
        match &self.group {
            Some(group) if self.way.is_swapped => group.tend(is_due),
            _ => Ok(()),
        }
    }

    /// Starts a program in the place of the one that has ended.
    pub(super) fn restart(&mut self, command: &[String]) -> anyhow::Result<()> {
        self.end()?;
        self.child = self.way.start(self.local, self.processor, self.group.as_ref(), command)?;
        Ok(())
    }

    /// Gives the application's data another amount of local memory while it runs.
    pub(super) fn set_local(&mut self, local: ByteCount) -> anyhow::Result<()> {
        self.local = local;
        if self.way.is_swapped {
            return self.limit();
        }
        let output = Command::new(&self.way.farmem)
            .args(["set", &self.way.name, &format!("local={}", local.get())])
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

    /// Asks it to end, and waits until it has, and until nobody knows it by its name any more.
    pub(super) fn end(&mut self) -> anyhow::Result<ExitStatus> {
        let status = self.end_process()?;
        let deadline = Instant::now() + END;
        while !self.way.is_swapped && self.way.is_known()? && Instant::now() < deadline {
            thread::sleep(POLL);
        }
        Ok(status)
    }

    fn end_process(&mut self) -> anyhow::Result<ExitStatus> {
        let process = Pid::from_child(&self.child);
        let deadline = Instant::now() + END;
        if self.child.try_wait()?.is_none() {
            if let Some(group) = self.group.as_ref().filter(|_| self.way.is_swapped) {
                group.lift()?;
            }
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
        // What can't be ended now is ended with its control group, or by whoever started the benchmark.
        let _ = self.end();
    }
}

/// Runs `work` on one processor, or with `None` on any; processes that it starts stay there.
pub(super) fn on_processor<T: Send>(
    processor: impl Into<Option<usize>>,
    work: impl FnOnce() -> T + Send,
) -> anyhow::Result<T> {
    let processor = processor.into();
    thread::scope(|scope| {
        let worker = scope.spawn(move || {
            if let Some(processor) = processor {
                let mut only = CpuSet::new();
                only.set(processor);
                sched_setaffinity(None, &only)?;
            }
            anyhow::Ok(work())
        });
        match worker.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
