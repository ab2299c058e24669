//! Moving slabs out of memory when the pool fills (FastSwap §IV, hybrid swap-out: past a threshold, the least
//! recently stored content leaves in batches, still compressed): to memory nodes as far as they take them,
//! else to disk. A slab is what COMEX (§4.3) writes at once, 64 frames side by side.
//!
//! A block that has a place on disk goes there as well where all blocks have one: then nodes are a faster
//! copy of the disk (Infiniswap's backup). Where some blocks have none, those are for the nodes, and the
//! others for what nodes don't take.

use crate::candidates::Candidates;
use crate::claims::Claimable;
use crate::class::SLAB_BYTES;
use crate::disk::{BlockError, BlockFile, block_offset_bytes};
use crate::layout::Header;
use crate::marks::Mark;
use crate::memory::{Atomic, Memory};
use crate::nodes::{NodeBlock, Nodes};
use crate::pool::{OwnerId, Pool, claim_of};
use crate::slab::{Gate, Kind, State};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use farmem_page::{ByteCount, PAGE_BYTES};

/// After a batch, and after one in so many of the slabs in memory, the mover counts again how many are to
/// leave.
const COUNTED_SHARE: usize = 4096;

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
    /// Slabs were brought back; there may be more to do at once.
    Raised {
        /// How many.
        slabs: usize,
    },
    /// Memory is short, but every slab is being written to: look again soon.
    NothingMovable,
    /// Neither on nodes nor on disk is any room left: look again in a while.
    Full,
    /// The disk refused a write or a read; the content stays where it is. Wait before the next step.
    DiskFailing {
        /// How long to wait; doubles with every failure in a row.
        retry_after_ms: u32,
    },
}

/// Moves slabs out of memory, and back. A pool has at most one, in the supervisor. If it dies nobody waits
/// for it; the next one made puts right what it left.
pub struct Mover {
    pub(crate) buffer: Vec<u8>,
    pub(crate) buffer_start: usize,
    is_draining: bool,
    /// Those that leave next: slabs that are being filled come last, then by their sequence.
    pub(crate) leaving: Candidates<(bool, u64)>,
    /// Slabs that may leave before the mover counts again how many are to.
    uncounted: usize,
    /// Those that come back next since pages are read from them, and since there is room.
    pub(crate) wanted: Candidates<Reverse<u64>>,
    pub(crate) unread: Candidates<Reverse<u64>>,
    /// Where the search for slabs goes on that are to go to disk.
    pub(crate) lowering: usize,
    pub(crate) writing: Backoff,
    /// Apart from that of writes: slabs that can't be read keep none from leaving memory.
    pub(crate) reading: Backoff,
    /// Slabs that were noted since they are read, up to the last one that was looked at.
    pub(crate) notes_seen: u64,
    /// Whether there were more notes than are remembered: then all slabs are looked at.
    pub(crate) has_missed: bool,
    /// Slabs moved to disk up to when nothing was left that nobody reads.
    pub(crate) moved_seen: Option<usize>,
}

/// How long to wait after a failure: longer after each that follows.
pub(crate) struct Backoff {
    next_ms: u32,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next_ms: RETRY_FIRST_MS }
    }
}

impl Backoff {
    pub(crate) fn failed(&mut self) -> StepOutcome {
        let retry_after_ms = self.next_ms;
        self.next_ms = (retry_after_ms * 2).min(RETRY_MAX_MS);
        StepOutcome::DiskFailing { retry_after_ms }
    }
}

#[derive(Clone, Copy)]
struct Victim {
    slab: usize,
    state: State,
    block: usize,
}

impl Victim {
    /// Whether nodes get a copy of it.
    fn is_for_nodes<M: Memory>(&self, pool: &Pool<M>) -> bool {
        self.block >= pool.layout.disk_blocks || pool.layout.blocks == pool.layout.disk_blocks
    }
}

