//! The memory under a pool, and the only door to atomics: model checkers put their own behind it.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use farmem_sys::shared::SharedMemory;
use farmem_sys::wait::Sleepers;

/// A 64-bit word that several processes change.
#[allow(missing_docs, reason = "the methods are those of `core::sync::atomic::AtomicU64`")]
pub trait Atomic {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    fn compare_exchange(&self, current: u64, new: u64, done: Ordering, failed: Ordering) -> Result<u64, u64>;
    fn fetch_add(&self, value: u64, order: Ordering) -> u64;
    fn fetch_sub(&self, value: u64, order: Ordering) -> u64;
    fn fetch_and(&self, value: u64, order: Ordering) -> u64;
    fn fetch_or(&self, value: u64, order: Ordering) -> u64;
    fn fetch_max(&self, value: u64, order: Ordering) -> u64;
}

/// Memory that the processes of an application share. Offsets count bytes from its start.
///
/// Words are only reached as atomics; content is only copied. A copy that runs while somebody writes the same
/// bytes may give a mixture, which the pool finds out by fingerprint.
pub trait Memory {
    /// The words of this memory.
    type Word: Atomic;
    /// Bytes there are.
    fn length_bytes(&self) -> usize;
    /// `count` words from a byte offset on; `None` outside the memory or off a word's boundary.
    fn words(&self, offset_bytes: usize, count: usize) -> Option<&[Self::Word]>;
    /// Copies content out; false outside the memory.
    #[must_use]
    fn copy_out(&self, offset_bytes: usize, out: &mut [u8]) -> bool;
    /// Hints that a range is about to be copied out.
    fn prefetch(&self, offset_bytes: usize, length_bytes: usize) {
        let _ = (offset_bytes, length_bytes);
    }
    /// Copies content in; false outside the memory.
    #[must_use]
    fn copy_in(&self, offset_bytes: usize, bytes: &[u8]) -> bool;
    /// Sleeps while the low half of the word at an offset is `value`, at most `timeout_ns`. Returns early at
    /// will: by default at once.
    fn wait(&self, offset_bytes: usize, value: u32, timeout_ns: u64) {
        let _ = (offset_bytes, value, timeout_ns);
        core::hint::spin_loop();
    }
    /// Wakes whoever sleeps on the word at an offset, in all processes: one, or all.
    fn wake(&self, offset_bytes: usize, sleepers: Sleepers) {
        let _ = (offset_bytes, sleepers);
    }
    /// Gives the memory behind a range back to the machine. May do nothing: what the range holds afterwards
    /// is unspecified.
    fn release(&self, range_bytes: Range<usize>);
}

impl Atomic for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }
    fn compare_exchange(&self, current: u64, new: u64, done: Ordering, failed: Ordering) -> Result<u64, u64> {
        self.compare_exchange(current, new, done, failed)
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_add(value, order)
    }
    fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_sub(value, order)
    }
    fn fetch_and(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_and(value, order)
    }
    fn fetch_or(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_or(value, order)
    }
    fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_max(value, order)
    }
}

impl Memory for SharedMemory {
    type Word = AtomicU64;

    fn length_bytes(&self) -> usize {
        self.length_bytes()
    }
    fn words(&self, offset_bytes: usize, count: usize) -> Option<&[AtomicU64]> {
        self.atomics(offset_bytes, count)
    }
    fn copy_out(&self, offset_bytes: usize, out: &mut [u8]) -> bool {
        self.copy_out(offset_bytes, out)
    }
    fn prefetch(&self, offset_bytes: usize, length_bytes: usize) {
        self.prefetch(offset_bytes, length_bytes);
    }
    fn copy_in(&self, offset_bytes: usize, bytes: &[u8]) -> bool {
        self.copy_in(offset_bytes, bytes)
    }
    fn wait(&self, offset_bytes: usize, value: u32, timeout_ns: u64) {
        self.wait(offset_bytes, value, timeout_ns);
    }
    fn wake(&self, offset_bytes: usize, sleepers: Sleepers) {
        self.wake(offset_bytes, sleepers);
    }
    fn release(&self, range_bytes: Range<usize>) {
        // A hole that can't be punched only costs memory until the frame is used again.
        let _ = self.release(range_bytes);
    }
}

impl<M: Memory> Memory for &M {
    type Word = M::Word;

    fn length_bytes(&self) -> usize {
        (**self).length_bytes()
    }
    fn words(&self, offset_bytes: usize, count: usize) -> Option<&[M::Word]> {
        (**self).words(offset_bytes, count)
    }
    fn copy_out(&self, offset_bytes: usize, out: &mut [u8]) -> bool {
        (**self).copy_out(offset_bytes, out)
    }
    fn prefetch(&self, offset_bytes: usize, length_bytes: usize) {
        (**self).prefetch(offset_bytes, length_bytes);
    }
    fn copy_in(&self, offset_bytes: usize, bytes: &[u8]) -> bool {
        (**self).copy_in(offset_bytes, bytes)
    }
    fn wait(&self, offset_bytes: usize, value: u32, timeout_ns: u64) {
        (**self).wait(offset_bytes, value, timeout_ns);
    }
    fn wake(&self, offset_bytes: usize, sleepers: Sleepers) {
        (**self).wake(offset_bytes, sleepers);
    }
    fn release(&self, range_bytes: Range<usize>) {
        (**self).release(range_bytes);
    }
}
