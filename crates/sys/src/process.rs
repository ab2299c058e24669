//! What the kernel knows of the program: memory in use, threads, where it runs.

use core::ffi::CStr;

use farmem_page::{PageCount, PageRange, VirtAddr};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, RawDir, open, openat};
use rustix::io::Errno;

use crate::subject::objects::{self, Objects};
use crate::{subject, syscall};

/// Resident memory of the program, or of what is shared ([`subject::objects`]).
#[derive(Debug)]
pub struct Statm {
    file: OwnedFd,
    objects: Option<&'static Objects>,
}

impl Statm {
    /// Opens the figures, for as long as the calling thread lives. Those of the process are those of its
    /// first thread, and zeros when that has ended and others go on.
    ///
    /// # Errors
    /// When /proc isn't there.
    pub fn open() -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = subject::open_memory_file(c"/proc/thread-self/statm", c"statm", flags)?;
        Ok(Self { file, objects: objects::objects() })
    }

    /// Resident pages that belong to no file. The kernel counts them in batches per processor, so the figure
    /// may lag by some dozen pages per processor.
    ///
    /// # Errors
    /// What `pread` returns.
    pub fn resident_anonymous(&self) -> Result<PageCount, Errno> {
        if let Some(objects) = self.objects {
            return objects.resident();
        }
        let mut text = [0_u8; 128];
        let length = rustix::io::pread(&self.file, &mut text, 0)?;
        let mut fields = text[..length].split(|&byte| byte == b' ').map(decimal);
        let resident = fields.nth(1).flatten().ok_or(Errno::INVAL)?;
        let shared = fields.next().flatten().ok_or(Errno::INVAL)?;
        Ok(PageCount::new(resident.saturating_sub(shared)))
    }
}

fn decimal(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0_u64, |value, &byte| {
        byte.is_ascii_digit().then(|| value.wrapping_mul(10).wrapping_add(u64::from(byte - b'0')))
    })
}

/// The program's threads. Those of the processes that share memory are found by their numbers, and not
/// listed.
#[derive(Debug)]
pub struct Threads {
    directory: OwnedFd,
    is_listed: bool,
}

impl Threads {
    /// Opens the list.
    ///
    /// # Errors
    /// When /proc isn't there.
    pub fn open() -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if objects::objects().is_some() {
            return Ok(Self { directory: open(c"/proc", flags, Mode::empty())?, is_listed: false });
        }
        Ok(Self { directory: subject::open_file(c"/proc/self/task", c"task", flags)?, is_listed: true })
    }

    /// Calls `visit` with the number of each thread, as the list is now.
    ///
    /// # Errors
    /// What `getdents` returns.
    pub fn each(&self, mut visit: impl FnMut(u32)) -> Result<(), Errno> {
        if !self.is_listed {
            return Ok(());
        }
        rustix::fs::seek(&self.directory, rustix::fs::SeekFrom::Start(0))?;
        let mut buffer = [core::mem::MaybeUninit::uninit(); 2048];
        let mut entries = RawDir::new(&self.directory, &mut buffer);
        while let Some(entry) = entries.next() {
            if let Some(thread) = decimal(entry?.file_name().to_bytes())
                && let Ok(thread) = u32::try_from(thread)
                && thread != 0
            {
                visit(thread);
            }
        }
        Ok(())
    }

    /// Whether `thread`, which waits at this moment, waits inside a system call; `None` when it doesn't wait.
    pub fn is_in_system_call(&self, thread: u32) -> Option<bool> {
        let mut path = [0_u8; 24];
        let name = write_path(&mut path, thread, b"/syscall\0")?;
        let file = openat(&self.directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let mut text = [0_u8; 8];
        let length = rustix::io::read(&file, &mut text).ok()?;
        match text[..length].first() {
            Some(b'-') => Some(false),
            Some(digit) if digit.is_ascii_digit() => Some(true),
            _ => None,
        }
    }

    /// Opens the figures of one thread, to ask where it runs; `None` when it has ended.
    pub fn watch(&self, thread: u32) -> Option<WatchedThread> {
        let mut path = [0_u8; 24];
        let name = write_path(&mut path, thread, b"/stat\0")?;
        let file = openat(&self.directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        Some(WatchedThread { thread, file })
    }
}

/// A thread whose whereabouts are asked for again and again.
#[derive(Debug)]
pub struct WatchedThread {
    thread: u32,
    file: OwnedFd,
}

impl WatchedThread {
    /// Its number.
    pub fn thread(&self) -> u32 {
        self.thread
    }

    /// The processor that it last ran on, `None` when it has ended.
    pub fn processor(&self) -> Option<u32> {
        const PROCESSOR: usize = 39 - 3;
        let mut text = [0_u8; STAT_BYTES];
        let field = stat(&self.file, &mut text)?.nth(PROCESSOR)?;
        u32::try_from(decimal(field)?).ok()
    }
}

/// No line of a process's or thread's figures is longer.
const STAT_BYTES: usize = 1024;

/// The figures of a process or thread, from the third on.
fn stat<'a>(file: &OwnedFd, text: &'a mut [u8; STAT_BYTES]) -> Option<impl Iterator<Item = &'a [u8]>> {
    let length = rustix::io::pread(file, &mut *text, 0).ok()?;
    // The name (second field) may hold spaces; what follows its last parenthesis starts with the third field.
    let after = text[..length].iter().rposition(|&byte| byte == b')')? + 2;
    Some(text.get(after..length)?.trim_ascii_end().split(|&byte| byte == b' '))
}

