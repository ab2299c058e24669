//! Calls that a stopped thread of another process is made to make, one at a time.

use std::fs::File;
use std::os::unix::fs::FileExt;

use farmem_sys::Errno;
use farmem_sys::subject::tracee::{Registers, State, Tracee};
use procfs::process::{MMPermissions, MMapPath, MemoryMap, Process};

use crate::{AttachError, told};

/// The processor's instruction for system calls.
pub(crate) const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// Its length.
pub(crate) const SYSCALL_BYTES: u64 = SYSCALL.len() as u64;
/// The segment of code of 64 bits.
pub(crate) const WIDE: u64 = 0x33;
/// Stops that are none of the call's, before it is given up.
const ATTEMPTS: u32 = 64;

/// Where in the program there is an instruction for system calls: in what the kernel itself has put there, if
/// possible.
pub(crate) fn find_instruction(process: &Process, memory: &File) -> Result<u64, AttachError> {
    let maps = told::maps(process.pid).ok_or(AttachError::Ended)?;
    let is_code = |map: &&MemoryMap| map.perms.contains(MMPermissions::READ | MMPermissions::EXECUTE);
    let mut code: Vec<&MemoryMap> = maps.iter().filter(is_code).collect();
    code.sort_by_key(|map| map.pathname != MMapPath::Vdso);
    code.into_iter().find_map(|map| find_in(memory, map)).ok_or(AttachError::Busy)
}

fn find_in(memory: &File, map: &MemoryMap) -> Option<u64> {
    const MOST: u64 = 4 << 20;
    // What the kernel emulates, for old programs, can't be read.
    if map.pathname == MMapPath::Vsyscall {
        return None;
    }
    let (start, end) = map.address;
    let mut bytes = vec![0; (end - start).min(MOST) as usize];
    let read = memory.read_at(&mut bytes, start).ok()?;
    let at = bytes[..read].windows(2).position(|window| window == SYSCALL)?;
    Some(start + at as u64)
}

/// Whether the instruction is there in a stopped thread's memory: since it was looked for, the process may
/// have begun to run another program.
pub(crate) fn is_instruction(tracee: &Tracee, at: u64) -> bool {
    tracee.word(at).is_ok_and(|word| word.to_ne_bytes().starts_with(&SYSCALL))
}

/// A stopped thread, and where it makes calls.
#[derive(Debug)]
pub(crate) struct Injection<'a> {
    pub(crate) tracee: &'a Tracee,
    pub(crate) instruction: u64,
    /// Its registers, but for those that a call needs.
    pub(crate) registers: Registers,
}

/// What a call came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Outcome {
    pub(crate) result: Result<u64, Errno>,
    /// The process that it has made.
    pub(crate) made: Option<u32>,
}

impl Injection<'_> {
    /// Makes one call.
    pub(crate) fn call(&self, number: u32, arguments: [u64; 6]) -> Result<Outcome, Errno> {
        const TRAP_FLAG: u64 = 0x100;
        let registers = Registers {
            rip: self.instruction,
            eflags: self.registers.eflags & !TRAP_FLAG,
            ..self.registers.for_call(number, arguments)
        };
        let mut made = None;
        let mut is_in_call = false;
        self.tracee.set_registers(&registers)?;
        // Each stop is waited for: a thread that is left running can't be let go.
        for _ in 0..ATTEMPTS {
            self.tracee.run_to_call(0)?;
            match self.tracee.state(true)? {
                State::Ended => return Err(Errno::SRCH),
                State::Made => made = Some(self.tracee.message()?),
                State::Running => {}
                State::AtCall if !is_in_call => is_in_call = true,
                State::AtCall => {
                    let now = self.tracee.registers()?;
                    if !is_restarted(now.rax) {
                        return Ok(Outcome { result: result(now.rax), made });
                    }
                    is_in_call = false;
                    self.tracee.set_registers(&registers)?;
                }
                State::Stopped | State::Signalled(_) => {
                    // Something else has stopped it before the call.
                    is_in_call = false;
                    self.tracee.set_registers(&registers)?;
                }
            }
        }
        Err(Errno::BUSY)
    }

    /// Has a thread that has made calls stop where it was stopped at first, on its way back to the program:
    /// there the kernel makes a call again that was interrupted. The signal that it is to get when it goes
    /// on, or 0.
    pub(crate) fn settle(&self) -> Result<u32, Errno> {
        self.tracee.interrupt()?;
        for _ in 0..ATTEMPTS {
            self.tracee.resume(0)?;
            match self.tracee.state(true)? {
                State::Ended => return Err(Errno::SRCH),
                State::Stopped => return Ok(0),
                State::Signalled(signal) => return Ok(signal),
                State::Running | State::Made | State::AtCall => {}
            }
        }
        Err(Errno::BUSY)
    }

    /// One call, whose result alone matters.
    pub(crate) fn ask(
        &self,
        what: &'static str,
        number: u32,
        arguments: [u64; 6],
    ) -> Result<u64, AttachError> {
        let outcome = self.call(number, arguments).map_err(AttachError::refused(what))?;
        outcome.result.map_err(AttachError::refused(what))
    }
}

/// Whether the kernel would make the call again by itself.
fn is_restarted(rax: u64) -> bool {
    (-516..=-512).contains(&(rax as i64))
}

fn result(rax: u64) -> Result<u64, Errno> {
    match rax as i64 {
        failed @ -4095..0 => Err(Errno::from_raw_os_error(-failed as i32)),
        _ => Ok(rax),
    }
}
