//! How a reader asks the supervisor for what only memory nodes hold.
//!
//! A reader does no networking: it leaves a *call* in shared memory and sleeps on it. Calls lie in lanes, one
//! lane for each processor as far as there are that many, so that the asker and the answerer can be on the
//! same one. A lane is an array of calls, not a queue with cursors: every call goes from one hand to the
//! other by swapping its one word, so that a process which dies holds up nobody but itself.
//!
//! ```text
//! Free ──reader──► Filling ──reader──► Asked ──carrier──► Serving ──carrier──► Answered ──reader──► Free
//!                                        └───────── reader gives up ┴────────────────────────────────►
//! ```
//! Invariants:
//! 1. What is asked is written only by the thread that took the call from `Free` to `Filling`, before it
//!    becomes `Asked`.
//! 2. Each way from `Free` has a sequence number of its own, and each swap names it: a carrier that answers
//!    late answers nobody.
//! 3. A reader raises the bell after it has asked, and a carrier says that it sleeps before it looks for
//!    calls a last time: so one of them sees the other.

use crate::copies::VERSION_BITS;
use crate::layout::{LANE_WORDS, WORD_BYTES};
use crate::memory::{Atomic, Memory};
use crate::pool::{Damaged, OwnerId, Pool};
use crate::read_buffer::ENTRY_PAGES;
use crate::slab::LOCATION_LIMIT;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use farmem_sys::wait::Sleepers;

/// Words before a lane's calls: the bell, and the sleepers, each on a cache line of its own.
pub(crate) const LANE_HEAD_WORDS: usize = 16;
const BELL: usize = 0;
const SLEEPERS: usize = 8;
/// Words of a call: a cache line.
pub(crate) const CALL_WORDS: usize = 8;
/// Of them the one that says whether nobody waits for what is asked.
const AHEAD_WORD: usize = 2;
/// Calls of a lane: those of so many threads that fault at once on one processor.
pub(crate) const LANE_CALLS: usize = 16;

/// How long a reader sleeps before it asks whether to go on waiting.
const SLICE_NS: u64 = 50_000_000;
/// For what nobody waits for it sleeps so long before it first asks whether it is held up. Then as long again
/// as it has waited.
const AHEAD_SLICE_NS: u64 = 200_000;
/// The same while no call is free.
const CROWDED_NS: u64 = 1_000_000;

/// Pages of a block in 4 KiB, as stored: slots don't end where they do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// The block.
    pub block: usize,
    /// Which of its contents.
    pub version: u32,
    /// The first page.
    pub first: usize,
    /// How many, 1 to 16.
    pub count: usize,
    /// Whether the copy that was read before is damaged, so that another one is wanted.
    pub is_retry: bool,
}

const FIRST_SHIFT: u32 = 24;
const COUNT_SHIFT: u32 = FIRST_SHIFT + 6;
const CALL_VERSION_SHIFT: u32 = COUNT_SHIFT + 4;
const RETRY_SHIFT: u32 = CALL_VERSION_SHIFT + VERSION_BITS;
const _: () = assert!(RETRY_SHIFT == 63 && LOCATION_LIMIT == 1 << FIRST_SHIFT);
const _: () = assert!(ENTRY_PAGES == 16 && crate::class::SLAB_BYTES / farmem_page::PAGE_BYTES == 64);

impl Call {
    /// The call in these bits. Every bit pattern is one.
    pub(crate) const fn decode(bits: u64) -> Self {
        Self {
            block: (bits & ((1 << FIRST_SHIFT) - 1)) as usize,
            first: (bits >> FIRST_SHIFT & 63) as usize,
            count: (bits >> COUNT_SHIFT & 15) as usize + 1,
            version: (bits >> CALL_VERSION_SHIFT & ((1 << VERSION_BITS) - 1)) as u32,
            is_retry: bits >> RETRY_SHIFT != 0,
        }
    }
    /// The inverse of [`Call::decode`].
    pub(crate) const fn encode(self) -> u64 {
        self.block as u64
            | (self.first as u64) << FIRST_SHIFT
            | (self.count as u64 - 1) << COUNT_SHIFT
            | (self.version as u64) << CALL_VERSION_SHIFT
            | (self.is_retry as u64) << RETRY_SHIFT
    }
    /// Whether all pages of `other` are among these, of the same content.
    pub const fn covers(&self, other: &Self) -> bool {
        self.block == other.block
            && self.version == other.version
            && self.first <= other.first
            && self.first + self.count >= other.first + other.count
    }
}

