//! A control group that limits the memory of one run, so that the kernel swaps, and its part of a processor's
//! time.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Context;
use farmem_machine::control_group::{MemoryController, Version};
use farmem_page::ByteCount;
use procfs::process::{MountInfo, Process};

use crate::undo::{Guard, Journal, Step};

/// How long the kernel may take to swap out what a new limit makes too much.
const RECLAIM: Duration = Duration::from_secs(60);
const PROCESSES: &str = "cgroup.procs";
/// Of version 1: whether the kernel ends processes at the limit, and whether some wait there.
const OUT_OF_MEMORY: &str = "memory.oom_control";
/// How much a limit is lifted at a time.
const LIFT_BYTES: u64 = 256 << 10;
/// Enters the groups before `--`, and becomes what comes after it.
const ENTER: &str = r#"until [ "$1" = -- ]; do echo $$ > "$1" || exit; shift; done; shift; exec "$@""#;
/// A part of a processor's time is a part of each such span: short compared with anything that is measured.
const PERIOD_US: u64 = 10_000;
/// More than any program here has.
pub(crate) const UNLIMITED: ByteCount = ByteCount::new(1 << 40);

/// A control group. Removed when dropped.
#[derive(Debug)]
pub(crate) struct Group {
    version: Version,
    path: PathBuf,
    local: ByteCount,
    /// How far the limit is lifted for an instant.
    lifted_bytes: Cell<u64>,
    /// The group in the hierarchy for processors, where that is another one.
    processor: Option<(PathBuf, Guard)>,
    _guard: Guard,
}

/// What a group's memory is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LocalBytes {
    /// The limit in force.
    pub(crate) limit: ByteCount,
    /// What counts towards it and is no local memory of the program's data: page tables, kernel stacks,
    /// files, and compressed pages where the kernel counts them.
    pub(crate) overhead: ByteCount,
}

impl Group {
    /// Makes a group of that name, one of several that a benchmark may have, that keeps `local` bytes local.
    /// Needs root.
    pub(crate) fn create(journal: &Rc<Journal>, name: &str, local: ByteCount) -> anyhow::Result<Self> {
        let controller = MemoryController::find().context("there is no memory control group controller")?;
        let name = format!("farmem-bench-{}-{name}", std::process::id());
        let path = controller.mount.join(name);
        if controller.version == Version::Two {
            hand_down(&controller.mount, "+memory")?;
        }
        let guard = journal.will(Step::RemoveGroup { group: path.clone() })?;
        fs::create_dir(&path).context("cannot create a control group")?;
        let group = Self {
            version: controller.version,
            path,
            local,
            lifted_bytes: Cell::new(0),
            processor: None,
            _guard: guard,
        };
        group.set_limit(local)?;
        Ok(group)
    }

    /// From now on the group's processes have this part of one processor's time, and no more when nobody else
    /// wants it.
    pub(crate) fn hold_processor(&mut self, journal: &Rc<Journal>, share: f64) -> anyhow::Result<()> {
        let quota_us = (share * PERIOD_US as f64) as u64;
        let limited = match self.version {
            Version::Two => {
                hand_down(self.path.parent().context("a control group has a parent")?, "+cpu")?;
                fs::write(self.path.join("cpu.max"), format!("{quota_us} {PERIOD_US}"))
            }
            Version::One => {
                let mount = processor_hierarchy()?;
                let path = mount.join(self.path.file_name().context("a control group has a name")?);
                let guard = journal.will(Step::RemoveGroup { group: path.clone() })?;
                let (path, _) = self.processor.insert((path, guard));
                fs::create_dir(&path)
                    .and_then(|()| fs::write(path.join("cpu.cfs_period_us"), PERIOD_US.to_string()))
                    .and_then(|()| fs::write(path.join("cpu.cfs_quota_us"), quota_us.to_string()))
            }
        };
        limited.context("cannot limit the control group's processor time")
    }

    /// Moves a process in. What it used before, and whom it has started, stays with its former group.
    pub(crate) fn add(&self, process: u32) -> anyhow::Result<()> {
        for path in self.paths() {
            fs::write(path.join(PROCESSES), process.to_string()).context("cannot enter the control group")?;
        }
        Ok(())
    }

