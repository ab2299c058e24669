//! Memory that processes share: real memory, of this process; only sleep is simulated.

use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::descriptors::Named;
use crate::wait::{self, Scope, Sleepers};
use crate::{AsFd, BorrowedFd, OwnedFd};

pub use farmem_sys::shared::SharedMemoryError;

/// Shared memory.
#[derive(Clone, Copy)]
pub struct SharedMemory {
    inner: &'static farmem_sys::shared::SharedMemory,
}

impl core::fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "SharedMemory({} bytes)", self.length_bytes())
    }
}

impl SharedMemory {
    /// Shared memory over memory of this process.
    pub fn over(inner: &'static farmem_sys::shared::SharedMemory) -> Self {
        Self { inner }
    }

    /// Bytes there are.
    pub fn length_bytes(&self) -> usize {
        self.inner.length_bytes()
    }

    /// Its addresses.
    pub fn addresses(&self) -> Range<usize> {
        self.inner.addresses()
    }

    /// `count` words from a byte offset on.
    pub fn atomics(&self, offset_bytes: usize, count: usize) -> Option<&[AtomicU64]> {
        self.inner.atomics(offset_bytes, count)
    }

    /// Copies content out; false outside the memory.
    pub fn copy_out(&self, offset_bytes: usize, out: &mut [u8]) -> bool {
        self.inner.copy_out(offset_bytes, out)
    }

    /// Copies content in; false outside the memory.
    pub fn copy_in(&self, offset_bytes: usize, bytes: &[u8]) -> bool {
        self.inner.copy_in(offset_bytes, bytes)
    }

    /// Hints that a range is about to be copied out.
    pub fn prefetch(&self, offset_bytes: usize, length_bytes: usize) {
        self.inner.prefetch(offset_bytes, length_bytes);
    }

    /// The memory behind a descriptor.
    ///
    /// # Errors
    /// [`SharedMemoryError::Unsuitable`] when there is less.
    pub fn attach(file: OwnedFd, length_bytes: usize) -> Result<Self, SharedMemoryError> {
        match file.0 {
            Named::Memory(memory) if memory.length_bytes() >= length_bytes => Ok(*memory),
            _ => Err(SharedMemoryError::Unsuitable),
        }
    }

    /// The same memory.
    pub fn with_file(&'static self, _file: OwnedFd) -> Self {
        *self
    }

    /// Its descriptor.
    pub fn file(&self) -> BorrowedFd<'_> {
        BorrowedFd::of(Named::Nothing)
    }

    /// Sleeps while the low half of a word is `value`.
    pub fn wait(&self, offset_bytes: usize, value: u32, timeout_ns: u64) {
        if let Some(half) = self.low_half(offset_bytes) {
            wait::wait(half, value, Some(timeout_ns), Scope::Machine);
        }
    }

    /// Wakes whoever sleeps on a word.
    pub fn wake(&self, offset_bytes: usize, sleepers: Sleepers) {
        if let Some(half) = self.low_half(offset_bytes) {
            wait::wake(half, sleepers, Scope::Machine);
        }
    }

    /// The half of a word on which threads sleep.
    pub fn low_half(&self, offset_bytes: usize) -> Option<&AtomicU32> {
        self.inner.low_half(offset_bytes)
    }

    /// Gives the memory behind a range back.
    ///
    /// # Errors
    /// As of real memory.
    pub fn release(&self, range_bytes: Range<usize>) -> Result<(), SharedMemoryError> {
        self.inner.release(range_bytes)
    }
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file()
    }
}
