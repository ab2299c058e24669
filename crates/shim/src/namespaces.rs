//! Namespaces that the kernel lets only processes of one thread enter: a user namespace, and one of clocks. A program that has one thread may
//! count on being let in, and the pager's threads would keep it out.

use core::ffi::c_int;

use crate::{libc, program, real};

const EINVAL: c_int = 22;
const EUSERS: c_int = 87;
const CLONE_NEWTIME: c_int = 0x80;
const CLONE_VM: c_int = 0x100;
const CLONE_SIGHAND: c_int = 0x800;
const CLONE_THREAD: c_int = 0x1_0000;
const CLONE_NEWUSER: c_int = 0x1000_0000;

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    /// The last three change nothing in a process of one thread.
    const FOR_ONE_THREAD: c_int = CLONE_NEWUSER | CLONE_THREAD | CLONE_SIGHAND | CLONE_VM;
    let Some(next) = real::UNSHARE.get() else { return real::missing() };
    // SAFETY: passed on as it came.
    with_one_thread(flags & FOR_ONE_THREAD != 0, || unsafe { next(flags) })
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setns(fd: c_int, kind: c_int) -> c_int {
    const FOR_ONE_THREAD: c_int = CLONE_NEWUSER | CLONE_NEWTIME;
    let Some(next) = real::SETNS.get() else { return real::missing() };
    // SAFETY: passed on as it came.
    with_one_thread(kind == 0 || kind & FOR_ONE_THREAD != 0, || unsafe { next(fd, kind) })
}

/// Makes a call, and where it is refused as it is to processes of several threads, makes it again without those of the pager. That goes only as long
/// as nothing is managed. Afterwards a pager begins again.
fn with_one_thread(is_for_one: bool, call: impl Fn() -> c_int) -> c_int {
    let answer = call();
    if answer == 0 || !is_for_one || !matches!(libc::error(), EINVAL | EUSERS) {
        return answer;
    }
    let has_left = program::engine().is_some_and(|engine| engine.leave());
    if !has_left {
        libc::set_error(EINVAL);
        return answer;
    }
    program::forget();
    let answer = call();
    let error = libc::error();
    program::start_again();
    libc::set_error(error);
    answer
}
