//! Memory of the runtime's own, which is never managed.
//!
//! Private memory: a fork copies it, so that a child starts from its parent's state at that instant. The scanner asks here
//! what is the runtime's own. Nothing is ever given back: the runtime lives as long as its process.

use core::mem::{align_of, size_of, size_of_val};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use farmem_page::{ByteCount, PAGE_BYTES, PageCount, PageIndex, PageRange, VirtAddr};
use rustix::fd::AsRawFd;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munlock};
use zerocopy::FromZeros;

use crate::{Errno, subject, syscall};

/// Bytes handed out by [`table_mut`] and [`leak`]: memory that is used whole.
static USED_BYTES: AtomicU64 = AtomicU64::new(0);

/// Memory of the runtime that is surely in use, in pages. Tables that fill up page by page aren't counted: their users
/// know how full they are.
pub fn used() -> PageCount {
    ByteCount::new(USED_BYTES.load(Ordering::Relaxed)).pages_up()
}

/// `count` zeroed values. Memory is taken from the machine as it is touched.
///
/// # Errors
/// What `memfd_create` and `mmap` return: no memory, or too many mappings.
pub fn table<T: FromZeros + Sync>(count: usize) -> Result<&'static [T], Errno> {
    let (start, count) = map_table::<T>(count)?;
    // SAFETY: the mapping holds `count` values, is aligned to a page, zero (a valid T: FromZeros), and never unmapped.
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
    // SAFETY: the words are a table of this module's, whole pages of private anonymous memory that is never unmapped. Atomics may
    // become zero at any time.
    if unsafe { madvise(start, size_of_val(words), Advice::LinuxDontNeed) }.is_ok() {
        return;
    }
    // The program has locked all memory (mlockall).
    words
        .iter()
        .filter(|word| word.load(Ordering::Relaxed) != 0)
        .for_each(|word| word.store(0, Ordering::Relaxed));
}

/// Moves `value` into memory of the runtime's own, for as long as the process lives.
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
    const { assert!(size_of::<T>() > 0 && align_of::<T>() <= PAGE_BYTES) };
    let bytes = count.checked_mul(size_of::<T>()).ok_or(Errno::NOMEM)?;
    Ok((map_bytes(bytes)?.cast(), count))
}

/// The runtime's own mappings, so that the scanner leaves them alone: first and last page of each, guards included.
/// Lock-free; entries are only added.
static OWN: [(AtomicU64, AtomicU64); MOST_OWN] = [const { (AtomicU64::new(0), AtomicU64::new(0)) }; MOST_OWN];
static OWN_COUNT: AtomicUsize = AtomicUsize::new(0);
/// One for each GiB of a program with words, and some dozens: 4 TiB.
const MOST_OWN: usize = 4096;

/// Whether some of `range`, of the program's addresses, is the runtime's own.
pub fn is_own(range: PageRange) -> bool {
    if let Some(attached) = subject::attached() {
        return !attached.puppet.places().all.intersect(range).is_empty();
    }
    let count = OWN_COUNT.load(Ordering::Acquire).min(MOST_OWN);
    OWN[..count].iter().any(|(first, end)| {
        let own = PageRange::new(
            PageIndex::new(first.load(Ordering::Acquire)),
            PageIndex::new(end.load(Ordering::Acquire)),
        );
        !own.intersect(range).is_empty()
    })
}

fn note_own(range: PageRange) -> Result<(), Errno> {
    let (first, end) = OWN.get(OWN_COUNT.fetch_add(1, Ordering::AcqRel)).ok_or(Errno::NOMEM)?;
    first.store(range.start.get(), Ordering::Release);
    end.store(range.end.get(), Ordering::Release);
    Ok(())
}

/// Addresses kept for later: where the next part begins and where they end; 0 while none may be drawn.
static RESERVE_NEXT: AtomicUsize = AtomicUsize::new(0);
static RESERVE_END: AtomicUsize = AtomicUsize::new(0);
static RESERVE_START: AtomicUsize = AtomicUsize::new(0);