    /// A command whose process moves in before it becomes the program; arguments may be added.
    pub(crate) fn command(&self, program: &OsStr) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", ENTER, "sh"]).args(self.paths().map(|path| path.join(PROCESSES)));
        command.arg("--").arg(program);
        command
    }

    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.path].into_iter().chain(self.processor.iter().map(|(path, _)| path))
    }

    /// Sets the limit so that the program's memory, private and shared, gets the local bytes that were asked
    /// for, by adding what else the kernel counts towards it now.
    pub(crate) fn calibrate(&self) -> anyhow::Result<LocalBytes> {
        let bytes = self.fitting()?;
        self.set_limit(bytes.limit)?;
        Ok(bytes)
    }

    /// The limit that gives the program's memory the local bytes that were asked for, as it stands
    /// now.
    fn fitting(&self) -> anyhow::Result<LocalBytes> {
        let (usage_file, anonymous_field) = match self.version {
            Version::One => ("memory.usage_in_bytes", "rss"),
            Version::Two => ("memory.current", "anon"),
        };
        let statistics = fs::read_to_string(self.path.join("memory.stat"))?;
        let field = |name| statistic(&statistics, name).unwrap_or(0);
        let usage: u64 = read_number(&self.path.join(usage_file))?;
        // Pages in the swap cache are the program's data too, read ahead.
        let data = field(anonymous_field) + field("shmem") + field("swapcached");
        let overhead = ByteCount::new(usage.saturating_sub(data));
        let limit = ByteCount::new(self.local.get() + overhead.get());
        Ok(LocalBytes { limit, overhead })
    }

    /// Gives the program's data another amount of local memory.
    pub(crate) fn set_local(&mut self, local: ByteCount) -> anyhow::Result<()> {
        self.local = local;
        self.calibrate().map(drop)
    }

    /// Lets the group's processes have what they want, so that none of them waits for memory when it is to
    /// end.
    pub(crate) fn lift(&self) -> anyhow::Result<()> {
        self.set_limit(UNLIMITED)
    }

    /// From now on the kernel lets the group's processes wait at their limit, where it would end one of them
    /// otherwise; [`Group::tend`] lets them go on. Version 2 has no such switch.
    pub(crate) fn spare_processes(&self) -> anyhow::Result<()> {
        match self.version {
            Version::One => fs::write(self.path.join(OUT_OF_MEMORY), "1")
                .context("cannot keep the kernel from ending processes at their limit"),
            Version::Two => Ok(()),
        }
    }

    /// Lifts the limit for an instant while the group's processes wait at it for want of memory that the
    /// kernel didn't find in time; the longer they wait, the higher: the kernel wakes them when a limit
    /// rises, and not when there is room below it already. Otherwise sets the limit as [`Group::calibrate`]
    /// does, if it is due or was lifted. Doesn't insist where the kernel can't swap out what is too much at
    /// once.
    pub(crate) fn tend(&self, is_due: bool) -> anyhow::Result<()> {
        let is_waiting = match self.version {
            Version::One => {
                statistic(&fs::read_to_string(self.path.join(OUT_OF_MEMORY))?, "under_oom") == Some(1)
            }
            Version::Two => false,
        };
        let before = self.lifted_bytes.get();
        if !is_waiting && !is_due && before == 0 {
            return Ok(());
        }
        let lifted_bytes = if is_waiting { before + LIFT_BYTES } else { 0 };
        let limit = self.fitting()?.limit.get() + lifted_bytes;
        match fs::write(self.path.join(self.limit_file()), limit.to_string()) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => Ok(()),
            result => {
                self.lifted_bytes.set(lifted_bytes);
                result.context("cannot limit the control group's memory")
            }
        }
    }

    fn limit_file(&self) -> &'static str {
        match self.version {
            Version::One => "memory.limit_in_bytes",
            Version::Two => "memory.max",
        }
    }

    fn set_limit(&self, limit: ByteCount) -> anyhow::Result<()> {
        let deadline = Instant::now() + RECLAIM;
        loop {
            match fs::write(self.path.join(self.limit_file()), limit.get().to_string()) {
                // The kernel swaps out what is too much before it answers, and gives up now and then.
                Err(error) if error.kind() == ErrorKind::ResourceBusy && Instant::now() < deadline => {}
                result => return result.context("cannot limit the control group's memory"),
            }
        }
    }
}

fn hand_down(parent: &Path, controller: &str) -> anyhow::Result<()> {
    fs::write(parent.join("cgroup.subtree_control"), controller)
        .with_context(|| format!("cannot hand a controller down to control groups ({controller})"))
}

/// Where version 1 has its hierarchy for processors.
fn processor_hierarchy() -> anyhow::Result<PathBuf> {
    let is_it = |mount: &MountInfo| mount.fs_type == "cgroup" && mount.super_options.contains_key("cpu");
    let mounts = Process::myself()?.mountinfo()?;
    let found = mounts.into_iter().find(is_it).context("there is no processor control group controller")?;
    Ok(found.mount_point)
}

fn read_number(path: &Path) -> anyhow::Result<u64> {
    Ok(fs::read_to_string(path)?.trim().parse()?)
}

fn statistic(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statistic_is_found_by_its_whole_name() {
        let text = "rss_huge 1\nrss 2\ntotal_rss 3\n";

        assert_eq!(statistic(text, "rss"), Some(2));
        assert_eq!(statistic(text, "swapcached"), None);
    }
}
