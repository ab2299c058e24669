//! Calls that a stop has cut short.
//!
//! A call that moves much data may sleep or run until all of it is moved. When its thread is stopped
//! meanwhile it returns what it has moved so far, as after a signal, and no program without a handler
//! expects that. The thread makes further calls for the rest, to whose end it stays seized, and gets the sum.

use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use farmem_pager::Engine;
use farmem_sys::Errno;
use farmem_sys::subject::tracee::{Dispatch, Registers, State, Tracee};
use linux_raw_sys::general as raw;
use rustix::fs::{major, minor};
use rustix::net::{SocketType, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::injection::{SYSCALL_BYTES, WIDE, is_instruction};
use crate::waiting::{self, Waiting};

/// More bytes no call moves.
const MOST_BYTES: u64 = 0x7fff_f000;
/// More parts no call takes.
const MOST_PARTS: u64 = 1024;
/// Calls for the rest of a message, of which each part needs one.
const MOST_CALLS: usize = 64;
/// Bytes of a part's description, which is where it lies and how long it is.
const PART_BYTES: u64 = 16;
/// How often threads are looked at that make calls for the rest, at first and after [`SOON`].
const LOOK: Duration = Duration::from_millis(1);
const RARE_LOOK: Duration = Duration::from_millis(50);
const SOON: Duration = Duration::from_secs(1);

/// How long a pager that is to leave stays for calls for the rest. A call may wait for ever.
const PATIENCE: Duration = Duration::from_secs(5);

/// `MSG_DONTROUTE`, `MSG_DONTWAIT`, `MSG_EOR`, `MSG_NOSIGNAL` and `MSG_MORE`: with these alone it makes no
/// difference in how many calls something is sent.
const SENDS_IN_PARTS: u64 = 0x4 | 0x40 | 0x80 | 0x4000 | 0x8000;
/// `MSG_WAITALL`. With others than this and the next ones it does make a difference in how many calls
/// something is received.
pub(crate) const WAITS_FOR_ALL: u64 = 0x100;
/// `MSG_NOSIGNAL` and `MSG_CMSG_CLOEXEC`.
const RECEIVES_IN_PARTS: u64 = 0x4000 | 0x4000_0000;

/// A call for the rest, or for a part of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Step {
    call: u32,
    arguments: [u64; 6],
    /// What it returns if it isn't cut short.
    whole: u64,
}

/// What a descriptor stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// A socket without borders between messages.
    Stream,
    /// A device that always has more to read, whatever has been read.
    Endless,
    Other,
}

/// What has to be known of a stopped thread in addition to its registers.
trait Look {
    /// A word of its memory, if that is there.
    fn word(&self, address: u64) -> Option<u64>;
    fn kind(&self, descriptor: u64) -> Kind;
}

impl Look for Tracee {
    fn word(&self, address: u64) -> Option<u64> {
        Tracee::word(self, address).ok()
    }

    fn kind(&self, descriptor: u64) -> Kind {
        let (thread, descriptor) = (self.thread(), descriptor as i32);
        let Ok(file) = fs::metadata(format!("/proc/{thread}/fd/{descriptor}")) else { return Kind::Other };
        if file.file_type().is_char_device() {
            /// `/dev/zero`, `/dev/full`, `/dev/random` and `/dev/urandom`.
            const ENDLESS: [u32; 4] = [5, 7, 8, 9];
            let is_endless = major(file.rdev()) == 1 && ENDLESS.contains(&minor(file.rdev()));
            return if is_endless { Kind::Endless } else { Kind::Other };
        }
        if file.file_type().is_socket() && socket_type(thread, descriptor) == Some(SocketType::STREAM) {
            return Kind::Stream;
        }
        Kind::Other
    }
}

/// The type of a thread's socket.
fn socket_type(thread: u32, descriptor: i32) -> Option<SocketType> {
    /// `PIDFD_THREAD`: also where it isn't the first one of its process.
    const ANY_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(0x80);
    let handle = pidfd_open(Pid::from_raw(thread as i32)?, ANY_THREAD).ok()?;
    let socket = pidfd_getfd(handle, descriptor, PidfdGetfdFlags::empty()).ok()?;
    sockopt::socket_type(socket).ok()
}

