//! Where the memory controller is, in either version of control groups.

use std::fs;
use std::path::{Path, PathBuf};

use farmem_page::ByteCount;
use procfs::process::Process;

/// Version of the control group interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// One hierarchy for each controller.
    One,
    /// One hierarchy for all.
    Two,
}

/// The memory controller of this machine, and this process's place in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryController {
    /// Which interface.
    pub version: Version,
    /// Where the hierarchy is mounted.
    pub mount: PathBuf,
    /// This process's group, relative to `mount`. In a container the folder may not be visible.
    pub group: PathBuf,
}

/// Numbers from here on are the kernel's way of saying "no limit" in version 1 (the largest multiple of a
/// page).
const UNLIMITED_BYTES: u64 = i64::MAX as u64 & !0xffff;

impl MemoryController {
    /// Finds the controller; `None` when the kernel has none or it isn't mounted.
    pub fn find() -> Option<Self> {
        Self::of(&Process::myself().ok()?)
    }

    /// The same, with the place of the process of that number. `None` also when that has ended.
    pub fn find_of(process: u32) -> Option<Self> {
        Self::of(&Process::new(process as i32).ok()?)
    }

    fn of(process: &Process) -> Option<Self> {
        let groups = process.cgroups().ok()?.0;
        let mounts = Process::myself().ok()?.mountinfo().ok()?.0;
        let group_of = |wanted: &dyn Fn(&[String]) -> bool| {
            let found = groups.iter().find(|group| wanted(&group.controllers))?;
            Some(PathBuf::from(found.pathname.trim_start_matches('/')))
        };
        let first = mounts.iter().find(|mount| {
            mount.fs_type == "cgroup" && mount.super_options.keys().any(|option| option == "memory")
        });
        if let Some(mount) = first {
            let group = group_of(&|controllers| controllers.iter().any(|name| name == "memory"))?;
            return Some(Self { version: Version::One, mount: mount.mount_point.clone(), group });
        }
        let second = mounts.iter().find(|mount| mount.fs_type == "cgroup2")?;
        let controllers = fs::read_to_string(second.mount_point.join("cgroup.controllers")).ok()?;
        if !controllers.split_whitespace().any(|name| name == "memory") {
            return None;
        }
        let group = group_of(&|controllers| controllers.iter().all(String::is_empty))?;
        Some(Self { version: Version::Two, mount: second.mount_point.clone(), group })
    }

    /// The smallest limit on this process's group and on all groups above it; `None` when nothing limits it.
    pub fn limit(&self) -> Option<ByteCount> {
        self.groups().filter_map(|group| self.limit_of(&group)).min().map(ByteCount::new)
    }

    /// What this process's group may still take before it meets its own limit or one of a group above it;
    /// `None` when nothing limits it. File cache that the kernel would give up first counts as free.
    pub fn room(&self) -> Option<ByteCount> {
        self.groups().filter_map(|group| self.room_of(&group)).min().map(ByteCount::new)
    }

    /// This process's group and those above it.
    fn groups(&self) -> impl Iterator<Item = PathBuf> {
        self.group.ancestors().map(|group| self.mount.join(group))
    }

    fn limit_of(&self, group: &Path) -> Option<u64> {
        let file = match self.version {
            Version::One => "memory.limit_in_bytes",
            Version::Two => "memory.max",
        };
        read_number(&group.join(file)).filter(|&limit| limit < UNLIMITED_BYTES)
    }

    fn room_of(&self, group: &Path) -> Option<u64> {
        let limit = self.limit_of(group)?;
        let (usage, cache) = match self.version {
            Version::One => ("memory.usage_in_bytes", "total_inactive_file "),
            Version::Two => ("memory.current", "inactive_file "),
        };
        let used = read_number(&group.join(usage)).unwrap_or(0);
        let figures = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let cached =
            figures.lines().find_map(|line| line.strip_prefix(cache)?.trim().parse().ok()).unwrap_or(0);
        Some(limit.saturating_sub(used.saturating_sub(cached)))
    }
}

/// The number that a file of the kernel holds; `None` for a word such as `max`, or without the file.
fn read_number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_on_the_way_up_counts() {
        let mount = tempfile::tempdir().unwrap();
        let inner = mount.path().join("outer/inner");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("memory.max"), "max\n").unwrap();
        fs::write(mount.path().join("outer/memory.max"), "1048576\n").unwrap();
        let controller = MemoryController {
            version: Version::Two,
            mount: mount.path().into(),
            group: PathBuf::from("outer/inner"),
        };

        assert_eq!(controller.limit(), Some(ByteCount::new(1 << 20)));
    }

    #[test]
    fn the_least_room_on_the_way_up_counts_and_cold_cache_is_room() {
        for (version, limit, usage, cache) in [
            (Version::One, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
            (Version::Two, "memory.max", "memory.current", "inactive_file"),
        ] {
            let mount = tempfile::tempdir().unwrap();
            let outer = mount.path().join("outer");
            let inner = outer.join("inner");
            fs::create_dir_all(&inner).unwrap();
            for (group, limited, used) in [(&inner, 1000, 100), (&outer, 900, 700)] {
                fs::write(group.join(limit), format!("{limited}\n")).unwrap();
                fs::write(group.join(usage), format!("{used}\n")).unwrap();
            }
            fs::write(outer.join("memory.stat"), format!("anon 5\n{cache} 200\nactive_file 7\n")).unwrap();
            let group = PathBuf::from("outer/inner");
            let controller = MemoryController { version, mount: mount.path().into(), group };

            assert_eq!(controller.room(), Some(ByteCount::new(900 - (700 - 200))));
        }
    }

    #[test]
    fn a_limit_that_means_none_is_none() {
        let mount = tempfile::tempdir().unwrap();
        fs::write(mount.path().join("memory.limit_in_bytes"), "9223372036854771712\n").unwrap();
        let controller =
            MemoryController { version: Version::One, mount: mount.path().into(), group: PathBuf::new() };

        assert_eq!(controller.limit(), None);
        assert_eq!(controller.room(), None);
    }
}
