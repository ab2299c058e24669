//! Memory that several processes map at once: the ground under the pool.
//!
//! Whoever holds the file may write anywhere in it at any time, so nothing that is read from it can be
//! believed without a check. The methods here make that safe in the narrow sense: words are only reached as
//! atomics, all other content only by copying it out or in, and every range is checked against the mapping. A
//! copy that runs while another process writes the same bytes yields a mixture of old and new ones. That is
//! harmless where it is used: stored pages carry a 128-bit fingerprint, and a mixture fails it.

use crate::wait::{self, Scope, Sleepers};
use crate::{AsFd, AsRawFd, BorrowedFd, Errno, OwnedFd};
use core::ffi::CStr;
use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64};
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate,
    memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use rustix::net::SendFlags;

/// `count` words of zeros without a file, which this process shares with those that it forks from now on.
/// They stay for as long as any of these lives.
///
/// # Errors
/// No memory, or too many mappings.
pub fn words(count: usize) -> Result<&'static [AtomicU64], Errno> {
    let length_bytes = count.checked_mul(size_of::<AtomicU64>()).ok_or(Errno::NOMEM)?;
    let (rights, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE);
    // SAFETY: the kernel chooses an address that is free, so no existing mapping changes.
    let start = unsafe { mmap_anonymous(core::ptr::null_mut(), length_bytes, rights, kind)? };
    // SAFETY: the mapping holds `count` words, is aligned to a page, and is never unmapped. Any bit pattern
    // is a valid word, and words are only ever accessed atomically, here and in other processes.
    Ok(unsafe { core::slice::from_raw_parts(start.cast(), count) })
}

/// A memory file, mapped whole. Safe to use from any number of threads and processes.
pub struct SharedMemory {
    // Invariant 1: `base` is the start of a mapping of `length_bytes` bytes that is readable, writable and
    // shared, and that lives as long as this value. Invariant 2: the file behind it is sealed against
    // shrinking, so no access inside the mapping raises SIGBUS for lack of a file below it.
    base: NonNull<u8>,
    length_bytes: usize,
    file: OwnedFd,
}

/// Why memory can't be shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SharedMemoryError {
    /// The kernel refused.
    Kernel(Errno),
    /// The descriptor isn't a memory file that is sealed against shrinking, or it is shorter than asked for.
    Unsuitable,
}

impl core::fmt::Display for SharedMemoryError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Kernel(errno) => write!(f, "the kernel refused to share memory: {errno}"),
            Self::Unsuitable => {
                f.write_str("the descriptor is not a memory file of the expected size that can't shrink")
            }
        }
    }
}

impl core::error::Error for SharedMemoryError {}

impl From<Errno> for SharedMemoryError {
    fn from(errno: Errno) -> Self {
        Self::Kernel(errno)
    }
}

