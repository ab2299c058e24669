//! How the mover hears that memory gets short, without looking at it all the time: it says after how many
//! more frames that is, and the thread that takes the last of these wakes it. A small pool fills within a
//! millisecond or two; a mover that only looked every ten would keep its programs waiting most of the time.
//!
//! Invariants:
//! 1. The count is a hint. What is given back meanwhile doesn't raise it again, so that it rings early; a
//!    thread that dies before it has counted or rung, or a limit that becomes lower, makes it ring late,
//!    which costs the rest of the mover's pause.
//! 2. The mover sets the count before it looks a last time, and frames are counted after they were taken: one
//!    of the two sees the other's.

use crate::claims::Claimable;
use crate::layout::{Header, WORD_BYTES};
use crate::marks::Mark;
use crate::memory::{Atomic, Memory};
use crate::pool::Pool;
use core::sync::atomic::Ordering::SeqCst;
use farmem_sys::wait::Sleepers;

impl<M: Memory> Pool<M> {
    /// Frames that may yet be taken until slabs are to leave memory; none when they are to leave now.
    fn spare_frames(&self) -> u64 {
        (self.frames_at(Mark::HIGH) + 1).saturating_sub(self.claimed(Claimable::Frame)) as u64
    }

    /// Sleeps until memory gets short, at most `timeout_ns`. Returns early at will, and at once where it is
    /// short already. For the mover.
    pub fn await_shortage(&self, timeout_ns: u64) {
        let (Ok(spare), Ok(bell)) = (self.header(Header::SpareFrames), self.header(Header::MoverBell)) else {
            return;
        };
        let rung = bell.load(SeqCst);
        // As long as it hasn't run down the last count will do: counting takes time in a large pool.
        if spare.load(SeqCst) as i64 <= 0 {
            let before = self.spare_frames();
            spare.store(before, SeqCst);
            if before == 0 || self.spare_frames() < before {
                return;
            }
        }
        self.memory.wait(Header::MoverBell as usize * WORD_BYTES, rung as u32, timeout_ns);
    }

    /// A frame was taken.
    pub(crate) fn count_frame(&self) {
        let (Ok(spare), Ok(bell)) = (self.header(Header::SpareFrames), self.header(Header::MoverBell)) else {
            return;
        };
        if spare.fetch_sub(1, SeqCst) == 1 {
            bell.fetch_add(1, SeqCst);
            self.memory.wake(Header::MoverBell as usize * WORD_BYTES, Sleepers::All);
        }
    }
}