/// A thread that makes calls for the rest.
struct Rest {
    tracee: Tracee,
    /// Its registers after the call that was cut short, with what has been done by the latest call that has
    /// ended.
    cut: Registers,
    /// The call that it is in, and those that follow.
    steps: VecDeque<Step>,
}

/// What a thread stays seized for.
enum Call {
    Rest(Rest),
    Waiting(Waiting),
}

/// A thread that stays seized until its call has ended.
struct Unfinished {
    call: Call,
    since: Instant,
}

impl Unfinished {
    fn new(call: Call) -> Self {
        Self { call, since: Instant::now() }
    }

    /// Lets it go if it has ended its call, and gives it back otherwise.
    fn see_to(self) -> Option<Self> {
        let call = match self.call {
            Call::Rest(rest) => Call::Rest(rest.see_to(false)?),
            Call::Waiting(waiting) => Call::Waiting(waiting.see_to(false)?),
        };
        Some(Self { call, ..self })
    }

    /// Lets it go with what it has done by now.
    fn end(self) {
        match self.call {
            Call::Rest(rest) => rest.end(),
            Call::Waiting(waiting) => drop(waiting.see_to(true)),
        }
    }
}

/// Those of the calling thread, which has seized them.
static UNFINISHED: Mutex<Vec<Unfinished>> = Mutex::new(Vec::new());

/// A part of memory, or what is left of it.
#[derive(Clone, Copy, Debug)]
struct Part {
    nth: u64,
    start: u64,
    bytes: u64,
    /// Of it, the bytes before that.
    skipped: u64,
}

/// The parts of memory that a list describes, without the `done` bytes at their beginning. `None` where that
/// can't be told.
fn parts_left(look: &impl Look, list: u64, count: u64, done: u64) -> Option<Vec<Part>> {
    if count > MOST_PARTS {
        return None;
    }
    let mut passed = 0_u64;
    let mut left = Vec::new();
    for nth in 0..count {
        let at = list.wrapping_add(nth * PART_BYTES);
        let (start, bytes) = (look.word(at)?, look.word(at.wrapping_add(8))?);
        let skipped = done.saturating_sub(passed).min(bytes);
        passed = passed.checked_add(bytes).filter(|&passed| passed <= MOST_BYTES)?;
        if skipped < bytes {
            left.push(Part { nth, start: start.wrapping_add(skipped), bytes: bytes - skipped, skipped });
        }
    }
    Some(left)
}

/// The calls for the rest of a list of parts.
fn vector_steps(look: &impl Look, [file, list, count, ..]: [u64; 6], done: u64) -> Option<Vec<Step>> {
    let left = parts_left(look, list, count, done)?;
    let mut steps = Vec::new();
    let mut whole = left.as_slice();
    if let Some((first, others)) = left.split_first().filter(|(first, _)| first.skipped > 0) {
        steps.push(Step {
            call: raw::__NR_write,
            arguments: [file, first.start, first.bytes, 0, 0, 0],
            whole: first.bytes,
        });
        whole = others;
    }
    if let Some(first) = whole.first() {
        steps.push(Step {
            call: raw::__NR_writev,
            arguments: [file, list.wrapping_add(first.nth * PART_BYTES), count - first.nth, 0, 0, 0],
            whole: whole.iter().map(|part| part.bytes).sum(),
        });
    }
    Some(steps)
}

/// The calls for the rest of a message without anything but data, each of them `call`.
fn message_steps(
    look: &impl Look,
    call: u32,
    [socket, message, flags, ..]: [u64; 6],
    done: u64,
) -> Option<Vec<Step>> {
    // The kernel's `msghdr`.
    let field = |nth: u64| look.word(message.wrapping_add(8 * nth));
    let (name, list, count, control) = (field(0)?, field(2)?, field(3)?, field(4)?);
    if name != 0 || control != 0 {
        return None;
    }
    let left = parts_left(look, list, count, done).filter(|left| left.len() <= MOST_CALLS)?;
    let step = |part: Part| Step {
        call,
        arguments: [socket, part.start, part.bytes, flags, 0, 0],
        whole: part.bytes,
    };
    Some(left.into_iter().map(step).collect())
}