// SAFETY: the mapping belongs to the process, not to a thread, and all access goes through atomics or through
// copies that tolerate concurrent writers.
unsafe impl Send for SharedMemory {}
// SAFETY: as above; no method needs more than a shared reference.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Makes a new memory file of `length_bytes` zeros and maps it. `name` shows up in `/proc/*/maps`. The
    /// file takes no memory until it is written.
    pub fn create(name: &CStr, length_bytes: usize) -> Result<Self, SharedMemoryError> {
        let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, length_bytes as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Self::map(file, length_bytes)
    }

    /// In a forked child: the mapping that the parent made, whose file this thread has under another number.
    /// Unlike a second mapping it can't come to lie where the program expects nothing.
    pub fn with_file(&'static self, file: OwnedFd) -> Self {
        // The mapping of `self` lives for ever, so this one's user must not unmap it either: it has to be
        // leaked too.
        Self { base: self.base, length_bytes: self.length_bytes, file }
    }

    /// Maps the first `length_bytes` bytes of a file that [`SharedMemory::create`] made, here or in another
    /// process.
    pub fn attach(file: OwnedFd, length_bytes: usize) -> Result<Self, SharedMemoryError> {
        let sealed = fcntl_get_seals(&file).map_err(|_| SharedMemoryError::Unsuitable)?;
        let long_enough = u64::try_from(fstat(&file)?.st_size).is_ok_and(|size| size >= length_bytes as u64);
        if !sealed.contains(SealFlags::SHRINK) || !long_enough {
            return Err(SharedMemoryError::Unsuitable);
        }
        Self::map(file, length_bytes)
    }

    fn map(file: OwnedFd, length_bytes: usize) -> Result<Self, SharedMemoryError> {
        // SAFETY: the kernel chooses an address that is free, so no existing mapping changes.
        let base = unsafe {
            mmap(
                core::ptr::null_mut(),
                length_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &file,
                0,
            )?
        };
        let base = NonNull::new(base.cast()).ok_or(SharedMemoryError::Kernel(Errno::NOMEM))?;
        Ok(Self { base, length_bytes, file })
    }

    /// Bytes mapped.
    pub fn length_bytes(&self) -> usize {
        self.length_bytes
    }

    /// The memory file, to be handed to another process.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Where the mapping lies in this process, so that whoever walks the process's memory can leave it alone.
    pub fn addresses(&self) -> Range<usize> {
        let start = self.base.as_ptr().addr();
        start..start + self.length_bytes
    }

    /// The `count` words from byte `offset_bytes` on. `None` when the range leaves the mapping or is not
    /// aligned to words.
    pub fn atomics(&self, offset_bytes: usize, count: usize) -> Option<&[AtomicU64]> {
        let length_bytes = count.checked_mul(size_of::<AtomicU64>())?;
        if !offset_bytes.is_multiple_of(align_of::<AtomicU64>()) || !self.holds(offset_bytes, length_bytes) {
            return None;
        }
        // SAFETY: the range lies in the mapping (checked above) and is aligned (the mapping starts on a
        // page). Any bit pattern is a valid word; it is only ever accessed atomically or by `copy_*`, which
        // use no plain loads or stores. The reference can't outlive the mapping (invariant 1).
        Some(unsafe { core::slice::from_raw_parts(self.base.as_ptr().add(offset_bytes).cast(), count) })
    }

    /// Copies `out.len()` bytes from byte `offset_bytes` on. False, and nothing copied, when the range leaves
    /// the mapping.
    ///
    /// Concurrent writers make the copy a mixture of old and new bytes; see the module's text.
    #[must_use]
    pub fn copy_out(&self, offset_bytes: usize, out: &mut [u8]) -> bool {
        if !self.holds(offset_bytes, out.len()) {
            return false;
        }
        // SAFETY: the source lies in the mapping (checked above), the target is an exclusive slice of the
        // same length; they don't overlap, because no reference to plain bytes of the mapping is ever made.
        unsafe { copy_bytes(self.base.as_ptr().add(offset_bytes), out.as_mut_ptr(), out.len()) };
        true
    }

    /// Asks for a range to be brought into the processor's cache, for a copy that follows. Does nothing
    /// outside the mapping.
    pub fn prefetch(&self, offset_bytes: usize, length_bytes: usize) {
        if self.holds(offset_bytes, length_bytes) {
            crate::cache::prefetch(self.base.as_ptr().wrapping_add(offset_bytes), length_bytes);
        }
    }

    /// Copies `bytes` to byte `offset_bytes` on. False, and nothing copied, when the range leaves the
    /// mapping.
    #[must_use]
    pub fn copy_in(&self, offset_bytes: usize, bytes: &[u8]) -> bool {
        if !self.holds(offset_bytes, bytes.len()) {
            return false;
        }
        // SAFETY: the target lies in the mapping (checked above) and holds nothing but bytes; source and
        // target don't overlap, because no reference to plain bytes of the mapping is ever made.
        unsafe { copy_bytes(bytes.as_ptr(), self.base.as_ptr().add(offset_bytes), bytes.len()) };
        true
    }

    /// Sends `before`, and then the `length_bytes` bytes from byte `offset_bytes` on, as far as the socket
    /// takes them without waiting. How many bytes went, of both together.
    ///
    /// The kernel copies them out of the mapping: as by [`SharedMemory::copy_out`], concurrent writers make
    /// it a mixture.
    pub fn send(
        &self,
        socket: BorrowedFd<'_>,
        before: &[u8],
        offset_bytes: usize,
        length_bytes: usize,
    ) -> Result<usize, SharedMemoryError> {
        if !self.holds(offset_bytes, length_bytes) {
            return Err(SharedMemoryError::Unsuitable);
        }
        let parts = [
            Part { base: before.as_ptr(), length_bytes: before.len() },
            Part { base: self.base.as_ptr().wrapping_add(offset_bytes), length_bytes },
        ];
        let message = Message {
            name: core::ptr::null(),
            name_bytes: 0,
            parts: parts.as_ptr(),
            count: parts.len(),
            control: core::ptr::null(),
            control_bytes: 0,
            flags: 0,
        };
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        // SAFETY: the message and its parts live through the call, which only reads them; the first part is a
        // slice, the second lies in the mapping (checked above), to plain bytes of which no reference is
        // made. The rest is empty.
        let sent = unsafe {
            crate::syscall::call(
                linux_raw_sys::general::__NR_sendmsg,
                [
                    socket.as_raw_fd() as usize,
                    core::ptr::from_ref(&message).expose_provenance(),
                    flags.bits() as usize,
                    0,
                ],
            )
        };
        Ok(sent?)
    }

    /// Sleeps while the low half of the word at byte `offset_bytes` is `value`, at most `timeout_ns`. Returns
    /// early at will, and at once when there is no such word: check again.
    pub fn wait(&self, offset_bytes: usize, value: u32, timeout_ns: u64) {
        if let Some(half) = self.low_half(offset_bytes) {
            wait::wait(half, value, Some(timeout_ns), Scope::Machine);
        }
    }

    /// Wakes whoever sleeps on the word at byte `offset_bytes`, in any process.
    pub fn wake(&self, offset_bytes: usize, sleepers: Sleepers) {
        if let Some(half) = self.low_half(offset_bytes) {
            wait::wake(half, sleepers, Scope::Machine);
        }
    }

    /// [`wait::low_half`] of the word at byte `offset_bytes`; `None` when there is no such word.
    pub fn low_half(&self, offset_bytes: usize) -> Option<&AtomicU32> {
        self.atomics(offset_bytes, 1)?.first().map(wait::low_half)
    }

    /// Gives the memory behind a range back to the kernel; it reads as zeros afterwards, for everybody. Whole
    /// pages inside the range are freed, the rest of it is zeroed.
    pub fn release(&self, range_bytes: Range<usize>) -> Result<(), SharedMemoryError> {
        if !self.holds(range_bytes.start, range_bytes.len()) {
            return Err(SharedMemoryError::Unsuitable);
        }
        if range_bytes.is_empty() {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        loop {
            match fallocate(&self.file, flags, range_bytes.start as u64, range_bytes.len() as u64) {
                Err(Errno::INTR) => {}
                done => return Ok(done?),
            }
        }
    }

    fn holds(&self, offset_bytes: usize, length_bytes: usize) -> bool {
        offset_bytes.checked_add(length_bytes).is_some_and(|end| end <= self.length_bytes)
    }
}

