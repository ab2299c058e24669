//! Moving slabs to disk when the pool fills (FastSwap §IV, hybrid swap-out: past a threshold, the least recently stored
//! content leaves in batches, still compressed).

use crate::claims::Claimable;
use crate::class::SLAB_BYTES;
use crate::disk::{BlockError, BlockFile, block_offset_bytes};
use crate::layout::Header;
use crate::memory::{Atomic, Memory};
use crate::pool::{Pool, claim_of};
use crate::slab::{Gate, Kind, State};
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use farmem_page::{ByteCount, PAGE_BYTES};

/// Part of the limit at which moving starts, in percent (FastSwap §IV).
const HIGH_PERCENT: usize = 80;
/// Part of the limit at which it stops. Up to there slabs come back.
pub(crate) const LOW_PERCENT: usize = 70;
const _: () = assert!(LOW_PERCENT < HIGH_PERCENT && HIGH_PERCENT < 100);

/// Slabs of one batch.
pub(crate) const BATCH_SLABS: usize = 8;

const RETRY_FIRST_MS: u32 = 10;
const RETRY_MAX_MS: u32 = 5_000;

/// What one step of the mover came to, and so what its thread does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepOutcome {
    /// There is memory enough: look again in a while.
    Idle,
    /// Slabs were moved; there may be more to do at once.
    Moved {
        /// How many.
        slabs: usize,
        /// Bytes written.
        written: ByteCount,
    },
    /// Slabs were brought back from disk; there may be more to do at once.
    Raised {
        /// How many.
        slabs: usize,
    },
    /// Memory is short, but every slab is being written to: look again soon.
    NothingMovable,
    /// No disk space is left: look again in a while.
    DiskFull,
    /// The disk refused a write or a read; the content stays where it is. Wait before the next step.
    DiskFailing {
        /// How long to wait; doubles with every failure in a row.
        retry_after_ms: u32,
    },
}

/// Moves slabs to disk, and back. A pool has at most one, in the supervisor. If it dies nobody waits for it; the next one made puts
/// right what it left.
pub struct Mover {
    pub(crate) buffer: Vec<u8>,
    pub(crate) buffer_start: usize,
    is_draining: bool,
    retry_after_ms: u32,
    /// Pages read from disk up to when nothing was left to bring back.
    pub(crate) reads_seen: u64,
    /// Slabs moved to disk up to when nothing was left that nobody reads.
    pub(crate) moved_seen: Option<usize>,
}

#[derive(Clone, Copy)]
struct Victim {
    slab: usize,
    state: State,
    block: usize,
}