/// Keeps addresses for a forked child's pager. There the program may count on addresses to be free that were not so in
/// its parent (MADV_DONTFORK), so a child's pager must not ask the kernel for any. Also what is left where the kernel gives none.
///
/// # Errors
/// No addresses.
pub fn reserve(count: PageCount) -> Result<(), Errno> {
    let bytes = count.bytes().get() as usize;
    let start = map_untouchable(bytes)? as usize;
    RESERVE_START.store(start, Ordering::Release);
    RESERVE_END.store(start + bytes, Ordering::Release);
    Ok(())
}

/// From now on, first of all in a forked child: takes memory from what was reserved, as long as that lasts.
pub fn draw_on_reserve() {
    let _ = RESERVE_NEXT.compare_exchange(
        0,
        RESERVE_START.load(Ordering::Acquire),
        Ordering::AcqRel,
        Ordering::Relaxed,
    );
}

fn draw(bytes: usize) -> Option<*mut core::ffi::c_void> {
    let end = RESERVE_END.load(Ordering::Acquire);
    let start = RESERVE_NEXT
        .fetch_update(Ordering::AcqRel, Ordering::Acquire, |next| {
            (next != 0 && next + bytes <= end).then_some(next + bytes)
        })
        .ok()?;
    Some(core::ptr::with_exposed_provenance_mut(start))
}

/// Addresses of the runtime's own, which nobody may touch yet.
fn map_untouchable(bytes: usize) -> Result<*mut core::ffi::c_void, Errno> {
    // SAFETY: a new private mapping at an address of the kernel's choice; nobody holds references into it.
    let start = unsafe {
        mmap_anonymous(
            core::ptr::null_mut(),
            bytes,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )?
    };
    note_own(PageRange::at(VirtAddr::new(start as u64).page(), PageCount::new((bytes / PAGE_BYTES) as u64)))?;
    Ok(start)
}

/// Private anonymous memory between two pages that nobody may touch: so the kernel doesn't merge it with a mapping of the
/// program, and an overrun is noticed.
fn map_bytes(bytes: usize) -> Result<NonNull<u8>, Errno> {
    let bytes = bytes.max(1).next_multiple_of(PAGE_BYTES);
    let with_guards = bytes + 2 * PAGE_BYTES;
    let start = match draw(with_guards).map_or_else(|| map_untouchable(with_guards), Ok) {
        // The program has limited its addresses (RLIMIT_AS) since the reserve was made.
        Err(Errno::NOMEM) => {
            draw_on_reserve();
            draw(with_guards).ok_or(Errno::NOMEM)?
        }
        start => start?,
    };
    let inner = start.cast::<u8>().wrapping_add(PAGE_BYTES);
    // SAFETY: the pages between the guards belong to the mapping that was just made.
    unsafe { mprotect(inner.cast(), bytes, MprotectFlags::READ | MprotectFlags::WRITE)? };
    NonNull::new(inner).ok_or(Errno::NOMEM)
}

/// A place for frames on their way out; a forked child doesn't have it. They can be moved to private anonymous memory alone.
#[derive(Debug)]
pub struct Frames {
    range: PageRange,
}

impl Frames {
    /// Room for `count` frames, none of them there yet.
    ///
    /// # Errors
    /// What `mmap` returns.
    pub fn reserve(count: PageCount) -> Result<Self, Errno> {
        if let Some(attached) = subject::attached() {
            let range = attached.puppet.staging();
            return if count == range.count() { Ok(Self { range }) } else { Err(Errno::INVAL) };
        }
        let start = map_bytes(count.bytes().get() as usize)?;
        let first = VirtAddr::new(start.as_ptr() as u64).page();
        // SAFETY: concerns children alone, which find nothing there.
        unsafe { madvise(start.as_ptr().cast(), count.bytes().get() as usize, Advice::LinuxDontFork)? };
        Ok(Self { range: PageRange::at(first, count) })
    }

    /// Where the frames are.
    pub fn range(&self) -> PageRange {
        self.range
    }