/// What the kernel calls an `iovec`.
#[repr(C)]
struct Part {
    base: *const u8,
    length_bytes: usize,
}

/// What the kernel calls a `user_msghdr`.
#[repr(C)]
struct Message {
    name: *const u8,
    name_bytes: i32,
    parts: *const Part,
    count: usize,
    control: *const u8,
    control_bytes: usize,
    flags: u32,
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: invariant 1; no reference into the mapping outlives this value.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.length_bytes) };
    }
}

/// Copies `count` bytes in a way that a concurrent writer of the same bytes can't turn into undefined
/// behaviour.
///
/// The string instruction stands for a loop of relaxed atomic byte accesses, which is what the compiler has
/// to assume of it, and moves a cache line at a time.
///
/// # Safety
/// `from` must be readable and `to` writable for `count` bytes, and the two ranges must not overlap.
#[cfg(target_arch = "x86_64")]
unsafe fn copy_bytes(from: *const u8, to: *mut u8, count: usize) {
    // SAFETY: the caller's contract; the direction flag is clear on entry to `asm!`.
    unsafe {
        core::arch::asm!(
            "rep movsb",
            inout("rcx") count => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
}

/// As above, for machines without string instructions.
///
/// # Safety
/// `from` must be readable and `to` writable for `count` bytes, and the two ranges must not overlap.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn copy_bytes(from: *const u8, to: *mut u8, count: usize) {
    use core::sync::atomic::{AtomicU8, Ordering};
    for at in 0..count {
        // SAFETY: the caller's contract; a byte has no alignment, and an atomic byte has the layout of a
        // byte.
        unsafe {
            let byte = AtomicU8::from_ptr(from.add(at).cast_mut()).load(Ordering::Relaxed);
            AtomicU8::from_ptr(to.add(at)).store(byte, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use core::sync::atomic::Ordering;

    const LENGTH_BYTES: usize = 4 * 4096;

    fn memory() -> SharedMemory {
        SharedMemory::create(c"farmem-test", LENGTH_BYTES).unwrap()
    }

    fn duplicate(memory: &SharedMemory) -> OwnedFd {
        rustix::io::fcntl_dupfd_cloexec(memory.file(), 0).unwrap()
    }

    #[test]
    fn what_one_mapping_writes_another_reads() {
        let first = memory();
        let second = SharedMemory::attach(duplicate(&first), LENGTH_BYTES).unwrap();
        assert!(first.copy_in(4000, b"across a page boundary, unaligned"));
        first.atomics(8, 1).unwrap()[0].store(77, Ordering::Release);
        let mut out = [0; 33];
        assert!(second.copy_out(4000, &mut out));
        assert_eq!(&out, b"across a page boundary, unaligned");
        assert_eq!(second.atomics(8, 1).unwrap()[0].load(Ordering::Acquire), 77);
    }

    #[test]
    fn ranges_outside_the_mapping_are_refused() {
        let memory = memory();
        assert!(memory.atomics(LENGTH_BYTES - 8, 1).is_some());
        assert!(memory.atomics(LENGTH_BYTES - 8, 2).is_none());
        assert!(memory.atomics(4, 1).is_none());
        assert!(memory.atomics(8, usize::MAX / 8).is_none());
        assert!(!memory.copy_out(LENGTH_BYTES - 1, &mut [0; 2]));
        assert!(!memory.copy_in(usize::MAX, &[0; 2]));
        assert!(memory.release(0..LENGTH_BYTES + 1).is_err());
    }

    #[test]
    fn who_sleeps_on_a_word_is_woken_through_another_mapping() {
        let first = memory();
        let second = SharedMemory::attach(duplicate(&first), LENGTH_BYTES).unwrap();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                while first.atomics(64, 1).unwrap()[0].load(Ordering::Acquire) as u32 == 7 {
                    first.wait(64, 7, 10_000_000_000);
                }
            });
            first.atomics(64, 1).unwrap()[0].store(7 | 9 << 32, Ordering::Release);
            second.atomics(64, 1).unwrap()[0].store(8, Ordering::Release);
            second.wake(64, Sleepers::All);
            sleeper.join().unwrap();
        });
        first.wait(1, 0, u64::MAX);
        first.wait(LENGTH_BYTES, 0, u64::MAX);
    }

    #[test]
    fn what_a_socket_takes_comes_out_behind_what_goes_before() {
        use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
        let memory = memory();
        assert!(memory.copy_in(4090, b"across a page boundary"));
        let (here, there) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None).unwrap();
        assert_eq!(memory.send(here.as_fd(), b"it goes ", 4090, 22), Ok(30));
        let mut out = [0; 64];
        assert_eq!(recv(&there, &mut out[..], RecvFlags::DONTWAIT).unwrap().0, 30);
        assert_eq!(&out[..30], b"it goes across a page boundary");

        let outside = memory.send(here.as_fd(), b"", LENGTH_BYTES - 1, 2);
        assert_eq!(outside, Err(SharedMemoryError::Unsuitable));
        // It takes a part, and then nothing, without waiting.
        let mut taken = 0;
        let full = loop {
            match memory.send(here.as_fd(), &[1; 7], 0, LENGTH_BYTES) {
                Ok(count) => taken += count,
                Err(error) => break error,
            }
        };
        assert!(taken > 0);
        assert_eq!(full, SharedMemoryError::Kernel(Errno::AGAIN));
        drop(there);
        assert_eq!(memory.send(here.as_fd(), b"", 0, 1), Err(SharedMemoryError::Kernel(Errno::PIPE)));
    }

    #[test]
    fn released_memory_reads_as_zeros_and_costs_nothing() {
        let memory = memory();
        assert!(memory.copy_in(0, &[9; LENGTH_BYTES]));
        memory.release(4096..3 * 4096).unwrap();
        assert_eq!(fstat(memory.file()).unwrap().st_blocks * 512, 2 * 4096);
        let mut out = [1; LENGTH_BYTES];
        assert!(memory.copy_out(0, &mut out));
        assert!(
            out[..4096].iter().all(|byte| *byte == 9) && out[4096..3 * 4096].iter().all(|byte| *byte == 0)
        );
    }

    #[test]
    fn a_file_that_could_shrink_is_refused() {
        let file = memfd_create(c"farmem-test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, LENGTH_BYTES as u64).unwrap();
        assert!(matches!(SharedMemory::attach(file, LENGTH_BYTES), Err(SharedMemoryError::Unsuitable)));
    }

    #[test]
    fn a_file_that_is_too_short_is_refused() {
        let file = duplicate(&memory());
        assert!(matches!(SharedMemory::attach(file, LENGTH_BYTES + 1), Err(SharedMemoryError::Unsuitable)));
    }
}