/// Slabs that leave together.
#[derive(Default)]
struct Batch {
    victims: [Option<Victim>; BATCH_SLABS],
    count: usize,
}

impl Batch {
    fn taken(&self) -> impl Iterator<Item = Victim> {
        self.victims[..self.count].iter().flatten().copied()
    }
}

impl Mover {
    /// A mover for this pool. Takes back what a dead predecessor, or a dead packer, left half done: not while
    /// a packer is at work. Allocates its buffer, of 2 MiB.
    pub fn new<M: Memory>(pool: &Pool<M>) -> Self {
        recover(pool);
        let buffer = vec![0; BATCH_SLABS * SLAB_BYTES + PAGE_BYTES];
        let buffer_start = buffer.as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES);
        Self {
            buffer,
            buffer_start,
            is_draining: false,
            leaving: Candidates::new(),
            uncounted: 0,
            wanted: Candidates::new(),
            unread: Candidates::new(),
            lowering: 0,
            writing: Backoff::default(),
            reading: Backoff::default(),
            notes_seen: 0,
            // Those that were noted for a mover before this one.
            has_missed: true,
            moved_seen: None,
        }
    }

    /// Moves one batch out of memory if that is short, and says what to do next. Doesn't sleep; waits for
    /// nodes and disk only.
    pub fn step<M: Memory, F: BlockFile, N: Nodes>(
        &mut self,
        pool: &Pool<M>,
        file: &F,
        nodes: &mut N,
    ) -> StepOutcome {
        if self.uncounted == 0 {
            let used = pool.claimed(Claimable::Frame);
            let surplus = used.saturating_sub(pool.frames_at(Mark::LOW));
            self.is_draining = used > pool.frames_at(Mark::HIGH) || self.is_draining && surplus > 0;
            // To count takes time in a large pool. Meanwhile slabs may become free by themselves, so that a
            // few more leave than would have to.
            self.uncounted = surplus.min(BATCH_SLABS + used / COUNTED_SHARE);
        }
        if !self.is_draining {
            self.uncounted = 0;
            return StepOutcome::Idle;
        }
        let mut victims = [None; BATCH_SLABS];
        let most = self.uncounted.min(BATCH_SLABS);
        let count = self.leaving.take(pool, |slab| leaving_key(pool, slab), &mut victims[..most]);
        self.uncounted -= most;
        // Those that leave are younger than all that did so before.
        self.unread.forget();
        if count == 0 {
            self.uncounted = 0;
            return StepOutcome::NothingMovable;
        }
        let mut batch = Batch::default();
        let mut room = nodes.room();
        for slab in victims[..count].iter().flatten() {
            match begin(pool, *slab, room > 0) {
                Begun::Ready(victim) => {
                    room -= usize::from(room > 0 && victim.is_for_nodes(pool));
                    batch.victims[batch.count] = Some(victim);
                    batch.count += 1;
                }
                Begun::Busy => {}
                Begun::NoBlock if batch.count == 0 => return StepOutcome::Full,
                Begun::NoBlock => break,
            }
        }
        if batch.count == 0 {
            return StepOutcome::NothingMovable;
        }
        self.finish_batch(pool, file, nodes, &mut batch)
    }

    fn finish_batch<M: Memory, F: BlockFile, N: Nodes>(
        &mut self,
        pool: &Pool<M>,
        file: &F,
        nodes: &mut N,
        batch: &mut Batch,
    ) -> StepOutcome {
        // In this order neighbouring blocks are one write to disk, which on a file that isn't full is the
        // whole batch.
        batch.victims[..batch.count].sort_unstable_by_key(|victim| victim.map(|victim| victim.block));
        let buffer = &mut self.buffer[self.buffer_start..][..batch.count * SLAB_BYTES];
        let is_copied = batch
            .taken()
            .zip(buffer.chunks_mut(SLAB_BYTES))
            .all(|(victim, out)| pool.memory.copy_out(pool.layout.frame_at(victim.state.location), out));
        let buffer = &*buffer;
        let mut failure = (!is_copied).then_some(BlockError::Failed);
        let mut on_node = [false; BATCH_SLABS];
        let mut on_disk = [false; BATCH_SLABS];
        if is_copied {
            write_to_nodes(pool, nodes, batch, buffer, &mut on_node);
            failure = write_to_disk(pool, file, batch, buffer, &mut on_disk).err();
        }
        let mut moved = 0;
        for (victim, (on_disk, on_node)) in batch.taken().zip(on_disk.into_iter().zip(on_node)) {
            pool.set_copies(victim.block, on_disk, on_node);
            // What nodes lost before the pool said that they have it was told too early.
            let on_node = on_node && nodes.has(victim.block);
            if !on_node {
                pool.forget_nodes_of(victim.block);
            }
            if on_disk || on_node {
                settle_away(pool, victim);
                moved += 1;
            } else {
                settle_in_memory(pool, victim);
            }
        }
        self.outcome(pool, moved, failure)
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
                self.writing = Backoff::default();
                let written = ByteCount::new((moved * SLAB_BYTES) as u64);
                if moved == 0 {
                    // All that were taken were for nodes that take none after all.
                    StepOutcome::Full
                } else {
                    StepOutcome::Moved { slabs: moved, written }
                }
            }
            Some(_) => {
                if let Ok(failed) = pool.header(Header::DiskWritesFailed) {
                    failed.fetch_add(1, Relaxed);
                }
                self.writing.failed()
            }
        }
    }
}

