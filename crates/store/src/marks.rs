//! How full memory may get: above the high mark slabs leave it, down to the low one (FastSwap §IV, hybrid
//! swap-out); as far as there is room below a mark they come back.

use crate::claims::Claimable;
use crate::memory::Memory;
use crate::pool::Pool;

/// A part of the limit, in percent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Mark(usize);

impl Mark {
    /// Above it slabs begin to leave.
    pub(crate) const HIGH: Self = Self(80);
    /// Down to it they leave, up to it come back those that are read.
    pub(crate) const LOW: Self = Self(70);
    /// Up to it come back those that nobody reads: they take no room from those that are.
    pub(crate) const UNREAD: Self = Self(65);
}

const _: () = assert!(Mark::UNREAD.0 < Mark::LOW.0 && Mark::LOW.0 < Mark::HIGH.0 && Mark::HIGH.0 < 100);

impl<M: Memory> Pool<M> {
    /// Frames that may be taken until there are as many as at a mark.
    pub(crate) fn frames_below(&self, mark: Mark) -> usize {
        self.frames_at(mark).saturating_sub(self.claimed(Claimable::Frame))
    }

    /// Frames in use at a mark.
    pub(crate) fn frames_at(&self, mark: Mark) -> usize {
        self.frame_limit() * mark.0 / 100
    }
}