/// What has to be called for the rest, by the registers of a thread that is stopped; nothing where nothing is
/// left, or where other calls than this one might do something else.
fn rest_of(cut: Registers, look: &impl Look) -> Vec<Step> {
    if cut.cs != WIDE || cut.rax as i64 <= 0 {
        return Vec::new();
    }
    let done = cut.rax;
    let arguments = cut.arguments();
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let waits_for_all =
        |flags: u64| flags & WAITS_FOR_ALL != 0 && flags & !(WAITS_FOR_ALL | RECEIVES_IN_PARTS) == 0;
    let Ok(call) = u32::try_from(cut.orig_rax) else { return Vec::new() };
    // The same call for less; `of` is the number of the argument that says how many bytes.
    let less = |of: usize, start: Option<usize>| {
        let whole = arguments[of].min(MOST_BYTES).checked_sub(done).filter(|&left| left > 0)?;
        let mut arguments = arguments;
        arguments[of] = whole;
        if let Some(start) = start {
            arguments[start] = arguments[start].wrapping_add(done);
        }
        Some(vec![Step { call, arguments, whole }])
    };
    let steps = match call {
        raw::__NR_write => less(2, Some(1)),
        // On a datagram socket these do all or nothing.
        raw::__NR_sendto if fourth & !SENDS_IN_PARTS == 0 => less(2, Some(1)),
        raw::__NR_sendmsg if third & !SENDS_IN_PARTS == 0 => {
            message_steps(look, raw::__NR_sendto, arguments, done)
        }
        raw::__NR_writev => vector_steps(look, arguments, done),
        // Where they have come to, the kernel has written down, in the file or in memory.
        raw::__NR_sendfile => less(3, None),
        raw::__NR_copy_file_range => less(4, None),
        raw::__NR_read if look.kind(first) == Kind::Endless => less(2, Some(1)),
        raw::__NR_getrandom => less(1, Some(0)),
        raw::__NR_recvfrom if waits_for_all(fourth) && fifth == 0 && look.kind(first) == Kind::Stream => {
            less(2, Some(1))
        }
        raw::__NR_recvmsg if waits_for_all(third) && look.kind(first) == Kind::Stream => {
            message_steps(look, raw::__NR_recvfrom, arguments, done)
        }
        raw::__NR_io_uring_enter => {
            /// `IORING_ENTER_GETEVENTS`.
            const WAITS: u64 = 1;
            // It returns what it has handed in, also where it has not waited for what it was to wait for.
            let may_be_cut = done == second && third > 0 && fourth & WAITS != 0;
            let arguments = [first, 0, third, fourth, fifth, sixth];
            may_be_cut.then(|| vec![Step { call, arguments, whole: 0 }])
        }
        _ => None,
    };
    steps.unwrap_or_default()
}

impl Step {
    /// The registers with which a thread makes the call that has made another one.
    fn registers(&self, cut: Registers) -> Registers {
        let rip = cut.rip.wrapping_sub(SYSCALL_BYTES);
        Registers { rip, ..cut.for_call(self.call, self.arguments) }
    }
}

/// The registers of a thread one of whose calls for the rest has returned that.
fn sum_of(cut: Registers, returned: u64) -> Registers {
    Registers { rax: cut.rax + (returned as i64).max(0) as u64, ..cut }
}

/// Has a stopped thread go on with the call that the stop has cut short. Where there is none the thread is
/// given back.
pub(crate) fn go_on(tracee: Tracee) -> Option<Tracee> {
    let Ok(cut) = tracee.registers() else { return Some(tracee) };
    if waiting::is_needed(tracee.thread(), cut) {
        return Waiting::begin(tracee, cut).map(|waiting| keep(Call::Waiting(waiting))).err();
    }
    let steps: VecDeque<Step> = rest_of(cut, &tracee).into();
    if steps.is_empty()
        || !is_instruction(&tracee, cut.rip.wrapping_sub(SYSCALL_BYTES))
        || tracee.dispatch() != Dispatch::default()
    {
        return Some(tracee);
    }
    let rest = Rest { tracee, cut, steps };
    match rest.begin() {
        Begun::Going => {
            keep(Call::Rest(rest));
            None
        }
        Begun::Not(0) => Some(rest.tracee),
        Begun::Not(signal) => {
            let _ = rest.tracee.let_go(signal);
            None
        }
    }
}

fn keep(call: Call) {
    unfinished().push(Unfinished::new(call));
}

