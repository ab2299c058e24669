//! Shared memory of the program's that is mapped here as well: segments of System V, which are known by the
//! program's mappings of them. They need no descriptor in the program, keep their size, and can be attached
//! to by whoever may trace the program.

use core::fmt::Write;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, Mode, OFlags, fstat, memfd_create, openat};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::maps::{Mapping, Maps};
use crate::subject;
use crate::syscall;
use crate::wait;

/// Segments that are looked at, at most.
pub const MOST: usize = 4;

/// Segments of the program's, all of one size. One thread adds them; any may use them.
#[derive(Debug)]
pub struct Segments {
    // Invariant 1: each is null, or the start of a mapping of `words` words that is readable, writable and
    // shared, and lives for ever. The memory behind it can't shrink.
    bases: [AtomicPtr<AtomicU64>; MOST],
    numbers: [AtomicU64; MOST],
    words: usize,
}

impl Segments {
    /// None yet, of so many words each, which are whole pages.
    pub const fn new(words: usize) -> Self {
        Self {
            bases: [const { AtomicPtr::new(core::ptr::null_mut()) }; MOST],
            numbers: [const { AtomicU64::new(0) }; MOST],
            words,
        }
    }

    /// The words of one of them.
    pub fn words(&self, index: usize) -> Option<&[AtomicU64]> {
        let base = self.bases.get(index)?.load(Ordering::Acquire);
        // SAFETY: invariant 1; the mapping starts on a page, any bit pattern is a valid word, and nobody here
        // accesses it otherwise.
        (!base.is_null()).then(|| unsafe { core::slice::from_raw_parts(base, self.words) })
    }

    /// [`wait::low_half`] of a word.
    pub fn low_half(&self, index: usize, at: usize) -> Option<&AtomicU32> {
        self.words(index)?.get(at).map(wait::low_half)
    }

    /// Adds the segment behind a mapping of the program's, if it is one of the size, isn't there yet, and
    /// `is_wanted`; its index.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn add(
        &self,
        maps: &Maps,
        mapping: &Mapping,
        is_wanted: impl FnOnce(&[AtomicU64]) -> bool,
    ) -> Result<Option<usize>, Errno> {
        let bytes = self.words * size_of::<AtomicU64>();
        // What the program may only read is another's: nothing is written there for it.
        if !mapping.shared || !mapping.writable || mapping.range.count().bytes().get() != bytes as u64 {
            return Ok(None);
        }
        let Some(number) = maps.segment(mapping.range.start.addr(), device()?)? else { return Ok(None) };
        let known = || self.bases.iter().zip(&self.numbers);
        let is_there = |base: &AtomicPtr<AtomicU64>| !base.load(Ordering::Acquire).is_null();
        if known().any(|(base, known)| is_there(base) && known.load(Ordering::Relaxed) == number) {
            return Ok(None);
        }
        let Some(index) = self.bases.iter().position(|base| !is_there(base)) else { return Ok(None) };
        let attached =
            if has_our_segments()? { Attachment::by_number(number, bytes) } else { Err(Errno::PERM) };
        let attached = attached.or_else(|_| Attachment::by_mapping(mapping, number, bytes))?;
        // Asked again: as long as it is attached here, the number is given to no other segment.
        let is_same = maps.segment(mapping.range.start.addr(), device()?)? == Some(number);
        // SAFETY: an attachment is a mapping as in invariant 1, which lives at least until it is dropped
        // below.
        let words = unsafe { core::slice::from_raw_parts(attached.base, self.words) };
        if !is_same || !is_wanted(words) {
            return Ok(None);
        }
        self.numbers[index].store(number, Ordering::Relaxed);
        self.bases[index].store(attached.base.cast_mut(), Ordering::Release);
        core::mem::forget(attached);
        Ok(Some(index))
    }
}

/// The device that the kernel keeps segments on, as everything that is in memory only and has no name.
fn device() -> Result<u64, Errno> {
    static DEVICE: AtomicU64 = AtomicU64::new(u64::MAX);
    let known = DEVICE.load(Ordering::Relaxed);
    if known != u64::MAX {
        return Ok(known);
    }
    let device = fstat(memfd_create(c"farmem-device", MemfdFlags::CLOEXEC)?)?.st_dev;
    DEVICE.store(device, Ordering::Relaxed);
    Ok(device)
}

/// Whether numbers of segments mean to the program what they mean here. In another namespace they are those
/// of other segments.
fn has_our_segments() -> Result<bool, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let own = fstat(rustix::fs::open(c"/proc/self/ns/ipc", flags, Mode::empty())?)?;
    let other = fstat(subject::open_file(c"/proc/self/ns/ipc", c"ns/ipc", flags)?)?;
    Ok((own.st_dev, own.st_ino) == (other.st_dev, other.st_ino))
}

/// A segment that is mapped here until this is dropped.
struct Attachment {
    base: *const AtomicU64,
    bytes: usize,
    is_by_number: bool,
}

impl Attachment {
    fn by_number(number: u64, bytes: usize) -> Result<Self, Errno> {
        let number = i32::try_from(number).map_err(|_| Errno::INVAL)?;
        // SAFETY: the kernel chooses an address that is free, so no existing mapping changes.
        let base = unsafe { syscall::call(linux_raw_sys::general::__NR_shmat, [number as usize, 0, 0, 0])? };
        let base = core::ptr::with_exposed_provenance(base);
        let attached = Self { base, bytes, is_by_number: true };
        if segment_bytes(number)? == bytes { Ok(attached) } else { Err(Errno::INVAL) }
    }

