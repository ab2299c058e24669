//! Calls that nobody waits for: what a reader will want of memory nodes soon. The carrier brings it into the read buffer, or not.
//!
//! A want lies among the calls of a lane, and takes the other way around there:
//!
//! ```text
//! Free ──reader──► Filling ──reader──► Wanted ──carrier──► Free
//! ```
//! There is no answer, so who wants something may end at once, and a carrier that takes a want has it for itself. Half of a lane's calls at most are wants: the
//! others stay for those who wait. Who wants something that somebody waits for meanwhile finds it in the buffer, or asks for it as for anything else.

use crate::calls::{Call, Caller, LANE_CALLS, Phase, State};
use crate::layout::WORD_BYTES;
use crate::memory::{Atomic, Memory};
use crate::pool::{OwnerId, Pool};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};

/// The first call of a lane that may be a want.
const FIRST_WANT: usize = LANE_CALLS / 2;

/// What somebody will want.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Want {
    /// The process that will.
    pub owner: OwnerId,
    /// The pages.
    pub call: Call,
    /// When it was said, by the reader's clock.
    pub since_ns: u64,
}

impl<M: Memory> Pool<M> {
    /// Says that those pages will be wanted soon, in the caller's own lane, without ringing. False when there is no room.
    pub(crate) fn want<C: Caller>(&self, caller: &C, call: Call) -> bool {
        let Some(lane) = caller.processor().checked_rem(self.lanes()) else { return false };
        for nth in FIRST_WANT..LANE_CALLS {
            let Ok(at) = self.call_at(lane, nth) else { return false };
            let (Ok(word), Ok(asked), Ok(since)) =
                (self.word(at), self.word(at + WORD_BYTES), self.word(at + 2 * WORD_BYTES))
            else {
                return false;
            };
            let bits = word.load(Acquire);
            let Some(state) = State::decode(bits) else { continue };
            if state.phase == Phase::Wanted && asked.load(Relaxed) == call.encode() {
                return true;
            }
            if state.phase != Phase::Free {
                continue;
            }
            let filling = state.claimed(caller.owner());
            if word.compare_exchange(bits, filling.encode(), AcqRel, Relaxed).is_err() {
                continue;
            }
            asked.store(call.encode(), Relaxed);
            since.store(caller.now_ns(), Relaxed);
            // Not a plain store: who was taken to be dead meanwhile has lost it.
            let wanted = filling.to(Phase::Wanted).encode();
            return word.compare_exchange(filling.encode(), wanted, SeqCst, Relaxed).is_ok();
        }
        false
    }

    /// Wakes the carrier's thread of the caller's lane, if it sleeps.
    pub(crate) fn ring_for<C: Caller>(&self, caller: &C) {
        if let Some(lane) = caller.processor().checked_rem(self.lanes()) {
            self.ring(lane);
        }
    }

    /// Takes a want of a lane. For the carrier.
    pub fn take_want(&self, lane: usize) -> Option<Want> {
        (FIRST_WANT..LANE_CALLS).find_map(|nth| {
            let at = self.call_at(lane, nth).ok()?;
            let word = self.word(at).ok()?;
            let bits = word.load(Acquire);
            let state = State::decode(bits).filter(|state| state.phase == Phase::Wanted)?;
            // Read before it is anybody else's: if it was by then, the swap fails.
            let call = Call::decode(self.word(at + WORD_BYTES).ok()?.load(Relaxed));
            let since_ns = self.word(at + 2 * WORD_BYTES).ok()?.load(Relaxed);
            word.compare_exchange(bits, state.to(Phase::Free).encode(), AcqRel, Relaxed).ok()?;
            Some(Want { owner: state.owner, call, since_ns })
        })
    }
}
