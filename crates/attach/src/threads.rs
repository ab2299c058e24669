//! Which thread of a program is stopped.
//!
//! A thread that sleeps in a system call is asked to stop, and makes the call again when it goes on. Most
//! calls are made again by the kernel, from where they were; a few return early with `EINTR`, as after a
//! signal. Those are made again by hand; where another thread will do, it is taken.

use std::fs;

use procfs::process::Process;

use crate::{AttachError, told};

/// How far a program is from noticing that a thread was stopped; the first is the best.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Cost {
    /// It sleeps in a call that the kernel makes again.
    Restarted,
    /// It runs: it may be anywhere.
    Running,
    /// It sleeps in a call that returns early, unless it is made again by hand.
    ByHand,
}

/// Whether that call returns `EINTR` when the thread is stopped, though no signal has come.
///
/// Those that wait for input and output return it where they have a time limit; they are among the best all
/// the same when they have none, which can't be told from here, and are made again by hand if need be.
pub(crate) fn returns_early(call: u64) -> bool {
    use linux_raw_sys::general as raw;
    const CALLS: [u32; 9] = [
        raw::__NR_epoll_wait,
        raw::__NR_epoll_pwait,
        raw::__NR_epoll_pwait2,
        raw::__NR_semop,
        raw::__NR_semtimedop,
        raw::__NR_rt_sigtimedwait,
        raw::__NR_io_getevents,
        raw::__NR_io_pgetevents,
        raw::__NR_io_uring_enter,
    ];
    CALLS.iter().any(|&early| u64::from(early) == call)
}

/// The threads of a process that may be stopped, the best first.
pub(crate) fn candidates(process: &Process) -> Result<Vec<u32>, AttachError> {
    let Ok(tasks) = process.tasks() else { return Err(AttachError::Ended) };
    let mut threads: Vec<(Cost, u32)> = tasks
        .flatten()
        .filter_map(|task| {
            let state = task.stat().ok()?.state;
            if matches!(state, 'Z' | 'X' | 'x' | 'D' | 't') {
                return None;
            }
            let cost = match call_of(process.pid, task.tid)? {
                None => Cost::Running,
                Some(call) if returns_early(call) => Cost::ByHand,
                Some(_) => Cost::Restarted,
            };
            Some((cost, task.tid as u32))
        })
        .collect();
    threads.sort_unstable();
    Ok(threads.into_iter().map(|(_, thread)| thread).collect())
}

/// The system call that a thread sleeps in; the inner `None` when it is in none.
fn call_of(process: i32, thread: i32) -> Option<Option<u64>> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{thread}/syscall")).ok()?;
    // "running", or a negative number for a thread that was stopped outside of any call.
    Some(text.split_whitespace().next()?.parse().ok())
}

/// Whether a signal waits that the thread has caused itself, by a fault or a call. The kernel hands such a
/// one over however it is blocked, as soon as the thread is made to do an instruction: it would be lost
/// there.
pub(crate) fn is_at_fault(process: i32, thread: u32) -> bool {
    /// SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGSYS.
    const CAUSED: u64 = 1 << 3 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 10 | 1 << 30;
    let text = told::text(process, &format!("task/{thread}/status")).unwrap_or_default();
    let own = text.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    own.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).is_none_or(|own| own & CAUSED != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_the_kernel_makes_again_are_told_from_those_that_return() {
        use linux_raw_sys::general as raw;
        assert!(returns_early(raw::__NR_epoll_wait.into()));
        for call in [raw::__NR_futex, raw::__NR_read, raw::__NR_poll, raw::__NR_nanosleep] {
            assert!(!returns_early(call.into()));
        }
    }

    #[test]
    fn this_process_has_candidates_and_no_fault() {
        let own = Process::myself().unwrap();
        assert!(!candidates(&own).unwrap().is_empty());
        assert!(!is_at_fault(own.pid, rustix::thread::gettid().as_raw_nonzero().get() as u32));
    }
}
