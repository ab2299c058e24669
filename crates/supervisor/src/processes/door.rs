//! Where processes connect, and whoever asks the supervisor something.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use farmem_sys::OwnedFd;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use crate::processes::Processes;
use crate::processes::unidentified::MOST_UNIDENTIFIED;

/// How long nobody is let in after there was no descriptor for somebody.
const REST: Duration = Duration::from_millis(100);

/// The door.
pub(crate) struct Door {
    listener: OwnedFd,
    opens_at: Instant,
}

impl Door {
    pub(crate) fn at(listener: OwnedFd) -> Self {
        Self { listener, opens_at: Instant::now() }
    }

    /// What becomes readable when somebody wants to connect who can be let in.
    pub(crate) fn watch(&self) -> PollFd<'_> {
        let is_open = self.opens_at <= Instant::now();
        let flags = if is_open { PollFlags::IN } else { PollFlags::empty() };
        PollFd::from_borrowed_fd(self.listener.as_fd(), flags)
    }

    /// Takes new connections, no more than are heard out before the next ones.
    pub(crate) fn let_in(&mut self, processes: &mut Processes) {
        for _ in 0..MOST_UNIDENTIFIED {
            match accept_with(&self.listener, SocketFlags::CLOEXEC) {
                Ok(socket) => processes.accept(socket),
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    // Whoever waits still waits: asking again and again wouldn't help.
                    self.opens_at = Instant::now() + REST;
                    return;
                }
                Err(_) => return,
            }
        }
    }
}
