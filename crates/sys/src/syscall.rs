//! The few system calls that rustix doesn't offer, by number.

use rustix::io::Errno;

/// Makes a system call with six arguments.
///
/// # Safety
/// As [`call`].
pub(crate) unsafe fn call_six(number: u32, arguments: [usize; 6]) -> Result<usize, Errno> {
    let result: isize;
    // SAFETY: passed on to the caller; the kernel changes only rax, rcx and r11.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    if result < 0 { Err(Errno::from_raw_os_error(-result as i32)) } else { Ok(result as usize) }
}

/// Makes a system call with up to four arguments.
///
/// # Safety
/// As the call itself: pointers among the arguments must be valid for what the kernel does with them.
pub(crate) unsafe fn call(number: u32, arguments: [usize; 4]) -> Result<usize, Errno> {
    let [first, second, third, fourth] = arguments;
    // SAFETY: passed on to the caller; a call doesn't look at arguments that it doesn't have.
    unsafe { call_six(number, [first, second, third, fourth, 0, 0]) }
}
