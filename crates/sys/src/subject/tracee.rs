//! A thread of another process that is stopped, looked at, and made to call the kernel: `ptrace` as far as
//! attaching needs it.
//!
//! The thread that has seized another one is the only one that may ask for anything here.

use rustix::io::Errno;

use crate::syscall;

/// The registers of a thread, in the kernel's order (`user_regs_struct`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "the names are the processor's")]
pub struct Registers {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub orig_rax: u64,
    pub rip: u64,
    pub cs: u64,
    pub eflags: u64,
    pub rsp: u64,
    pub ss: u64,
    pub fs_base: u64,
    pub gs_base: u64,
    pub ds: u64,
    pub es: u64,
    pub fs: u64,
    pub gs: u64,
}

impl Registers {
    /// The arguments of the call that the thread has made, in the kernel's order.
    pub fn arguments(&self) -> [u64; 6] {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9]
    }

    /// With these the thread makes this call, if there is an instruction for calls where it goes on.
    pub fn for_call(self, call: u32, [rdi, rsi, rdx, r10, r8, r9]: [u64; 6]) -> Self {
        Self { rax: call.into(), orig_rax: NO_CALL, rdi, rsi, rdx, r10, r8, r9, ..self }
    }
}

/// No system call: the kernel then leaves the registers alone when the thread goes on.
pub const NO_CALL: u64 = u64::MAX;

/// What a seized thread is to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Processes and threads that it makes are seized as well, and begin stopped.
    pub follows: bool,
    /// It is ended when the calling thread ends.
    pub ends_with_tracer: bool,
    /// Its filters of system calls (seccomp) rest.
    pub is_unfiltered: bool,
}

impl Options {
    fn bits(self) -> usize {
        const CALLS_ARE_MARKED: usize = 1;
        const FORK: usize = 1 << 1;
        const VFORK: usize = 1 << 2;
        const CLONE: usize = 1 << 3;
        const EXIT_KILL: usize = 1 << 20;
        const SUSPEND_SECCOMP: usize = 1 << 21;
        let chosen = [
            (self.follows, FORK | VFORK | CLONE),
            (self.ends_with_tracer, EXIT_KILL),
            (self.is_unfiltered, SUSPEND_SECCOMP),
        ];
        chosen.iter().filter(|(is_wanted, _)| *is_wanted).map(|(_, bits)| bits).sum::<usize>()
            | CALLS_ARE_MARKED
    }
}

/// How a seized thread is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It runs.
    Running,
    /// It is stopped, for a reason of the tracer's: it was interrupted, or has just been made.
    Stopped,
    /// It is stopped where a system call of its begins or ends ([`Tracee::run_to_call`]).
    AtCall,
    /// It has made a process or thread ([`Tracee::message`] tells its number).
    Made,
    /// It is stopped because this signal is to be delivered to it.
    Signalled(u32),
    /// It has ended.
    Ended,
}

/// A seized thread. Dropping it leaves all as it is: [`Tracee::let_go`] ends it.
#[derive(Debug)]
pub struct Tracee {
    thread: u32,
}

const PEEK: usize = 1;
const POKE: usize = 5;
const CONTINUE: usize = 7;
const GET_REGISTERS: usize = 12;
const SET_REGISTERS: usize = 13;
const DETACH: usize = 17;
const TO_CALL: usize = 24;
const SET_OPTIONS: usize = 0x4200;
const EVENT_MESSAGE: usize = 0x4201;
const SEIZE: usize = 0x4206;
const INTERRUPT: usize = 0x4207;
const GET_MASK: usize = 0x420a;
const SET_MASK: usize = 0x420b;
const RSEQ: usize = 0x420f;
const SET_DISPATCH: usize = 0x4210;
const GET_DISPATCH: usize = 0x4211;

/// # Safety
/// `address` and `data` must be valid for what the request does with them.
unsafe fn request(number: usize, thread: u32, address: usize, data: usize) -> Result<usize, Errno> {
    // SAFETY: passed on to the caller.
    unsafe { syscall::call(linux_raw_sys::general::__NR_ptrace, [number, thread as usize, address, data]) }
}

/// What the kernel says of a thread's restartable sequences.
#[repr(C)]
#[derive(Default)]
struct RestartableSequences {
    address: u64,
    bytes: u32,
    signature: u32,
    flags: u32,
    padding: u32,
}

