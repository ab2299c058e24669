//! The pager of a program that was attached to, in a process of its own beside it.

use std::time::Duration;

use farmem_page::PAGE_BYTES;
use farmem_pager::{NAME_BYTES, Start, Started};
use farmem_sys::subject::tracee::{State, Tracee};
use farmem_sys::subject::{self, Attached};
use farmem_sys::{AsFd, memory};
use procfs::process::{MMapPath, Process};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::AttachError;
use crate::puppet;

/// How often it is looked whether the program is another one by now: its end is told at once, `exec` isn't.
const LOOK: Duration = Duration::from_millis(20);

/// Attaches the calling process to the process of that number, as its pager, until that has ended or is another program. `supervisor` is the address of the
/// application that it belongs to. The calling thread must be the only one.
///
/// # Errors
/// The program is as it was.
pub fn run(number: u32, supervisor: &[u8]) -> Result<(), AttachError> {
    let mut start = Start { name: [0; NAME_BYTES], name_length: supervisor.len(), stack: stack(number)?, data: 0 };
    start
        .name
        .get_mut(..supervisor.len())
        .ok_or(AttachError::Pager("the supervisor's address is too long"))?
        .copy_from_slice(supervisor);
    let made = puppet::make(number)?;
    let attached: &'static Attached =
        memory::leak(made.attached).map_err(AttachError::refused("memory"))?;
    subject::attach(attached);
    start.for_attached(made.uffd, nobody_asks).map_err(|_| AttachError::Pager("the supervisor refuses"))?;
    see_through(attached, &made.tracee);
    Ok(())
}

/// The program has no way to the pager but its faults.
fn nobody_asks(_: Started) {}

/// An address on the main stack, which stays local.
fn stack(number: u32) -> Result<usize, AttachError> {
    let maps = Process::new(number as i32).and_then(|process| process.maps()).map_err(|_| AttachError::Ended)?;
    let stack = maps.iter().find(|map| map.pathname == MMapPath::Stack);
    Ok(stack.map_or(0, |map| map.address.1 as usize - PAGE_BYTES))
}

/// Until the program ends or becomes another one. Then the puppet goes, and with it the memory.
fn see_through(attached: &Attached, tracee: &Tracee) {
    let number = tracee.thread();
    let puppet = Pid::from_raw(number as i32).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let look = Timespec { tv_sec: 0, tv_nsec: LOOK.as_nanos() as i64 };
    let mut is_there = true;
    loop {
        let mut set = vec![PollFd::from_borrowed_fd(attached.handle.as_fd(), PollFlags::IN)];
        if let Some(puppet) = puppet.as_ref().filter(|_| is_there) {
            set.push(PollFd::from_borrowed_fd(puppet.as_fd(), PollFlags::IN));
        }
        let _ = poll(&mut set, Some(&look));
        if is_there {
            match tracee.state(false) {
                Ok(State::Running) => {}
                // No signal is the puppet's business.
                Ok(State::Stopped | State::Made | State::Signalled(_)) => drop(tracee.resume(0)),
                Ok(State::Ended) | Err(_) => {
                    is_there = false;
                    attached.puppet.note_lost();
                }
            }
        }
        if attached.has_ended() || is_there && !attached.has_same_memory() {
            break;
        }
    }
    farmem_sys::process::kill(number);
    while is_there && !matches!(tracee.state(true), Ok(State::Ended) | Err(_)) {}
}
