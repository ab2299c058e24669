//! Threads that libc doesn't know: raw `clone`, a stack and a thread-local block of the runtime's own, every
//! signal blocked. They must never call into libc beyond `memcpy` and the like.

use core::ffi::CStr;

use rustix::io::Errno;

use crate::memory;
use crate::syscall;

/// An unoptimised build takes more than a quarter of it. What is never touched takes no memory.
const STACK_BYTES: usize = 1 << 20;
/// Words of the block that the thread pointer points to. libc code that looks at its thread block finds zeros
/// and, at the places where both glibc and musl keep it, the block's own address.
const BLOCK_WORDS: usize = 64;

/// Starts `run(value)` on a thread of its own.
///
/// # Errors
/// What `clone` or the allocation of its stack returns.
pub fn spawn_with<T: Send + 'static>(
    run: fn(&'static mut T) -> !,
    value: &'static mut T,
) -> Result<u32, Errno> {
    struct Start<T: 'static> {
        run: fn(&'static mut T) -> !,
        value: &'static mut T,
    }
    extern "C" fn begin<T: 'static>(start: usize) -> ! {
        // Its current folder is its own, and must not keep a file system from being unmounted that the
        // program has left.
        let _ = rustix::process::chdir(c"/");
        // SAFETY: `spawn_with` leaked the Start for this thread alone, and it is read once.
        let start = unsafe { core::ptr::read(start as *const Start<T>) };
        (start.run)(start.value)
    }
    let start = memory::leak(Start { run, value })?;
    spawn(begin::<T>, core::ptr::from_mut(start) as usize)
}

/// Starts `entry(argument)` on a thread of its own.
fn spawn(entry: extern "C" fn(usize) -> !, argument: usize) -> Result<u32, Errno> {
    let stack = memory::table_mut::<u8>(STACK_BYTES)?;
    // Below the thread pointer lies room for what a program's static thread-local storage would be.
    let block = memory::table_mut::<u64>(2 * BLOCK_WORDS)?;
    let pointer = block.as_mut_ptr().wrapping_add(BLOCK_WORDS);
    block[BLOCK_WORDS] = pointer as u64;
    block[BLOCK_WORDS + 2] = pointer as u64;
    let top = stack.as_mut_ptr_range().end;
    let blocked = block_signals()?;
    // SAFETY: the stack and the block are new, leaked, and used by this thread alone; `entry` never returns.
    let tid = unsafe { clone_thread(top, pointer.cast(), entry, argument) };
    restore_signals(&blocked);
    tid
}

/// Sets of signals as the kernel takes them.
type SignalSet = u64;
const SIG_SETMASK: usize = 2;

/// Blocks every signal for the calling thread; what was blocked before comes back.
fn block_signals() -> Result<SignalSet, Errno> {
    set_signals(SignalSet::MAX)
}

fn restore_signals(before: &SignalSet) {
    // Cannot fail: the call has only constant arguments apart from the set itself.
    let _ = set_signals(*before);
}

fn set_signals(set: SignalSet) -> Result<SignalSet, Errno> {
    let mut before: SignalSet = 0;
    // SAFETY: both sets are eight bytes that outlive the call. libc's internal signals stay blocked only
    // until `restore_signals`, a few calls later.
    unsafe {
        syscall::call(
            linux_raw_sys::general::__NR_rt_sigprocmask,
            [SIG_SETMASK, &raw const set as usize, &raw mut before as usize, size_of::<SignalSet>()],
        )?;
    }
    Ok(before)
}

