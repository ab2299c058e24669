//! Limits that whoever called has set for the program, and that the kernel would hold its supervisor and
//! pagers to as well. Ledger and pool are memory files: the kernel ends whoever makes one that is larger than
//! files may be (`ulimit -f`) by SIGXFSZ without a word, and refuses to map it where addresses are few
//! (`ulimit -v`). A supervisor that works longer than a process may (`ulimit -t`) would be ended before its
//! program, and one with the stack of a small thread (`ulimit -s`) at once. So it lifts its own, and the
//! program gets those that were meant for it.

use anyhow::{Error, Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Which, and how much is enough where that isn't all: a program that has many threads often limits their
/// stacks, and what works for it has a stack as well.
const LIFTED: [(Resource, Option<u64>); 5] = [
    (Resource::Fsize, None),
    (Resource::As, None),
    (Resource::Data, None),
    (Resource::Cpu, None),
    (Resource::Stack, Some(8 << 20)),
];

/// Lifts the calling process's limits as far as it may; what those were that have changed.
///
/// # Errors
/// There still is one of the size of files.
pub(crate) fn lift() -> Result<Vec<(Resource, Rlimit)>> {
    let lifted = LIFTED
        .into_iter()
        .filter_map(|(resource, enough)| Some((resource, lift_one(resource, enough)?)))
        .collect();
    if let Some(bytes) = getrlimit(Resource::Fsize).current {
        bail!(
            "the limit of the size of files is {bytes} bytes, and farmem's pool is a memory file that may be larger; raise it \
             (`ulimit -f unlimited`), or run farmem as root"
        );
    }
    Ok(lifted)
}

fn lift_one(resource: Resource, enough: Option<u64>) -> Option<Rlimit> {
    let before = getrlimit(resource);
    let current = before.current?;
    if enough.is_some_and(|enough| current >= enough) {
        return None;
    }
    // Whoever isn't privileged has what the maximum allows.
    let within = |most: u64| Some(before.maximum.map_or(most, |maximum| maximum.min(most)));
    let as_far_as_may_be = enough.map_or(before.maximum, within);
    let is_changed = setrlimit(resource, Rlimit { current: enough, maximum: enough.and(before.maximum) })
        .is_ok()
        || setrlimit(resource, Rlimit { current: as_far_as_may_be, maximum: before.maximum }).is_ok();
    is_changed.then_some(before)
}

/// Why there is no memory for ledger and pool, where a limit may be the reason.
pub(crate) fn explain(error: Error) -> Error {
    match getrlimit(Resource::As).current {
        Some(bytes) => error.context(format!(
            "the limit of addresses is {bytes} bytes (`ulimit -v`), and farmem maps its pool, which `--pool` makes smaller"
        )),
        None => error,
    }
}
