//! The program whose memory is managed: that of the calling process, or another process that a pager was
//! attached to.
//!
//! A pager manages one program from its start to its end. Where it is attached, everything that other modules
//! say of "the program" concerns that other process: its mappings, its page table, its threads. What the
//! kernel allows only to a process that has the same address space is done by its [`Puppet`](puppet::Puppet).

pub mod objects;
mod punched;
pub mod puppet;
pub mod tracee;

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, open, openat};
use rustix::io::Errno;

use crate::process;
use crate::syscall;
use puppet::Puppet;

/// Another process, which this one's pager is attached to.
#[derive(Debug)]
pub struct Attached {
    /// Its number, as this process sees it.
    pub process: u32,
    /// It, whatever its number will be given to.
    pub handle: OwnedFd,
    /// What `/proc` says about it.
    pub folder: OwnedFd,
    /// What `/proc` says about the puppet, whose memory is the same, also when the process has ended or runs
    /// another program.
    pub memory_folder: OwnedFd,
    /// The puppet that works in its address space.
    pub puppet: Puppet,
}

static ATTACHED: AtomicPtr<Attached> = AtomicPtr::new(core::ptr::null_mut());

/// Whether the pager is ending because its program has ended, or is another one by now.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// From now on the program is that process. Before anything else is asked or done about it; once, and again
/// only in a forked pager, for the forked process.
pub fn attach(attached: &'static Attached) {
    ATTACHED.store(core::ptr::from_ref(attached).cast_mut(), Ordering::Release);
}

/// The other process, where the pager isn't inside its program.
pub fn attached() -> Option<&'static Attached> {
    // SAFETY: null, or what `attach` was given: a reference that lives for ever.
    unsafe { ATTACHED.load(Ordering::Acquire).as_ref() }
}

/// Opens one of the kernel's files about the program's memory.
pub(crate) fn open_memory_file(own: &CStr, name: &CStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    match attached() {
        None => open(own, flags, Mode::empty()),
        Some(attached) => match openat(&attached.memory_folder, name, flags, Mode::empty()) {
            // Asked afterwards, so that the puppet had its memory when the file was opened.
            Ok(file) if has_memory(&attached.memory_folder) => Ok(file),
            // A filter of the program's has ended the puppet; the file of a process that has ended tells
            // nothing.
            _ => openat(&attached.folder, name, flags, Mode::empty()),
        },
    }
}

/// Opens one of the kernel's files about the program.
pub(crate) fn open_file(own: &CStr, name: &CStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    match attached() {
        None => open(own, flags, Mode::empty()),
        Some(attached) => openat(&attached.folder, name, flags, Mode::empty()),
    }
}

/// Whether the program has ended, or is another one by now (`exec`), so that what was known of it concerns
/// nobody any more. `false` always where the pager ends with its program.
pub fn has_ended() -> bool {
    let is_over = |attached: &Attached| {
        IS_OVER.load(Ordering::Acquire) || attached.has_ended() || !attached.has_same_memory()
    };
    attached().is_some_and(is_over)
}

/// The program has ended, or is another one by now, and the pager is about to end. Before its puppet is told
/// to: a thread in the midst of its work then finds no puppet, and must not end the other program for that.
pub fn note_over() {
    IS_OVER.store(true, Ordering::Release);
}

/// Ends the program at once, and the calling process with it. After [`note_over`] the calling thread only
/// waits for the end of its process.
pub fn end() -> ! {
    if let Some(objects) = objects::objects() {
        objects.end();
    }
    while IS_OVER.load(Ordering::Acquire) {
        crate::thread::sleep(1_000_000_000);
    }
    if let Some(attached) = attached() {
        let _ = rustix::process::pidfd_send_signal(&attached.handle, rustix::process::Signal::KILL);
        process::kill(attached.puppet.number());
    }
    process::kill_self()
}

/// Leaves the program alone, which has ended or is ending: waits for the end of this process, which the
/// puppet's tracer brings about as soon as it has seen the puppet end, and ends it when that takes long. A
/// puppet whose tracer goes first is killed, and whoever has adopted it would take it for a child of its own
/// that has failed.
pub fn leave() -> ! {
    const PATIENCE_NS: u64 = 2_000_000_000;
    crate::thread::sleep(PATIENCE_NS);
    process::exit()
}