/// What a reading thread knows of itself, and of the thread that answers it.
pub trait Caller {
    /// The process that it belongs to.
    fn owner(&self) -> OwnerId;
    /// The processor that it runs on, or ran on a moment ago.
    fn processor(&self) -> usize;
    /// A clock in nanoseconds.
    fn now_ns(&self) -> u64;
    /// Whether it is worth to go on waiting for an answer after so long. Asked some ten times a second.
    fn is_patient(&self, waited_ns: u64) -> bool;
    /// Whether somebody has come to wait for the caller itself, so that it should not go on waiting for what
    /// was asked for ahead. Asked as often as time doubles.
    fn is_awaited(&self) -> bool {
        false
    }
}

/// For whom something is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// A thread waits for it.
    Awaited,
    /// Nobody waits for it yet.
    Ahead,
    /// Nobody waits for it yet, and a thread would have to: what nodes alone have is not read.
    Later,
    /// The same, but nodes have been asked, and this is what they say.
    Answered(Call, Answer),
}

/// The caller of a pool without nodes: never waits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nobody;

impl Caller for Nobody {
    fn owner(&self) -> OwnerId {
        OwnerId(0)
    }
    fn processor(&self) -> usize {
        0
    }
    fn now_ns(&self) -> u64 {
        0
    }
    fn is_patient(&self, _: u64) -> bool {
        false
    }
}

/// What came of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The pages are in this entry of the read buffer, unless others have displaced them meanwhile.
    Entry(u16),
    /// No node has them, or none can be asked now.
    Nowhere,
    /// Nobody waited for them, and they would have come too late.
    Late,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Free,
    Filling,
    Asked,
    Serving,
    Answered,
}

/// The word of a call. The low half, on which readers sleep, changes with each phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct State {
    phase: Phase,
    sequence: u32,
    owner: OwnerId,
    answer: Answer,
}

const PHASE_BITS: u32 = 3;
const SEQUENCE_BITS: u32 = 29;
const NOWHERE: u16 = u16::MAX;
const LATE: u16 = u16::MAX - 1;

impl State {
    const fn decode(bits: u64) -> Option<Self> {
        let phase = match bits & 7 {
            0 => Phase::Free,
            1 => Phase::Filling,
            2 => Phase::Asked,
            3 => Phase::Serving,
            4 => Phase::Answered,
            _ => return None,
        };
        let answer = (bits >> 48) as u16;
        Some(Self {
            phase,
            sequence: bits as u32 >> PHASE_BITS,
            owner: OwnerId((bits >> 32) as u16),
            answer: match answer {
                NOWHERE => Answer::Nowhere,
                LATE => Answer::Late,
                entry => Answer::Entry(entry),
            },
        })
    }
    const fn encode(self) -> u64 {
        let answer = match self.answer {
            Answer::Entry(entry) => entry,
            Answer::Nowhere => NOWHERE,
            Answer::Late => LATE,
        };
        let sequence = (self.sequence & ((1 << SEQUENCE_BITS) - 1)) as u64;
        self.phase as u64 | sequence << PHASE_BITS | (self.owner.0 as u64) << 32 | (answer as u64) << 48
    }
    const fn to(self, phase: Phase) -> Self {
        Self { phase, ..self }
    }
}

/// A call that a carrier has taken, to be answered by [`Pool::answer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TakenCall {
    lane: usize,
    nth: usize,
    state: State,
    /// What is wanted.
    pub call: Call,
    /// Whether no thread waits for it.
    pub is_ahead: bool,
}

impl TakenCall {
    /// The process that waits for it.
    pub const fn owner(&self) -> OwnerId {
        self.state.owner
    }
}

