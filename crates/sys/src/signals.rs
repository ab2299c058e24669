//! Signals that the calling process was told to ignore before Rust's runtime began, standard descriptors that
//! were closed, and what a program that it starts is told of them and of limits. For supervisors alone.

use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::vec::Vec;

use linux_raw_sys::general as raw;
use nix::sys::signal::SigSet;
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, setrlimit};

use crate::syscall;

/// Ignored by Rust's runtime in this process, and set to their default by it in those that it starts.
const PIPE: usize = raw::SIGPIPE as usize;
/// Whoever ignores it is told of no child's end.
const CHILD: usize = raw::SIGCHLD as usize;

const DEFAULT: usize = 0;
const IGNORE: usize = 1;

static IS_PIPE_IGNORED: AtomicBool = AtomicBool::new(false);
static IS_CHILD_IGNORED: AtomicBool = AtomicBool::new(false);
/// Those of the first three descriptors that were closed, each a bit. Rust's runtime opens them.
static CLOSED: AtomicU8 = AtomicU8::new(0);
const STANDARD: core::ops::Range<usize> = 0..3;

/// Runs before Rust's runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;

extern "C" fn note() {
    for (number, is_ignored) in [(PIPE, &IS_PIPE_IGNORED), (CHILD, &IS_CHILD_IGNORED)] {
        is_ignored.store(action(number, None) == Ok(IGNORE), Ordering::Relaxed);
    }
    for descriptor in STANDARD {
        const GET_FLAGS: usize = raw::F_GETFD as usize;
        // SAFETY: the call has no pointers.
        let flags = unsafe { syscall::call(raw::__NR_fcntl, [descriptor, GET_FLAGS, 0, 0]) };
        CLOSED.fetch_or(u8::from(flags == Err(Errno::BADF)) << descriptor, Ordering::Relaxed);
    }
}

/// From now on the ends of children are told, whatever whoever called this process has set.
///
/// # Errors
/// What `rt_sigaction` returns.
pub fn hear_of_children() -> Result<(), Errno> {
    action(CHILD, Some(DEFAULT)).map(drop)
}

/// The program that `command` starts ignores what this process was told to ignore, and finds those standard
/// descriptors closed that this process has found closed.
pub fn hand_on(command: &mut Command) {
    let [pipe, child] = [&IS_PIPE_IGNORED, &IS_CHILD_IGNORED].map(|noted| noted.load(Ordering::Relaxed));
    let closed = CLOSED.load(Ordering::Relaxed);
    if !pipe && !child && closed == 0 {
        return;
    }
    let hand_on = move || {
        for (number, _) in [(PIPE, pipe), (CHILD, child)].into_iter().filter(|&(_, is_ignored)| is_ignored) {
            action(number, Some(IGNORE))?;
        }
        for descriptor in STANDARD.filter(|descriptor| closed >> descriptor & 1 != 0) {
            // SAFETY: in the process that becomes the program nobody uses the descriptor any more.
            unsafe { syscall::call(raw::__NR_close, [descriptor, 0, 0, 0]) }?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec it makes system calls and nothing else.
    unsafe { command.pre_exec(hand_on) };
}

/// The program that `command` starts has those limits, whatever this process has.
pub fn hand_on_limits(command: &mut Command, limits: Vec<(Resource, Rlimit)>) {
    let set = move || limits.iter().try_for_each(|&(resource, limit)| Ok(setrlimit(resource, limit)?));
    // SAFETY: between fork and exec it makes system calls and nothing else.
    unsafe { command.pre_exec(set) };
}

/// The program that `command` starts begins with those signals blocked, and this process keeps its own.
pub fn hand_on_mask(command: &mut Command, mask: SigSet) {
    // SAFETY: between fork and exec it makes a system call and nothing else.
    unsafe { command.pre_exec(move || Ok(mask.thread_set_mask()?)) };
}

/// Sends a signal by its number; realtime ones have no name.
///
/// # Errors
/// What `kill` returns.
pub fn send(process: Pid, number: u32) -> Result<(), Errno> {
    let process = process.as_raw_nonzero().get() as usize;
    // SAFETY: the call has no pointers.
    unsafe { syscall::call(raw::__NR_kill, [process, number as usize, 0, 0]) }.map(drop)
}

/// What happens at that signal, and from now on `new` if given: [`DEFAULT`] or [`IGNORE`].
fn action(number: usize, new: Option<usize>) -> Result<usize, Errno> {
    /// Handler, flags, restorer, and a set of signals.
    type Action = [usize; 4];
    const SET_BYTES: usize = 8;
    let new: Option<Action> = new.map(|handler| [handler, 0, 0, 0]);
    let mut before: Action = [0; _];
    let new = new.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: both are what the kernel calls an action and outlive the call; no handler is set that would be
    // called.
    unsafe {
        syscall::call(raw::__NR_rt_sigaction, [number, new as usize, &raw mut before as usize, SET_BYTES])?;
    }
    Ok(before[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_ignored_is_ignored_by_who_is_started() {
        IS_PIPE_IGNORED.store(true, Ordering::Relaxed);
        let mut command = Command::new("grep");
        command.args(["^SigIgn:", "/proc/self/status"]);

        hand_on(&mut command);

        let output = command.output().unwrap();
        let set = std::string::String::from_utf8(output.stdout).unwrap();
        let set = u64::from_str_radix(set.trim_start_matches("SigIgn:").trim(), 16).unwrap();
        assert_eq!(set >> (PIPE - 1) & 1, 1, "{set:x}");
    }

    #[test]
    fn what_was_closed_is_closed_in_who_is_started() {
        const INPUT: u8 = 1;
        CLOSED.store(INPUT, Ordering::Relaxed);
        let mut command = Command::new("sh");
        command.args(["-c", "for n in 0 1 2; do [ -e /proc/$$/fd/$n ] && echo $n; done"]);

        hand_on(&mut command);

        let output = command.output().unwrap();
        CLOSED.store(0, Ordering::Relaxed);
        assert_eq!(std::string::String::from_utf8(output.stdout).unwrap(), "1\n2\n");
    }
}
