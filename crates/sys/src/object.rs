//! What the kernel is asked about an object of shared memory, and about the messages of many processes.
//! `subject::objects` asks nothing of it that isn't here or in another module of this crate: so it can be
//! compiled against another kernel.

use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use rustix::event::epoll;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, fstat, seek};
use rustix::io::{Errno, pread};

use crate::uffd::Uffd;

/// What there is one of in a process, for ever.
pub(crate) struct Current<T: 'static>(AtomicPtr<T>);

impl<T> Current<T> {
    pub(crate) const fn nothing() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    pub(crate) fn set(&self, value: &'static T) {
        self.0.store(ptr::from_ref(value).cast_mut(), Ordering::Release);
    }

    pub(crate) fn get(&self) -> Option<&'static T> {
        // SAFETY: null, or what `set` was given: a reference that lives for ever.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }
}

/// An object's file.
#[derive(Debug)]
pub(crate) struct ObjectFile(OwnedFd);

impl From<OwnedFd> for ObjectFile {
    fn from(file: OwnedFd) -> Self {
        Self(file)
    }
}

impl ObjectFile {
    pub(crate) fn duplicate(&self) -> Result<Self, Errno> {
        rustix::io::fcntl_dupfd_cloexec(&self.0, 0).map(Self)
    }

    /// Reads bytes; how many.
    pub(crate) fn read_at(&self, out: &mut [u8], offset: u64) -> Result<usize, Errno> {
        pread(&self.0, out, offset)
    }

    /// Takes what is there out of the object, and out of the sight of all who map it.
    pub(crate) fn punch(&self, offset: u64, bytes: u64) -> Result<(), Errno> {
        fallocate(&self.0, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, bytes)
    }

    /// Where the first page from `offset` on is that is there; `None` behind the last.
    pub(crate) fn next_data(&self, offset: u64) -> Result<Option<u64>, Errno> {
        self.seek(SeekFrom::Data(offset))
    }

    /// Where the first page from `offset` on is that isn't there; `None` behind the last.
    pub(crate) fn next_hole(&self, offset: u64) -> Result<Option<u64>, Errno> {
        self.seek(SeekFrom::Hole(offset))
    }

    fn seek(&self, what: SeekFrom) -> Result<Option<u64>, Errno> {
        match seek(&self.0, what) {
            Ok(offset) => Ok(Some(offset)),
            Err(Errno::NXIO) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Bytes that are there.
    pub(crate) fn resident_bytes(&self) -> Result<u64, Errno> {
        const BLOCK_BYTES: u64 = 512;
        Ok(fstat(&self.0)?.st_blocks as u64 * BLOCK_BYTES)
    }
}

/// Which of several userfaultfds have messages.
#[derive(Debug)]
pub(crate) struct Ready(OwnedFd);

impl Ready {
    pub(crate) fn new() -> Result<Self, Errno> {
        epoll::create(epoll::CreateFlags::CLOEXEC).map(Self)
    }

    /// A descriptor that is readable while one of them is.
    pub(crate) fn duplicate(&self) -> Result<OwnedFd, Errno> {
        rustix::io::fcntl_dupfd_cloexec(&self.0, 0)
    }

    pub(crate) fn add(&self, uffd: &Uffd, number: usize) -> Result<(), Errno> {
        epoll::add(&self.0, uffd, epoll::EventData::new_u64(number as u64), epoll::EventFlags::IN)
    }

    pub(crate) fn remove(&self, uffd: &Uffd) {
        let _ = epoll::delete(&self.0, uffd);
    }

    /// The numbers of some that have messages; how many.
    pub(crate) fn look<const MOST: usize>(&self, numbers: &mut [usize; MOST]) -> Result<usize, Errno> {
        let mut events = [const { MaybeUninit::uninit() }; MOST];
        let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let (ready, _) = epoll::wait(&self.0, &mut events, Some(&at_once))?;
        let count = ready.len();
        numbers.iter_mut().zip(ready).for_each(|(number, event)| *number = event.data.u64() as usize);
        Ok(count)
    }
}

/// Ends the process that a descriptor stands for.
pub(crate) fn kill(handle: i32) {
    // SAFETY: at worst another descriptor has that number by now, of which the kernel says that it stands for
    // no process.
    let handle = unsafe { BorrowedFd::borrow_raw(handle.max(0)) };
    let _ = rustix::process::pidfd_send_signal(handle, rustix::process::Signal::KILL);
}
