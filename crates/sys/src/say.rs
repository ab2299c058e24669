//! The last word of a process whose supervisor, who would say it, has gone.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// Writes a short `sentence` to the program's standard error, whichever table of descriptors the calling thread has. Not at all
/// when the program has closed it, or nobody reads there and it would have to wait.
///
/// The caller blocks SIGPIPE, or ends the process next.
pub fn say(sentence: &[u8]) {
    const STANDARD_ERROR: i32 = 2;
    let Ok(process) = pidfd_open(getpid(), PidfdFlags::empty()) else { return };
    let Ok(target) = pidfd_getfd(&process, STANDARD_ERROR, PidfdGetfdFlags::empty()) else { return };
    let mut set = [PollFd::new(&target, PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    if poll(&mut set, Some(&at_once)).is_ok() && set[0].revents().contains(PollFlags::OUT) {
        let _ = rustix::io::write(&target, sentence);
    }
}

#[cfg(test)]
mod tests {
    /// What it writes goes to this test's standard error.
    #[test]
    fn a_thread_with_an_empty_table_is_heard() {
        extern crate std;
        std::thread::spawn(|| {
            crate::descriptors::own_table().unwrap();
            super::say(b"said by a thread without descriptors\n");
        })
        .join()
        .unwrap();
    }
}