impl Mover {
    /// A mover for this pool. Takes back what a dead predecessor left half done. Allocates its buffer, of 2 MiB.
    pub fn new<M: Memory>(pool: &Pool<M>) -> Self {
        recover(pool);
        let buffer = vec![0; BATCH_SLABS * SLAB_BYTES + PAGE_BYTES];
        let buffer_start = buffer.as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES);
        Self {
            buffer,
            buffer_start,
            is_draining: false,
            retry_after_ms: RETRY_FIRST_MS,
            reads_seen: 0,
            moved_seen: None,
        }
    }

    /// Moves one batch to disk if memory is short, and says what to do next. Doesn't sleep; waits for the disk only.
    pub fn step<M: Memory, F: BlockFile>(&mut self, pool: &Pool<M>, file: &F) -> StepOutcome {
        let (used, limit) = (pool.claimed(Claimable::Frame), pool.frame_limit());
        let is_above = |percent: usize| used * 100 > limit * percent;
        self.is_draining = is_above(HIGH_PERCENT) || self.is_draining && is_above(LOW_PERCENT);
        if !self.is_draining {
            return StepOutcome::Idle;
        }
        let surplus = (used - limit * LOW_PERCENT / 100).min(BATCH_SLABS);
        let mut victims = [None; BATCH_SLABS];
        let count = choose(pool, &mut victims[..surplus]);
        if count == 0 {
            return StepOutcome::NothingMovable;
        }
        let mut batch = [None; BATCH_SLABS];
        let mut taken = 0;
        for slab in victims[..count].iter().flatten() {
            match begin(pool, *slab) {
                Begun::Ready(victim) => {
                    batch[taken] = Some(victim);
                    taken += 1;
                }
                Begun::Busy => {}
                Begun::NoBlock if taken == 0 => return StepOutcome::DiskFull,
                Begun::NoBlock => break,
            }
        }
        self.finish_batch(pool, file, &batch[..taken])
    }

    fn finish_batch<M: Memory, F: BlockFile>(
        &mut self,
        pool: &Pool<M>,
        file: &F,
        batch: &[Option<Victim>],
    ) -> StepOutcome {
        let mut sorted = [None; BATCH_SLABS];
        let sorted = &mut sorted[..batch.len()];
        sorted.copy_from_slice(batch);
        sorted.sort_unstable_by_key(|victim| victim.map(|victim| victim.block));
        let (mut moved, mut failure) = (0, None);
        // One write for each run of neighbouring blocks, which on a file that isn't full is the whole batch.
        for run in sorted.chunk_by(|one, next| match (one, next) {
            (Some(one), Some(next)) => one.block + 1 == next.block,
            _ => false,
        }) {
            let result = match failure {
                None => self.write_run(pool, file, run),
                Some(error) => Err(error),
            };
            for victim in run.iter().flatten() {
                match result {
                    Ok(()) => settle_on_disk(pool, *victim),
                    Err(_) => settle_in_memory(pool, *victim),
                }
            }
            match result {
                Ok(()) => moved += run.len(),
                Err(error) => failure = Some(error),
            }
        }
        self.outcome(pool, moved, failure)
    }

    fn write_run<M: Memory, F: BlockFile>(
        &mut self,
        pool: &Pool<M>,
        file: &F,
        run: &[Option<Victim>],
    ) -> Result<(), BlockError> {
        let buffer = &mut self.buffer[self.buffer_start..][..run.len() * SLAB_BYTES];
        for (victim, out) in run.iter().flatten().zip(buffer.chunks_mut(SLAB_BYTES)) {
            if !pool.memory.copy_out(pool.layout.frame_at(victim.state.location), out) {
                return Err(BlockError::Failed);
            }
        }
        let Some(first) = run.first().copied().flatten() else { return Ok(()) };
        file.write_at(block_offset_bytes(first.block), buffer)
    }

    fn outcome<M: Memory>(
        &mut self,
        pool: &Pool<M>,
        moved: usize,
        failure: Option<BlockError>,
    ) -> StepOutcome {
        if let Ok(total) = pool.header(Header::SlabsMoved) {
            total.fetch_add(moved as u64, Relaxed);
        }
        match failure {
            None => {
                self.retry_after_ms = RETRY_FIRST_MS;
                let written = ByteCount::new((moved * SLAB_BYTES) as u64);
                if moved == 0 {
                    StepOutcome::NothingMovable
                } else {
                    StepOutcome::Moved { slabs: moved, written }
                }
            }
            Some(_) => {
                if let Ok(failed) = pool.header(Header::DiskWritesFailed) {
                    failed.fetch_add(1, Relaxed);
                }
                StepOutcome::DiskFailing { retry_after_ms: self.next_retry_ms() }
            }
        }
    }

    /// How long to wait after a failure; longer after each that follows.
    pub(crate) fn next_retry_ms(&mut self) -> u32 {
        let retry_after_ms = self.retry_after_ms;
        self.retry_after_ms = (retry_after_ms * 2).min(RETRY_MAX_MS);
        retry_after_ms
    }
}

enum Begun {
    Ready(Victim),
    Busy,
    NoBlock,
}

