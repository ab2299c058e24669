//! How what was made in a program ends: by itself, wherever that can be had.
//!
//! Whoever adopts orphans (`PR_SET_CHILD_SUBREAPER`) may get what was made in a program that has ended
//! meanwhile, and waits for it. A child that was killed would look like one of its own that has failed.

use std::time::{Duration, Instant};

use farmem_page::PAGE_BYTES;
use farmem_sys::Errno;
use farmem_sys::subject::puppet::code;
use farmem_sys::subject::tracee::{Registers, State, Tracee};
use linux_raw_sys::general as raw;

use crate::injection::{SYSCALL, SYSCALL_BYTES, is_instruction};

/// How often it is looked how something is.
const LOOK: Duration = Duration::from_micros(20);
/// How long it may take to end by itself.
const ENDING_ITSELF: Duration = Duration::from_millis(100);
/// How long it may take when it has been stopped for that. On a busy machine it waits for a processor.
const ENDING_STOPPED: Duration = Duration::from_secs(2);

/// Ends what stands still, by a call that it makes itself at `instruction`.
pub(crate) fn exit(tracee: &Tracee, instruction: u64) {
    if begin_exit(tracee, instruction).is_ok() && await_end(tracee, ENDING_STOPPED) {
        return;
    }
    kill(tracee);
}

/// Has what stands still begin to end by itself.
///
/// # Errors
/// [`Errno::SRCH`] when it doesn't stand still.
pub(crate) fn begin_exit(tracee: &Tracee, instruction: u64) -> Result<(), Errno> {
    let registers = tracee.registers()?;
    let exit = Registers { rip: instruction, ..registers.for_call(raw::__NR_exit, [0; 6]) };
    tracee.set_registers(&exit)?;
    tracee.resume(0)
}

/// Sees a puppet end that was told to. One that was at work, so that nobody could tell it, is stopped and
/// ends by a call of its own.
pub(crate) fn see_end(tracee: &Tracee) {
    let ends = |instruction| begin_exit(tracee, instruction).is_ok() && await_end(tracee, ENDING_STOPPED);
    let is_seen = await_end(tracee, ENDING_ITSELF)
        || stop(tracee, ENDING_STOPPED) && instruction_near(tracee).is_some_and(ends);
    if !is_seen {
        kill(tracee);
    }
}

/// An instruction for calls where a stopped puppet is: the one that it has just done, or one in its code.
fn instruction_near(tracee: &Tracee) -> Option<u64> {
    let at = tracee.registers().ok()?.rip;
    let in_code = code().windows(SYSCALL.len()).position(|window| window == SYSCALL)?;
    let code_at = at / PAGE_BYTES as u64 * PAGE_BYTES as u64;
    [at.wrapping_sub(SYSCALL_BYTES), code_at + in_code as u64]
        .into_iter()
        .find(|&instruction| is_instruction(tracee, instruction))
}

/// Whether it has come to a stop. A puppet sleeps, as long as nobody asks anything of it. No thread of the
/// program waits meanwhile, so it may take as long as a loaded machine needs to give it a processor.
pub(crate) fn stop(tracee: &Tracee, patience: Duration) -> bool {
    let began = Instant::now();
    if tracee.interrupt().is_err() {
        return false;
    }
    while began.elapsed() < patience {
        match tracee.state(false) {
            Ok(State::Stopped | State::AtCall | State::Signalled(_)) => return true,
            Ok(State::Running) => std::thread::sleep(LOOK),
            Ok(State::Made) => drop(tracee.resume(0)),
            Ok(State::Ended) | Err(_) => return false,
        }
    }
    false
}

/// Whether it ends within that time.
fn await_end(tracee: &Tracee, patience: Duration) -> bool {
    const LOOKS_WITHOUT_SLEEP: u32 = 100;
    let began = Instant::now();
    let mut looks = 0_u32;
    while began.elapsed() < patience {
        match tracee.state(false) {
            Ok(State::Ended) | Err(_) => return true,
            Ok(State::Running) if looks < LOOKS_WITHOUT_SLEEP => rustix::thread::sched_yield(),
            Ok(State::Running) => std::thread::sleep(LOOK),
            // What it was to make isn't there.
            Ok(State::Signalled(_)) => return false,
            Ok(State::Stopped | State::AtCall | State::Made) => drop(tracee.resume(0)),
        }
        looks += 1;
    }
    false
}

fn kill(tracee: &Tracee) {
    farmem_sys::process::kill(tracee.thread());
    while !matches!(tracee.state(true), Ok(State::Ended) | Err(_)) {}
}
