//! Nothing that a benchmark changes on the machine stays changed, however it ends.
//!
//! Each change is written down, as the step that undoes it, before it is made. There are three who undo:
//! - the [`Guard`] of the change, when it goes out of scope;
//! - a watcher, a process of its own, when the benchmark ended without having undone everything: killed,
//!   aborted;
//! - `farmem bench cleanup`, when the watcher was killed as well.
//!
//! Steps may be undone twice: each looks first whether there is something to undo.

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use procfs::process::Process;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::own;
use crate::peer::tool;

/// Where steps are written down. Gone after a restart of the machine, as are the changes.
const FOLDER: &str = "/run/farmem-bench";
/// How long to wait for the kernel to let go of something.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// How to undo one change of the machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Step {
    /// Swap off this device or file.
    SwapOff { device: PathBuf },
    /// Reset and remove this zram device.
    RemoveZram { index: u32 },
    /// Write this to a file of the kernel.
    Restore { file: PathBuf, value: String },
    /// Detach this loop device from this file.
    DetachLoop { device: PathBuf, file: PathBuf },
    /// Unmount this folder.
    Unmount { folder: PathBuf },
    /// Remove this file.
    RemoveFile { file: PathBuf },
    /// Remove this folder, which is empty.
    RemoveFolder { folder: PathBuf },
    /// End the processes of this control group and remove it.
    RemoveGroup { group: PathBuf },
}

impl Step {
    fn undo(&self) -> anyhow::Result<()> {
        match self {
            Self::SwapOff { device } if is_swap(device)? => tool("swapoff", [device.as_os_str()]).map(drop),
            Self::SwapOff { .. } => Ok(()),
            Self::RemoveZram { index } => {
                let device = PathBuf::from(format!("/sys/block/zram{index}"));
                if !device.exists() {
                    return Ok(());
                }
                retry(|| fs::write(device.join("reset"), "1"))?;
                retry(|| fs::write("/sys/class/zram-control/hot_remove", index.to_string()))
            }
            Self::Restore { file, value } => Ok(fs::write(file, value)?),
            Self::DetachLoop { device, file } => {
                let name = device.file_name().unwrap_or_default();
                let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
                match fs::read_to_string(backing) {
                    Ok(backing) if Path::new(backing.trim_end()) == file => {
                        tool("losetup", ["-d".as_ref(), device.as_os_str()]).map(drop)
                    }
                    _ => Ok(()),
                }
            }
            Self::Unmount { folder } if is_mounted(folder)? => {
                retry(|| unmount(folder, UnmountFlags::empty()).map_err(io::Error::from))
            }
            Self::Unmount { .. } => Ok(()),
            Self::RemoveFile { file } => gone(fs::remove_file(file)),
            Self::RemoveFolder { folder } => gone(fs::remove_dir(folder)),
            Self::RemoveGroup { group } => remove_group(group),
        }
    }
}

fn is_swap(device: &Path) -> anyhow::Result<bool> {
    Ok(is_listed(&fs::read("/proc/swaps")?, device))
}

/// Whether a device or file is among those at the beginnings of lines. What would end such a word the kernel
/// writes as a number.
fn is_listed(swaps: &[u8], device: &Path) -> bool {
    let mut escaped = Vec::new();
    for &byte in device.as_os_str().as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => escaped.extend(format!("\\{byte:03o}").bytes()),
            _ => escaped.push(byte),
        }
    }
    let first = |line: &[u8]| line.split(|byte| b" \t".contains(byte)).next() == Some(&escaped[..]);
    swaps.split(|&byte| byte == b'\n').any(first)
}

fn is_mounted(folder: &Path) -> anyhow::Result<bool> {
    Ok(Process::myself()?.mountinfo()?.into_iter().any(|mount| mount.mount_point == folder))
}

/// What is gone already needs no removing.
fn gone(result: io::Result<()>) -> anyhow::Result<()> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Tries again for a while: the kernel lets go of devices and mounts a moment after their last user.
fn retry(mut attempt: impl FnMut() -> io::Result<()>) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                thread::sleep(PAUSE);
            }
            result => return Ok(result?),
        }
    }
}

/// The group was made by the benchmark, so every process in it is the benchmark's.
fn remove_group(group: &Path) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while group.exists() {
        let processes = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        for process in processes.lines().filter_map(|line| line.parse().ok()).filter_map(Pid::from_raw) {
            // One that has ended meanwhile is what is wanted.
            let _ = kill_process(process, Signal::KILL);
        }
        match fs::remove_dir(group) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if Instant::now() > deadline => return Err(error.into()),
            _ => thread::sleep(PAUSE),
        }
    }
    Ok(())
}

/// The steps of one process that are still to be undone, in a file as long as there are any.
///
/// Invariants:
/// 1. Line `n` of the file is step `n`; a step is in the file before its change is made, and leaves the file
///    after it has been undone.
/// 2. Whoever holds the lock of the file may undo its steps. The benchmark holds it as long as it lives.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    open: RefCell<Open>,
    watcher: RefCell<Option<Child>>,
}

#[derive(Debug)]
struct Open {
    file: File,
    /// Each step, and how long the file was without it.
    steps: Vec<(Step, u64)>,
}

