//! Memory of the pager's own: real memory, given back when a run has ended; and the staging area, which is
//! simulated.

use core::cell::RefCell;
use core::mem::{align_of, size_of};
use core::sync::atomic::AtomicU64;

use farmem_page::{PAGE_BYTES, PageCount, PageIndex, PageRange};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use zerocopy::FromZeros;

use crate::subject::objects::{self, objects};
use crate::{Errno, program, schedule, world};

thread_local! {
    /// What was handed out in this run: address and length.
    static HANDED_OUT: RefCell<Vec<(usize, usize)>> = const { RefCell::new(Vec::new()) };
}

/// Gives back what was handed out in a run.
///
/// # Safety
/// Nobody may use it any more: every thread of the run has ended.
pub(crate) unsafe fn give_all_back() {
    for (address, bytes) in HANDED_OUT.take() {
        // SAFETY: mapped by `map`, once, and by the caller's word not in use.
        let _ = unsafe { munmap(core::ptr::with_exposed_provenance_mut(address), bytes) };
    }
}

fn map(bytes: usize) -> Result<*mut u8, Errno> {
    let bytes = bytes.max(1).next_multiple_of(PAGE_BYTES);
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let start =
        unsafe { mmap_anonymous(core::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags)? };
    HANDED_OUT.with_borrow_mut(|list| list.push((start.expose_provenance(), bytes)));
    Ok(start.cast())
}

/// Not counted here.
pub fn used() -> PageCount {
    PageCount::ZERO
}

/// `count` zeroed values.
///
/// # Errors
/// No memory.
pub fn table<T: FromZeros + Sync>(count: usize) -> Result<&'static [T], Errno> {
    table_mut(count).map(|values| &*values)
}

/// As [`table`]: here mappings are not counted.
///
/// # Errors
/// No memory.
pub(crate) fn neighbouring_table<T: FromZeros + Sync>(count: usize) -> Result<&'static [T], Errno> {
    table(count)
}

/// As [`table`], for one owner who changes it.
///
/// # Errors
/// No memory.
pub fn table_mut<T: FromZeros>(count: usize) -> Result<&'static mut [T], Errno> {
    const { assert!(size_of::<T>() > 0 && align_of::<T>() <= PAGE_BYTES) };
    let start = map(count.checked_mul(size_of::<T>()).ok_or(Errno::NOMEM)?)?;
    // SAFETY: the mapping is new, holds `count` values, is aligned to a page, and zero (a valid T:
    // FromZeros); it is there until the run has ended.
    Ok(unsafe { core::slice::from_raw_parts_mut(start.cast(), count) })
}

/// Makes a whole table of words zero.
pub(crate) fn clear(words: &'static [AtomicU64]) {
    let used = |word: &&AtomicU64| word.load(core::sync::atomic::Ordering::Relaxed) != 0;
    words.iter().filter(used).for_each(|word| word.store(0, core::sync::atomic::Ordering::Relaxed));
}

/// Moves `value` into memory that is there until the run has ended.
///
/// # Errors
/// No memory.
pub fn leak<T>(value: T) -> Result<&'static mut T, Errno> {
    const { assert!(align_of::<T>() <= PAGE_BYTES) };
    let start = map(size_of::<T>())?.cast::<T>();
    // SAFETY: the mapping is new, large enough and aligned.
    unsafe {
        start.write(value);
        Ok(&mut *start)
    }
}

/// Whether some of `range` is the pager's own: the staging area is.
pub fn is_own(range: PageRange) -> bool {
    range.start >= program::STAGING
}

/// A place for frames on their way out.
#[derive(Debug)]
pub struct Frames {
    range: PageRange,
    space: usize,
    seen: Box<[u8; PAGE_BYTES]>,
}

impl Frames {
    /// Room for `count` frames, none of them there yet.
    ///
    /// # Errors
    /// None.
    pub fn reserve(count: PageCount, is_executable: bool) -> Result<Self, Errno> {
        if objects().is_some() {
            return Ok(Self { range: objects::STAGING, space: 0, seen: Box::new([0; PAGE_BYTES]) });
        }
        let start = if is_executable { program::EXECUTABLE_STAGING } else { program::STAGING };
        let range = PageRange::at(start, count);
        let space = world::with(|world| {
            let space = world.own_space();
            world.spaces[space].map(range, true, is_executable);
            space
        });
        Ok(Self { range, space, seen: Box::new([0; PAGE_BYTES]) })
    }

    /// Whether there is room for frames that the program may run.
    pub fn has_executable() -> bool {
        world::with(|world| world.plan.executable_one_in > 0)
    }

    /// Where the frames are.
    pub fn range(&self) -> PageRange {
        self.range
    }

    /// The frame at `page`.
    pub fn look(&mut self, page: PageIndex) -> &[u8; PAGE_BYTES] {
        if let Some(objects) = objects() {
            return objects.staged(page);
        }
        let seen = world::with(|world| {
            let content = world.spaces[self.space].content(page);
            if content.is_none() {
                world.fail("the pager looks at a staged frame that isn't there: it would wait for ever");
            }
            content
        });
        if let Some(content) = seen {
            *self.seen = *content;
        }
        &self.seen
    }

    /// Gives the frames of `range` back to the machine.
    ///
    /// # Errors
    /// None.
    pub fn release(&mut self, range: PageRange) -> Result<(), Errno> {
        schedule::point();
        if objects().is_some() {
            return Ok(());
        }
        world::with(|world| world.spaces[self.space].drop_entries(range.intersect(self.range)));
        Ok(())
    }
}

/// Makes pages that a fork has left shared copy-on-write the caller's own again.
///
/// # Errors
/// None.
pub fn unshare_pages(range: PageRange) -> Result<(), Errno> {
    let space = world::with(|world| world.own_space());
    range.iter().for_each(|page| program::populate(space, page));
    Ok(())
}
