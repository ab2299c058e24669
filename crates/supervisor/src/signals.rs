//! Signals to the supervisor are meant for the program.

use anyhow::Result;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

/// Signals that are passed on.
const PASSED_ON: [Signal; 10] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGCONT,
    Signal::SIGALRM,
    Signal::SIGTSTP,
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
        let mut set = SigSet::empty();
        PASSED_ON.into_iter().chain([Signal::SIGCHLD]).for_each(|signal| set.add(signal));
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
            let Ok(signal) = Signal::try_from(info.ssi_signo as i32) else { continue };
            if let Some(program) = program
                && signal != Signal::SIGCHLD
                && info.ssi_code != FROM_KERNEL
            {
                // The program may have ended: then nobody needs the signal.
                let _ = nix::sys::signal::kill(program, signal);
            }
        }
    }
}
