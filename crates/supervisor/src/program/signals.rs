//! Signals to the supervisor are meant for the program.

use anyhow::Result;
use farmem_sys::signals::{hear_of_children, send};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::process::Pid;

/// Signals that stay as they are: at errors of this process's own, which must end it.
const OWN: [Signal; 7] = [
    Signal::SIGSEGV,
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGILL,
    Signal::SIGTRAP,
    Signal::SIGSYS,
    // Nobody reads what is written: ignored, and that is said where it was written.
    Signal::SIGPIPE,
];
/// The kernel's mark of a signal that a terminal sent: the program has got it already.
const FROM_KERNEL: i32 = 0x80;

/// Receives signals as messages.
pub(crate) struct Signals {
    fd: SignalFd,
    before: SigSet,
}

impl Signals {
    /// From now on signals wait to be read. `before` what was blocked, for the program to start with.
    pub(crate) fn take() -> Result<Self> {
        hear_of_children()?;
        let mut set = SigSet::all();
        OWN.into_iter().for_each(|signal| set.remove(signal));
        let before = set.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK)?;
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Self { fd, before })
    }

    pub(crate) fn before(&self) -> SigSet {
        self.before
    }

    pub(crate) fn fd(&self) -> &SignalFd {
        &self.fd
    }

    /// Passes on what has come to `program`; drops it when there is none any more.
    pub(crate) fn pass_on(&self, program: Option<Pid>) {
        while let Ok(Some(info)) = self.fd.read_signal() {
            // What this process writes beyond a limit of its own comes from itself.
            let is_own = info.ssi_pid == std::process::id();
            if let Some(program) = program
                && info.ssi_signo != Signal::SIGCHLD as u32
                && info.ssi_code != FROM_KERNEL
                && !is_own
            {
                // The program may have ended: then nobody needs the signal.
                let _ = send(program, info.ssi_signo);
            }
        }
    }
}