/// Which of a thread's calls the kernel doesn't make but reports to the thread itself
/// (`PR_SET_SYSCALL_USER_DISPATCH`).
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Dispatch {
    mode: u64,
    selector: u64,
    offset: u64,
    length: u64,
}

impl Tracee {
    /// Seizes a thread, which runs on.
    ///
    /// # Errors
    /// [`Errno::PERM`] where that isn't allowed, or somebody has seized it already; [`Errno::SRCH`] when it
    /// has ended.
    pub fn seize(thread: u32, options: Options) -> Result<Self, Errno> {
        // SAFETY: no memory is passed.
        unsafe { request(SEIZE, thread, 0, options.bits()) }.map(|_| Self { thread })
    }

    /// One that was made by a seized thread whose options said so.
    pub fn made(thread: u32) -> Self {
        Self { thread }
    }

    /// Its number.
    pub fn thread(&self) -> u32 {
        self.thread
    }

    /// Asks it to stop; [`Tracee::state`] tells when it has.
    ///
    /// # Errors
    /// [`Errno::SRCH`] when it has ended.
    pub fn interrupt(&self) -> Result<(), Errno> {
        // SAFETY: no memory is passed.
        unsafe { request(INTERRUPT, self.thread, 0, 0) }.map(drop)
    }

    /// How it is; each stop is told once. `waits` until there is something to tell.
    ///
    /// # Errors
    /// [`Errno::CHILD`] when it isn't seized.
    pub fn state(&self, waits: bool) -> Result<State, Errno> {
        const NO_HANG: usize = 1;
        const ALL: usize = 0x4000_0000;
        const EVENT_STOP: u32 = 128;
        const TRAP: u32 = 5;
        const TRAP_AT_CALL: u32 = 0x80 | TRAP;
        let mut status = 0_i32;
        let flags = if waits { ALL } else { ALL | NO_HANG };
        let found = loop {
            // SAFETY: the kernel writes one integer to the place given.
            let found = unsafe {
                syscall::call(
                    linux_raw_sys::general::__NR_wait4,
                    [self.thread as usize, &raw mut status as usize, flags, 0],
                )
            };
            if found != Err(Errno::INTR) {
                break found?;
            }
        };
        if found == 0 {
            return Ok(State::Running);
        }
        let status = status as u32;
        if status & 0xff != 0x7f {
            return Ok(State::Ended);
        }
        Ok(match (status >> 16, status >> 8 & 0xff) {
            (EVENT_STOP, _) | (0, TRAP) => State::Stopped,
            (0, TRAP_AT_CALL) => State::AtCall,
            (1..=3, _) => State::Made,
            (0, signal) => State::Signalled(signal),
            _ => State::Stopped,
        })
    }

    /// Its registers. While it is stopped, as all that follows.
    ///
    /// # Errors
    /// [`Errno::SRCH`] when it isn't stopped.
    pub fn registers(&self) -> Result<Registers, Errno> {
        let mut registers = Registers::default();
        // SAFETY: the kernel writes its registers' structure, which this one is, to the place given.
        unsafe { request(GET_REGISTERS, self.thread, 0, &raw mut registers as usize) }?;
        Ok(registers)
    }

    /// Changes its registers.
    ///
    /// # Errors
    /// As [`Tracee::registers`].
    pub fn set_registers(&self, registers: &Registers) -> Result<(), Errno> {
        // SAFETY: the kernel reads its registers' structure, which this one is.
        unsafe { request(SET_REGISTERS, self.thread, 0, core::ptr::from_ref(registers) as usize) }.map(drop)
    }

    /// A word of its memory.
    ///
    /// # Errors
    /// [`Errno::IO`] or [`Errno::FAULT`] where it has none; otherwise as [`Tracee::registers`].
    pub fn word(&self, address: u64) -> Result<u64, Errno> {
        let mut word = 0_u64;
        // SAFETY: the kernel writes one word to the place given.
        unsafe { request(PEEK, self.thread, address as usize, &raw mut word as usize) }?;
        Ok(word)
    }

