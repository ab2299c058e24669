//! Which thread of a program is stopped.
//!
//! A thread that sleeps in a system call is asked to stop, and makes the call again when it goes on. Most
//! calls are made again by the kernel, from where they were; a few return early with `EINTR`, as after a
//! signal, or with part of what they were to do. Those are made again by hand, or for the rest; where another
//! thread will do, it is taken.

use std::fs;

use procfs::process::Process;

use crate::unfinished::WAITS_FOR_ALL;
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
    /// It sleeps in a call that returns what it has done by then.
    Cut,
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

/// Whether that call returns how much it has done by the time at which the thread is stopped, if it has done
/// anything. `arguments` are those of the call.
///
/// Most of them are gone on with ([`crate::unfinished`]), but at a cost. A thread that reads what is endless
/// doesn't sleep, and isn't told from one that is in no call.
fn is_cut(call: u64, arguments: &[u64]) -> bool {
    use linux_raw_sys::general as raw;
    const CALLS: [u32; 14] = [
        raw::__NR_write,
        raw::__NR_writev,
        raw::__NR_pwrite64,
        raw::__NR_pwritev,
        raw::__NR_pwritev2,
        raw::__NR_sendto,
        raw::__NR_sendmsg,
        raw::__NR_sendmmsg,
        raw::__NR_recvmmsg,
        raw::__NR_sendfile,
        raw::__NR_splice,
        raw::__NR_tee,
        raw::__NR_vmsplice,
        raw::__NR_getrandom,
    ];
    let waits_for_all = |nth: usize| arguments.get(nth).is_some_and(|flags| flags & WAITS_FOR_ALL != 0);
    CALLS.iter().any(|&cut| u64::from(cut) == call)
        || call == u64::from(raw::__NR_recvfrom) && waits_for_all(3)
        || call == u64::from(raw::__NR_recvmsg) && waits_for_all(2)
}

/// Whether a thread with these flags is the kernel's own, which does for the program what it has asked for:
/// those of io_uring are listed among the program's. Such a thread can be seized, but it never stops, and
/// what never stops can't be let go.
fn is_worker(flags: u32) -> bool {
    const IO_WORKER: u32 = 0x10;
    const USER_WORKER: u32 = 0x4000;
    flags & (IO_WORKER | USER_WORKER) != 0
}

/// The threads of a process that may be stopped, the best first.
pub(crate) fn candidates(process: &Process) -> Result<Vec<u32>, AttachError> {
    let Ok(tasks) = process.tasks() else { return Err(AttachError::Ended) };
    let mut threads: Vec<(Cost, u32)> = tasks
        .flatten()
        .filter_map(|task| {
            let stat = task.stat().ok()?;
            if matches!(stat.state, 'Z' | 'X' | 'x' | 'D' | 't')
                || is_worker(stat.flags)
                || told::waits_for_user_space(process.pid, task.tid)
            {
                return None;
            }
            let cost = match call_of(process.pid, task.tid)? {
                None => Cost::Running,
                Some((call, _)) if returns_early(call) => Cost::ByHand,
                Some((call, arguments)) if is_cut(call, &arguments) => Cost::Cut,
                Some(_) => Cost::Restarted,
            };
            Some((cost, task.tid as u32))
        })
        .collect();
    threads.sort_unstable();
    Ok(threads.into_iter().map(|(_, thread)| thread).collect())
}

/// The system call that a thread sleeps in, and its arguments; the inner `None` when it is in none.
fn call_of(process: i32, thread: i32) -> Option<Option<(u64, Vec<u64>)>> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{thread}/syscall")).ok()?;
    let mut words = text.split_whitespace();
    // "running", or a negative number for a thread that was stopped outside of any call.
    let call = words.next()?.parse().ok();
    let argument = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    Some(call.map(|call| (call, words.map_while(argument).collect())))
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
    fn calls_that_return_what_they_have_done_are_told_by_their_flags_too() {
        use linux_raw_sys::general as raw;
        assert!(is_cut(raw::__NR_write.into(), &[]));
        assert!(is_cut(raw::__NR_recvfrom.into(), &[3, 0, 10, 0x100]));
        assert!(!is_cut(raw::__NR_recvfrom.into(), &[3, 0, 10, 0]));
        assert!(!is_cut(raw::__NR_recvmsg.into(), &[3, 0, 0]) && !is_cut(raw::__NR_read.into(), &[]));
    }

    #[test]
    fn this_process_has_candidates_and_no_fault() {
        let own = Process::myself().unwrap();
        assert!(!candidates(&own).unwrap().is_empty());
        assert!(!is_at_fault(own.pid, rustix::thread::gettid().as_raw_nonzero().get() as u32));
    }
}
