//! Memory of the pager's own, and what it has in the program's address space.
//!
//! Nothing is ever given back: a pager lives as long as its process.

use core::mem::{align_of, size_of, size_of_val};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use farmem_page::{ByteCount, PAGE_BYTES, PageCount, PageIndex, PageRange};
use linux_raw_sys::general as raw;
use rustix::fd::AsRawFd;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect};
use zerocopy::FromZeros;

use crate::subject::Attached;
use crate::subject::objects::{self, Objects};
use crate::{Errno, subject, syscall};

/// Bytes handed out by [`table_mut`] and [`leak`]: memory that is used whole.
static USED_BYTES: AtomicU64 = AtomicU64::new(0);

/// Memory of the pager that is surely in use, in pages. Tables that fill up page by page aren't counted:
/// their users know how full they are.
pub fn used() -> PageCount {
    ByteCount::new(USED_BYTES.load(Ordering::Relaxed)).pages_up()
}

/// `count` zeroed values. Memory is taken from the machine as it is touched.
///
/// # Errors
/// What `memfd_create` and `mmap` return: no memory, or too many mappings.
pub fn table<T: FromZeros + Sync>(count: usize) -> Result<&'static [T], Errno> {
    let (start, count) = map_table::<T>(count)?;
    // SAFETY: the mapping holds `count` values, is aligned to a page, zero (a valid T: FromZeros), and never
    // unmapped.
    Ok(unsafe { core::slice::from_raw_parts(start.as_ptr(), count) })
}

/// As [`table`], for tables of which there may be tens of thousands: nothing lies between them, so that
/// neighbours are one mapping to the kernel, which allows a process some 65,000. Users make sure themselves
/// that they stay within.
///
/// # Errors
/// As [`table`].
pub(crate) fn neighbouring_table<T: FromZeros + Sync>(count: usize) -> Result<&'static [T], Errno> {
    let start = map(bytes_of::<T>(count)?, ProtFlags::READ | ProtFlags::WRITE)?.cast::<T>();
    // SAFETY: as in `table`.
    Ok(unsafe { core::slice::from_raw_parts(start.as_ptr(), count) })
}

/// As [`table`], for one owner who changes it.
///
/// # Errors
/// As [`table`].
pub fn table_mut<T: FromZeros>(count: usize) -> Result<&'static mut [T], Errno> {
    let (start, count) = map_table::<T>(count)?;
    USED_BYTES.fetch_add((count * size_of::<T>()) as u64, Ordering::Relaxed);
    // SAFETY: as in `table`; the mapping is new, so this is its only reference.
    Ok(unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), count) })
}

/// Makes a whole table of words zero, and gives back the memory that they take.
pub(crate) fn clear(words: &'static [AtomicU64]) {
    let start = words.as_ptr().cast_mut().cast();
    // SAFETY: the words are a table of this module's, whole pages of private anonymous memory that is never
    // unmapped. Atomics may become zero at any time.
    if unsafe { madvise(start, size_of_val(words), Advice::LinuxDontNeed) }.is_ok() {
        return;
    }
    // What refuses is locked memory.
    words
        .iter()
        .filter(|word| word.load(Ordering::Relaxed) != 0)
        .for_each(|word| word.store(0, Ordering::Relaxed));
}

/// Moves `value` into memory of the pager's own, for as long as the process lives.
///
/// # Errors
/// As [`table`].
pub fn leak<T>(value: T) -> Result<&'static mut T, Errno> {
    const { assert!(align_of::<T>() <= PAGE_BYTES) };
    let start = map_bytes(size_of::<T>())?.cast::<T>();
    USED_BYTES.fetch_add(size_of::<T>() as u64, Ordering::Relaxed);
    // SAFETY: the mapping is new, large enough and aligned, and never unmapped.
    unsafe {
        start.write(value);
        Ok(&mut *start.as_ptr())
    }
}

fn map_table<T>(count: usize) -> Result<(NonNull<T>, usize), Errno> {
    Ok((map_bytes(bytes_of::<T>(count)?)?.cast(), count))
}

/// What so many values take, which may lie at the start of a page.
fn bytes_of<T>(count: usize) -> Result<usize, Errno> {
    const { assert!(size_of::<T>() > 0 && align_of::<T>() <= PAGE_BYTES) };
    count.checked_mul(size_of::<T>()).ok_or(Errno::NOMEM)
}

/// Whether some of `range`, of the program's addresses, is the puppet's.
pub fn is_own(range: PageRange) -> bool {
    subject::attached().is_some_and(|attached| !attached.puppet.places().all.intersect(range).is_empty())
}

/// Private anonymous memory between two pages that nobody may touch: so an overrun is noticed.
fn map_bytes(bytes: usize) -> Result<NonNull<u8>, Errno> {
    let bytes = bytes.max(1).next_multiple_of(PAGE_BYTES);
    let start = map(bytes + 2 * PAGE_BYTES, ProtFlags::empty())?;
    let inner = start.as_ptr().wrapping_add(PAGE_BYTES);
    // SAFETY: the pages between the guards belong to the mapping that was just made.
    unsafe { mprotect(inner.cast(), bytes, MprotectFlags::READ | MprotectFlags::WRITE)? };
    NonNull::new(inner).ok_or(Errno::NOMEM)
}