impl Journal {
    /// Opens a journal for this process, and starts its watcher.
    ///
    /// # Errors
    /// When the journal can't be written, which takes root.
    pub(crate) fn open() -> anyhow::Result<Rc<Self>> {
        fs::create_dir_all(FOLDER).with_context(|| format!("cannot create {FOLDER}"))?;
        let path = path_of(std::process::id());
        let file = OpenOptions::new().create(true).append(true).read(true).open(&path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        file.set_len(0)?;
        let watcher = Command::new(own::program()?)
            .args(["cleanup", "--after", &std::process::id().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // A group of its own: an interrupt from the keyboard goes to the benchmark, not to the process
            // that tidies up after it.
            .process_group(0)
            .spawn()
            .context("cannot start the watcher")?;
        Ok(Rc::new(Self {
            path,
            open: RefCell::new(Open { file, steps: Vec::new() }),
            watcher: RefCell::new(Some(watcher)),
        }))
    }

    /// Writes a step down. Call it before making the change; the guard undoes it.
    ///
    /// # Errors
    /// When it can't be written; the change must not be made then.
    pub(crate) fn will(self: &Rc<Self>, step: Step) -> anyhow::Result<Guard> {
        let mut open = self.open.borrow_mut();
        let before = open.file.metadata()?.len();
        let mut line = serde_json::to_string(&step)?;
        line.push('\n');
        open.file.write_all(line.as_bytes())?;
        open.steps.push((step, before));
        Ok(Guard { journal: Rc::clone(self), mark: open.steps.len() - 1 })
    }

    /// Undoes all steps from `mark` on, the last one first. What can't be undone stays in the file for others
    /// to try.
    fn undo_from(&self, mark: usize) {
        let mut open = self.open.borrow_mut();
        let mut all_undone = true;
        while open.steps.len() > mark {
            let Some((step, before)) = open.steps.pop() else { break };
            match step.undo() {
                Ok(()) if all_undone => all_undone = open.file.set_len(before).is_ok(),
                Ok(()) => {}
                Err(error) => {
                    all_undone = false;
                    eprintln!("farmem: could not undo {step:?}: {error:#}; try `farmem bench cleanup`");
                }
            }
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.undo_from(0);
        if self.open.borrow().file.metadata().is_ok_and(|metadata| metadata.len() == 0) {
            let _ = fs::remove_file(&self.path);
        }
        // Unlocks, so that the watcher may undo what is left.
        let _ = flock(&self.open.borrow().file, FlockOperation::Unlock);
        if let Some(mut watcher) = self.watcher.take() {
            drop(watcher.stdin.take());
            let _ = watcher.wait();
        }
    }
}

/// One change of the machine. Dropping it undoes the change, and the later ones of the same journal first.
#[derive(Debug)]
#[must_use = "dropping it undoes the change"]
pub(crate) struct Guard {
    journal: Rc<Journal>,
    mark: usize,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.journal.undo_from(self.mark);
    }
}

fn path_of(process: u32) -> PathBuf {
    Path::new(FOLDER).join(process.to_string())
}

/// Undoes what ended benchmarks left behind; returns how many steps there were. Running benchmarks are left
/// alone.
///
/// # Errors
/// When something could not be undone; the rest is.
pub fn cleanup() -> anyhow::Result<usize> {
    let mut steps = 0;
    let mut failures = Vec::new();
    let journals = match fs::read_dir(FOLDER) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        journals => journals.with_context(|| format!("cannot look into {FOLDER}"))?,
    };
    for journal in journals {
        let path = journal?.path();
        if path.is_file() {
            match undo_journal(&path, Duration::ZERO) {
                Ok(count) => steps += count,
                Err(error) => failures.push(format!("{error:#}")),
            }
        }
    }
    if failures.is_empty() { Ok(steps) } else { Err(anyhow!(failures.join("; "))) }
}

/// Waits until standard input ends, as it does when process `process` ends, and undoes what it left behind.
///
/// # Errors
/// When something could not be undone; the rest is.
pub fn cleanup_after(process: u32) -> anyhow::Result<usize> {
    io::stdin().read_to_end(&mut Vec::new())?;
    undo_journal(&path_of(process), PATIENCE)
}

fn undo_journal(path: &Path, patience: Duration) -> anyhow::Result<usize> {
    let mut file = match OpenOptions::new().read(true).write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        file => file.with_context(|| format!("cannot open {}", path.display()))?,
    };
    let deadline = Instant::now() + patience;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => thread::sleep(PAUSE),
            // Its benchmark still runs.
            Err(Errno::WOULDBLOCK) => return Ok(0),
            Err(error) => bail!("cannot lock {}: {error}", path.display()),
        }
    }
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    let steps: Vec<Step> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let mut failures = Vec::new();
    for step in steps.iter().rev() {
        if let Err(error) = step.undo() {
            failures.push(format!("could not undo {step:?}: {error:#}"));
        }
    }
    if !failures.is_empty() {
        bail!(failures.join("; "));
    }
    gone(fs::remove_file(path))?;
    Ok(steps.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_is_found_in_the_kernels_list_whatever_its_path() {
        let swaps = b"Filename\t\t\t\tType\t\tSize\n/dev/zram0                              partition\t8\n/a\\040b/farmem.swap file\t\t8\n";
        for (device, is_there) in
            [("/dev/zram0", true), ("/a b/farmem.swap", true), ("/dev/zram", false), ("/a", false)]
        {
            assert_eq!(is_listed(swaps, Path::new(device)), is_there, "{device}");
        }
    }
}
