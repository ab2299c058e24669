//! Bringing slabs back from disk while there is room (FastSwap §V, the second level of swap-in: neighbours of what was wanted come up to the
//! pool, still compressed).
//!
//! Who reads a page from disk counts it on the page's slab. A slab that was read from several times comes back whole: one read of 256 KiB
//! instead of one for each fault to come. Those come first that were read most. It stops where moving to disk stops, so that no slab goes to and fro.

use crate::claims::Claimable;
use crate::class::SLAB_BYTES;
use crate::disk::{BlockFile, block_offset_bytes};
use crate::layout::Header;
use crate::memory::{Atomic, Memory};
use crate::mover::{BATCH_SLABS, LOW_PERCENT, Mover, StepOutcome};
use crate::pool::Pool;
use crate::slab::{Gate, Kind};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// Pages that were read from a slab on disk before it is worth bringing back: one says little of its neighbours.
const READS: u64 = 4;

enum Raised {
    Yes,
    Busy,
    NoFrame,
    Failed,
}

impl Mover {
    /// Brings back a batch of slabs that pages were read from, as far as there is room. Doesn't sleep; waits for the disk only.
    pub fn raise<M: Memory, F: BlockFile>(&mut self, pool: &Pool<M>, file: &F) -> StepOutcome {
        let reads = pool.disk_reads();
        if reads == self.reads_seen {
            return StepOutcome::Idle;
        }
        let room = (pool.frame_limit() * LOW_PERCENT / 100).saturating_sub(pool.claimed(Claimable::Frame));
        if room == 0 {
            return StepOutcome::Idle;
        }
        let mut wanted = [None; BATCH_SLABS];
        let wanted = &mut wanted[..room.min(BATCH_SLABS)];
        let count = most_read(pool, wanted);
        if count < wanted.len() {
            // Nothing is left to look for until somebody reads again.
            self.reads_seen = reads;
        }
        let mut slabs = 0;
        let mut is_failing = false;
        for slab in wanted[..count].iter().flatten() {
            match self.raise_one(pool, file, *slab) {
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
            _ if is_failing => StepOutcome::DiskFailing { retry_after_ms: self.next_retry_ms() },
            0 => StepOutcome::Idle,
            _ => StepOutcome::Raised { slabs },
        }
    }

    fn raise_one<M: Memory, F: BlockFile>(&mut self, pool: &Pool<M>, file: &F, slab: usize) -> Raised {
        let (Ok(gate), Ok(word), Ok(reads)) =
            (pool.gate(slab), pool.state_word(slab), pool.disk_reads_of(slab))
        else {
            return Raised::Busy;
        };
        let now = gate.load(Acquire);
        let Some(raising) = Gate(now).set_raising() else { return Raised::Busy };
        if gate.compare_exchange(now, raising.0, AcqRel, Relaxed).is_err() {
            return Raised::Busy;
        }
        let stay = |outcome| {
            gate.fetch_and(Gate(u64::MAX).moved_back().0, SeqCst);
            pool.give_back_if_empty(slab);
            outcome
        };
        let Ok(state) = pool.state(slab) else { return stay(Raised::Busy) };
        if state.kind != Kind::Disk || state.location >= pool.layout.blocks || Gate(now).pages() == 0 {
            return stay(Raised::Busy);
        }
        let Some(frame) = pool.claim(Claimable::Frame, slab) else { return stay(Raised::NoFrame) };
        let buffer = &mut self.buffer[self.buffer_start..][..SLAB_BYTES];
        let is_read = file.read_at(block_offset_bytes(state.location), buffer).is_ok()
            && pool.memory.copy_in(pool.layout.frame_at(frame), buffer);
        // Whether it came or not: what is counted from now on decides about the next time.
        reads.store(0, Relaxed);
        if !is_read {
            pool.unclaim(Claimable::Frame, frame, slab);
            return stay(Raised::Failed);
        }
        if let Ok(sequence) = pool.sequence(slab) {
            sequence.store(pool.next_sequence(), Relaxed);
        }
        word.store(state.risen(frame).encode(), Release);
        pool.unclaim(Claimable::Block, state.location, slab);
        let before = gate.fetch_and(Gate(u64::MAX).raised().0, SeqCst);
        match Gate(before).raised() {
            // Its owner may have died meanwhile.
            after if after.pages() == 0 => pool.give_back_if_empty(slab),
            after => pool.after_removal(slab, after),
        }
        Raised::Yes
    }
}

/// The slabs on disk that were read most, those first; how many there are.
fn most_read<M: Memory>(pool: &Pool<M>, out: &mut [Option<usize>]) -> usize {
    let mut keys = [0; BATCH_SLABS];
    let mut count = 0;
    for slab in 0..pool.slabs_used() {
        let (Ok(state), Ok(gate), Ok(reads)) = (pool.state(slab), pool.gate(slab), pool.disk_reads_of(slab))
        else {
            continue;
        };
        let reads = reads.load(Relaxed);
        if state.kind != Kind::Disk || reads < READS || Gate(gate.load(Relaxed)).set_raising().is_none() {
            continue;
        }
        let at = keys[..count].partition_point(|other| *other >= reads);
        if at < out.len() {
            count = (count + 1).min(out.len());
            keys[at..count].rotate_right(1);
            out[at..count].rotate_right(1);
            (keys[at], out[at]) = (reads, Some(slab));
        }
    }
    count
}

impl<M: Memory> Pool<M> {
    /// Pages that were ever read from disk.
    pub fn disk_reads(&self) -> u64 {
        self.header(Header::DiskReads).map_or(0, |word| word.load(Relaxed))
    }

    /// Pages that were read from a slab since it went to disk.
    pub(crate) fn disk_reads_of(&self, slab: usize) -> Result<&M::Word, crate::pool::Damaged> {
        Ok(&self.slab_words(slab)?[3])
    }

    /// Counts a page that was read from a slab on disk: a hint to who brings slabs back.
    pub(crate) fn note_disk_read(&self, slab: usize) {
        if let (Ok(of_slab), Ok(of_all)) = (self.disk_reads_of(slab), self.header(Header::DiskReads)) {
            of_slab.fetch_add(1, Relaxed);
            of_all.fetch_add(1, Relaxed);
        }
    }
}
