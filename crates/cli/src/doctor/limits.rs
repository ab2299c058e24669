//! Limits of this user's processes.

use rustix::process::{Resource, Rlimit, getrlimit};

use super::Check;
use crate::amount::Readable;
use farmem_page::ByteCount;

/// Descriptors that the supervisor may need: several for each process of an application.
const DESCRIPTORS_WANTED: u64 = 1024;
/// Memory nodes of which there may be links.
const NODES: u64 = 16;
/// Links of other threads than lanes, to each node.
const OTHER_LINKS: u64 = 3;
/// Processes that an application may have.
const PROCESSES_WANTED: u64 = 1024;

pub(super) fn checks() -> Vec<Check> {
    vec![address_space(), descriptors(), locked(), processes()]
}

fn shown(limit: Option<u64>) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), |bytes| Readable(ByteCount::new(bytes)).to_string())
}

fn address_space() -> Check {
    let Rlimit { current, .. } = getrlimit(Resource::As);
    Check::ok(
        "ulimit -v",
        shown(current),
        "far memory needs address space in each program, as local memory does",
    )
    .gap_unless(current.is_none(), "ulimit -v unlimited")
}

fn descriptors() -> Check {
    // Farmem raises the other limit to this one.
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let found = maximum.map_or_else(|| "unlimited".to_owned(), |count| count.to_string());
    let lanes = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let wanted = DESCRIPTORS_WANTED + NODES * (2 * lanes + OTHER_LINKS);
    Check::ok(
        "ulimit -Hn",
        found,
        "the supervisor holds descriptors for each process of an application, and for links to memory nodes",
    )
    .gap_unless(maximum.is_none_or(|count| count >= wanted), &format!("ulimit -Hn {wanted}"))
}

fn locked() -> Check {
    let Rlimit { current, .. } = getrlimit(Resource::Memlock);
    Check::ok(
        "ulimit -l",
        shown(current),
        "memory that a program locks stays local, in addition to its budget",
    )
}

fn processes() -> Check {
    let Rlimit { current, .. } = getrlimit(Resource::Nproc);
    let found = current.map_or_else(|| "unlimited".to_owned(), |count| count.to_string());
    Check::ok("ulimit -u", found, "the pager of each process has a few threads, which count")
        .gap_unless(current.is_none_or(|count| count >= PROCESSES_WANTED), "ulimit -u 1024")
}