    /// Writes to its memory, also where that may not be written to: a kernel that forbids this by
    /// `/proc/PID/mem` leaves it to tracers. What lies behind the bytes up to the next multiple of eight
    /// becomes zero.
    ///
    /// # Errors
    /// As [`Tracee::word`].
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        for (nth, part) in bytes.chunks(size_of::<u64>()).enumerate() {
            let mut word = [0; size_of::<u64>()];
            word[..part.len()].copy_from_slice(part);
            let place = address as usize + nth * size_of::<u64>();
            // SAFETY: the word is passed by value; the memory is the other process's alone.
            unsafe { request(POKE, self.thread, place, u64::from_ne_bytes(word) as usize) }?;
        }
        Ok(())
    }

    /// The signals that it blocks.
    ///
    /// # Errors
    /// As [`Tracee::registers`].
    pub fn mask(&self) -> Result<u64, Errno> {
        let mut mask = 0_u64;
        // SAFETY: the kernel writes a set of eight bytes to the place given.
        unsafe { request(GET_MASK, self.thread, size_of::<u64>(), &raw mut mask as usize) }?;
        Ok(mask)
    }

    /// Changes the signals that it blocks.
    ///
    /// # Errors
    /// As [`Tracee::registers`].
    pub fn set_mask(&self, mask: u64) -> Result<(), Errno> {
        // SAFETY: the kernel reads a set of eight bytes.
        unsafe { request(SET_MASK, self.thread, size_of::<u64>(), &raw const mask as usize) }.map(drop)
    }

    /// Where the thread's word for restartable sequences lies; `None` without one. In the midst of such a
    /// sequence a thread must not be made to run something else.
    pub fn restartable_sequence(&self) -> Option<u64> {
        /// The pointer to the sequence that is being run follows two numbers of the processor.
        const SEQUENCE: u64 = 8;
        let mut found = RestartableSequences::default();
        // SAFETY: the kernel writes at most as many bytes as it is told to the place given.
        unsafe { request(RSEQ, self.thread, size_of::<RestartableSequences>(), &raw mut found as usize) }
            .ok()?;
        (found.address != 0).then_some(found.address + SEQUENCE)
    }

    /// Which calls the thread has reported to itself; none by default, and where the kernel doesn't say
    /// (before Linux 6.4).
    pub fn dispatch(&self) -> Dispatch {
        let mut found = Dispatch::default();
        // SAFETY: the kernel writes a description of that size to the place given.
        let _ = unsafe { request(GET_DISPATCH, self.thread, size_of::<Dispatch>(), &raw mut found as usize) };
        found
    }

    /// Changes that.
    ///
    /// # Errors
    /// As [`Tracee::registers`].
    pub fn set_dispatch(&self, dispatch: Dispatch) -> Result<(), Errno> {
        // SAFETY: the kernel reads a description of that size.
        unsafe { request(SET_DISPATCH, self.thread, size_of::<Dispatch>(), &raw const dispatch as usize) }
            .map(drop)
    }

    /// Lets it run to where its next system call begins, or the one that it is in ends; `signal` is delivered
    /// to it, unless it is 0. No signal comes of that, as it does of a single step: there the kernel takes
    /// away the program's handler of `SIGTRAP` where that is blocked, and what waits of it.
    ///
    /// # Errors
    /// As [`Tracee::registers`].
    pub fn run_to_call(&self, signal: u32) -> Result<(), Errno> {
        // SAFETY: no memory is passed.
        unsafe { request(TO_CALL, self.thread, 0, signal as usize) }.map(drop)
    }

    /// Lets it run on; `signal` is delivered to it, unless it is 0.
    ///
    /// # Errors
    /// As [`Tracee::registers`].
    pub fn resume(&self, signal: u32) -> Result<(), Errno> {
        // SAFETY: no memory is passed.
        unsafe { request(CONTINUE, self.thread, 0, signal as usize) }.map(drop)
    }

    /// The number of the process that it has made.
    ///
    /// # Errors
    /// As [`Tracee::registers`].
    pub fn message(&self) -> Result<u32, Errno> {
        let mut message = 0_u64;
        // SAFETY: the kernel writes one word to the place given.
        unsafe { request(EVENT_MESSAGE, self.thread, 0, &raw mut message as usize) }?;
        Ok(message as u32)
    }

    /// Changes what it is to have.
    ///
    /// # Errors
    /// As [`Tracee::registers`].
    pub fn set_options(&self, options: Options) -> Result<(), Errno> {
        // SAFETY: no memory is passed.
        unsafe { request(SET_OPTIONS, self.thread, 0, options.bits()) }.map(drop)
    }

    /// Lets it go, and run on; `signal` is delivered to it, unless it is 0.
    ///
    /// # Errors
    /// As [`Tracee::registers`].
    pub fn let_go(&self, signal: u32) -> Result<(), Errno> {
        // SAFETY: no memory is passed.
        unsafe { request(DETACH, self.thread, 0, signal as usize) }.map(drop)
    }
}
