//! The puppet: how it comes into being, and what it is given.
//!
//! It is a grandchild of the program, whose parent ends at once, so that nothing of it is left among the
//! program's children. It has no descriptor of the program's, no signal reaches it, it is in a process group
//! of its own, and its folder is the root. Its user is that of the program's thread; its capabilities and
//! most system calls it gives up before the program can tell it what to do ([`filter`]).

use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use farmem_page::{PAGE_BYTES, PageCount, PageRange, VirtAddr};
use farmem_sys::maps::has_executable_data;
use farmem_sys::subject::puppet::{Places, Puppet, SHARED_BYTES, STAGED, code};
use farmem_sys::subject::tracee::{Dispatch, NO_CALL, Options, Registers, State, Tracee};
use farmem_sys::subject::{Attached, attached};
use farmem_sys::thread::{self, Scheduling};
use farmem_sys::uffd::Uffd;
use farmem_sys::{AsFd, BorrowedFd, Errno, OwnedFd};
use linux_raw_sys::general as raw;
use procfs::process::{LimitValue, Process};
use rustix::fs::{Mode, OFlags, ftruncate, open, openat};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Resource, Rlimit, pidfd_getfd, pidfd_open, prlimit};

use crate::children::processes;
use crate::injection::{Injection, WIDE, find_instruction, is_instruction};
use crate::place;
use crate::threads::{candidates, is_at_fault};
use crate::{AttachError, end, filter, told, unfinished};

/// How long a thread may take to stop.
const STOPPING: Duration = Duration::from_millis(200);
/// How long the puppet may take to stop, before what it has mapped is left in the program.
const CLEARING: Duration = Duration::from_secs(10);
/// Threads that are tried.
const MOST_THREADS: usize = 8;
/// While the program's thread makes the puppet, and in the puppet for ever.
const ALL_SIGNALS: u64 = u64::MAX;
const KEPT_DEAD: u64 = 0x4000_0000;
/// `PR_SET_CHILD_SUBREAPER` and `PR_GET_CHILD_SUBREAPER`.
const ADOPT_ORPHANS: u64 = 36;
const ADOPTS_ORPHANS: u64 = 37;
/// A thread that is asked to stop. What it makes until then is its own.
const SEIZED: Options = Options { follows: false, ends_with_tracer: false, is_unfiltered: true };
const FURNISHED: Options = Options { follows: false, ends_with_tracer: true, is_unfiltered: true };
const ALONE: Options = Options { follows: false, ends_with_tracer: true, is_unfiltered: false };

/// What comes of attaching.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) attached: Attached,
    /// Of the program's memory, not shaken hands with.
    pub(crate) uffd: Uffd,
    /// The puppet, which the calling thread traces.
    pub(crate) tracee: Tracee,
}

