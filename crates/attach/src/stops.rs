//! Hears at once that a seized thread stands still, instead of looking now and then: it has done what it was
//! kept for, and its program waits for it.

use farmem_sys::{AsFd, BorrowedFd};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// What the kernel tells the calling process of threads that it has seized.
#[derive(Debug)]
pub(crate) struct Stops(SignalFd);

impl Stops {
    /// From now on they are told. By the thread that seizes, which must be the only one that doesn't block
    /// signals. `None` where the kernel refuses: then threads are looked at now and then.
    pub(crate) fn hear() -> Option<Self> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGCHLD);
        // Blocked, it is kept, though nobody handles it.
        set.thread_block().ok()?;
        SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).ok().map(Self)
    }

    /// Readable when something is told.
    pub(crate) fn watch(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Forgets what was told.
    pub(crate) fn clear(&self) {
        while let Ok(Some(_)) = self.0.read_signal() {}
    }
}
