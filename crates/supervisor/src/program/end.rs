//! How the program ended, and ending the same way.

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::Pid;

/// How a program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Exited(i32),
    Signalled(i32),
    /// Its parent alone knows how.
    Unseen,
}

/// The status to exit with, after the same signal as the program's.
pub(crate) fn end_as(end: End) -> u8 {
    match end {
        End::Exited(status) => status as u8,
        End::Unseen => 0,
        End::Signalled(number) => {
            if let Ok(signal) = Signal::try_from(number) {
                end_by(signal);
            }
            128 + number as u8
        }
    }
}

fn end_by(signal: Signal) {
    // One core file is enough.
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    let mut only = SigSet::empty();
    only.add(signal);
    let _ = only.thread_unblock();
    // Rust's runtime handles the first SIGSEGV or SIGBUS, and gives up the handler with it.
    for _ in 0..2 {
        let _ = nix::sys::signal::kill(Pid::this(), signal);
    }
}