/// The number of the program's process, as this process sees it.
pub fn number() -> u32 {
    attached().map_or_else(process::own_number, |attached| attached.process)
}

/// Processor time that the program has used, in nanoseconds: all its threads, but not the calling one.
pub fn cpu_ns() -> u64 {
    if let Some(objects) = objects::objects() {
        return objects.cpu_ns();
    }
    match attached() {
        None => crate::thread::process_cpu_ns().saturating_sub(crate::thread::cpu_ns()),
        Some(attached) => cpu_ns_of(attached.process),
    }
}

/// Whether two processes have the same address space, as by a `clone` or `vfork` that shares it. `None` where
/// the kernel doesn't say, `false` when one has ended.
pub fn share_memory(one: u32, other: u32) -> Option<bool> {
    const KCMP_VM: usize = 1;
    // SAFETY: compares two processes; no memory is touched.
    let order = unsafe {
        syscall::call(linux_raw_sys::general::__NR_kcmp, [one as usize, other as usize, KCMP_VM, 0])
    };
    match order {
        Ok(order) => Some(order == 0),
        Err(Errno::SRCH) => Some(false),
        Err(_) => None,
    }
}

/// Whether a process still has memory: it gives that up before it has ended.
fn has_memory(folder: &OwnedFd) -> bool {
    let mut text = [0; 64];
    let file = openat(folder, c"statm", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let read = file.and_then(|file| rustix::io::read(&file, &mut text));
    read.is_ok_and(|length| length > 0) && text[0] != b'0'
}

/// The state of a process, by the letter that the kernel has for it.
fn state_in(folder: &OwnedFd) -> Option<u8> {
    let mut text = [0; 512];
    let file = openat(folder, c"stat", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let length = rustix::io::read(&file, &mut text).ok()?;
    let name_end = text[..length].iter().rposition(|&byte| byte == b')')?;
    text.get(name_end + 2).copied()
}

impl Attached {
    /// Whether the process has ended.
    pub fn has_ended(&self) -> bool {
        process::has_ended(&self.handle)
    }

    /// Whether the process still has the address space that the puppet works in: after `exec` it has another
    /// one. `true` where the kernel doesn't say.
    pub fn has_same_memory(&self) -> bool {
        if self.puppet.is_lost() {
            return true;
        }
        share_memory(self.process, self.puppet.number()).unwrap_or(true) || self.is_without_first_thread()
    }

    /// Whether its first thread has ended and others go on: then what the kernel says of the process's memory
    /// is said of none.
    fn is_without_first_thread(&self) -> bool {
        state_in(&self.folder) == Some(b'Z') && !self.has_ended()
    }

    /// Whether the puppet has ended. Asked where it hasn't answered for long: its tracer hears of that
    /// sooner.
    pub(crate) fn is_puppet_gone(&self) -> bool {
        !has_memory(&self.memory_folder)
    }
}

/// Processor time that a process has used, in nanoseconds; 0 when it has ended.
pub fn cpu_ns_of(process: u32) -> u64 {
    /// The clock of all threads of a process, by its number.
    const PROCESS_CLOCK: u32 = 2;
    let clock = !process << 3 | PROCESS_CLOCK;
    let mut time = [0_i64; 2];
    // SAFETY: the kernel writes seconds and nanoseconds, two words, to the place given.
    let asked = unsafe {
        syscall::call(
            linux_raw_sys::general::__NR_clock_gettime,
            [clock as i32 as usize, time.as_mut_ptr() as usize, 0, 0],
        )
    };
    if asked.is_err() {
        return 0;
    }
    time[0] as u64 * 1_000_000_000 + time[1] as u64
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn a_process_that_has_ended_has_no_memory() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let path = std::format!("/proc/{}", child.id());
        let folder =
            open(path.as_str(), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        // Nobody has waited for it: the folder is there until then.
        while has_memory(&folder) {
            std::thread::yield_now();
        }
        assert!(openat(&folder, c"maps", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).is_ok());
        child.wait().unwrap();
        assert!(!has_memory(&folder));
        let own =
            open(c"/proc/self", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        assert!(has_memory(&own));
    }
}