/// # Safety
/// `top` must be the end of a stack and `tls` the middle of a thread block that nobody else uses; `entry`
/// must be safe to call with `argument` on a thread without libc.
#[cfg(target_arch = "x86_64")]
unsafe fn clone_thread(
    top: *mut u8,
    tls: *mut u8,
    entry: extern "C" fn(usize) -> !,
    argument: usize,
) -> Result<u32, Errno> {
    use linux_raw_sys::general as raw;
    // Without CLONE_FS: only a process that shares root and current folder with nobody may enter another
    // mount namespace.
    let flags = raw::CLONE_VM
        | raw::CLONE_FILES
        | raw::CLONE_SIGHAND
        | raw::CLONE_THREAD
        | raw::CLONE_SYSVSEM
        | raw::CLONE_SETTLS;
    let result: isize;
    // SAFETY: the child starts with its own stack (16-byte aligned at the call) and leaves only through
    // `entry`; the parent's registers are as the clobbers say.
    unsafe {
        core::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") raw::__NR_clone as isize => result,
            in("rdi") flags as usize,
            in("rsi") top,
            in("rdx") 0,
            in("r10") 0,
            in("r8") tls,
            in("r12") argument,
            in("r13") entry,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    if result < 0 { Err(Errno::from_raw_os_error(-result as i32)) } else { Ok(result as u32) }
}

#[cfg(not(target_arch = "x86_64"))]
compile_error!("farmem-sys: starting threads is written for x86-64 only so far");

/// Names the calling thread (at most 15 bytes), as `top -H` shows it.
pub fn name(name: &CStr) {
    let _ = rustix::thread::set_name(name);
}

/// The nice value of threads that must not be late.
pub const HURRIED_NICE: i32 = -15;

/// Lets the calling thread run before others, where the process may ask for that: it works little and must
/// not be late. Whether it may: a process that may lower a thread's nice value may also take one out of the
/// idle class ([`set_class`]).
pub fn hurry() -> bool {
    let before = rustix::process::getpriority_process(None);
    // Anybody may raise it.
    let is_lower = before.is_ok_and(|before| before > HURRIED_NICE);
    rustix::process::setpriority_process(None, HURRIED_NICE).is_ok() && is_lower
}

/// Changes the nice value of a thread of this process; left as it is where the kernel refuses.
pub fn set_nice(thread: u32, nice: i32) {
    let thread = i32::try_from(thread).ok().and_then(rustix::process::Pid::from_raw);
    let _ = rustix::process::setpriority_process(thread, nice);
}

/// Whether all threads of the session that the calling process has begun come together before those of other
/// sessions, by [`HURRIED_NICE`], or are equal to them, where the kernel gives each session its part of the
/// processors (autogroups); left as it is elsewhere, and where the kernel refuses.
pub fn hurry_session(is_hurried: bool) {
    use rustix::fs::{Mode, OFlags, open};
    const TEXT: &[u8] = b"-15";
    const _: () = assert!(HURRIED_NICE == -15, "as the text says");
    if rustix::process::getsid(None) != Ok(rustix::process::getpid()) {
        return;
    }
    if let Ok(file) = open(c"/proc/self/autogroup", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
        let _ = rustix::io::write(&file, if is_hurried { TEXT } else { b"0" });
    }
}

const SCHED_OTHER: u32 = 0;
const SCHED_FIFO: u32 = 1;
const SCHED_BATCH: u32 = 3;
const SCHED_IDLE: u32 = 5;
const SCHED_DEADLINE: u32 = 6;
/// What the thread makes begins without a priority, or a deadline.
const RESET_ON_FORK: u64 = 1;
/// A thread of these keeps its nice value while it is urgent.
const WITHOUT_PRIORITY: [u32; 3] = [SCHED_OTHER, SCHED_BATCH, SCHED_IDLE];

/// How a thread competes for a processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// As everybody else.
    Normal,
    /// Only when nobody else wants it (SCHED_IDLE). To the scheduler a processor that runs such a thread is
    /// free: a thread that is woken there stays there.
    Idle,
}

/// Changes the class of a thread of this process. `false` when the kernel refuses. Anybody may put a thread
/// into the idle class; only a thread that has `CAP_SYS_NICE`, or a limit of nice values that allows it
/// (`RLIMIT_NICE`), may take it out again.
pub fn set_class(thread: u32, class: Class) -> bool {
    let policy = match class {
        Class::Normal => SCHED_OTHER,
        Class::Idle => SCHED_IDLE,
    };
    Scheduling::of(thread).is_some_and(|own| Scheduling { policy, priority: 0, flags: 0, ..own }.give(thread))
}