/// A call that was left, and is not waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Posted {
    /// Where its word is.
    at: usize,
    asked: State,
}

/// How a posted call stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It waits for its answer.
    Waits,
    /// It is answered, and free for others.
    Answered(Answer),
    /// Somebody has taken it away.
    Over,
}

impl<M: Memory> Pool<M> {
    /// How many lanes there are; none without memory nodes.
    pub fn lanes(&self) -> usize {
        self.layout.lanes
    }

    fn lane_at(&self, lane: usize) -> Result<usize, Damaged> {
        if lane >= self.layout.lanes {
            return Err(Damaged);
        }
        Ok(self.layout.lanes_at + lane * LANE_WORDS * WORD_BYTES)
    }

    fn call_at(&self, lane: usize, nth: usize) -> Result<usize, Damaged> {
        Ok(self.lane_at(lane)? + (LANE_HEAD_WORDS + nth * CALL_WORDS) * WORD_BYTES)
    }

    /// Asks, and waits for the answer. `None` when none came while the caller was patient.
    ///
    /// What was asked for ahead is given up when somebody has come to wait for the caller. If it is on its
    /// way it comes to the read buffer all the same.
    pub(crate) fn ask<C: Caller>(&self, caller: &C, call: Call, is_ahead: bool) -> Option<Answer> {
        let since = caller.now_ns();
        let (at, asked) = loop {
            match self.claim_call(caller) {
                Some(claimed) => break claimed,
                None if !caller.is_patient(caller.now_ns().saturating_sub(since)) => return None,
                None => {
                    let at = self.call_at(0, 0).ok()?;
                    self.memory.wait(at, self.word(at).ok()?.load(Relaxed) as u32, CROWDED_NS);
                }
            }
        };
        let (lane, at) = (at.0, at.1);
        self.leave_call(lane, at, asked, call, is_ahead)?;
        let word = self.word(at).ok()?;
        loop {
            let now = word.load(Acquire);
            let state = State::decode(now).filter(|state| state.sequence == asked.sequence)?;
            match state.phase {
                Phase::Answered => {
                    let _ = word.compare_exchange(now, state.to(Phase::Free).encode(), AcqRel, Relaxed);
                    return Some(state.answer);
                }
                Phase::Asked | Phase::Serving => {}
                Phase::Free | Phase::Filling => return None,
            }
            let waited_ns = caller.now_ns().saturating_sub(since);
            let is_held_up = is_ahead && waited_ns >= AHEAD_SLICE_NS && caller.is_awaited();
            if is_held_up || !caller.is_patient(waited_ns) {
                if word.compare_exchange(now, state.to(Phase::Free).encode(), AcqRel, Relaxed).is_ok() {
                    return is_held_up.then_some(Answer::Late);
                }
                continue;
            }
            let slice_ns = if is_ahead { waited_ns.clamp(AHEAD_SLICE_NS, SLICE_NS) } else { SLICE_NS };
            self.memory.wait(at, now as u32, slice_ns);
        }
    }

    /// Leaves a call that the caller has claimed.
    fn leave_call(&self, lane: usize, at: usize, asked: State, call: Call, is_ahead: bool) -> Option<()> {
        self.word(at + WORD_BYTES).ok()?.store(call.encode(), Relaxed);
        self.word(at + AHEAD_WORD * WORD_BYTES).ok()?.store(is_ahead.into(), Relaxed);
        self.word(at).ok()?.store(asked.encode(), SeqCst);
        self.ring(lane);
        Some(())
    }

    /// Leaves a call and goes on: see [`Pool::standing`]. `None` when no call is free.
    pub fn post<C: Caller>(&self, caller: &C, call: Call, is_ahead: bool) -> Option<Posted> {
        let ((lane, at), asked) = self.claim_call(caller)?;
        self.leave_call(lane, at, asked, call, is_ahead)?;
        Some(Posted { at, asked })
    }

    /// The word of a posted call, what it is now, and what that says; `None` where the call is another one's
    /// by now.
    fn look_at(&self, posted: &Posted) -> Option<(&M::Word, u64, State)> {
        let word = self.word(posted.at).ok()?;
        let now = word.load(Acquire);
        let state = State::decode(now).filter(|state| state.sequence == posted.asked.sequence)?;
        (!matches!(state.phase, Phase::Free | Phase::Filling)).then_some((word, now, state))
    }

