//! How much of the program's memory is resident, how much may be, and what lies between: room, or an excess.

use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use farmem_page::PageCount;

/// How far above their limits an application's processes may get before their faults wait for room: 4 MiB.
pub(crate) const TOLERATED_PAGES: i64 = 1024;
/// Each of them at least so far: 512 KiB.
const LEAST_TOLERATED_PAGES: i64 = 128;

/// The resident pages of a process, and its limit. All of it may be asked and told by any thread at any time.
#[derive(Debug)]
pub(crate) struct Residency {
    /// The kernel's figure when it was last asked, and what was brought in and taken away since.
    resident: AtomicI64,
    /// Pages that have come otherwise, less those that have gone so.
    unnoticed: AtomicI64,
    limit: AtomicI64,
    /// How far above that limit it may get before its faults wait for room.
    tolerated: AtomicI64,
    /// Frames in the staging area: resident to the kernel, but no longer the program's.
    staged: AtomicU64,
}

impl Residency {
    pub(crate) const fn new() -> Self {
        Self {
            resident: AtomicI64::new(0),
            unnoticed: AtomicI64::new(0),
            limit: AtomicI64::new(i64::MAX),
            tolerated: AtomicI64::new(TOLERATED_PAGES),
            staged: AtomicU64::new(0),
        }
    }

    /// Pages above the limit when `more` pages have come in; negative when there is room.
    pub(crate) fn excess(&self, more: usize) -> i64 {
        self.resident.load(Ordering::Relaxed) + more as i64 - self.limit.load(Ordering::Relaxed)
    }

    /// Pages have been brought in.
    pub(crate) fn came_in(&self, count: u64) {
        self.resident.fetch_add(count as i64, Ordering::Relaxed);
    }

    /// Pages have been taken away.
    pub(crate) fn went_out(&self, count: u64) {
        self.resident.fetch_sub(count as i64, Ordering::Relaxed);
    }

    /// The kernel says how many pages are resident, staged frames included; the program's own of them, and
    /// how many more these are than was known.
    pub(crate) fn sync(&self, counted: PageCount) -> (PageCount, i64) {
        let resident = counted.saturating_sub(PageCount::new(self.staged.load(Ordering::Relaxed)));
        let before = self.resident.swap(resident.get() as i64, Ordering::Relaxed);
        let unnoticed = resident.get() as i64 - before;
        self.unnoticed.fetch_add(unnoticed, Ordering::Relaxed);
        (resident, unnoticed)
    }

    /// Pages that have come without the pager's help since this was asked before, less those that have gone
    /// so.
    pub(crate) fn take_unnoticed(&self) -> i64 {
        self.unnoticed.swap(0, Ordering::Relaxed)
    }

    /// What [`Residency::take_unnoticed`] would say.
    pub(crate) fn unnoticed(&self) -> i64 {
        self.unnoticed.load(Ordering::Relaxed)
    }

    /// Pages that the process may have resident.
    pub(crate) fn limit(&self) -> PageCount {
        PageCount::new(self.limit.load(Ordering::Relaxed).max(0) as u64)
    }

    /// Pages by which the process may pass its limit before its faults wait for room.
    pub(crate) fn tolerated(&self) -> i64 {
        self.tolerated.load(Ordering::Relaxed)
    }

    /// Changes the limit, of one of `processes` that have one. What they may pass them by is shared, too.
    pub(crate) fn set_limit(&self, limit: PageCount, processes: i64) {
        self.tolerated.store((TOLERATED_PAGES / processes).max(LEAST_TOLERATED_PAGES), Ordering::Relaxed);
        self.limit.store(limit.get() as i64, Ordering::Relaxed);
    }

    /// So many frames are staged now.
    pub(crate) fn set_staged(&self, frames: u64) {
        self.staged.store(frames, Ordering::Relaxed);
    }

    /// Whether frames are staged.
    pub(crate) fn is_any_staged(&self) -> bool {
        self.staged.load(Ordering::Relaxed) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited(limit: u64) -> Residency {
        let residency = Residency::new();
        residency.set_limit(PageCount::new(limit), 1);
        residency
    }

    #[test]
    fn there_is_room_without_end_before_a_limit_is_set() {
        assert!(Residency::new().excess(usize::MAX >> 2) < 0);
    }

    #[test]
    fn what_comes_and_goes_counts_until_the_kernel_is_asked() {
        let residency = limited(10);
        residency.came_in(12);
        residency.went_out(1);
        assert_eq!((residency.excess(0), residency.excess(3)), (1, 4));
        // Three more than was known have come by themselves.
        assert_eq!(residency.sync(PageCount::new(14)), (PageCount::new(14), 3));
        assert_eq!((residency.excess(0), residency.unnoticed()), (4, 3));
        assert_eq!((residency.take_unnoticed(), residency.take_unnoticed()), (3, 0));
    }

    #[test]
    fn staged_frames_are_not_the_programs() {
        let residency = limited(10);
        residency.set_staged(4);
        assert_eq!(residency.sync(PageCount::new(10)), (PageCount::new(6), 6));
        assert_eq!(residency.excess(0), -4);
        // The kernel's figure may be older than the count of frames.
        assert_eq!(residency.sync(PageCount::new(3)).0, PageCount::new(0));
    }

    #[test]
    fn what_is_tolerated_is_shared_down_to_a_least_part() {
        let residency = limited(10);
        assert_eq!(residency.tolerated(), TOLERATED_PAGES);
        residency.set_limit(PageCount::new(10), 4);
        assert_eq!(residency.tolerated(), TOLERATED_PAGES / 4);
        residency.set_limit(PageCount::new(10), 1000);
        assert_eq!(residency.tolerated(), LEAST_TOLERATED_PAGES);
    }
}