enum Begun {
    Ready(Victim),
    Busy,
    NoBlock,
}

/// When a slab in memory leaves it: those that were filled longest ago first. Slabs that are being filled
/// come last: they are moved only if the pool has no others.
fn leaving_key<M: Memory>(pool: &Pool<M>, slab: usize) -> Option<(bool, u64)> {
    let state = pool.state(slab).ok()?;
    let gate = Gate(pool.gate(slab).ok()?.load(Relaxed));
    if state.kind != Kind::Memory || gate.set_moving().is_none() {
        return None;
    }
    let is_current =
        pool.current(state.owner, state.class).is_ok_and(|word| word.load(Acquire) == claim_of(slab));
    Some((is_current, pool.sequence(slab).ok()?.load(Relaxed)))
}

/// Copies those of a batch to nodes that are for them.
fn write_to_nodes<M: Memory, N: Nodes>(
    pool: &Pool<M>,
    nodes: &mut N,
    batch: &Batch,
    content: &[u8],
    on_node: &mut [bool; BATCH_SLABS],
) {
    // Blocks are in order, and those for nodes come last, or all are.
    let first = batch.taken().take_while(|victim| !victim.is_for_nodes(pool)).count();
    let mut blocks = [NodeBlock { block: 0, owner: OwnerId(0) }; BATCH_SLABS];
    for (out, victim) in blocks.iter_mut().zip(batch.taken().skip(first)) {
        *out = NodeBlock { block: victim.block, owner: victim.state.owner };
    }
    if first < batch.count && nodes.room() > 0 {
        let blocks = &blocks[..batch.count - first];
        nodes.write(blocks, &content[first * SLAB_BYTES..], &mut on_node[first..batch.count]);
    }
}

/// Writes those of a batch to disk that have a place there.
fn write_to_disk<M: Memory, F: BlockFile>(
    pool: &Pool<M>,
    file: &F,
    batch: &Batch,
    content: &[u8],
    on_disk: &mut [bool; BATCH_SLABS],
) -> Result<(), BlockError> {
    let count = batch.taken().take_while(|victim| victim.block < pool.layout.disk_blocks).count();
    let mut start = 0;
    for run in batch.victims[..count].chunk_by(|one, next| match (one, next) {
        (Some(one), Some(next)) => one.block + 1 == next.block,
        _ => false,
    }) {
        let Some(first) = run.first().copied().flatten() else { break };
        let end = start + run.len();
        file.write_at(block_offset_bytes(first.block), &content[start * SLAB_BYTES..end * SLAB_BYTES])?;
        on_disk[start..end].fill(true);
        start = end;
    }
    Ok(())
}