fn unfinished() -> std::sync::MutexGuard<'static, Vec<Unfinished>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How soon they are to be looked at; `None` when there are none.
pub(crate) fn look() -> Option<Duration> {
    let latest = unfinished().iter().map(|thread| thread.since).max()?;
    Some(if latest.elapsed() < SOON { LOOK } else { RARE_LOOK })
}

/// Lets go those that have done the rest. By the thread that has seized them, now and then.
pub(crate) fn see_to_them() {
    let all = std::mem::take(&mut *unfinished());
    let left = all.into_iter().filter_map(Unfinished::see_to);
    let left: Vec<Unfinished> = left.collect();
    unfinished().extend(left);
}

/// Keeps a pager with its program while calls for the rest are made: until they have ended, or for
/// [`PATIENCE`] from when it is to leave.
#[derive(Debug, Default)]
pub(crate) struct Stay {
    leaving: Option<Instant>,
}

impl Stay {
    /// One look.
    pub(crate) fn step(&mut self, engine: &Engine) {
        if engine.is_withdrawing() {
            self.leaving.get_or_insert_with(Instant::now);
        }
        let is_patient = self.leaving.is_none_or(|since| since.elapsed() < PATIENCE);
        engine.set_needed(is_patient && look().is_some());
    }
}

/// Waits for all of them for [`PATIENCE`] at most. By the thread that has seized them.
pub(crate) fn finish() {
    let began = Instant::now();
    while began.elapsed() < PATIENCE
        && let Some(pause) = look()
    {
        see_to_them();
        std::thread::sleep(pause);
    }
    end_all();
}

/// Lets all of them go, with what they have done by now.
pub(crate) fn end_all() {
    std::mem::take(&mut *unfinished()).into_iter().for_each(Unfinished::end);
}

/// What comes of a call that a thread is to begin.
enum Begun {
    Going,
    /// It stands still as after the call before. The signal that it is to get, or 0.
    Not(u32),
}

impl Rest {
    /// Has a thread that stands still begin its first step.
    fn begin(&self) -> Begun {
        let Self { tracee, cut, steps } = self;
        let Some(step) = steps.front() else { return Begun::Not(0) };
        let begins = || -> Result<State, Errno> {
            tracee.set_registers(&step.registers(*cut))?;
            tracee.run_to_call(0)?;
            tracee.state(true)
        };
        let signal = match begins() {
            Ok(State::AtCall) if tracee.run_to_call(0).is_ok() => return Begun::Going,
            Ok(State::Signalled(signal)) => signal,
            _ => 0,
        };
        let _ = tracee.set_registers(cut);
        Begun::Not(signal)
    }

    /// Lets it go with what it has done by now.
    fn end(mut self) {
        self.steps.truncate(1);
        if self.tracee.interrupt().is_ok() {
            self.see_to(true);
        }
    }

    /// Lets it go if it has stopped at the end of its last step, and gives it back otherwise. `waits` until
    /// it has stopped.
    fn see_to(mut self, waits: bool) -> Option<Self> {
        let mut signal = 0;
        match self.tracee.state(waits) {
            Ok(State::Running) => return Some(self),
            Ok(State::AtCall) => {
                let returned = self.tracee.registers().map_or(0, |registers| registers.rax);
                self.cut = sum_of(self.cut, returned);
                let is_whole = self.steps.pop_front().is_some_and(|step| step.whole == returned);
                if is_whole && !self.steps.is_empty() {
                    match self.begin() {
                        Begun::Going => return Some(self),
                        Begun::Not(other) => signal = other,
                    }
                }
            }
            // Not before the call's end, so it has done nothing.
            Ok(State::Signalled(other)) => signal = other,
            Ok(State::Stopped | State::Made) => {}
            Ok(State::Ended) | Err(_) => return None,
        }
        let _ = self.tracee.set_registers(&self.cut);
        let _ = self.tracee.let_go(signal);
        None
    }
}

#[cfg(test)]
mod tests {
    use farmem_sys::subject::tracee::NO_CALL;

    use super::*;

