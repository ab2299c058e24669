//! Calls that a stop has cut short.
//!
//! A call that writes much to a pipe or a stream sleeps until all of it is written. When its thread is
//! stopped meanwhile it returns what it has written so far, as after a signal, and no program without a
//! handler expects that. The thread makes another call for the rest, to whose end it stays seized, and gets
//! the sum.

use std::sync::{Mutex, PoisonError};

use farmem_sys::Errno;
use farmem_sys::subject::tracee::{Dispatch, NO_CALL, Registers, State, Tracee};
use linux_raw_sys::general as raw;

use crate::injection::{WIDE, is_instruction};

/// Bytes of the instruction for system calls.
const SYSCALL_BYTES: u64 = 2;

/// A thread that makes the call for the rest.
struct Unfinished {
    tracee: Tracee,
    /// Its registers after the call that was cut short.
    cut: Registers,
}

/// Those of the calling thread, which has seized them.
static UNFINISHED: Mutex<Vec<Unfinished>> = Mutex::new(Vec::new());

/// What has to be called for the rest, by the registers of a thread that is stopped; `None` where nothing is
/// left.
fn rest_of(cut: Registers) -> Option<Registers> {
    // Those that need no other memory for the rest. On a datagram socket they do all or nothing.
    let is_write = [raw::__NR_write, raw::__NR_sendto].iter().any(|&call| cut.orig_rax == u64::from(call));
    let is_cut = cut.cs == WIDE && is_write && (cut.rax as i64) > 0 && cut.rax < cut.rdx;
    is_cut.then(|| Registers {
        rip: cut.rip.wrapping_sub(SYSCALL_BYTES),
        rax: cut.orig_rax,
        orig_rax: NO_CALL,
        rsi: cut.rsi.wrapping_add(cut.rax),
        rdx: cut.rdx - cut.rax,
        ..cut
    })
}

/// The registers of a thread whose call for the rest has returned that.
fn sum_of(cut: Registers, returned: u64) -> Registers {
    Registers { rax: cut.rax + (returned as i64).max(0) as u64, ..cut }
}

/// Has a stopped thread go on with the call that the stop has cut short. Where there is none the thread is
/// given back.
pub(crate) fn go_on(tracee: Tracee) -> Option<Tracee> {
    let Ok(cut) = tracee.registers() else { return Some(tracee) };
    let Some(rest) = rest_of(cut) else { return Some(tracee) };
    if !is_instruction(&tracee, rest.rip) || tracee.dispatch() != Dispatch::default() {
        return Some(tracee);
    }
    let begins = || -> Result<State, Errno> {
        tracee.set_registers(&rest)?;
        tracee.run_to_call()?;
        tracee.state(true)
    };
    match begins() {
        Ok(State::AtCall) if tracee.run_to_call().is_ok() => {
            unfinished().push(Unfinished { tracee, cut });
            None
        }
        Ok(State::Signalled(signal)) => {
            let _ = tracee.set_registers(&cut);
            let _ = tracee.let_go(signal);
            None
        }
        _ => {
            let _ = tracee.set_registers(&cut);
            Some(tracee)
        }
    }
}

fn unfinished() -> std::sync::MutexGuard<'static, Vec<Unfinished>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether there are any.
pub(crate) fn are_there() -> bool {
    !unfinished().is_empty()
}

/// Lets go those that have done the rest. By the thread that has seized them, now and then.
pub(crate) fn see_to_them() {
    let all = std::mem::take(&mut *unfinished());
    let left = all.into_iter().filter_map(|thread| thread.see_to(false));
    let left: Vec<Unfinished> = left.collect();
    unfinished().extend(left);
}

/// Lets all of them go, with what they have done by now.
pub(crate) fn end_all() {
    for thread in std::mem::take(&mut *unfinished()) {
        if thread.tracee.interrupt().is_ok() {
            thread.see_to(true);
        }
    }
}

impl Unfinished {
    /// Lets it go if it has stopped, and gives it back if it hasn't. `waits` until it has.
    fn see_to(self, waits: bool) -> Option<Self> {
        let Self { tracee, cut } = &self;
        let (registers, signal) = match tracee.state(waits) {
            Ok(State::Running) => return Some(self),
            Ok(State::AtCall) => (sum_of(*cut, tracee.registers().map_or(0, |registers| registers.rax)), 0),
            // Not before the call's end, so it has done nothing.
            Ok(State::Signalled(signal)) => (*cut, signal),
            Ok(State::Stopped | State::Made) => (*cut, 0),
            Ok(State::Ended) | Err(_) => return None,
        };
        let _ = tracee.set_registers(&registers);
        let _ = tracee.let_go(signal);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(call: u32, result: i64) -> Registers {
        Registers {
            orig_rax: call.into(),
            rax: result as u64,
            cs: WIDE,
            rip: 100,
            rsi: 4096,
            rdx: 1000,
            ..Registers::default()
        }
    }

    #[test]
    fn the_rest_of_a_write_is_called_for_and_added() {
        let cut = after(raw::__NR_write, 300);
        let rest = rest_of(cut).expect("700 bytes are left");
        assert_eq!((rest.rip, rest.rax, rest.rsi, rest.rdx), (98, raw::__NR_write.into(), 4396, 700));
        assert_eq!(sum_of(cut, 700).rax, 1000);
        // An error comes to the next call of the program's, as ever.
        assert_eq!(sum_of(cut, -32_i64 as u64).rax, 300);
    }

    #[test]
    fn nothing_is_left_of_a_call_that_has_done_all_or_nothing_or_is_another() {
        for (call, result) in [
            (raw::__NR_write, 1000),
            (raw::__NR_write, 0),
            (raw::__NR_write, -4),
            (raw::__NR_read, 300),
            (raw::__NR_writev, 300),
        ] {
            assert!(rest_of(after(call, result)).is_none());
        }
        let in_no_call = Registers { orig_rax: NO_CALL, ..after(0, 300) };
        assert!(rest_of(in_no_call).is_none());
    }
}
