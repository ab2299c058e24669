//! The limit of the size of files (`ulimit -f`). The kernel holds memory files to it as well, and ends whoever makes a larger one by SIGXFSZ without a word: ledger
//! and pool are such files. So the supervisor lifts its own limit, and the program gets the one that was meant for it.

use anyhow::{Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lifts the calling process's limit; what it was, unless there was none.
///
/// # Errors
/// That isn't permitted.
pub(crate) fn lift() -> Result<Option<Rlimit>> {
    let before = getrlimit(Resource::Fsize);
    let Some(bytes) = before.current else { return Ok(None) };
    let unlimited = Rlimit { current: None, maximum: None };
    let as_far_as_may_be = Rlimit { current: before.maximum, maximum: before.maximum };
    if setrlimit(Resource::Fsize, unlimited).is_err()
        && (before.maximum.is_some() || setrlimit(Resource::Fsize, as_far_as_may_be).is_err())
    {
        bail!(
            "the limit of the size of files is {bytes} bytes, and farmem's pool is a memory file that may be larger; raise it \
             (`ulimit -f unlimited`), or run farmem as root"
        );
    }
    Ok(Some(before))
}
