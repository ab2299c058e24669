//! Calls that wait until a time, in programs that forbid the call by which they go on.
//!
//! When a thread is stopped that sleeps until a time, the kernel has it go on by another call,
//! `restart_syscall`. A filter of system calls that doesn't know that one ends the program for it, or has its
//! sleep fail. So the thread stays seized, with its filters at rest, until it has slept.

use farmem_sys::Errno;
use farmem_sys::subject::tracee::{Options, Registers, State, Tracee};
use linux_raw_sys::general as raw;

use crate::told;

/// The result of a call that goes on by `restart_syscall`.
const GOES_ON: i64 = -516;
/// The result of one that is made again as it was.
const MADE_AGAIN: i64 = -513;
/// What a call has for a result when it begins.
const BEGINS: i64 = -38;
const UNFILTERED: Options = Options { follows: false, ends_with_tracer: false, is_unfiltered: true };

/// A thread that sleeps until a time.
#[derive(Debug)]
pub(crate) struct Waiting {
    tracee: Tracee,
    /// Its registers when it was stopped in the call that it had made itself.
    cut: Registers,
}

/// What becomes of a thread that stands still.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// It goes on, and stays seized.
    Stays,
    /// It is let go as it is.
    Leaves,
    /// It is let go, and makes its call once more, for the whole time.
    LeavesToBeginAgain,
}

/// What follows for a thread in `state` with these registers. `is_last`: it is let go whatever it does.
fn next(state: State, registers: Registers, is_last: bool) -> Next {
    let result = registers.rax as i64;
    let waits = result == GOES_ON
        || state == State::AtCall
            && result == BEGINS
            && registers.orig_rax == u64::from(raw::__NR_restart_syscall);
    match (waits, is_last) {
        (false, _) => Next::Leaves,
        (true, false) => Next::Stays,
        (true, true) => Next::LeavesToBeginAgain,
    }
}

/// Whether a stopped thread has to be kept so.
pub(crate) fn is_needed(thread: u32, cut: Registers) -> bool {
    const FILTERED: u32 = 2;
    let is_filtered = || told::status(thread as i32).is_some_and(|status| status.seccomp == Some(FILTERED));
    cut.rax as i64 == GOES_ON && cut.orig_rax as i64 >= 0 && is_filtered()
}

impl Waiting {
    /// Has a stopped thread go on.
    ///
    /// # Errors
    /// The thread, which is to be let go: it makes its call again then.
    pub(crate) fn begin(tracee: Tracee, cut: Registers) -> Result<Self, Tracee> {
        match tracee.set_options(UNFILTERED).and_then(|()| tracee.run_to_call(0)) {
            Ok(()) => Ok(Self { tracee, cut }),
            Err(_) => {
                let _ = tracee.set_registers(&self::made_again(cut, cut));
                Err(tracee)
            }
        }
    }

    /// Lets it go if it has slept, and gives it back otherwise. `is_last`: it is stopped, and let go whatever
    /// it does.
    pub(crate) fn see_to(self, is_last: bool) -> Option<Self> {
        if is_last && self.tracee.interrupt().is_err() {
            return None;
        }
        let state = self.tracee.state(is_last);
        let signal = match state {
            Ok(State::Running) => return Some(self),
            Ok(State::Ended) | Err(_) => return None,
            Ok(State::Signalled(signal)) => signal,
            Ok(State::Stopped | State::AtCall | State::Made) => 0,
        };
        match self.follow(state.unwrap_or(State::Stopped), signal, is_last) {
            Ok(Next::Stays) => Some(self),
            Ok(Next::Leaves | Next::LeavesToBeginAgain) | Err(_) => None,
        }
    }

    fn follow(&self, state: State, signal: u32, is_last: bool) -> Result<Next, Errno> {
        let registers = self.tracee.registers()?;
        let next = next(state, registers, is_last);
        match next {
            Next::Stays => self.tracee.run_to_call(signal)?,
            Next::Leaves => self.tracee.let_go(signal)?,
            Next::LeavesToBeginAgain => {
                self.tracee.set_registers(&made_again(self.cut, registers))?;
                self.tracee.let_go(signal)?;
            }
        }
        Ok(next)
    }
}

/// The registers with which a thread makes the call once more in which it was stopped at first.
fn made_again(cut: Registers, now: Registers) -> Registers {
    // Where another call begins already it becomes this one.
    let rax = if now.rax as i64 == BEGINS { now.rax } else { MADE_AGAIN as u64 };
    Registers { rax, orig_rax: cut.orig_rax, ..now }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(call: u32, result: i64) -> Registers {
        Registers { orig_rax: call.into(), rax: result as u64, ..Registers::default() }
    }

    #[test]
    fn a_thread_stays_until_it_has_slept() {
        let sleeps = after(raw::__NR_restart_syscall, GOES_ON);
        assert_eq!(next(State::Signalled(17), sleeps, false), Next::Stays);
        assert_eq!(next(State::AtCall, after(raw::__NR_restart_syscall, BEGINS), false), Next::Stays);
        assert_eq!(next(State::AtCall, after(raw::__NR_restart_syscall, 0), false), Next::Leaves);
        // A handler of the program's has run, and makes a call of its own.
        assert_eq!(next(State::AtCall, after(raw::__NR_write, BEGINS), false), Next::Leaves);
    }

    #[test]
    fn one_that_is_left_begins_its_own_call_again() {
        let cut = after(raw::__NR_nanosleep, GOES_ON);
        let now = after(raw::__NR_restart_syscall, GOES_ON);
        assert_eq!(next(State::Stopped, now, true), Next::LeavesToBeginAgain);
        let again = made_again(cut, now);
        assert_eq!((again.orig_rax, again.rax as i64), (raw::__NR_nanosleep.into(), MADE_AGAIN));
        let begins = made_again(cut, after(raw::__NR_restart_syscall, BEGINS));
        assert_eq!((begins.orig_rax, begins.rax as i64), (raw::__NR_nanosleep.into(), BEGINS));
    }
}