    /// How a posted call stands. An answer is told once.
    pub fn standing(&self, posted: &Posted) -> Standing {
        let Some((word, now, state)) = self.look_at(posted) else { return Standing::Over };
        if state.phase != Phase::Answered {
            return Standing::Waits;
        }
        let _ = word.compare_exchange(now, state.to(Phase::Free).encode(), AcqRel, Relaxed);
        Standing::Answered(state.answer)
    }

    /// Of a posted call that waits for its answer: the word whose low half changes when that comes, in bytes
    /// from the start of the pool's memory, and what that half is now.
    pub fn waits(&self, posted: &Posted) -> Option<(usize, u32)> {
        let (_, now, state) = self.look_at(posted)?;
        (state.phase != Phase::Answered).then_some((posted.at, now as u32))
    }

    /// Takes a posted call back, whatever it has come to. What was asked for may come to the read buffer all
    /// the same.
    pub fn withdraw(&self, posted: &Posted) {
        while let Some((word, now, state)) = self.look_at(posted) {
            if word.compare_exchange(now, state.to(Phase::Free).encode(), AcqRel, Relaxed).is_ok() {
                return;
            }
        }
    }

    /// Takes a free call, of the caller's own lane if it has one: its lane and where it lies, and what it
    /// becomes when it is asked.
    fn claim_call<C: Caller>(&self, caller: &C) -> Option<((usize, usize), State)> {
        let lanes = self.layout.lanes;
        let own = caller.processor().checked_rem(lanes)?;
        (own..lanes).chain(0..own).find_map(|lane| {
            (0..LANE_CALLS).find_map(|nth| {
                let at = self.call_at(lane, nth).ok()?;
                let word = self.word(at).ok()?;
                let bits = word.load(Relaxed);
                let state = State::decode(bits).filter(|state| state.phase == Phase::Free)?;
                let sequence = state.sequence.wrapping_add(1) & ((1 << SEQUENCE_BITS) - 1);
                let filling =
                    State { phase: Phase::Filling, sequence, owner: caller.owner(), answer: Answer::Nowhere };
                word.compare_exchange(bits, filling.encode(), AcqRel, Relaxed).ok()?;
                Some(((lane, at), filling.to(Phase::Asked)))
            })
        })
    }

    fn ring(&self, lane: usize) {
        let Ok(at) = self.lane_at(lane) else { return };
        let (Ok(bell), Ok(sleepers)) =
            (self.word(at + BELL * WORD_BYTES), self.word(at + SLEEPERS * WORD_BYTES))
        else {
            return;
        };
        bell.fetch_add(1, SeqCst);
        if sleepers.load(SeqCst) != 0 {
            self.memory.wake(at + BELL * WORD_BYTES, Sleepers::One);
        }
    }

    /// Takes a call of a lane that nobody has taken yet. For the carrier.
    pub fn take_call(&self, lane: usize) -> Option<TakenCall> {
        (0..LANE_CALLS).find_map(|nth| {
            let at = self.call_at(lane, nth).ok()?;
            let word = self.word(at).ok()?;
            let bits = word.load(Acquire);
            let state = State::decode(bits).filter(|state| state.phase == Phase::Asked)?.to(Phase::Serving);
            word.compare_exchange(bits, state.encode(), AcqRel, Relaxed).ok()?;
            let call = Call::decode(self.word(at + WORD_BYTES).ok()?.load(Relaxed));
            let is_ahead = self.word(at + AHEAD_WORD * WORD_BYTES).ok()?.load(Relaxed) != 0;
            Some(TakenCall { lane, nth, state, call, is_ahead })
        })
    }

    /// Whether its reader still waits for an answer.
    pub fn is_awaited(&self, taken: &TakenCall) -> bool {
        let word = self.call_at(taken.lane, taken.nth).and_then(|at| self.word(at));
        word.is_ok_and(|word| word.load(Acquire) == taken.state.encode())
    }

