//! What can't be moved: memory that is locked, in use by the kernel, not managed. A process may have more of
//! it than its limit; then faults that look for victims in vain would be all that it does.

use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Once nothing could be moved, nobody tries again before so many more pages are there, which may be movable.
const WORTH_PAGES: i64 = 64;
/// The next try is due after so long, too: what is there may have become movable.
const WORTH_NS: u64 = 20_000_000;

/// What the last eviction found that moved nothing.
#[derive(Debug)]
pub(crate) struct Unmovable {
    /// Pages above the limit then.
    excess: AtomicI64,
    found_ns: AtomicU64,
}

impl Unmovable {
    pub(crate) const fn new() -> Self {
        Self { excess: AtomicI64::new(i64::MIN), found_ns: AtomicU64::new(0) }
    }

    /// The hand has gone round and found nothing that can be moved, with so many pages above the limit.
    pub(crate) fn note(&self, excess: i64, now_ns: u64) {
        self.excess.store(excess, Ordering::Relaxed);
        self.found_ns.store(now_ns, Ordering::Relaxed);
    }

    /// Whether `excess` pages above the limit are most likely still what can't be moved.
    pub(crate) fn is_all(&self, excess: i64, now_ns: u64) -> bool {
        excess < self.excess.load(Ordering::Relaxed).saturating_add(WORTH_PAGES)
            && now_ns.saturating_sub(self.found_ns.load(Ordering::Relaxed)) < WORTH_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eviction_is_tried_again_for_enough_pages_more_or_after_a_while() {
        let unmovable = Unmovable::new();
        assert!(!unmovable.is_all(0, 0), "nothing has been tried yet");
        unmovable.note(10, 1000);
        assert!(unmovable.is_all(10, 1000) && unmovable.is_all(9 + WORTH_PAGES, 1000));
        assert!(!unmovable.is_all(10 + WORTH_PAGES, 1000));
        assert!(!unmovable.is_all(10, 1000 + WORTH_NS));
    }
}
