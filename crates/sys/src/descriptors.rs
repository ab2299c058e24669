//! Which descriptors a process has, and how many it may have.

use linux_raw_sys::general as raw;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::syscall;

/// Lets this process, and children that it makes from now on, have as many descriptors as it may. A process
/// usually begins with a lower limit, for programs that count on small numbers.
pub fn allow_most() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Refused nowhere; and if so, there are as many as before.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// How many descriptors this process may have at present; `None` where there is no limit.
pub fn most() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Closes all descriptors of the calling process, but those of `kept`, which are sorted. For a forked process
/// that has nothing else of what its parent had open; whoever owned them there must never use or drop them
/// again.
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

/// Whether the kernel lets this process close many descriptors at once.
pub fn may_close_many() -> bool {
    // SAFETY: no descriptor has that number.
    unsafe { close_range(u32::MAX, u32::MAX, 0) }.is_ok()
}

const CLOSES: usize = 1;

/// Whether another program that ran in this process would have that descriptor, since it isn't marked to be
/// closed then.
pub fn outlives_exec(number: crate::RawFd) -> bool {
    const GET_FLAGS: usize = 1;
    // SAFETY: the call has no pointers.
    unsafe { syscall::call(raw::__NR_fcntl, [number as usize, GET_FLAGS, 0, 0]) }
        .is_ok_and(|flags| flags & CLOSES == 0)
}

/// Marks that descriptor: another program that runs in this process, or in one made from it, doesn't have it.
pub fn close_on_exec(number: crate::RawFd) {
    const SET_FLAGS: usize = 2;
    // SAFETY: the call has no pointers. That the number isn't open is no harm.
    let _ = unsafe { syscall::call(raw::__NR_fcntl, [number as usize, SET_FLAGS, CLOSES, 0]) };
}

/// Closes a descriptor that the calling process was started with, and that nothing in it owns.
pub fn close_given(number: crate::RawFd) {
    let number = number.unsigned_abs();
    // SAFETY: as the caller promises.
    let _ = unsafe { close_range(number, number, 0) };
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