/// How a thread competes for a processor, in the kernel's order (`sched_attr`): its policy, its priority or
/// nice value, and its deadline.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Scheduling {
    bytes: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

impl Scheduling {
    const BYTES: u32 = size_of::<Self>() as u32;
    /// Before all that is not urgent.
    const URGENT: Self = Self {
        bytes: Self::BYTES,
        policy: SCHED_FIFO,
        flags: 0,
        nice: 0,
        priority: 1,
        runtime_ns: 0,
        deadline_ns: 0,
        period_ns: 0,
    };

    /// The same for what the thread itself does, and not for what it makes.
    const fn of_itself(self) -> Self {
        Self { flags: self.flags | RESET_ON_FORK, ..self }
    }

    /// That of a thread of any process; `None` when it has ended.
    pub fn of(thread: u32) -> Option<Self> {
        let mut found = Self { bytes: Self::BYTES, ..Self::default() };
        // SAFETY: the kernel writes at most as many bytes as it is told to the place given.
        let asked = unsafe {
            syscall::call(
                linux_raw_sys::general::__NR_sched_getattr,
                [thread as usize, &raw mut found as usize, Self::BYTES as usize, 0],
            )
        };
        // A later kernel has more to say, and says so here.
        asked.is_ok().then_some(Self { bytes: Self::BYTES, ..found })
    }

    /// Gives it to a thread of any process. `false` when the kernel refuses.
    pub fn give(self, thread: u32) -> bool {
        // SAFETY: the kernel reads a description, whose length is its first word.
        let result = unsafe {
            syscall::call(
                linux_raw_sys::general::__NR_sched_setattr,
                [thread as usize, &raw const self as usize, 0, 0],
            )
        };
        result.is_ok()
    }
}

/// Lets a thread of any process run before all that is not urgent, and so what it makes from then on. Returns
/// what is to be given back to it; `None`, and nothing has changed, when the kernel refuses, or the thread
/// has a priority already. One that has a deadline keeps that; what it makes has none, as it could make
/// nothing otherwise.
pub fn make_urgent(thread: u32) -> Option<Scheduling> {
    let before = Scheduling::of(thread)?;
    let urgent = match before.policy {
        SCHED_DEADLINE => before.of_itself(),
        policy if WITHOUT_PRIORITY.contains(&policy) => Scheduling::URGENT,
        _ => return None,
    };
    urgent.give(thread).then_some(before)
}

/// Lets the calling thread run before all that is not urgent, but not the threads that it starts from then
/// on. Returns what it is to be given back; `None`, and nothing has changed, when the kernel refuses, or it
/// has a priority already.
pub fn become_urgent() -> Option<Scheduling> {
    let own = current();
    let before = Scheduling::of(own)?;
    let has_priority = !WITHOUT_PRIORITY.contains(&before.policy);
    // The mark stays: not everybody who may be urgent may take it away.
    (!has_priority && Scheduling::URGENT.of_itself().give(own)).then_some(before.of_itself())
}

/// Lets a thread of any process, which works for the calling one, compete for processors as that does. Where
/// the kernel refuses, it has no priority at least, and its nice value stays.
pub fn compete_as_own(thread: u32) {
    if Scheduling::of(current()).is_some_and(|own| own.give(thread)) {
        return;
    }
    let priority = 0_i32;
    // This call leaves the nice value alone, which the kernel doesn't tell of a thread that is urgent.
    // SAFETY: the kernel reads one integer, the priority.
    let _ = unsafe {
        syscall::call(
            linux_raw_sys::general::__NR_sched_setscheduler,
            [thread as usize, SCHED_OTHER as usize, &raw const priority as usize, 0],
        )
    };
}

/// The calling thread's number.
pub fn current() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