    /// Looks at the frame at `page`, which must have been moved here and not released since: touching a frame that
    /// isn't there would wait for ever. `&mut` keeps the look and [`Frames::release`] apart.
    pub fn look(&mut self, page: PageIndex) -> &[u8; PAGE_BYTES] {
        assert!(self.range.contains(page), "a frame outside the staging area");
        if let Some(attached) = subject::attached() {
            return attached.puppet.staged(page);
        }
        // SAFETY: inside the mapping, which is never unmapped and which only `release` (needs &mut) changes.
        unsafe { &*(page.addr().get() as *const [u8; PAGE_BYTES]) }
    }

    /// Gives the frames of `range` back to the machine.
    ///
    /// # Errors
    /// What `madvise` returns.
    pub fn release(&mut self, range: PageRange) -> Result<(), Errno> {
        let range = range.intersect(self.range);
        if range.is_empty() {
            return Ok(());
        }
        if let Some(attached) = subject::attached() {
            return release_there(attached, range);
        }
        let start = range.start.addr().get() as *mut core::ffi::c_void;
        let bytes = range.count().bytes().get() as usize;
        // SAFETY: the range lies in this mapping, and `&mut self` says that no reference into it is alive.
        let discard = || unsafe { madvise(start, bytes, Advice::LinuxDontNeed) };
        match discard() {
            Err(Errno::INVAL) => {
                // The program has locked all memory (mlockall), which was not meant for frames on their way out.
                // SAFETY: locks have no effect on what the memory holds.
                unsafe { munlock(start, bytes)? };
                discard()
            }
            result => result,
        }
    }
}

/// [`Frames::release`] where the program is another process. Without a puppet the frames stay where they are, and none will follow.
fn release_there(attached: &subject::Attached, range: PageRange) -> Result<(), Errno> {
    const DONTNEED: u64 = 4;
    let start = range.start.addr().get();
    let bytes = range.count().bytes().get();
    let puppet = &attached.puppet;
    let discard = || puppet.make(linux_raw_sys::general::__NR_madvise, [start, bytes, DONTNEED, 0, 0, 0]);
    let Ok(mut discarded) = discard() else { return Ok(()) };
    if discarded == Err(Errno::INVAL) {
        // The program has locked all memory (mlockall), which was not meant for frames on their way out.
        let unlocked = puppet.make(linux_raw_sys::general::__NR_munlock, [start, bytes, 0, 0, 0, 0]);
        let (Ok(unlocked), Ok(again)) = (unlocked, discard()) else { return Ok(()) };
        unlocked?;
        discarded = again;
    }
    discarded.map(drop)
}

/// [`unshare_pages`] where the program is another process. To write to another process's memory the kernel first makes its pages
/// that process's own, and then looks for what is to be written: which isn't there, so that nothing is written. It does so for 1024 pages at a
/// time; runs are shorter.
fn unshare_there(attached: &subject::Attached, range: PageRange) -> Result<(), Errno> {
    use linux_raw_sys::general as raw;
    const COLD: usize = 20;
    let there = [range.start.addr().get() as usize, range.count().bytes().get() as usize];
    // Where no process has memory.
    let nothing = [0, there[1]];
    // SAFETY: `process_madvise` reads one pair of words and changes what is thought of pages, never their content. `process_vm_writev` would
    // read this process's memory at `nothing`, where nothing can be read.
    unsafe {
        let handle = attached.handle.as_raw_fd() as usize;
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

/// Makes pages that a fork has left shared copy-on-write the caller's own again, copying them where another process has them
/// too, so that they can be moved. May wait for faults of this process: never call it from a thread that serves them.
///
/// # Errors
/// What `madvise` returns; harmless, the pages just stay shared.
pub fn unshare_pages(range: PageRange) -> Result<(), Errno> {
    if let Some(attached) = subject::attached() {
        return unshare_there(attached, range);
    }
    let start = range.start.addr().get() as *mut core::ffi::c_void;
    let bytes = range.count().bytes().get() as usize;
    // SAFETY: the content of the program's memory doesn't change; at worst pages are brought in, as a touch would.
    unsafe {
        // Part of a huge page, which the kernel moves only if its first page is the caller's own, whichever is asked for. This
        // splits it; that its pages are thought cold meanwhile is right. Refused for locked memory, which can't be moved either.
        let _ = madvise(start, bytes, Advice::LinuxCold);
        madvise(start, bytes, Advice::LinuxPopulateWrite)
    }
}
