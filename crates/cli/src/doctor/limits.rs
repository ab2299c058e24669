//! Limits of this user's processes.

use rustix::process::{Resource, Rlimit, getrlimit};

use super::Check;
use crate::amount::Readable;
use farmem_page::ByteCount;

/// Descriptors that the supervisor may need: several for each process of an application.
const DESCRIPTORS_WANTED: u64 = 1024;

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
        "far memory needs address space in each program as local memory does",
    )
    .gap_unless(current.is_none(), "ulimit -v unlimited")
}

fn descriptors() -> Check {
    let Rlimit { current, .. } = getrlimit(Resource::Nofile);
    let found = current.map_or_else(|| "unlimited".to_owned(), |count| count.to_string());
    Check::ok("ulimit -n", found, "the supervisor holds descriptors for each process of an application")
        .gap_unless(current.is_none_or(|count| count >= DESCRIPTORS_WANTED), "ulimit -n 1024")
}

fn locked() -> Check {
    let Rlimit { current, .. } = getrlimit(Resource::Memlock);
    Check::ok("ulimit -l", shown(current), "what a program locks stays local, beside what its budget allows")
}

fn processes() -> Check {
    let Rlimit { current, .. } = getrlimit(Resource::Nproc);
    let found = current.map_or_else(|| "unlimited".to_owned(), |count| count.to_string());
    Check::ok("ulimit -u", found, "each process has a few threads of its pager, which count")
        .gap_unless(current.is_none_or(|count| count >= DESCRIPTORS_WANTED), "ulimit -u 1024")
}