/// A number as the name of a folder.
pub(crate) fn name_of(number: u32, name: &mut [u8; 24]) -> Option<&CStr> {
    write_path(name, number, b"\0")
}

fn write_path<'a>(path: &'a mut [u8; 24], thread: u32, file: &[u8]) -> Option<&'a CStr> {
    let mut digits = [0_u8; 10];
    let mut count = 0;
    let mut rest = thread;
    while rest > 0 || count == 0 {
        digits[count] = b'0' + (rest % 10) as u8;
        rest /= 10;
        count += 1;
    }
    for (at, digit) in digits[..count].iter().rev().enumerate() {
        path[at] = *digit;
    }
    let length = count + file.len();
    path.get_mut(count..length)?.copy_from_slice(file);
    CStr::from_bytes_with_nul(&path[..length]).ok()
}

/// The pages of a thread's control block, where the kernel writes of its own accord. They must stay local: an
/// ending thread can't wait for a page, and whoever joins it would wait for ever; a thread whose
/// restartable-sequence area can't be written is ended. Found through the head of its robust list, which both
/// glibc and musl keep in the control block. What else the kernel writes is less than a page away, on either
/// side.
pub fn control_block(thread: u32) -> Option<PageRange> {
    let mut head = 0_u64;
    let mut length = 0_u64;
    // SAFETY: get_robust_list writes one pointer and one length to the places given; nothing else is touched.
    unsafe {
        syscall::call(
            linux_raw_sys::general::__NR_get_robust_list,
            [thread as usize, &raw mut head as usize, &raw mut length as usize, 0],
        )
        .ok()?;
    }
    let page = (head != 0).then(|| VirtAddr::new(head).page())?;
    Some(PageRange::at(page.offset(-1)?, PageCount::new(3)))
}

/// The calling process's number.
pub fn own_number() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get().unsigned_abs()
}

/// Forks the calling process: its number here, `None` in the new one, which has the calling thread alone, and
/// whose parent is the caller's. Nothing is done around it: whatever another thread held at that moment stays
/// held in the new process.
///
/// # Errors
/// What `clone` returns.
pub fn fork_for_parent() -> Result<Option<u32>, Errno> {
    use linux_raw_sys::general as raw;
    const CHILD_ENDED: usize = 17;
    // SAFETY: the new process has a copy of all memory, the stack included, and goes on here.
    let number =
        unsafe { syscall::call(raw::__NR_clone, [raw::CLONE_PARENT as usize | CHILD_ENDED, 0, 0, 0]) }?;
    Ok((number != 0).then_some(number as u32))
}

/// Makes a session of its own of the calling process, unless it leads a process group: signals for its
/// terminal's processes are none of its business, and the kernel gives it its own part of the processors
/// where it does so by sessions (autogroups).
pub fn begin_session() {
    let _ = rustix::process::setsid();
}

/// Whether the process has ended that a descriptor stands for.
pub fn has_ended(handle: impl AsFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut set = [PollFd::from_borrowed_fd(handle.as_fd(), PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut set, Some(&at_once)).is_ok_and(|ready| ready > 0)
}

/// Ends that process at once, if there is one.
pub fn kill(number: u32) {
    if let Some(process) = i32::try_from(number).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
    }
}

/// Ends the calling process at once, and as if all were well.
pub fn exit() -> ! {
    loop {
        // SAFETY: ends the process; nothing of it is used after that.
        let _ = unsafe { syscall::call(linux_raw_sys::general::__NR_exit_group, [0; 4]) };
    }
}

/// Ends the calling process at once, as a kill from outside would.
pub fn kill_self() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    loop {
        crate::thread::sleep(1_000_000_000);
    }
}
