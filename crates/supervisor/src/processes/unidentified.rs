//! Connections that have said nothing so far: any user of the machine may make them, and none of them may
//! keep a process of the application out.

use std::time::{Duration, Instant};

use farmem_sys::{AsRawFd, OwnedFd};
use nix::sys::resource::{Resource, getrlimit};
use rustix::io::fcntl_dupfd_cloexec;

use crate::processes::silent::has_messages;
use crate::processes::{Process, Processes};

/// Any user of the machine may connect. A connection that hasn't said within this time which process it is,
/// is dropped; of more than so many, the oldest is.
pub(super) const INTRODUCTION: Duration = Duration::from_secs(2);
pub(super) const MOST_UNIDENTIFIED: usize = 64;
/// Descriptors that no new connection gets: for the userfaultfds of children whose parents are connected, and
/// for files. At most a quarter of all.
const KEPT_DESCRIPTORS: u64 = 64;

impl Processes {
    /// The connection, when enough descriptors are left. Unidentified ones are closed for it, those of other
    /// users first: descriptors are short only when processes of the application have them.
    pub(super) fn with_room_left(&mut self, mut socket: OwnedFd) -> Option<OwnedFd> {
        let mut unidentified = None;
        while !leaves_descriptors(&socket) {
            let (_, _, key) = unidentified.get_or_insert_with(|| self.unidentified().into_iter()).next()?;
            self.connected.remove(&key);
            // The descriptor that was closed is now perhaps the lowest that is free.
            socket = fcntl_dupfd_cloexec(&socket, 0).ok()?;
        }
        Some(socket)
    }

    /// Drops connections that say nothing.
    pub(crate) fn drop_unidentified(&mut self) {
        let unidentified = self.unidentified();
        let excess = unidentified.len().saturating_sub(MOST_UNIDENTIFIED);
        for (nth, (_, came, key)) in unidentified.into_iter().enumerate() {
            if nth < excess || came.elapsed() > INTRODUCTION {
                self.connected.remove(&key);
            }
        }
    }

    /// Connections that have said nothing so far, in the order in which they are dropped: those of other
    /// users first, then the oldest. With when each came, and its key.
    fn unidentified(&self) -> Vec<(bool, Instant, u64)> {
        let is_silent = |process: &Process| {
            process.slot.is_none() && process.waiting.is_none() && !has_messages(&process.link)
        };
        let silent = self.connected.iter().filter(|(_, process)| is_silent(process));
        let mut unidentified: Vec<(bool, Instant, u64)> =
            silent.map(|(&key, process)| (process.may_set, process.came, key)).collect();
        unidentified.sort_unstable();
        unidentified
    }
}

/// Whether a connection that was just taken leaves enough descriptors for those who are there. The kernel
/// gives the lowest that is free.
fn leaves_descriptors(socket: &OwnedFd) -> bool {
    let Ok((most, _)) = getrlimit(Resource::RLIMIT_NOFILE) else { return true };
    (socket.as_raw_fd() as u64) < most - KEPT_DESCRIPTORS.min(most / 4)
}
