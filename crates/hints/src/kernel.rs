//! The few system calls that a mailbox needs, which leave errno alone. There are none on machines that Farmem
//! doesn't run on.

use std::sync::atomic::{AtomicU32, AtomicU64};

/// Numbers of x86-64.
pub(crate) mod number {
    pub(crate) const MMAP: usize = 9;
    pub(crate) const MUNMAP: usize = 11;
    pub(crate) const RT_SIGPROCMASK: usize = 14;
    pub(crate) const MADVISE: usize = 28;
    pub(crate) const SHMGET: usize = 29;
    pub(crate) const SHMAT: usize = 30;
    pub(crate) const SHMCTL: usize = 31;
    pub(crate) const SHMDT: usize = 67;
    pub(crate) const GETTID: usize = 186;
    pub(crate) const FUTEX: usize = 202;
    pub(crate) const CLOCK_GETTIME: usize = 228;
}

const WAIT: usize = 0;
const WAKE: usize = 1;
const THREAD_CLOCK: usize = 3;

/// Makes a system call.
///
/// # Safety
/// As the call itself: pointers among the arguments must be valid for what the kernel does with them.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(crate) unsafe fn call(number: usize, arguments: [usize; 6]) -> Option<usize> {
    let result: isize;
    // SAFETY: passed on to the caller; the kernel changes only rax, rcx and r11.
    unsafe {
        std::arch::asm!(
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
    usize::try_from(result).ok()
}

/// There are none.
///
/// # Safety
/// None is needed.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
pub(crate) unsafe fn call(_number: usize, _arguments: [usize; 6]) -> Option<usize> {
    None
}

/// The address by which the kernel knows a word that is slept on: that of its lower half.
fn place(word: &AtomicU64) -> usize {
    std::ptr::from_ref(word).expose_provenance()
}

fn sleep_on(place: usize, value: u32, timeout_ns: u64) {
    let timeout = [timeout_ns / 1_000_000_000, timeout_ns % 1_000_000_000];
    let timeout = std::ptr::from_ref(&timeout).expose_provenance();
    // SAFETY: the kernel reads the word and the timeout, which live through the call.
    unsafe { call(number::FUTEX, [place, WAIT, value as usize, timeout, 0, 0]) };
}

fn wake_at(place: usize) {
    // SAFETY: the kernel only looks for sleepers.
    unsafe { call(number::FUTEX, [place, WAKE, i32::MAX as usize, 0, 0, 0]) };
}

/// Sleeps while the lower half of `word` is that of `value`, at most `timeout_ns`.
pub(crate) fn wait(word: &AtomicU64, value: u64, timeout_ns: u64) {
    sleep_on(place(word), value as u32, timeout_ns);
}

/// Wakes whoever sleeps on `word`, in any process.
pub(crate) fn wake(word: &AtomicU64) {
    wake_at(place(word));
}

/// As [`wait`].
pub(crate) fn wait_small(word: &AtomicU32, value: u32, timeout_ns: u64) {
    sleep_on(std::ptr::from_ref(word).expose_provenance(), value, timeout_ns);
}

/// As [`wake`].
pub(crate) fn wake_small(word: &AtomicU32) {
    wake_at(std::ptr::from_ref(word).expose_provenance());
}

/// The calling thread's number.
pub(crate) fn thread() -> u32 {
    // SAFETY: it has no arguments.
    unsafe { call(number::GETTID, [0; 6]) }.unwrap_or(0) as u32
}

/// Processor time that the calling thread has used.
pub(crate) fn thread_ns() -> u64 {
    let mut time = [0_u64; 2];
    let place = std::ptr::from_mut(&mut time).expose_provenance();
    // SAFETY: the kernel writes two words to the place given.
    unsafe { call(number::CLOCK_GETTIME, [THREAD_CLOCK, place, 0, 0, 0, 0]) };
    time[0] * 1_000_000_000 + time[1]
}

/// Calls `body` with all signals blocked, for a thread that it makes. Those of the C library's own stay.
pub(crate) fn with_signals_blocked<R>(body: impl FnOnce() -> R) -> R {
    const SET: usize = 2;
    const OF_THE_LIBRARY: u64 = 0b111 << 31;
    let (all, mut before) = (!OF_THE_LIBRARY, 0_u64);
    let from = std::ptr::from_ref(&all).expose_provenance();
    let to = std::ptr::from_mut(&mut before).expose_provenance();
    // SAFETY: the kernel reads and writes a set of 64 signals.
    unsafe { call(number::RT_SIGPROCMASK, [SET, from, to, 8, 0, 0]) };
    let result = body();
    // SAFETY: as above.
    unsafe { call(number::RT_SIGPROCMASK, [SET, to, 0, 8, 0, 0]) };
    result
}