    /// Answers a call. Nothing happens if nobody waits for it any more.
    pub fn answer(&self, taken: &TakenCall, answer: Answer) {
        let Ok(at) = self.call_at(taken.lane, taken.nth) else { return };
        let Ok(word) = self.word(at) else { return };
        let answered = State { phase: Phase::Answered, answer, ..taken.state };
        if word.compare_exchange(taken.state.encode(), answered.encode(), AcqRel, Relaxed).is_ok() {
            self.memory.wake(at, Sleepers::All);
        }
    }

    /// Sleeps until somebody calls in a lane, at most so long. For the carrier; returns early at will.
    pub fn wait_for_call(&self, lane: usize, timeout_ns: u64) {
        let Ok(at) = self.lane_at(lane) else { return };
        let (Ok(bell), Ok(sleepers)) =
            (self.word(at + BELL * WORD_BYTES), self.word(at + SLEEPERS * WORD_BYTES))
        else {
            return;
        };
        sleepers.fetch_add(1, SeqCst);
        let rung = bell.load(SeqCst);
        let is_asked = |nth: usize| {
            let word = self.call_at(lane, nth).and_then(|at| self.word(at));
            let state = word.ok().and_then(|word| State::decode(word.load(SeqCst)));
            state.is_some_and(|state| state.phase == Phase::Asked)
        };
        if !(0..LANE_CALLS).any(is_asked) {
            self.memory.wait(at + BELL * WORD_BYTES, rung as u32, timeout_ns);
        }
        sleepers.fetch_sub(1, SeqCst);
    }

    /// Frees the calls of a process that is dead, whatever it was doing with them, and of one that damaged
    /// them. Only the supervisor calls this, once no thread of the process runs any more.
    pub fn cancel_calls(&self, owner: OwnerId) {
        for (lane, nth) in (0..self.layout.lanes).flat_map(|lane| (0..LANE_CALLS).map(move |nth| (lane, nth)))
        {
            let Ok(word) = self.call_at(lane, nth).and_then(|at| self.word(at)) else { continue };
            let bits = word.load(Acquire);
            match State::decode(bits) {
                Some(state) if state.phase == Phase::Free || state.owner != owner => {}
                Some(state) => {
                    let _ = word.compare_exchange(bits, state.to(Phase::Free).encode(), AcqRel, Relaxed);
                }
                None => word.store(0, Release),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_survives_its_encoding() {
        let call = Call {
            block: LOCATION_LIMIT - 1,
            version: (1 << VERSION_BITS) - 1,
            first: 63,
            count: ENTRY_PAGES,
            is_retry: true,
        };
        assert_eq!(Call::decode(call.encode()), call);
        assert_eq!(Call::decode(u64::MAX), call);
        let least = Call { block: 0, version: 0, first: 0, count: 1, is_retry: false };
        assert_eq!(Call::decode(least.encode()), least);
    }

    #[test]
    fn a_state_survives_its_encoding_and_garbage_is_none() {
        for phase in [Phase::Free, Phase::Filling, Phase::Asked, Phase::Serving, Phase::Answered] {
            for answer in [Answer::Nowhere, Answer::Late, Answer::Entry(0), Answer::Entry(4095)] {
                let state =
                    State { phase, sequence: (1 << SEQUENCE_BITS) - 1, owner: OwnerId(u16::MAX), answer };
                assert_eq!(State::decode(state.encode()), Some(state));
            }
        }
        assert_eq!(State::decode(u64::MAX), None);
    }

    #[test]
    fn pages_of_another_content_or_outside_are_not_covered() {
        let span = Call { block: 3, version: 7, first: 8, count: 8, is_retry: false };
        assert!(
            span.covers(&Call { first: 8, count: 1, ..span })
                && span.covers(&Call { first: 15, count: 1, ..span })
        );
        assert!(
            !span.covers(&Call { first: 15, count: 2, ..span })
                && !span.covers(&Call { first: 7, count: 1, ..span })
        );
        assert!(!span.covers(&Call { version: 8, ..span }) && !span.covers(&Call { block: 4, ..span }));
    }
}
