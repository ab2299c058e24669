//! Where the lock-free structures get their atomics, locks, memory and sleep from: one place, so that a model
//! checker can compile the same source files against its own (`tests/interleavings`, `tests/weak_memory`).

pub(crate) use core::hint::spin_loop;
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
pub(crate) use farmem_sys::Errno;
pub(crate) use farmem_sys::guard::{self, Guard};
pub(crate) use farmem_sys::lock::Lock;
pub(crate) use farmem_sys::memory::table;
pub(crate) use farmem_sys::sparse::SparseWords;
pub(crate) use farmem_sys::wait;

/// Looks at a word before sleeping on it: a reading takes less than a microsecond or two.
pub(crate) const SPINS: u32 = 200;
/// The same of whoever waits for changes to end: a batch of moves takes a hundred microseconds, and to be
/// woken on an idle processor half as long.
pub(crate) const CHANGE_SPINS: u32 = 8000;
/// Most regions: as many as a process may have mappings by default.
pub(crate) const MOST_REGIONS: usize = 65_536;
/// Ranges that the program has said something about and that nobody has dealt with yet. Each is 24 bytes.
pub(crate) const QUEUED_HINTS: usize = 1024;