/// Keeps writers out of a slab and finds it a block.
fn begin<M: Memory>(pool: &Pool<M>, slab: usize, nodes_have_room: bool) -> Begun {
    let (Ok(gate), Ok(word)) = (pool.gate(slab), pool.state_word(slab)) else { return Begun::Busy };
    let now = gate.load(Acquire);
    let Some(moving) = Gate(now).set_moving() else { return Begun::Busy };
    if gate.compare_exchange(now, moving.0, AcqRel, Relaxed).is_err() {
        return Begun::Busy;
    }
    let Ok(state) = pool.state(slab) else {
        let_stay(pool, slab);
        return Begun::Busy;
    };
    if Gate(now).pages() == 0 || state.kind != Kind::Memory {
        let_stay(pool, slab);
        return Begun::Busy;
    }
    let Some(block) = pool.claim_block(slab, nodes_have_room) else {
        let_stay(pool, slab);
        return Begun::NoBlock;
    };
    word.store(state.at(Kind::Moving, state.location).encode(), Release);
    Begun::Ready(Victim { slab, state, block })
}

fn settle_away<M: Memory>(pool: &Pool<M>, victim: Victim) {
    let Victim { slab, state, block } = victim;
    let Ok(word) = pool.state_word(slab) else { return };
    if let Ok(reads) = pool.away_reads_of(slab) {
        reads.store(0, Relaxed);
    }
    word.store(state.at(Kind::Away, block).encode(), Release);
    pool.unclaim(Claimable::Frame, state.location, slab);
    pool.end_move(slab, Gate::moved_away);
}

fn settle_in_memory<M: Memory>(pool: &Pool<M>, victim: Victim) {
    let Victim { slab, state, block } = victim;
    let Ok(word) = pool.state_word(slab) else { return };
    word.store(state.encode(), Release);
    pool.unclaim(Claimable::Block, block, slab);
    let_stay(pool, slab);
}

/// A slab that was to be moved stays where its state says; whoever was kept out may go on.
pub(crate) fn let_stay<M: Memory>(pool: &Pool<M>, slab: usize) {
    pool.end_move(slab, Gate::moved_back);
}

/// Ends what a mover that died was doing: what had not got away for certain stays in memory, and what had not
/// come back for certain stays away.
fn recover<M: Memory>(pool: &Pool<M>) {
    for slab in 0..pool.slabs_used() {
        let (Ok(state), Ok(gate), Ok(word)) = (pool.state(slab), pool.gate(slab), pool.state_word(slab))
        else {
            continue;
        };
        let now = Gate(gate.load(Acquire));
        if !now.is_moving() {
            continue;
        }
        match state.kind {
            // It was given back already, if not by all of the steps.
            _ if !now.is_open() => {
                if !matches!(state.kind, Kind::Free | Kind::Leasing) {
                    for what in [Claimable::Frame, Claimable::Block, Claimable::Chunk, Claimable::SmallChunk]
                    {
                        pool.unclaim_where(what, |holder, _| holder == slab);
                    }
                    pool.set_free(slab);
                }
            }
            Kind::Memory | Kind::Moving => {
                pool.unclaim_where(Claimable::Block, |holder, _| holder == slab);
                word.store(state.at(Kind::Memory, state.location).encode(), Release);
                pool.end_move(slab, Gate::raised);
            }
            Kind::Away => {
                pool.unclaim_where(Claimable::Frame, |holder, _| holder == slab);
                // Another block is what it was to go to, or has come from.
                pool.unclaim_where(Claimable::Block, |holder, block| {
                    holder == slab && block != state.location
                });
                pool.end_move(slab, Gate::moved_away);
            }
            Kind::Free | Kind::Leasing | Kind::Releasing => {}
        }
    }
}