/// The processor that the calling thread runs on, or ran on a moment ago.
pub fn processor() -> usize {
    rustix::thread::sched_getcpu()
}

/// Ends the calling thread, and nothing else.
pub fn exit() -> ! {
    loop {
        // SAFETY: a raw thread has no libc state to clean up; its stack is leaked, so nothing dangles.
        let _ = unsafe { syscall::call(linux_raw_sys::general::__NR_exit, [0; 4]) };
    }
}

/// Lets a moment pass, for whoever looks at a word again and again.
pub fn spin() {
    core::hint::spin_loop();
}

/// Sleeps; other threads of the program go on.
pub fn sleep(nanoseconds: u64) {
    let duration = rustix::time::Timespec {
        tv_sec: (nanoseconds / 1_000_000_000) as i64,
        tv_nsec: (nanoseconds % 1_000_000_000) as i64,
    };
    let _ = rustix::thread::nanosleep(&duration);
}

/// Monotonic time in nanoseconds.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Processor time that the calling thread has used, in nanoseconds.
pub fn cpu_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Processor time that all threads of this process have used, in nanoseconds.
pub fn process_cpu_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    extern crate std;

    use core::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_thread_that_was_urgent_is_what_it_was() {
        std::thread::spawn(|| {
            let own = current();
            rustix::process::setpriority_process(None, 7).unwrap();
            let before = Scheduling::of(own).unwrap();

            // Not everybody may.
            if let Some(given_back) = make_urgent(own) {
                assert_eq!((given_back, Scheduling::of(own)), (before, Some(Scheduling::URGENT)));
                assert_eq!(make_urgent(own), None, "it is urgent already");
                assert!(given_back.give(own));
            }

            assert_eq!(Scheduling::of(own), Some(before));
            assert_eq!(rustix::process::getpriority_process(None), Ok(7));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_with_a_deadline_keeps_it_and_can_make_others_meanwhile() {
        const MILLISECOND: u64 = 1_000_000;
        std::thread::spawn(|| {
            let own = current();
            let with_deadline = Scheduling {
                policy: SCHED_DEADLINE,
                runtime_ns: MILLISECOND,
                deadline_ns: 100 * MILLISECOND,
                period_ns: 100 * MILLISECOND,
                ..Scheduling::of(own).unwrap()
            };
            // Not everybody may have one.
            if with_deadline.give(own) {
                let given_back = make_urgent(own).unwrap();
                assert_eq!(given_back.policy, SCHED_DEADLINE);
                assert!(std::thread::Builder::new().spawn(|| ()).is_ok());
                assert!(given_back.give(own));
                assert_eq!(Scheduling::of(own).map(|own| own.flags & RESET_ON_FORK), Some(0));
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn threads_that_an_urgent_one_starts_are_not_urgent() {
        const UNKNOWN: usize = usize::MAX;
        /// The policy of the started thread, as soon as that runs.
        static STARTED: AtomicUsize = AtomicUsize::new(UNKNOWN);
        fn run(_: &'static mut u8) -> ! {
            let own = Scheduling::of(current());
            STARTED.store(own.map_or(UNKNOWN - 1, |own| own.policy as usize), Ordering::Release);
            exit()
        }
        std::thread::spawn(|| {
            let normal = Scheduling { policy: SCHED_OTHER, ..Scheduling::of(current()).unwrap() };
            // Not everybody may be. A second time the mark of the first is there.
            for _ in 0..2 {
                let Some(given_back) = become_urgent() else { return };
                assert_eq!(become_urgent(), None, "it is urgent already");
                spawn_with(run, memory::leak(0).unwrap()).unwrap();
                while STARTED.load(Ordering::Acquire) == UNKNOWN {
                    sleep(1_000_000);
                }
                assert_eq!(STARTED.swap(UNKNOWN, Ordering::AcqRel), normal.policy as usize);
                assert!(given_back.give(current()));
                assert_eq!(Scheduling::of(current()), Some(normal.of_itself()));
            }
        })
        .join()
        .unwrap();
    }
}
