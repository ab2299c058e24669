//! Bringing slabs back from nodes and disk while there is room (FastSwap §V, the second level of swap-in:
//! neighbours of what was wanted come up to the pool, still compressed).
//!
//! A thread that reads a page of a slab that is away counts it on the slab. A slab that was read from several
//! times comes back whole: one read of 256 KiB instead of one for each fault to come. Those come first that
//! were read most. It stops where moving out of memory stops, so that no slab goes to and fro.
//!
//! Slabs that nobody reads come back as well, those that were stored last first, but only while less of the
//! pool is in use: what is left is for new pages and for slabs that somebody reads.

use crate::claims::Claimable;
use crate::class::SLAB_BYTES;
use crate::disk::{BlockFile, block_offset_bytes};
use crate::layout::{Header, READ_SLABS, WORD_BYTES};
use crate::marks::Mark;
use crate::memory::{Atomic, Memory};
use crate::mover::{BATCH_SLABS, Backoff, Mover, StepOutcome, let_stay};
use crate::nodes::Nodes;
use crate::pool::{Damaged, Pool, claim_of, slab_of};
use crate::slab::{Gate, Kind, State};
use core::cmp::Reverse;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Pages that were read from a slab before it is worth bringing back: one says little of its neighbours.
const READS: u64 = 4;

/// The place in the order of a slab that nobody reads and that could not be brought back.
pub(crate) const UNREADABLE: u64 = 0;

/// Where a slab that came back stands among those that are to leave memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Behind all others, as if it were stored just now: it is in use.
    Last,
    /// Where it stood before.
    AsStored,
}

enum Raised {
    Yes,
    Busy,
    NoFrame,
    Failed,
}

impl Mover {
    /// Brings back a batch of slabs that pages were read from, as far as there is room. Doesn't sleep; waits
    /// for nodes and disk only.
    pub fn raise<M: Memory, F: BlockFile, N: Nodes>(
        &mut self,
        pool: &Pool<M>,
        file: &F,
        nodes: &mut N,
    ) -> StepOutcome {
        let noted = pool.header_value(Header::ReadHead) as u64;
        if noted == self.notes_seen && !self.has_missed {
            return StepOutcome::Idle;
        }
        let mut wanted = [None; BATCH_SLABS];
        let wanted = &mut wanted[..pool.frames_below(Mark::LOW).min(BATCH_SLABS)];
        if wanted.is_empty() {
            return StepOutcome::Idle;
        }
        let reads_of = |slab: usize| {
            let reads = pool.away_reads_of(slab).ok()?.load(Relaxed);
            (reads >= READS && may_rise(pool, slab)).then_some(Reverse(reads))
        };
        // More were noted than are remembered.
        self.has_missed |= noted.wrapping_sub(self.notes_seen) > READ_SLABS as u64;
        let count = if self.has_missed {
            self.notes_seen = noted;
            let count = self.wanted.take(pool, reads_of, wanted);
            self.has_missed = count == wanted.len();
            count
        } else {
            self.take_noted(pool, noted, reads_of, wanted)
        };
        self.raise_all(pool, file, nodes, &wanted[..count], Order::Last)
    }

    /// The slabs that were noted since the last time, as many as there is room for in `out`.
    fn take_noted<M: Memory>(
        &mut self,
        pool: &Pool<M>,
        noted: u64,
        reads_of: impl Fn(usize) -> Option<Reverse<u64>>,
        out: &mut [Option<usize>],
    ) -> usize {
        let mut count = 0;
        while count < out.len() && self.notes_seen < noted {
            let slab = pool.noted_read(self.notes_seen).filter(|&slab| reads_of(slab).is_some());
            self.notes_seen += 1;
            if slab.is_some() && !out[..count].contains(&slab) {
                out[count] = slab;
                count += 1;
            }
        }
        count
    }

    /// Brings back a batch of slabs that nobody reads, the last stored ones first, as long as there is much
    /// room. Doesn't sleep; waits for nodes and disk only. Nobody waits for these slabs: call it now and
    /// then, when nothing else is to be done.
    pub fn raise_unread<M: Memory, F: BlockFile, N: Nodes>(
        &mut self,
        pool: &Pool<M>,
        file: &F,
        nodes: &mut N,
    ) -> StepOutcome {
        let moved = pool.header_value(Header::SlabsMoved);
        let mut wanted = [None; BATCH_SLABS];
        let wanted = &mut wanted[..pool.frames_below(Mark::UNREAD).min(BATCH_SLABS)];
        if self.moved_seen == Some(moved) || wanted.is_empty() {
            return StepOutcome::Idle;
        }
        let of_age = |slab: usize| {
            if !may_rise(pool, slab) {
                return None;
            }
            let copies = pool.copies(pool.state(slab).ok()?.location).ok()?;
            let sequence = pool.sequence(slab).ok()?.load(Relaxed);
            (sequence != UNREADABLE && copies.is_any()).then_some(Reverse(sequence))
        };
        let count = self.unread.take(pool, of_age, wanted);
        let outcome = self.raise_all(pool, file, nodes, &wanted[..count], Order::AsStored);
        if count < wanted.len() && !matches!(outcome, StepOutcome::DiskFailing { .. }) {
            // Nothing is left to look for until there are others.
            self.moved_seen = Some(moved);
        }
        outcome
    }