/// The slabs in memory that were filled longest ago, oldest first. Slabs that are being filled come last: they are moved
/// only if the pool has no others.
fn choose<M: Memory>(pool: &Pool<M>, out: &mut [Option<usize>]) -> usize {
    let mut keys = [(true, u64::MAX); BATCH_SLABS];
    let mut count = 0;
    for slab in 0..pool.slabs_used() {
        let (Ok(state), Ok(gate), Ok(sequence)) = (pool.state(slab), pool.gate(slab), pool.sequence(slab))
        else {
            continue;
        };
        let gate = Gate(gate.load(Relaxed));
        if state.kind != Kind::Memory || gate.set_moving().is_none() {
            continue;
        }
        let is_current =
            pool.current(state.owner, state.class).is_ok_and(|word| word.load(Acquire) == claim_of(slab));
        let key = (is_current, sequence.load(Relaxed));
        let at = keys[..count].partition_point(|other| *other <= key);
        if at < out.len() {
            count = (count + 1).min(out.len());
            keys[at..count].rotate_right(1);
            out[at..count].rotate_right(1);
            (keys[at], out[at]) = (key, Some(slab));
        }
    }
    count
}

/// Keeps writers out of a slab and finds it a block.
fn begin<M: Memory>(pool: &Pool<M>, slab: usize) -> Begun {
    let (Ok(gate), Ok(word)) = (pool.gate(slab), pool.state_word(slab)) else { return Begun::Busy };
    let now = gate.load(Acquire);
    let Some(moving) = Gate(now).set_moving() else { return Begun::Busy };
    if gate.compare_exchange(now, moving.0, AcqRel, Relaxed).is_err() {
        return Begun::Busy;
    }
    let release = || {
        gate.fetch_and(Gate(u64::MAX).moved_back().0, SeqCst);
        pool.give_back_if_empty(slab);
    };
    let Ok(state) = pool.state(slab) else {
        release();
        return Begun::Busy;
    };
    if Gate(now).pages() == 0 || state.kind != Kind::Memory {
        release();
        return Begun::Busy;
    }
    let Some(block) = pool.claim(Claimable::Block, slab) else {
        release();
        return Begun::NoBlock;
    };
    word.store(state.at(Kind::Moving, state.location).encode(), Release);
    Begun::Ready(Victim { slab, state, block })
}

fn settle_on_disk<M: Memory>(pool: &Pool<M>, victim: Victim) {
    let Victim { slab, state, block } = victim;
    let (Ok(gate), Ok(word)) = (pool.gate(slab), pool.state_word(slab)) else { return };
    if let Ok(reads) = pool.disk_reads_of(slab) {
        reads.store(0, Relaxed);
    }
    word.store(state.at(Kind::Disk, block).encode(), Release);
    pool.unclaim(Claimable::Frame, state.location, slab);
    end_on_disk(gate);
    pool.give_back_if_empty(slab);
}

fn end_on_disk<A: Atomic>(gate: &A) {
    let mut now = gate.load(Relaxed);
    while let Err(changed) = gate.compare_exchange(now, Gate(now).moved_to_disk().0, SeqCst, Relaxed) {
        now = changed;
    }
}

fn settle_in_memory<M: Memory>(pool: &Pool<M>, victim: Victim) {
    let Victim { slab, state, block } = victim;
    let (Ok(gate), Ok(word)) = (pool.gate(slab), pool.state_word(slab)) else { return };
    word.store(state.encode(), Release);
    pool.unclaim(Claimable::Block, block, slab);
    gate.fetch_and(Gate(u64::MAX).moved_back().0, SeqCst);
    pool.give_back_if_empty(slab);
}

/// Ends what a mover that died was doing: what had not reached the disk for certain stays in memory, and what had not come back for certain on
/// disk.
fn recover<M: Memory>(pool: &Pool<M>) {
    for slab in 0..pool.slabs_used() {
        let (Ok(state), Ok(gate), Ok(word)) = (pool.state(slab), pool.gate(slab), pool.state_word(slab))
        else {
            continue;
        };
        if !Gate(gate.load(Acquire)).is_moving() {
            continue;
        }
        match state.kind {
            Kind::Memory | Kind::Moving => {
                pool.unclaim_where(Claimable::Block, |holder, _| holder == slab);
                word.store(state.at(Kind::Memory, state.location).encode(), Release);
                gate.fetch_and(Gate(u64::MAX).raised().0, SeqCst);
            }
            Kind::Disk => {
                pool.unclaim_where(Claimable::Frame, |holder, _| holder == slab);
                end_on_disk(gate);
            }
            Kind::Free | Kind::Leasing | Kind::Releasing => continue,
        }
        pool.give_back_if_empty(slab);
    }
}
