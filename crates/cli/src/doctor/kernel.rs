//! The kernel's version, and the features that came with it.

use std::fs::File;
use std::num::NonZero;
use std::os::fd::AsFd;
use std::thread;

use farmem_page::VirtAddr;
use farmem_sys::maps::Maps;
use farmem_sys::uffd::{Uffd, UffdError};
use procfs::KernelVersion;
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::{Check, read};

/// A feature of userfaultfd: its bit in the kernel's interface, its name, and the version that it came with.
/// The pager can do without none of them.
struct Feature {
    bit: u32,
    name: &'static str,
    since: &'static str,
    meaning: &'static str,
}

const FEATURES: [Feature; 10] = [
    Feature {
        bit: 0,
        name: "uffd PAGEFAULT_FLAG_WP",
        since: "5.7",
        meaning: "copies that a fork makes necessary wait for room",
    },
    Feature {
        bit: 1,
        name: "uffd EVENT_FORK",
        since: "4.11",
        meaning: "children of a program get the pages that were far when it forked",
    },
    Feature {
        bit: 2,
        name: "uffd EVENT_REMAP",
        since: "4.11",
        meaning: "pages follow when a program moves its memory",
    },
    Feature {
        bit: 3,
        name: "uffd EVENT_REMOVE",
        since: "4.11",
        meaning: "pages that a program discards are forgotten",
    },
    Feature {
        bit: 6,
        name: "uffd EVENT_UNMAP",
        since: "4.11",
        meaning: "pages that a program unmaps are forgotten",
    },
    Feature {
        bit: 8,
        name: "uffd THREAD_ID",
        since: "4.14",
        meaning: "a fault is served near the thread that waits for it",
    },
    Feature {
        bit: 11,
        name: "uffd EXACT_ADDRESS",
        since: "5.18",
        meaning: "references that a program follows are found, and followed ahead of it",
    },
    Feature {
        bit: 13,
        name: "uffd WP_UNPOPULATED",
        since: "6.4",
        meaning: "pages that a program discards without an event are forgotten",
    },
    Feature {
        bit: 14,
        name: "uffd POISON",
        since: "6.6",
        meaning: "a page that is lost ends the program that touches it, and no other",
    },
    Feature {
        bit: 16,
        name: "uffd MOVE",
        since: "6.8",
        meaning: "pages leave a program without a copy and without a race",
    },
];

const NEWER_KERNEL: &str = "install a newer kernel, such as by: sudo apt-get install -t stable-backports linux-image-$(dpkg --print-architecture)";

pub(super) fn checks() -> Vec<Check> {
    let version = KernelVersion::current().ok();
    let mut checks = vec![kernel_version(version)];
    checks.extend(userfaultfd());
    checks.extend([map_query(), page_scan(version), closing(), process_handles(), cores()]);
    checks
}

fn kernel_version(version: Option<KernelVersion>) -> Check {
    const NAME: &str = "kernel";
    const MEANING: &str = "Farmem needs Linux 6.11 or newer";
    let release = read("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned());
    match version {
        Some(version) => Check::ok(NAME, format!("Linux {release}"), MEANING)
            .gap_unless(version >= KernelVersion::new(6, 11, 0), NEWER_KERNEL)
            .essential(),
        None => Check::unknown(NAME, format!("Linux {release}"), MEANING),
    }
}

/// Asks the kernel itself, as a distribution's version number doesn't tell all.
fn userfaultfd() -> Vec<Check> {
    const NAME: &str = "userfaultfd";
    const MEANING: &str = "this is how Farmem notices that a page is not local, inside system calls as well";
    let device = File::options().read(true).write(true).open("/dev/userfaultfd").ok();
    let features = match Uffd::kernel_features(device.as_ref().map(AsFd::as_fd)) {
        Ok(features) => features,
        Err(UffdError::Denied) => {
            let (found, fix) = match farmem_machine::may_trace() {
                true => ("refused by a filter", "allow userfaultfd in the container's seccomp profile"),
                false => ("not permitted", "sudo sysctl vm.unprivileged_userfaultfd=1"),
            };
            return vec![Check::ok(NAME, found, MEANING).gap_unless(false, fix).essential()];
        }
        Err(error) => {
            return vec![
                Check::ok(NAME, format!("this kernel has none ({error:?})"), MEANING)
                    .gap_unless(false, NEWER_KERNEL)
                    .essential(),
            ];
        }
    };
    let mut checks = vec![Check::ok(NAME, "permitted", MEANING).essential()];
    checks.extend(FEATURES.iter().map(|feature| {
        let present = features & 1 << feature.bit != 0;
        let found = if present {
            "present".to_owned()
        } else {
            format!("missing; available since Linux {}", feature.since)
        };
        Check::ok(feature.name, found, feature.meaning).gap_unless(present, NEWER_KERNEL).essential()
    }));
    checks
}

fn map_query() -> Check {
    let works = Maps::open().is_ok_and(|maps| maps.next(VirtAddr::new(0)).is_ok());
    let found = if works { "works" } else { "missing; available since Linux 6.11" };
    Check::ok("PROCMAP_QUERY", found, "a program's memory is found without reading a text file")
        .gap_unless(works, NEWER_KERNEL)
        .essential()
}

/// By the version: it can't be tried without memory of its own.
fn page_scan(version: Option<KernelVersion>) -> Check {
    const NAME: &str = "PAGEMAP_SCAN";
    const MEANING: &str = "which pages are local is found in one call";
    let Some(version) = version else {
        return Check::unknown(NAME, "the kernel's version is unknown", MEANING);
    };
    let is_present = version >= KernelVersion::new(6, 7, 0);
    let found = if is_present {
        "present since Linux 6.7, judging by the version"
    } else {
        "missing; available since Linux 6.7"
    };
    Check::ok(NAME, found, MEANING).gap_unless(is_present, NEWER_KERNEL).essential()
}

fn closing() -> Check {
    let works = farmem_sys::descriptors::may_close_many();
    let found = if works { "works" } else { "refused" };
    Check::ok("close_range", found, "a forked child's pager has none of its parent's descriptors")
        .gap_unless(
            works,
            "allow close_range in the container's seccomp profile, or use a kernel from 5.9 on",
        )
        .essential()
}

fn process_handles() -> Check {
    let works = pidfd_open(getpid(), PidfdFlags::empty()).is_ok();
    let found = if works { "works" } else { "refused" };
    Check::ok("pidfd", found, "a pager hears of its program's end")
        .gap_unless(works, "allow pidfd_open in the container's seccomp profile, or use a kernel from 5.3 on")
        .essential()
}

fn cores() -> Check {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    Check::ok(
        "processors",
        format!("{cores} to run on"),
        "with a second one, eviction runs while the program does",
    )
    .gap_unless(cores > 1, "taskset -c 0-$(($(nproc --all) - 1)) farmem run ...")
}

#[cfg(test)]
mod tests {
    use farmem_sys::uffd;

    use super::*;

    #[test]
    fn the_features_that_are_looked_for_are_those_that_the_pager_asks_for() {
        let looked_for = FEATURES.iter().fold(0, |bits, feature| bits | 1 << feature.bit);

        assert_eq!(looked_for, uffd::FEATURES);
    }
}
