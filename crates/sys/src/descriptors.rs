//! The runtime's own table of descriptors, and which numbers it uses.
//!
//! The kernel gives a new descriptor the lowest free number, and none that isn't below the process's limit, which the program
//! may lower at any time. What is open by then stays open, whatever its number. So what the runtime keeps open gets high
//! numbers, and low ones stay free for what comes later: a forked child's userfaultfd, which the kernel couldn't deliver
//! else.

use linux_raw_sys::general as raw;
use rustix::event::EventfdFlags;
use rustix::fd::IntoRawFd;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::syscall;

/// Numbers below this stay free where the limit allows. The kernel keeps a table of up to 64 without extra memory.
const LOW: u64 = 40;
/// Descriptors that the runtime keeps open, and some on top.
const KEPT: u64 = 20;
const _: () = assert!(LOW + KEPT <= 64, "the kernel's smallest table is large enough");

/// Lets this process, and children that it makes from now on, have as many descriptors as it may. A process usually begins with a lower limit, for
/// programs that count on small numbers.
pub fn allow_most() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Refused nowhere; and if so, there are as many as before.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Gives the calling thread a table of descriptors of its own, an empty one: a program that closes every descriptor then
/// can't close the runtime's, children don't inherit them, and no pipe stays open because the runtime has it too.
///
/// # Errors
/// No memory for the table.
pub fn own_table() -> Result<(), Errno> {
    const UNSHARE: usize = 2;
    // SAFETY: only the calling thread's table is affected; nothing that it holds by a descriptor has been opened yet.
    unsafe { close_range(0, u32::MAX, UNSHARE) }
}

/// Closes all descriptors of the calling process, but those of `kept`, which are sorted. For a forked process that has nothing else of what its parent
/// had open; whoever owned them there must never use or drop them again.
pub fn keep_only(kept: &[crate::RawFd]) {
    let mut first = 0;
    for &number in kept {
        let number = number.unsigned_abs();
        if number > first {
            // SAFETY: as the caller promises.
            let _ = unsafe { close_range(first, number - 1, 0) };
        }
        first = number + 1;
    }
    // SAFETY: as above.
    let _ = unsafe { close_range(first, u32::MAX, 0) };
}

/// Whether another program that ran in this process would have that descriptor, since it isn't marked to be closed then.
pub fn outlives_exec(number: crate::RawFd) -> bool {
    const GET_FLAGS: usize = 1;
    const CLOSES: usize = 1;
    // SAFETY: the call has no pointers.
    unsafe { syscall::call(raw::__NR_fcntl, [number as usize, GET_FLAGS, 0, 0]) }
        .is_ok_and(|flags| flags & CLOSES == 0)
}

/// While this lives, new descriptors of the calling thread's own, empty table get high numbers.
#[derive(Debug)]
pub struct LowNumbers {
    /// Placeholders have the numbers below this.
    end: u32,
}

impl LowNumbers {
    /// Takes all low numbers of an empty table; fewer or none when the limit is low already.
    pub fn take() -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let wanted = LOW.min(limit.saturating_sub(KEPT)) as u32;
        let mut taken = Self { end: 0 };
        let Some(last) = wanted.checked_sub(1) else { return taken };
        let Ok(placeholder) = rustix::event::eventfd(0, EventfdFlags::CLOEXEC) else { return taken };
        let mut number = placeholder.into_raw_fd();
        loop {
            taken.end = number.unsigned_abs() + 1;
            if number.unsigned_abs() >= last {
                return taken;
            }
            // SAFETY: the number is a placeholder's, open as long as `taken` lives.
            let placeholder = unsafe { rustix::fd::BorrowedFd::borrow_raw(number) };
            match rustix::io::fcntl_dupfd_cloexec(placeholder, 0) {
                Ok(next) => number = next.into_raw_fd(),
                Err(_) => return taken,
            }
        }
    }
}

impl Drop for LowNumbers {
    fn drop(&mut self) {
        if let Some(last) = self.end.checked_sub(1) {
            // SAFETY: the table was empty, so that these numbers are the placeholders', and nobody else's until now.
            let _ = unsafe { close_range(0, last, 0) };
        }
    }
}

/// # Safety
/// Nobody may go on using descriptors of these numbers, unless they are another table's.
unsafe fn close_range(first: u32, last: u32, flags: usize) -> Result<(), Errno> {
    // SAFETY: the call touches no memory; as the caller promises.
    unsafe {
        syscall::call(linux_raw_sys::general::__NR_close_range, [first as usize, last as usize, flags, 0])
    }
    .map(drop)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use rustix::fd::AsRawFd;

    use super::*;

    #[test]
    fn what_is_opened_meanwhile_gets_a_high_number_and_stays_open() {
        std::thread::spawn(|| {
            own_table().unwrap();
            let low = LowNumbers::take();
            let kept = rustix::event::eventfd(7, EventfdFlags::CLOEXEC).unwrap();

            drop(low);
            let later = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).unwrap();

            assert_eq!((kept.as_raw_fd(), later.as_raw_fd()), (LOW as i32, 0));
            assert_eq!(rustix::io::read(&kept, &mut [0; 8]), Ok(8));
        })
        .join()
        .unwrap();
    }
}