    fn raise_all<M: Memory, F: BlockFile, N: Nodes>(
        &mut self,
        pool: &Pool<M>,
        file: &F,
        nodes: &mut N,
        wanted: &[Option<usize>],
        order: Order,
    ) -> StepOutcome {
        let mut slabs = 0;
        let mut is_failing = false;
        // Those that come back may be older than all that are in memory.
        self.leaving.forget();
        for slab in wanted.iter().flatten() {
            match self.raise_one(pool, file, nodes, *slab, order) {
                Raised::Yes => slabs += 1,
                Raised::Busy => {}
                Raised::NoFrame => break,
                Raised::Failed => {
                    is_failing = true;
                    break;
                }
            }
        }
        if let Ok(total) = pool.header(Header::SlabsRaised) {
            total.fetch_add(slabs as u64, Relaxed);
        }
        match slabs {
            _ if is_failing => self.reading.failed(),
            0 => StepOutcome::Idle,
            _ => {
                self.reading = Backoff::default();
                StepOutcome::Raised { slabs }
            }
        }
    }

    fn raise_one<M: Memory, F: BlockFile, N: Nodes>(
        &mut self,
        pool: &Pool<M>,
        file: &F,
        nodes: &mut N,
        slab: usize,
        order: Order,
    ) -> Raised {
        let (Ok(word), Ok(reads)) = (pool.state_word(slab), pool.away_reads_of(slab)) else {
            return Raised::Busy;
        };
        let Some(state) = hold_away(pool, slab) else { return Raised::Busy };
        let stay = |outcome| {
            let_stay(pool, slab);
            outcome
        };
        let Some(frame) = pool.claim(Claimable::Frame, slab) else { return stay(Raised::NoFrame) };
        let buffer = &mut self.buffer[self.buffer_start..][..SLAB_BYTES];
        let is_read = read_block(pool, file, nodes, state.location, buffer)
            && pool.memory.copy_in(pool.layout.frame_at(frame), buffer);
        // Whether it came or not: what is counted from now on decides about the next time.
        reads.store(0, Relaxed);
        if !is_read {
            // Unless somebody reads it, it stays away: others have their turn.
            if order == Order::AsStored
                && let Ok(sequence) = pool.sequence(slab)
            {
                sequence.store(UNREADABLE, Relaxed);
            }
            pool.unclaim(Claimable::Frame, frame, slab);
            return stay(Raised::Failed);
        }
        if order == Order::Last
            && let Ok(sequence) = pool.sequence(slab)
        {
            sequence.store(pool.next_sequence(), Relaxed);
        }
        word.store(state.risen(frame).encode(), Release);
        pool.unclaim(Claimable::Block, state.location, slab);
        // Its owner may have died meanwhile.
        if let Some(after) = pool.end_move(slab, Gate::raised) {
            pool.after_removal(slab, after);
        }
        Raised::Yes
    }
}

/// Keeps everybody else from moving a slab that is away, or giving it back, until [`let_stay`]; its state.
/// `None` where somebody else has it, or there is nothing in it.
pub(crate) fn hold_away<M: Memory>(pool: &Pool<M>, slab: usize) -> Option<State> {
    let gate = pool.gate(slab).ok()?;
    let now = gate.load(Acquire);
    let raising = Gate(now).set_raising()?;
    gate.compare_exchange(now, raising.0, AcqRel, Relaxed).ok()?;
    let state = pool.state(slab).ok().filter(|state| {
        state.kind == Kind::Away && state.location < pool.layout.blocks && Gate(now).pages() > 0
    });
    if state.is_none() {
        let_stay(pool, slab);
    }
    state
}

/// Reads a block from whatever has it.
fn read_block<M: Memory, F: BlockFile, N: Nodes>(
    pool: &Pool<M>,
    file: &F,
    nodes: &mut N,
    block: usize,
    out: &mut [u8],
) -> bool {
    let (Ok(copies), Ok(whole)) = (pool.copies(block), <&mut [u8; SLAB_BYTES]>::try_from(&mut *out)) else {
        return false;
    };
    copies.on_node && nodes.read(block, whole).is_ok()
        || copies.on_disk && file.read_at(block_offset_bytes(block), out).is_ok()
}

/// Whether a slab is away, and nobody moves it.
fn may_rise<M: Memory>(pool: &Pool<M>, slab: usize) -> bool {
    let (Ok(state), Ok(gate)) = (pool.state(slab), pool.gate(slab)) else { return false };
    state.kind == Kind::Away && Gate(gate.load(Relaxed)).set_raising().is_some()
}

impl<M: Memory> Pool<M> {
    /// Pages that were ever read from slabs that were away.
    pub(crate) fn away_reads(&self) -> u64 {
        self.header(Header::AwayReads).map_or(0, |word| word.load(Relaxed))
    }

    /// Pages that were read from a slab since it left memory.
    pub(crate) fn away_reads_of(&self, slab: usize) -> Result<&M::Word, Damaged> {
        Ok(&self.slab_words(slab)?[3])
    }

    /// Counts a page that was read from a slab that is away: a hint to the thread that brings slabs back,
    /// which finds it noted each time that it was worth that once more.
    pub(crate) fn note_away_read(&self, slab: usize) {
        let (Ok(of_slab), Ok(of_all)) = (self.away_reads_of(slab), self.header(Header::AwayReads)) else {
            return;
        };
        of_all.fetch_add(1, Relaxed);
        if (of_slab.fetch_add(1, Relaxed) + 1).is_multiple_of(READS)
            && let Ok(head) = self.header(Header::ReadHead)
            && let Ok(word) = self.read_word(head.fetch_add(1, Relaxed))
        {
            word.store(claim_of(slab), Relaxed);
        }
    }

    /// The slab of the note of that number, or another one that was noted: whoever notes one may be late.
    fn noted_read(&self, number: u64) -> Option<usize> {
        slab_of(self.read_word(number).ok()?.load(Relaxed)).filter(|slab| *slab < self.layout.slabs)
    }

    fn read_word(&self, number: u64) -> Result<&M::Word, Damaged> {
        self.word((Header::Read as usize + number as usize % READ_SLABS) * WORD_BYTES)
    }
}