    /// Where the number is another one here. Only the most privileged may.
    fn by_mapping(mapping: &Mapping, number: u64, bytes: usize) -> Result<Self, Errno> {
        let attached = subject::attached().ok_or(Errno::NOTSUP)?;
        let mut path = Path { text: [0; 64], length: 0 };
        let (start, end) = (mapping.range.start.addr().get(), mapping.range.end.addr().get());
        write!(path, "map_files/{start:x}-{end:x}").map_err(|_| Errno::NAMETOOLONG)?;
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let file = openat(&attached.folder, &path.text[..path.length], flags, Mode::empty())?;
        let found = fstat(&file)?;
        if found.st_dev != device()? || found.st_ino != number || found.st_size != bytes as i64 {
            return Err(Errno::INVAL);
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an address that is free, so no existing mapping changes.
        let base = unsafe { mmap(core::ptr::null_mut(), bytes, protection, MapFlags::SHARED, &file, 0)? };
        Ok(Self { base: base.cast_const().cast(), bytes, is_by_number: false })
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nobody uses it after that.
        unsafe {
            let _ = match self.is_by_number {
                true => {
                    syscall::call(linux_raw_sys::general::__NR_shmdt, [self.base.addr(), 0, 0, 0]).map(drop)
                }
                false => munmap(self.base.cast_mut().cast(), self.bytes),
            };
        }
    }
}

fn segment_bytes(number: i32) -> Result<usize, Errno> {
    const IPC_STAT: usize = 2;
    /// Words of the kernel's `struct shmid64_ds`, in which the size follows six words of permissions.
    const WORDS: usize = 14;
    const SIZE_AT: usize = 6;
    let mut words = [0_usize; WORDS];
    let place = words.as_mut_ptr().expose_provenance();
    // SAFETY: the kernel writes such a structure, of 112 bytes, to the place given.
    unsafe {
        syscall::call(linux_raw_sys::general::__NR_shmctl, [number as usize, IPC_STAT, place, 0])?;
    }
    Ok(words[SIZE_AT])
}

/// A path that is put together without memory of its own.
struct Path {
    text: [u8; 64],
    length: usize,
}

impl Write for Path {
    fn write_str(&mut self, part: &str) -> core::fmt::Result {
        let end = self.length + part.len();
        self.text.get_mut(self.length..end).ok_or(core::fmt::Error)?.copy_from_slice(part.as_bytes());
        self.length = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use farmem_page::VirtAddr;
    use linux_raw_sys::general::{__NR_shmat, __NR_shmctl, __NR_shmget};

    use super::*;

    const WORDS: usize = 1024;

    fn segment(bytes: usize) -> usize {
        const NEW: usize = 0o1000 | 0o600;
        // SAFETY: makes a segment and attaches it where there is nothing.
        unsafe {
            let number = syscall::call(__NR_shmget, [0, bytes, NEW, 0]).unwrap();
            let base = syscall::call(__NR_shmat, [number, 0, 0, 0]).unwrap();
            syscall::call(__NR_shmctl, [number, 0, 0, 0]).unwrap();
            base
        }
    }

    fn mapping(maps: &Maps, base: usize) -> Mapping {
        maps.next(VirtAddr::new(base as u64)).unwrap().unwrap()
    }

    #[test]
    fn a_segment_that_is_to_go_is_found_by_its_mapping_and_added_once() {
        let maps = Maps::open().unwrap();
        let base = segment(8 * WORDS);
        let own: *const AtomicU64 = core::ptr::with_exposed_provenance(base);
        let segments = Segments::new(WORDS);
        let mapping = mapping(&maps, base);

        assert_eq!(segments.add(&maps, &mapping, |_| false), Ok(None));
        assert_eq!(segments.add(&maps, &mapping, |words| words.len() == WORDS), Ok(Some(0)));
        assert_eq!(segments.add(&maps, &mapping, |_| true), Ok(None));

        segments.words(0).unwrap()[7].store(77, Ordering::Release);
        // SAFETY: the segment stays attached.
        assert_eq!(unsafe { (*own.add(7)).load(Ordering::Acquire) }, 77);
        assert_eq!(segments.low_half(0, 7).unwrap().load(Ordering::Acquire), 77);
        assert!(segments.words(1).is_none() && segments.words(MOST).is_none());
        assert!(segments.low_half(0, WORDS).is_none());
    }

    #[test]
    fn other_shared_memory_and_segments_of_another_size_are_left_alone() {
        let maps = Maps::open().unwrap();
        let segments = Segments::new(WORDS);
        let file = memfd_create(c"SYSV00000000", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 8 * WORDS as u64).unwrap();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: mapped where there is nothing.
        let other = unsafe {
            mmap(core::ptr::null_mut(), 8 * WORDS, protection, MapFlags::SHARED, &file, 0).unwrap()
        };

        for base in [other.addr(), segment(16 * WORDS)] {
            assert_eq!(segments.add(&maps, &mapping(&maps, base), |_| true), Ok(None));
        }
    }
}
