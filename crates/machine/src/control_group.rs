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

/// Numbers from here on are the kernel's way of saying "no limit" in version 1 (the largest multiple of a page).
const UNLIMITED_BYTES: u64 = i64::MAX as u64 & !0xffff;

impl MemoryController {
    /// Finds the controller; `None` when the kernel has none or it isn't mounted.
    pub fn find() -> Option<Self> {
        let this = Process::myself().ok()?;
        let groups = this.cgroups().ok()?.0;
        let mounts = this.mountinfo().ok()?.0;
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
        let file = match self.version {
            Version::One => "memory.limit_in_bytes",
            Version::Two => "memory.max",
        };
        self.group
            .ancestors()
            .filter_map(|group| read_limit(&self.mount.join(group).join(file)))
            .min()
            .map(ByteCount::new)
    }
}

fn read_limit(path: &Path) -> Option<u64> {
    let limit = fs::read_to_string(path).ok()?.trim().parse().ok()?;
    (limit < UNLIMITED_BYTES).then_some(limit)
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
    fn a_limit_that_means_none_is_none() {
        let mount = tempfile::tempdir().unwrap();
        fs::write(mount.path().join("memory.limit_in_bytes"), "9223372036854771712\n").unwrap();
        let controller =
            MemoryController { version: Version::One, mount: mount.path().into(), group: PathBuf::new() };

        assert_eq!(controller.limit(), None);
    }
}
