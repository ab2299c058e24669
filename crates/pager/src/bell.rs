//! What the bookkeeper sleeps on, and why somebody wakes it.

use core::sync::atomic::{AtomicU32, Ordering};

use farmem_sys::wait::{self, Scope, Sleepers};

/// Why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Reason {
    /// Memory that a fork has left shared is yet to be protected.
    Fork = 1,
    /// The program has said something about its memory. Nobody waits for what comes of it.
    Hint = 2,
    /// A handler that keeps the bookkeeper's watch has seen something, or has nothing to do itself.
    Look = 4,
}

/// A bit for each [`Reason`] that there is at this moment.
#[derive(Debug)]
pub(crate) struct Bell(AtomicU32);

impl Bell {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Wakes the bookkeeper, or keeps it from falling asleep, until it has answered. Only the first thread
    /// with this reason pays for that.
    pub(crate) fn ring(&self, reason: Reason) {
        if self.0.fetch_or(reason as u32, Ordering::AcqRel) & reason as u32 == 0 {
            wait::wake(&self.0, Sleepers::All, Scope::Process);
        }
    }

    /// Leaves word for the bookkeeper's next round, or for whoever else looks before. Wakes nobody.
    pub(crate) fn note(&self, reason: Reason) {
        self.0.fetch_or(reason as u32, Ordering::AcqRel);
    }

    /// The bookkeeper's sleep: ends early when somebody rings.
    pub(crate) fn sleep(&self, pause_ns: u64) {
        let (word, quiet, scope) = self.word();
        wait::wait(word, quiet, Some(pause_ns), scope);
    }

    /// What that sleep is on, with the value that it lasts for.
    pub(crate) fn word(&self) -> (&AtomicU32, u32, Scope) {
        (&self.0, self.0.load(Ordering::Acquire) & Reason::Hint as u32, Scope::Process)
    }

    pub(crate) fn is_rung(&self, reason: Reason) -> bool {
        self.0.load(Ordering::Acquire) & reason as u32 != 0
    }

    pub(crate) fn answer(&self, reason: Reason) {
        self.0.fetch_and(!(reason as u32), Ordering::AcqRel);
    }
}