    /// Words of memory by their addresses, and what every descriptor is.
    struct Told(&'static [(u64, u64)], Kind);

    impl Look for Told {
        fn word(&self, address: u64) -> Option<u64> {
            self.0.iter().find(|(at, _)| *at == address).map(|&(_, word)| word)
        }

        fn kind(&self, _: u64) -> Kind {
            self.1
        }
    }

    const NOTHING: Told = Told(&[], Kind::Other);
    /// Three parts of 100 bytes each at 512, and a message of these.
    const PARTS: &[(u64, u64)] = &[
        (512, 4096),
        (520, 100),
        (528, 8192),
        (536, 100),
        (544, 12288),
        (552, 100),
        (64, 0),
        (80, 512),
        (88, 3),
        (96, 0),
    ];

    fn after(call: u32, result: i64, arguments: [u64; 6]) -> Registers {
        let made = Registers::default().for_call(call, arguments);
        Registers { orig_rax: call.into(), rax: result as u64, cs: WIDE, rip: 100, ..made }
    }

    fn step(call: u32, arguments: [u64; 6], whole: u64) -> Step {
        Step { call, arguments, whole }
    }

    #[test]
    fn the_rest_of_a_write_is_called_for_and_added() {
        let cut = after(raw::__NR_write, 300, [1, 4096, 1000, 0, 0, 0]);
        let rest = rest_of(cut, &NOTHING);
        assert_eq!(rest, [step(raw::__NR_write, [1, 4396, 700, 0, 0, 0], 700)]);
        let registers = rest[0].registers(cut);
        assert_eq!((registers.rip, registers.rax, registers.rsi), (98, raw::__NR_write.into(), 4396));
        assert_eq!(sum_of(cut, 700).rax, 1000);
        // An error comes to the next call of the program's, as ever.
        assert_eq!(sum_of(cut, -32_i64 as u64).rax, 300);
    }

    #[test]
    fn no_rest_is_longer_than_what_one_call_moves() {
        let cut = after(raw::__NR_write, 4096, [1, 0, 3 << 30, 0, 0, 0]);
        assert_eq!(rest_of(cut, &NOTHING)[0].whole, MOST_BYTES - 4096);
    }

    #[test]
    fn the_rest_of_parts_begins_within_one_or_between_two() {
        let look = Told(PARTS, Kind::Stream);
        let rest = rest_of(after(raw::__NR_writev, 130, [1, 512, 3, 0, 0, 0]), &look);
        let write = step(raw::__NR_write, [1, 8222, 70, 0, 0, 0], 70);
        assert_eq!(rest, [write, step(raw::__NR_writev, [1, 544, 1, 0, 0, 0], 100)]);
        let rest = rest_of(after(raw::__NR_writev, 100, [1, 512, 3, 0, 0, 0]), &look);
        assert_eq!(rest, [step(raw::__NR_writev, [1, 528, 2, 0, 0, 0], 200)]);
        assert!(rest_of(after(raw::__NR_writev, 300, [1, 512, 3, 0, 0, 0]), &look).is_empty());
        // What lists the parts is far.
        assert!(rest_of(after(raw::__NR_writev, 100, [1, 768, 3, 0, 0, 0]), &look).is_empty());
    }

    #[test]
    fn the_rest_of_a_message_goes_part_by_part() {
        let look = Told(PARTS, Kind::Stream);
        const NO_SIGNAL: u64 = 0x4000;
        let rest = rest_of(after(raw::__NR_sendmsg, 130, [1, 64, NO_SIGNAL, 0, 0, 0]), &look);
        let send = |start, bytes| step(raw::__NR_sendto, [1, start, bytes, NO_SIGNAL, 0, 0], bytes);
        assert_eq!(rest, [send(8222, 70), send(12288, 100)]);
        let rest = rest_of(after(raw::__NR_recvmsg, 250, [1, 64, WAITS_FOR_ALL, 0, 0, 0]), &look);
        assert_eq!(rest, [step(raw::__NR_recvfrom, [1, 12338, 50, WAITS_FOR_ALL, 0, 0], 50)]);
    }

    #[test]
    fn what_is_received_goes_on_where_all_is_waited_for_and_no_message_ends() {
        let whole = [3, 4096, 1000, WAITS_FOR_ALL, 0, 0];
        let rest = rest_of(after(raw::__NR_recvfrom, 300, whole), &Told(&[], Kind::Stream));
        assert_eq!(rest, [step(raw::__NR_recvfrom, [3, 4396, 700, WAITS_FOR_ALL, 0, 0], 700)]);
        assert!(rest_of(after(raw::__NR_recvfrom, 300, whole), &NOTHING).is_empty());
        const PEEKS: u64 = 2;
        for flags in [0, WAITS_FOR_ALL | PEEKS] {
            let cut = after(raw::__NR_recvfrom, 300, [3, 4096, 1000, flags, 0, 0]);
            assert!(rest_of(cut, &Told(&[], Kind::Stream)).is_empty());
        }
    }

    #[test]
    fn more_is_read_of_what_is_endless() {
        let cut = after(raw::__NR_read, 300, [3, 4096, 1000, 0, 0, 0]);
        let rest = rest_of(cut, &Told(&[], Kind::Endless));
        assert_eq!(rest, [step(raw::__NR_read, [3, 4396, 700, 0, 0, 0], 700)]);
        let rest = rest_of(after(raw::__NR_getrandom, 256, [4096, 1000, 1, 0, 0, 0]), &NOTHING);
        assert_eq!(rest, [step(raw::__NR_getrandom, [4352, 744, 1, 0, 0, 0], 744)]);
    }

    #[test]
    fn files_are_copied_on_from_where_the_kernel_has_come_to() {
        let rest = rest_of(after(raw::__NR_sendfile, 300, [1, 3, 64, 1000, 0, 0]), &NOTHING);
        assert_eq!(rest, [step(raw::__NR_sendfile, [1, 3, 64, 700, 0, 0], 700)]);
        let rest = rest_of(after(raw::__NR_copy_file_range, 300, [3, 0, 1, 0, 1000, 0]), &NOTHING);
        assert_eq!(rest, [step(raw::__NR_copy_file_range, [3, 0, 1, 0, 700, 0], 700)]);
    }

    #[test]
    fn requests_to_the_kernel_are_waited_for_and_not_handed_in_twice() {
        let cut = after(raw::__NR_io_uring_enter, 2, [3, 2, 1, 1, 0, 8]);
        assert_eq!(rest_of(cut, &NOTHING), [step(raw::__NR_io_uring_enter, [3, 0, 1, 1, 0, 8], 0)]);
        assert_eq!(sum_of(cut, 0).rax, 2);
        for other in [[3, 3, 1, 1, 0, 8], [3, 2, 0, 1, 0, 8], [3, 2, 1, 0, 0, 8]] {
            assert!(rest_of(after(raw::__NR_io_uring_enter, 2, other), &NOTHING).is_empty());
        }
    }

    #[test]
    fn nothing_is_left_of_a_call_that_has_done_all_or_nothing_or_is_another() {
        const URGENT: u64 = 1;
        for (call, result, flags) in [
            (raw::__NR_write, 1000, 0),
            (raw::__NR_write, 0, 0),
            (raw::__NR_write, -4, 0),
            (raw::__NR_read, 300, 0),
            (raw::__NR_sendto, 300, URGENT),
            (raw::__NR_splice, 300, 0),
        ] {
            assert!(rest_of(after(call, result, [1, 4096, 1000, flags, 0, 0]), &NOTHING).is_empty());
        }
        let in_no_call = Registers { orig_rax: NO_CALL, ..after(0, 300, [1, 0, 1000, 0, 0, 0]) };
        assert!(rest_of(in_no_call, &NOTHING).is_empty());
    }

    #[test]
    fn a_device_that_never_ends_is_told_from_others_and_a_stream_from_datagrams() {
        use std::os::fd::AsRawFd;
        let own = Tracee::made(rustix::thread::gettid().as_raw_nonzero().get() as u32);
        let kind = |file: &dyn AsRawFd| own.kind(file.as_raw_fd() as u64);
        let open = |path: &str| fs::File::open(path).unwrap();
        assert_eq!(kind(&open("/dev/zero")), Kind::Endless);
        assert_eq!(kind(&open("/dev/urandom")), Kind::Endless);
        assert_eq!(kind(&open("/dev/null")), Kind::Other);
        assert_eq!(kind(&open("/proc/self/status")), Kind::Other);
        let (stream, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let (datagrams, _other) = std::os::unix::net::UnixDatagram::pair().unwrap();
        assert_eq!((kind(&stream), kind(&datagrams)), (Kind::Stream, Kind::Other));
    }
}