/// Makes a puppet for the process, whose threads run on. `uffd` is the userfaultfd of its memory, where there
/// is one. The puppet stays stopped.
pub(crate) fn make(number: u32, uffd: Option<&Uffd>) -> Result<Made, AttachError> {
    let process = Process::new(number as i32).map_err(|_| AttachError::Ended)?;
    let pid = Pid::from_raw(number as i32).ok_or(AttachError::Ended)?;
    let handle =
        pidfd_open(pid, PidfdFlags::empty()).map_err(AttachError::refused("a handle of the process"))?;
    let path = format!("/proc/{number}");
    let folder = open(path.as_str(), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(AttachError::refused("what it reports of the process"))?;
    let teller = told::teller(process.pid).ok_or(AttachError::Ended)?;
    let teller =
        openat(&folder, teller.as_str(), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(AttachError::refused("what it reports of the process"))?;
    let memory = File::from(
        openat(&teller, c"mem", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(AttachError::refused("the process's memory"))?,
    );
    let instruction = find_instruction(&process, &memory)?;
    let tracee = inject(&process, &memory, instruction)?;
    let own = Urgent::make(thread::current());
    let furnished = furnish(&tracee, teller.as_fd(), &memory, instruction, uffd);
    if furnished.is_err() {
        end::exit(&tracee, instruction);
    }
    drop(own);
    let (puppet, uffd) = furnished?;
    // The kernel gave it what the thread had that made it: the urgency of that moment, and the nice value of
    // a thread that may be the least of the program's.
    thread::compete_as_own(tracee.thread());
    let path = format!("/proc/{}", tracee.thread());
    let memory_folder =
        open(path.as_str(), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(AttachError::refused("what it reports of the puppet"))?;
    Ok(Made { attached: Attached { process: number, handle, folder, memory_folder, puppet }, uffd, tracee })
}

/// A thread that is urgent until this is dropped, where the kernel allows that.
///
/// As long as a thread of the program's stands still, whoever works for it comes before what is busy on this
/// machine. With eight busy threads on two processors each of a dozen steps would wait for its turn, and the
/// thread for all of them.
struct Urgent {
    thread: u32,
    before: Option<Scheduling>,
}

impl Urgent {
    fn make(thread: u32) -> Self {
        Self { thread, before: thread::make_urgent(thread) }
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            before.give(self.thread);
        }
    }
}

/// Has one thread of the program make the puppet, which is stopped then.
fn inject(process: &Process, memory: &File, instruction: u64) -> Result<Tracee, AttachError> {
    let mut last = AttachError::Busy;
    for thread in candidates(process)?.into_iter().take(MOST_THREADS) {
        if told::has_other_namespaces_for_children(process.pid, thread) {
            last = AttachError::Apart;
            continue;
        }
        match seize(process, thread) {
            Ok(tracee) => {
                let mut signal = 0;
                // Not before it stands still: while many pagers waited urgently for their threads to stop,
                // those threads got no processor to stop on.
                let own = Urgent::make(thread::current());
                let urgent = Urgent::make(thread);
                let made = make_in(&tracee, process, memory, instruction, &mut signal);
                drop(urgent);
                release(tracee, signal);
                drop(own);
                match made {
                    Err(AttachError::Busy) => last = AttachError::Busy,
                    made => return made,
                }
            }
            Err(AttachError::Ended) => {}
            Err(error) => last = error,
        }
    }
    if told::teller(process.pid).is_none() {
        return Err(AttachError::Ended);
    }
    Err(last)
}

/// Seizes a thread and stops it. A signal that comes to it meanwhile it gets first.
fn seize(process: &Process, thread: u32) -> Result<Tracee, AttachError> {
    let mut options = SEIZED;
    let tracee = match Tracee::seize(thread, options) {
        // A process that may not suspend filters may still attach to one that has none.
        Err(Errno::PERM) if tracer_of(process).is_none() => {
            options.is_unfiltered = false;
            Tracee::seize(thread, options)
        }
        seized => seized,
    }
    .map_err(|errno| match tracer_of(process) {
        Some(tracer) => AttachError::Traced(tracer),
        None => AttachError::refused("tracing")(errno),
    })?;
    let stop = || {
        tracee.interrupt()?;
        let began = Instant::now();
        let mut looks = 0_u32;
        while began.elapsed() < STOPPING {
            match tracee.state(false)? {
                State::Stopped => return Ok(()),
                State::Signalled(signal) => tracee.resume(signal)?,
                State::Made | State::AtCall => tracee.resume(0)?,
                State::Ended => return Err(Errno::SRCH),
                State::Running if looks < 100 => rustix::thread::sched_yield(),
                State::Running => std::thread::sleep(Duration::from_micros(20)),
            }
            looks += 1;
        }
        Err(Errno::TIME)
    };
    match stop() {
        Ok(()) => match tracee.set_options(Options { follows: true, ..options }) {
            Ok(()) => Ok(tracee),
            Err(errno) => {
                release(tracee, 0);
                Err(AttachError::refused("tracing")(errno))
            }
        },
        Err(Errno::SRCH | Errno::CHILD) => {
            release(tracee, 0);
            Err(AttachError::Ended)
        }
        Err(_) => {
            release_running(tracee);
            Err(AttachError::Busy)
        }
    }
}

/// Lets a thread go that hasn't come to a stop: it can't be let go before it has.
fn release_running(tracee: Tracee) {
    let signal = loop {
        match tracee.state(true) {
            Ok(State::Running | State::Made) => {}
            Ok(State::Signalled(signal)) => break signal,
            Ok(State::Stopped | State::AtCall) => break 0,
            Ok(State::Ended) | Err(_) => return,
        }
    };
    release(tracee, signal);
}

/// Threads that have ended while they were seized, or are about to, and haven't been waited for.
static ENDING: Mutex<Vec<Tracee>> = Mutex::new(Vec::new());

/// Lets a stopped thread go, with the signal that it is to get, or 0. Whatever came of the stop, a call that
/// has returned early because of it is made again, or for the rest.
///
/// A thread that is ending can't be let go. Its process's parent hears of the end only when the calling
/// thread has, and that may take as long as the process has other threads: it is waited for by
/// [`see_to_seized`].
fn release(tracee: Tracee, signal: u32) {
    let tracee = match signal {
        0 => match unfinished::go_on(tracee) {
            Some(tracee) => tracee,
            None => return,
        },
        // It cuts such a call short anyway.
        _ => tracee,
    };
    if let Some(again) = tracee.registers().ok().and_then(called_again) {
        let _ = tracee.set_registers(&again);
    }
    if tracee.let_go(signal).is_err() {
        ENDING.lock().unwrap_or_else(PoisonError::into_inner).push(tracee);
    }
}

/// Lets go threads that are done with what they were kept for, and hears of the ends of those that couldn't
/// be let go. By the thread that has seized them, now and then for as long as it lives.
pub(crate) fn see_to_seized() {
    unfinished::see_to_them();
    let ending = std::mem::take(&mut *ENDING.lock().unwrap_or_else(PoisonError::into_inner));
    for tracee in ending {
        match tracee.state(false) {
            Ok(State::Ended) | Err(_) => {}
            Ok(State::Running) => ENDING.lock().unwrap_or_else(PoisonError::into_inner).push(tracee),
            Ok(_) => release(tracee, 0),
        }
    }
}

fn tracer_of(process: &Process) -> Option<u32> {
    let tracer = told::status(process.pid)?.tracerpid;
    u32::try_from(tracer).ok().filter(|&tracer| tracer != 0 && tracer != std::process::id())
}

/// Makes the puppet in a stopped thread, whose registers are afterwards what they were. `signal` is one that
/// it is to get when it goes on.
fn make_in(
    thread: &Tracee,
    process: &Process,
    memory: &File,
    instruction: u64,
    signal: &mut u32,
) -> Result<Tracee, AttachError> {
    let before = thread.registers().map_err(AttachError::refused("its registers"))?;
    if before.cs != WIDE {
        // A program of 64 bits may run code of 32 for a while, as emulators do.
        return Err(if told::is_narrow(process.pid as u32) {
            AttachError::Narrow
        } else {
            AttachError::Busy
        });
    }
    let is_at_fault = is_at_fault(process.pid, thread.thread());
    if is_at_fault || !is_instruction(thread, instruction) || is_in_sequence(thread, memory) {
        return Err(AttachError::Busy);
    }
    let mask = thread.mask().map_err(AttachError::refused("its signals"))?;
    // Calls that it makes here are none that the program has asked to be told of.
    let dispatch = thread.dispatch();
    let is_told = dispatch != Dispatch::default();
    let injection = Injection { tracee: thread, instruction, registers: before };
    let made = thread
        .set_mask(ALL_SIGNALS)
        .and_then(|()| if is_told { thread.set_dispatch(Dispatch::default()) } else { Ok(()) })
        .map_err(AttachError::refused("its signals"))
        .and_then(|()| {
            if is_first_of_namespace(process) {
                make_one(&injection, process)
            } else {
                make_twice(&injection, process)
            }
        });
    // Whatever came of it: a thread that has ended needs none of this.
    *signal = injection.settle().unwrap_or(0);
    let _ = thread.set_registers(&before);
    let _ = thread.set_mask(mask);
    if is_told {
        let _ = thread.set_dispatch(dispatch);
    }
    made
}

/// Whether the thread is in the midst of a restartable sequence: made to run something else, it would not
/// begin it again.
fn is_in_sequence(thread: &Tracee, memory: &File) -> bool {
    let Some(place) = thread.restartable_sequence() else { return false };
    let mut pointer = [0; 8];
    memory.read_at(&mut pointer, place).is_ok_and(|read| read == pointer.len()) && pointer != [0; 8]
}

/// The registers with which a stopped thread makes its call again, if that has returned early.
///
/// Whether it does is left to the kernel, by the error with which calls ask for that (`ERESTARTNOHAND`). If
/// there is a signal for a handler of the program's, the call returns early after all, as the program may
/// expect. A pager that looked for signals itself would miss those that come after its look.
fn called_again(registers: Registers) -> Option<Registers> {
    const INTERRUPTED: i64 = -4;
    const RESTARTED_WITHOUT_HANDLER: i64 = -514;
    /// In programs of 32 bits.
    const NARROW_CLOSE: u64 = 6;
    let is_in_call = registers.orig_rax as i64 >= 0;
    let is_early = is_in_call && registers.rax as i64 == INTERRUPTED;
    // When this one returns early its descriptor has gone all the same. Its number may already be that of
    // another file, which would be closed.
    let close = if registers.cs == WIDE { u64::from(raw::__NR_close) } else { NARROW_CLOSE };
    (is_early && registers.orig_rax != close)
        .then_some(Registers { rax: RESTARTED_WITHOUT_HANDLER as u64, ..registers })
}

/// Whether it adopts all orphans of its PID namespace, whatever it wants. Its puppet stays its child, then:
/// one that is made without a signal for its end isn't waited for by a program that doesn't ask for such
/// children (`__WALL`), and an adopted one is.
fn is_first_of_namespace(process: &Process) -> bool {
    numbers(process.pid).last() == Some(&1)
}

/// The numbers of a process in the PID namespaces that it is in, its own last.
fn numbers(process: i32) -> Vec<i32> {
    told::status(process).and_then(|status| status.nspid).unwrap_or_default()
}

/// A child that makes the puppet and ends, so that the puppet is nobody's whom the program could ask about.
fn make_twice(injection: &Injection<'_>, process: &Process) -> Result<Tracee, AttachError> {
    let child = make_one(injection, process)?;
    let registers = child.registers().map_err(AttachError::refused("the puppet's registers"));
    let puppet = registers.and_then(|registers| {
        make_one(&Injection { tracee: &child, instruction: injection.instruction, registers }, process)
    });
    // The puppet would become its child, and a program that waits until it has none would wait for ever.
    let adopts = adopts_orphans(injection);
    if adopts {
        let _ = injection.call(raw::__NR_prctl, [ADOPT_ORPHANS, 0, 0, 0, 0, 0]);
    }
    // By which the program knows it, where it is in a PID namespace of its own.
    let number = numbers(child.thread() as i32).last().copied();
    end::exit(&child, injection.instruction);
    if adopts {
        let _ = injection.call(raw::__NR_prctl, [ADOPT_ORPHANS, 1, 0, 0, 0, 0]);
    }
    // The program's own child: what is left of it goes.
    if let Some(number) = number.and_then(|number| u64::try_from(number).ok()) {
        let _ = injection.call(raw::__NR_wait4, [number, 0, KEPT_DEAD, 0, 0, 0]);
    }
    puppet
}

/// Whether orphans become children of the program. The kernel says so in memory of the program's alone: in
/// some that is mapped for that, because all other may be far.
fn adopts_orphans(injection: &Injection<'_>) -> bool {
    let page = PAGE_BYTES as u64;
    let private = u64::from(raw::MAP_PRIVATE | raw::MAP_ANONYMOUS);
    let read_write = u64::from(raw::PROT_READ | raw::PROT_WRITE);
    let done =
        |number, arguments| injection.call(number, arguments).ok().and_then(|outcome| outcome.result.ok());
    let Some(place) = done(raw::__NR_mmap, [0, page, read_write, private, u64::MAX, 0]) else { return false };
    let said = done(raw::__NR_prctl, [ADOPTS_ORPHANS, place, 0, 0, 0, 0])
        .and_then(|_| injection.tracee.word(place).ok());
    let _ = done(raw::__NR_munmap, [place, page, 0, 0, 0, 0]);
    said.is_some_and(|word| word as u32 != 0)
}

fn make_one(injection: &Injection<'_>, process: &Process) -> Result<Tracee, AttachError> {
    let made = try_to_make_one(injection, process);
    if made.is_err() {
        end_untold(injection, process);
    }
    made
}

/// Ends what a thread has made that was ended before it could be asked for the number. It is seized and
/// stopped, and would keep the program's memory until the calling thread ends, and go on as a copy of the
/// program then.
fn end_untold(injection: &Injection<'_>, process: &Process) {
    let thread = injection.tracee.thread();
    let own = std::process::id() as i32;
    let puppet = attached().map(|attached| attached.puppet.number());
    let is_known = |number: u32| [Some(thread), Some(process.pid as u32), puppet].contains(&Some(number));
    let is_ending = |number: u32| {
        let ending = ENDING.lock().unwrap_or_else(PoisonError::into_inner);
        ending.iter().any(|tracee| tracee.thread() == number)
    };
    for number in processes().into_iter().filter(|&number| !is_known(number) && !is_ending(number)) {
        if told::status(number as i32).is_some_and(|status| status.tracerpid == own) {
            let untold = Tracee::made(number);
            // It stops where it begins.
            let _ = untold.state(true);
            end::exit(&untold, injection.instruction);
        }
    }
}

fn try_to_make_one(injection: &Injection<'_>, process: &Process) -> Result<Tracee, AttachError> {
    // Its table of files, too, and never a copy: each file of a copy would be told when it is closed. A file
    // system in user space would have to answer, perhaps by the thread that is stopped.
    let share = [u64::from(raw::CLONE_VM | raw::CLONE_FILES), 0, 0, 0, 0, 0];
    let make = || injection.call(raw::__NR_clone, share).map_err(AttachError::refused("a process"));
    let mut outcome = make()?;
    if outcome.result == Err(Errno::AGAIN) {
        // Its user has as many as it may: that is meant for what the program makes.
        outcome = with_more_processes(process, make)?;
    }
    outcome.result.map_err(AttachError::refused("a process"))?;
    let made = Tracee::made(outcome.made.ok_or(AttachError::Busy)?);
    match made.state(true) {
        Ok(State::Ended) | Err(_) => Err(AttachError::Ended),
        Ok(_) => Ok(made),
    }
}

fn with_more_processes<T>(
    process: &Process,
    make: impl Fn() -> Result<T, AttachError>,
) -> Result<T, AttachError> {
    let pid = Pid::from_raw(process.pid);
    let unlimited = Rlimit { current: None, maximum: None };
    // Where that isn't permitted it is as if nobody had tried: later its user may have fewer.
    let before = prlimit(pid, Resource::Nproc, unlimited)
        .map_err(|_| AttachError::refused("a process")(Errno::AGAIN))?;
    let made = make();
    let _ = prlimit(pid, Resource::Nproc, before);
    made
}

/// Gives the puppet what it needs.
fn furnish(
    tracee: &Tracee,
    folder: BorrowedFd<'_>,
    memory: &File,
    instruction: u64,
    uffd: Option<&Uffd>,
) -> Result<(Puppet, Uffd), AttachError> {
    let refused = AttachError::refused;
    let _ = tracee.set_options(FURNISHED);
    let registers = tracee.registers().map_err(refused("the puppet's registers"))?;
    let puppet = Injection { tracee, instruction, registers };
    let number = tracee.thread();
    let pid = Pid::from_raw(number as i32).ok_or(AttachError::Ended)?;
    let handle = pidfd_open(pid, PidfdFlags::empty()).map_err(refused("a handle of the puppet"))?;
    lift_limits(pid);
    let few = Rlimit { current: Some(64), maximum: Some(64) };
    let _ = prlimit(Some(pid), Resource::Nofile, few);
    // A table of its own, with nothing in it. The kernel copies files all the same, and closes the copies
    // here (seen with Linux 6.18): each waits for the server of its file system, if that has one.
    const APART: u64 = 2;
    puppet.ask("closing files", raw::__NR_close_range, [0, u32::MAX.into(), APART, 0, 0, 0])?;
    // Not a session: the kernel shares a processor between sessions first (autogroups), and one with a single
    // thread that runs for some microseconds at a time can wait for seconds next to a busy one.
    puppet.ask("a process group", raw::__NR_setpgid, [0; 6])?;

    // Unusable pages before, between and behind, so that nothing joins with what the program maps.
    // A program gets memory that it may write and run only if it has some already.
    let (runs, apart) = if runs_what_it_writes(folder) { (STAGED.get(), 1) } else { (0, 0) };
    let pages = [1, 1, 1, SHARED_BYTES as u64 / PAGE_BYTES as u64, 1, STAGED.get(), 1, runs, apart];
    let all_bytes = pages.iter().sum::<u64>() * PAGE_BYTES as u64;
    let private = u64::from(raw::MAP_PRIVATE | raw::MAP_ANONYMOUS | raw::MAP_NORESERVE);
    let place = place::find(number, all_bytes)?.unwrap_or(0);
    let all = puppet.ask("addresses", raw::__NR_mmap, [place, all_bytes, 0, private, u64::MAX, 0])?;
    let at = |part: usize| all + pages[..part].iter().sum::<u64>() * PAGE_BYTES as u64;
    let bytes = |part: usize| pages[part] * PAGE_BYTES as u64;
    let fixed = private | u64::from(raw::MAP_FIXED);
    let read_write = u64::from(raw::PROT_READ | raw::PROT_WRITE);
    let run = u64::from(raw::PROT_READ | raw::PROT_EXEC);
    let (code_at, shared_at, staging_at, executable_at) = (at(1), at(3), at(5), at(7));
    puppet.ask("memory for code", raw::__NR_mmap, [code_at, bytes(1), run, fixed, u64::MAX, 0])?;
    // The page is read and run, never written: only a tracer may, on some kernels.
    tracee.write(code_at, code()).map_err(refused("memory for code"))?;
    let texts_at = code_at + PAGE_BYTES as u64 / 2;
    tracee.write(texts_at, b"farmem-puppet\0/\0").map_err(refused("memory for code"))?;

    const CLOEXEC: u64 = 1;
    let file = puppet.ask("shared memory", raw::__NR_memfd_create, [texts_at, CLOEXEC, 0, 0, 0, 0])?;
    let shared = pidfd_getfd(&handle, file as i32, PidfdGetfdFlags::empty())
        .map_err(refused("the puppet's shared memory"))?;
    ftruncate(&shared, SHARED_BYTES as u64).map_err(refused("shared memory"))?;
    let shared_fixed = u64::from(raw::MAP_SHARED | raw::MAP_FIXED);
    puppet.ask("shared memory", raw::__NR_mmap, [shared_at, bytes(3), read_write, shared_fixed, file, 0])?;
    // Now, because the program may have as few as two descriptors, and nobody may have the right to more.
    puppet.ask("closing files", raw::__NR_close, [file, 0, 0, 0, 0, 0])?;
    puppet.ask("staging", raw::__NR_mmap, [staging_at, bytes(5), read_write, fixed, u64::MAX, 0])?;
    let executable_staging = runs > 0
        && puppet
            .ask("staging", raw::__NR_mmap, [executable_at, bytes(7), read_write | run, fixed, u64::MAX, 0])
            .is_ok();
    for advice in [raw::MADV_DONTFORK, raw::MADV_DONTDUMP] {
        puppet.ask("advice", raw::__NR_madvise, [all, all_bytes, advice.into(), 0, 0, 0])?;
    }
    // The program may have locked what is mapped later.
    let _ = puppet.ask("unlocking", raw::__NR_munlock, [all, all_bytes, 0, 0, 0, 0]);
    const NAME: u64 = 15;
    let _ = puppet.ask("its name", raw::__NR_prctl, [NAME, texts_at, 0, 0, 0, 0]);
    let _ = puppet.ask("its folder", raw::__NR_chdir, [texts_at + 14, 0, 0, 0, 0, 0]);

    // The first page is for requests, and must stay as it is: what was left there would count as one that is
    // answered.
    let scratch = shared_at + PAGE_BYTES as u64;
    let uffd_there = match uffd {
        Some(uffd) => give(&puppet, memory, &handle, uffd.as_fd(), scratch)?,
        None => make_uffd(&puppet, memory, &handle, scratch)?,
    };
    let uffd = pidfd_getfd(&handle, uffd_there as i32, PidfdGetfdFlags::empty())
        .map_err(refused("the puppet's userfaultfd"))?;
    give_up_rights(&puppet, texts_at + 64, uffd_there as u32)?;

    let first = VirtAddr::new(all).page();
    let places = Places {
        all: PageRange::at(first, PageCount::new(pages.iter().sum())),
        shared: shared_at,
        staging: VirtAddr::new(staging_at).page(),
        executable_staging: executable_staging.then_some(VirtAddr::new(executable_at).page()),
        uffd: uffd_there as u32,
    };
    // Its filters are the program's and its own: from here on it does nothing that the program may not do.
    tracee.set_options(ALONE).map_err(refused("the puppet's filters"))?;
    let start = Registers { rip: code_at, r12: shared_at, r13: 0, orig_rax: NO_CALL, ..registers };
    tracee.set_registers(&start).map_err(refused("the puppet's registers"))?;
    let puppet = Puppet::new(number, places, &shared).map_err(refused("shared memory"))?;
    Ok((puppet, Uffd::from(uffd)))
}

/// Lets a process have as much as can be had of what a puppet needs: without a limit, or up to the one that
/// only others may raise.
fn lift_limits(process: Pid) {
    let Ok(limits) = Process::new(process.as_raw_nonzero().get()).and_then(|process| process.limits()) else {
        return;
    };
    let before = [
        (Resource::As, limits.max_address_space),
        (Resource::Data, limits.max_data_size),
        (Resource::Memlock, limits.max_locked_memory),
        (Resource::Cpu, limits.max_cpu_time),
        (Resource::Rttime, limits.max_realtime_timeout),
    ];
    for (resource, limit) in before {
        let maximum = match limit.hard_limit {
            LimitValue::Value(maximum) => Some(maximum),
            LimitValue::Unlimited => None,
        };
        let unlimited = Rlimit { current: None, maximum: None };
        if prlimit(Some(process), resource, unlimited).is_err() {
            let _ = prlimit(Some(process), resource, Rlimit { current: maximum, maximum });
        }
    }
}

/// Leaves the puppet what it needs, which is no right at all. `scratch` is memory that it reads.
fn give_up_rights(puppet: &Injection<'_>, scratch: u64, uffd: u32) -> Result<(), AttachError> {
    const NO_NEW_RIGHTS: u64 = 38;
    const CAPABILITIES: u32 = 0x2008_0522;
    const FILTER: u64 = 1;
    // Otherwise the kernel makes each of its calls slower on some processors.
    const SPECULATES: u64 = 4;
    puppet.ask("giving up rights", raw::__NR_prctl, [NO_NEW_RIGHTS, 1, 0, 0, 0, 0])?;
    // Fewer capabilities, and the same user: with another one the kernel would keep the program, whose memory
    // this is, from looking at itself.
    let write = |at: u64, bytes: &[u8]| {
        puppet.tracee.write(at, bytes).map_err(AttachError::refused("memory for the puppet's rights"))
    };
    let none = [0; 6 * size_of::<u32>()];
    write(scratch + 8, &none)?;
    write(scratch, &u64::from(CAPABILITIES).to_ne_bytes())?;
    puppet.ask("giving up capabilities", raw::__NR_capset, [scratch, scratch + 8, 0, 0, 0, 0])?;
    write(scratch, &filter::at(scratch, uffd))?;
    let filtered = puppet.ask("filtering calls", raw::__NR_seccomp, [FILTER, SPECULATES, scratch, 0, 0, 0]);
    match filtered {
        // The program has left itself two or three calls, and its puppet as many: it ends with its first.
        Err(AttachError::Refused { errno: Errno::INVAL, .. }) if is_strict(puppet.tracee) => Ok(()),
        filtered => filtered.map(drop),
    }
}

/// Whether the program has memory that it may both write and run, as those have that make code while they
/// run.
fn runs_what_it_writes(folder: BorrowedFd<'_>) -> bool {
    openat(folder, c"maps", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .and_then(|maps| has_executable_data(maps.as_fd()))
        .unwrap_or(false)
}

/// Whether the kernel's strict mode holds for it, which no filter can be added to.
fn is_strict(tracee: &Tracee) -> bool {
    const STRICT: u32 = 1;
    told::status(tracee.thread() as i32).is_some_and(|status| status.seccomp == Some(STRICT))
}

/// Takes away what the puppet has mapped in the program, by the puppet itself, which is stopped then and can
/// only be ended. Where that can't be done some addresses stay taken.
pub(crate) fn clear(tracee: &Tracee, attached: &Attached) {
    let places = attached.puppet.places();
    let process = Process::new(attached.process as i32).ok();
    let Some(teller) = told::teller(attached.process as i32) else { return };
    let memory = format!("{teller}/mem");
    let memory =
        openat(&attached.folder, memory.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok();
    let Some((process, memory)) = process.zip(memory) else { return };
    let Ok(instruction) = find_instruction(&process, &File::from(memory)) else { return };
    if !end::stop(tracee, CLEARING) {
        return;
    }
    let Ok(registers) = tracee.registers() else { return };
    let puppet = Injection { tracee, instruction, registers };
    let (start, bytes) = (places.all.start.addr().get(), places.all.count().bytes().get());
    let _ = puppet.call(raw::__NR_munmap, [start, bytes, 0, 0, 0, 0]);
    // It has no code any more.
    let _ = end::begin_exit(tracee, instruction);
}

/// A userfaultfd of the program's memory; its number in the puppet.
fn make_uffd(
    puppet: &Injection<'_>,
    memory: &File,
    handle: &OwnedFd,
    scratch: u64,
) -> Result<u64, AttachError> {
    const NEW_FROM_DEVICE: u64 = 0xaa00;
    let flags = u64::from(raw::O_CLOEXEC | raw::O_NONBLOCK);
    let outcome = puppet
        .call(raw::__NR_userfaultfd, [flags, 0, 0, 0, 0, 0])
        .map_err(AttachError::refused("a userfaultfd"))?;
    match outcome.result {
        Ok(uffd) => Ok(uffd),
        Err(Errno::PERM | Errno::NOSYS) => {
            let device = open(c"/dev/userfaultfd", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
                .map_err(AttachError::refused("/dev/userfaultfd"))?;
            let there = give(puppet, memory, handle, device.as_fd(), scratch)?;
            let uffd =
                puppet.ask("a userfaultfd", raw::__NR_ioctl, [there, NEW_FROM_DEVICE, flags, 0, 0, 0])?;
            puppet.ask("closing files", raw::__NR_close, [there, 0, 0, 0, 0, 0])?;
            Ok(uffd)
        }
        Err(errno) => Err(AttachError::refused("a userfaultfd")(errno)),
    }
}

/// Gives the puppet a descriptor; its number there.
fn give(
    puppet: &Injection<'_>,
    memory: &File,
    handle: &OwnedFd,
    descriptor: BorrowedFd<'_>,
    scratch: u64,
) -> Result<u64, AttachError> {
    const WHAT: &str = "a descriptor for the puppet";
    const CLOSED_ON_EXEC: u64 = 0x4000_0000;
    let word = |at: u64| -> Result<u32, AttachError> {
        let mut bytes = [0; 4];
        memory.read_exact_at(&mut bytes, at)?;
        Ok(u32::from_ne_bytes(bytes))
    };
    const DATAGRAMS: u64 = 2;
    const CONTROL_LENGTH: u64 = 40;
    puppet.ask(WHAT, raw::__NR_socketpair, [1, DATAGRAMS, 0, scratch, 0, 0])?;
    let (ours, theirs) = (word(scratch)?, word(scratch + 4)?);
    let socket =
        pidfd_getfd(handle, ours as i32, PidfdGetfdFlags::empty()).map_err(AttachError::refused(WHAT))?;
    puppet.ask(WHAT, raw::__NR_close, [ours.into(), 0, 0, 0, 0, 0])?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(&socket, &[IoSlice::new(b"x")], &mut ancillary, SendFlags::NOSIGNAL)
        .map_err(AttachError::refused(WHAT))?;
    // The kernel's `msghdr`, what it points to, and the message's head with one number.
    let (header, vector, text, control) = (scratch + 64, scratch + 160, scratch + 192, scratch + 224);
    let words = [0, 0, vector, 1, control, 24, 0];
    for (nth, word) in words.iter().enumerate() {
        memory.write_all_at(&word.to_ne_bytes(), header + 8 * nth as u64)?;
    }
    for (nth, word) in [text, 1].iter().enumerate() {
        memory.write_all_at(&word.to_ne_bytes(), vector + 8 * nth as u64)?;
    }
    puppet.ask(WHAT, raw::__NR_recvmsg, [theirs.into(), header, CLOSED_ON_EXEC, 0, 0, 0])?;
    puppet.ask(WHAT, raw::__NR_close, [theirs.into(), 0, 0, 0, 0, 0])?;
    // Where it may have no further descriptor the kernel leaves it out, and says nothing else.
    if word(header + CONTROL_LENGTH)? == 0 {
        return Err(AttachError::refused(WHAT)(Errno::MFILE));
    }
    let got = word(control + 16)?;
    Ok(got.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those of a thread that is stopped after a call.
    fn after(call: u32, result: i64) -> Registers {
        Registers { orig_rax: call.into(), rax: result as u64, cs: WIDE, rip: 7, ..Registers::default() }
    }

    #[test]
    fn only_a_call_that_has_returned_early_is_made_again() {
        let again = called_again(after(raw::__NR_epoll_wait, -4)).expect("it has returned early");
        assert_eq!((again.rax as i64, again.orig_rax, again.rip), (-514, raw::__NR_epoll_wait.into(), 7));

        assert!(called_again(after(raw::__NR_epoll_wait, 1)).is_none());
        let in_no_call = Registers { orig_rax: NO_CALL, ..after(0, -4) };
        assert!(called_again(in_no_call).is_none());
    }

    #[test]
    fn a_file_is_not_closed_twice() {
        assert!(called_again(after(raw::__NR_close, -4)).is_none());
        let narrow = |call| Registers { cs: 0x23, ..after(call, -4) };
        assert!(called_again(narrow(6)).is_none());
        // There that is `read`.
        assert!(called_again(narrow(raw::__NR_close)).is_some());
    }
}
