//! Sleeping on a word of memory until somebody changes it.

use core::sync::atomic::{AtomicU32, AtomicU64};

use rustix::thread::futex;
use rustix::time::Timespec;

/// Whether the sleepers share one address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Threads of one process: cheaper.
    Process,
    /// Processes that map the same file.
    Machine,
}

impl Scope {
    fn flags(self) -> futex::Flags {
        match self {
            Scope::Process => futex::Flags::PRIVATE,
            Scope::Machine => futex::Flags::empty(),
        }
    }
}

/// The half of a word whose address stands for the word with the kernel. Nobody but the kernel reads it:
/// words are accessed whole.
pub fn low_half(word: &AtomicU64) -> &AtomicU32 {
    let half = if cfg!(target_endian = "little") { 0 } else { 1 };
    // SAFETY: both halves of a word lie in it, are aligned to their size, and live as long as it; any bit
    // pattern is valid.
    unsafe { &*core::ptr::from_ref(word).cast::<AtomicU32>().add(half) }
}

/// Sleeps while `word` holds `value`, at most `timeout_ns` when given. Returns early at will: check again.
pub fn wait(word: &AtomicU32, value: u32, timeout_ns: Option<u64>, scope: Scope) {
    let timeout = timeout_ns.map(timespec);
    let _ = futex::wait(word, scope.flags(), value, timeout.as_ref());
}

fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
}

/// Words that [`wait_any`] takes, at most.
pub const MOST_WORDS: usize = 64;

/// Sleeps while each of `words` holds the value next to it, at most `timeout_ns`; of more than [`MOST_WORDS`]
/// the first ones. Returns early at will: check again.
pub fn wait_any<'a>(words: impl Iterator<Item = (&'a AtomicU32, u32, Scope)>, timeout_ns: u64) {
    let mut waiters = [futex::Wait::new(); MOST_WORDS];
    let mut count = 0;
    for (waiter, (word, value, scope)) in waiters.iter_mut().zip(words) {
        waiter.val = value.into();
        waiter.uaddr = futex::WaitPtr::new(core::ptr::from_ref(word).cast_mut().cast());
        waiter.flags = match scope {
            Scope::Process => futex::WaitFlags::SIZE_U32 | futex::WaitFlags::PRIVATE,
            Scope::Machine => futex::WaitFlags::SIZE_U32,
        };
        count += 1;
    }
    // The kernel takes the moment, not how long.
    let until = timespec(crate::thread::now_ns().saturating_add(timeout_ns));
    let _ = futex::waitv(
        &waiters[..count],
        futex::WaitvFlags::empty(),
        Some(&until),
        rustix::thread::ClockId::Monotonic,
    );
}

/// How many sleepers to wake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sleepers {
    /// One, if there is one.
    One,
    /// Everyone.
    All,
}

/// Wakes sleepers.
pub fn wake(word: &AtomicU32, sleepers: Sleepers, scope: Scope) {
    let count = match sleepers {
        Sleepers::One => 1,
        // The kernel takes the count as a signed number: one more and it would wake a single sleeper.
        Sleepers::All => i32::MAX as u32,
    };
    let _ = futex::wake(word, scope.flags(), count);
}