/// A new private anonymous mapping.
fn map(bytes: usize, rights: ProtFlags) -> Result<NonNull<u8>, Errno> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: it lies at an address of the kernel's choice; nobody holds references into it.
    let start = unsafe { mmap_anonymous(core::ptr::null_mut(), bytes, rights, flags)? };
    NonNull::new(start.cast()).ok_or(Errno::NOMEM)
}

/// A place for frames on their way out, in the program's address space: they can be moved to private
/// anonymous memory alone. What leaves shared memory is copied, to memory of this process's.
#[derive(Debug)]
pub struct Frames {
    home: Home,
    range: PageRange,
}

#[derive(Debug)]
enum Home {
    Puppet(&'static Attached),
    Own(&'static Objects),
}

impl Frames {
    /// Room for `count` frames, none of them there yet: the puppet has that much. A frame moves only between
    /// mappings of the same protection, so frames that the program may run need room of their own
    /// (`is_executable`). Only one of the two may hold frames at a time: both are copied to the same place.
    ///
    /// # Errors
    /// [`Errno::INVAL`] for another count, where no program was attached to, and for executable frames of a
    /// program that had no memory that it may both write and run.
    pub fn reserve(count: PageCount, is_executable: bool) -> Result<Self, Errno> {
        let (home, range) = match objects::objects() {
            Some(objects) => (Home::Own(objects), objects::STAGING),
            None => {
                let attached = subject::attached().ok_or(Errno::INVAL)?;
                let staging = attached.puppet.staging(is_executable).ok_or(Errno::INVAL)?;
                (Home::Puppet(attached), staging)
            }
        };
        if count == range.count() { Ok(Self { home, range }) } else { Err(Errno::INVAL) }
    }

    /// Whether there is room for frames that the program may run.
    pub fn has_executable() -> bool {
        let is_there = |attached: &Attached| attached.puppet.staging(true).is_some();
        objects::objects().is_none() && subject::attached().is_some_and(is_there)
    }

    /// Where the frames are.
    pub fn range(&self) -> PageRange {
        self.range
    }

    /// Looks at the frame at `page`, which must have been moved here and not released since: touching a frame
    /// that isn't there would wait for ever. `&mut` keeps the look and [`Frames::release`] apart.
    pub fn look(&mut self, page: PageIndex) -> &[u8; PAGE_BYTES] {
        assert!(self.range.contains(page), "a frame outside the staging area");
        match self.home {
            Home::Puppet(attached) => attached.puppet.staged(page),
            Home::Own(objects) => objects.staged(page),
        }
    }

    /// Gives the frames of `range` back to the machine. Without a puppet they stay where they are, and none
    /// will follow.
    ///
    /// # Errors
    /// What `madvise` returns.
    pub fn release(&mut self, range: PageRange) -> Result<(), Errno> {
        const DONTNEED: u64 = 4;
        /// The same also of memory that is locked.
        const DONTNEED_LOCKED: u64 = 24;
        let range = range.intersect(self.range);
        if range.is_empty() {
            return Ok(());
        }
        let start = range.start.addr().get();
        let bytes = range.count().bytes().get();
        // Copies are written over by those that come next.
        let Home::Puppet(attached) = self.home else { return Ok(()) };
        let puppet = &attached.puppet;
        let discard = |advice| puppet.make(raw::__NR_madvise, [start, bytes, advice, 0, 0, 0]);
        let Ok(mut discarded) = discard(DONTNEED) else { return Ok(()) };
        if discarded == Err(Errno::INVAL) {
            // The program has locked all memory (mlockall), which was not meant for frames on their way out.
            // It may do so again between these two calls.
            let unlocked = puppet.make(raw::__NR_munlock, [start, bytes, 0, 0, 0, 0]);
            let (Ok(unlocked), Ok(again)) = (unlocked, discard(DONTNEED_LOCKED)) else { return Ok(()) };
            unlocked?;
            discarded = again;
        }
        discarded.map(drop)
    }
}

/// Makes pages that a fork has left shared copy-on-write the program's own again, copying them where another
/// process has them too, so that they can be moved. May wait for faults of the program: never call it from a
/// thread that serves them.
///
/// To write to another process's memory the kernel first makes its pages that process's own, and then looks
/// for what is to be written: which isn't there, so that nothing is written. It does so for 1024 pages at a
/// time; runs are shorter.
///
/// # Errors
/// What `process_vm_writev` returns; harmless, the pages just stay shared.
pub fn unshare_pages(range: PageRange) -> Result<(), Errno> {
    const COLD: usize = 20;
    let attached = subject::attached().ok_or(Errno::INVAL)?;
    let there = [range.start.addr().get() as usize, range.count().bytes().get() as usize];
    // Where no process has memory.
    let nothing = [0, there[1]];
    // SAFETY: `process_madvise` reads one pair of words and changes what is thought of pages, never their
    // content. `process_vm_writev` would read this process's memory at `nothing`, where nothing can be read.
    unsafe {
        let handle = attached.handle.as_raw_fd() as usize;
        // Part of a huge page the kernel moves only if its first page is the program's own, whichever is
        // asked for. This splits it; that its pages are thought cold meanwhile is right. Refused for locked
        // memory, which can't be moved either.
        let _ = syscall::call(raw::__NR_process_madvise, [handle, there.as_ptr() as usize, 1, COLD]);
        match syscall::call_six(
            raw::__NR_process_vm_writev,
            [attached.process as usize, nothing.as_ptr() as usize, 1, there.as_ptr() as usize, 1, 0],
        ) {
            Ok(_) | Err(Errno::FAULT) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}
