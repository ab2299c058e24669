//! Where everything lies in the shared memory. Drawn in `docs/formats/pool.md`; change both, and [`VERSION`],
//! together.

use crate::calls::{CALL_WORDS, LANE_CALLS, LANE_HEAD_WORDS};
use crate::class::{CLASS_COUNT, SLAB_BYTES, SizeClass};
use crate::packing::{QUEUE_HEAD_WORDS, QUEUE_LENGTH, WORDS_PER_REQUEST};
use crate::pattern::PATTERN_LIMIT;
use crate::read_buffer::{ENTRY_BYTES, WORDS_PER_ENTRY};
use crate::slab::LOCATION_LIMIT;
use farmem_page::{ByteCount, PAGE_BYTES, SlabIndex};

/// "FARMPOOL", as the bytes lie in memory.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"FARMPOOL");
/// Version of the layout.
pub(crate) const VERSION: u64 = 12;

pub(crate) const WORD_BYTES: usize = size_of::<u64>();
/// Slots that share a chunk of metadata, because they share one word of the bitmap.
pub(crate) const SLOTS_PER_CHUNK: usize = 64;
/// Slots of a small chunk. Small ones cover what is left of a slab after whole ones.
pub(crate) const SLOTS_PER_SMALL_CHUNK: usize = 16;
/// Words per slot: two of fingerprint, one of length and epoch.
pub(crate) const WORDS_PER_SLOT: usize = 3;
/// Words per chunk: the bitmap, then the slots.
pub(crate) const WORDS_PER_CHUNK: usize = 1 + SLOTS_PER_CHUNK * WORDS_PER_SLOT;
/// Words per small chunk, in the same order.
pub(crate) const WORDS_PER_SMALL_CHUNK: usize = 1 + SLOTS_PER_SMALL_CHUNK * WORDS_PER_SLOT;
/// Small chunks of a slab, at most: as many again would be a whole one.
pub(crate) const SMALL_CHUNKS_PER_SLAB: usize = SLOTS_PER_CHUNK / SLOTS_PER_SMALL_CHUNK - 1;
/// Chunks of a slab of the finest class, which has most.
pub(crate) const CHUNKS_PER_SLAB: usize = SizeClass::SLOTS_MAX.div_ceil(SLOTS_PER_CHUNK);
/// Words per slab: state, gate, sequence number, reads from disk, then the chunk numbers, two to a word.
pub(crate) const WORDS_PER_SLAB: usize = 4 + CHUNKS_PER_SLAB.div_ceil(2);
/// Words of a lane of calls; see [`crate::calls`].
pub(crate) const LANE_WORDS: usize = LANE_HEAD_WORDS + LANE_CALLS * CALL_WORDS;
/// Words of the header.
pub(crate) const HEADER_WORDS: usize = PAGE_BYTES / WORD_BYTES;

/// Words of an owner's queue of pages to pack; see [`crate::packing`].
pub(crate) const QUEUE_WORDS: usize = QUEUE_HEAD_WORDS + QUEUE_LENGTH * WORDS_PER_REQUEST;

const FRAMES_ALIGN_BYTES: usize = 2 << 20;
const BITS_PER_WORD: usize = 64;

/// Chunks that cover the slots of a slab: whole ones, then small ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cover {
    pub(crate) whole: usize,
    pub(crate) small: usize,
}

impl Cover {
    pub(crate) const fn of(class: SizeClass) -> Self {
        let small = (class.slots() % SLOTS_PER_CHUNK).div_ceil(SLOTS_PER_SMALL_CHUNK);
        let whole = class.slots() / SLOTS_PER_CHUNK;
        if small > SMALL_CHUNKS_PER_SLAB {
            Self { whole: whole + 1, small: 0 }
        } else {
            Self { whole, small }
        }
    }
    /// Chunks of either kind.
    pub(crate) const fn chunks(self) -> usize {
        self.whole + self.small
    }
}

/// Metadata of a slab of a class: its own words, its chunks, the claims on frame, block and chunks, and where
/// the block's copies are.
const fn metadata_bytes(class: SizeClass) -> usize {
    let cover = Cover::of(class);
    let chunk_words = cover.whole * WORDS_PER_CHUNK + cover.small * WORDS_PER_SMALL_CHUNK;
    (WORDS_PER_SLAB + chunk_words + 3 + cover.chunks()) * WORD_BYTES
}

const _: () = {
    let mut number = 0;
    while let Some(class) = SizeClass::new(number) {
        let limit = class.slots() * PAGE_BYTES * 75;
        assert!(
            metadata_bytes(class) * 10_000 <= limit,
            "metadata stays below 0.75% of the pages it manages"
        );
        assert!(Cover::of(class).chunks() <= CHUNKS_PER_SLAB, "a slab's words name all its chunks");
        number += 1;
    }
};

/// Fixed words of the header.
#[derive(Clone, Copy)]
pub(crate) enum Header {
    Magic = 0,
    Version = 1,
    Frames = 2,
    Blocks = 3,
    Owners = 4,
    Seed = 5,
    Classes = 6,
    Length = 7,
    /// Frames that may be in use, of all that there are.
    FrameLimit = 8,
    /// Slabs that may be in use, in memory and away together.
    SlabLimit = 9,
    /// Blocks that the disk has room for; those from there on lie on nodes alone.
    DiskBlocks = 10,
    /// Lanes of calls.
    Lanes = 11,
    /// Entries of the read buffer.
    Entries = 12,
    /// Blocks beyond those of the disk that may be in use: what nodes lend at present, of all that they may
    /// lend.
    NodeBlocks = 13,
    /// The next sequence number.
    Sequence = 16,
    /// One more than the largest slab number ever leased.
    SlabHigh = 24,
    /// One more than the largest chunk number ever claimed.
    ChunkHigh = 25,
    /// One more than the largest small chunk number ever claimed.
    SmallChunkHigh = 26,
    /// One more than the largest frame number ever claimed.
    FrameHigh = 27,
    /// One more than the largest block number ever claimed.
    BlockHigh = 28,
    /// Where the search for a free frame starts.
    FrameCursor = 32,
    /// Where the search for a free slab starts.
    SlabCursor = 33,
    /// Where the search for a free chunk starts.
    ChunkCursor = 34,
    /// Where the search for a free block starts.
    BlockCursor = 35,
    /// Where the search for a free small chunk starts.
    SmallChunkCursor = 36,
    /// After so many more frames the mover is woken.
    SpareFrames = 37,
    /// On which it sleeps.
    MoverBell = 38,
    /// Writes to disk that failed.
    DiskWritesFailed = 40,
    /// Slabs that left memory.
    SlabsMoved = 41,
    /// Slabs brought back from there.
    SlabsRaised = 42,
    /// Pages read from slabs that are away.
    AwayReads = 43,
    /// Of them, those that the read buffer had already.
    BufferHits = 44,
    /// Spans that came from nodes.
    Fetches = 45,
    /// Fetches that no node answered.
    FetchesFailed = 46,
    /// Time of the read buffer: moves on with each fetch.
    BufferTime = 47,
    /// Patterns in the table.
    Patterns = 48,
    /// Where the search for a slab with holes starts.
    PartialCursor = 49,
    /// Where the search for any room at all starts, once no frame is free.
    LeftoverCursor = 50,
    /// Slabs that were ever noted in [`Header::Read`].
    ReadHead = 51,
    /// Not zero once a packer runs.
    Packer = 56,
    /// Whether pages are stored as they are.
    Raw = 57,
    /// Whether a page that leaves gets another entry than it had.
    Renewing = 58,
    /// The first of [`USE_BUCKETS`] words: how long after they were asked for ahead pages of nodes were used.
    Uses = 64,
    /// The first of [`READ_SLABS`] words: slabs away that pages were read from, the last ones that were
    /// noted, each plus one.
    Read = 128,
}

/// Buckets of times from asking ahead to use.
pub const USE_BUCKETS: usize = 64;
const _: () = assert!(Header::Uses as usize + USE_BUCKETS <= Header::Read as usize, "words don't overlap");
/// Slabs that are remembered to have been read from.
pub(crate) const READ_SLABS: usize = 128;
const _: () = assert!(Header::Read as usize + READ_SLABS <= HEADER_WORDS, "the header has room");

/// How large a pool is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolConfig {
    /// Limit of the pool's memory at first; rounded down to whole slabs, at least one. See
    /// [`Pool::set_limit`](crate::Pool::set_limit).
    pub limit: ByteCount,
    /// What the limit can be raised to. Less than the limit is taken for the limit.
    pub capacity: ByteCount,
    /// Limit of the pool's disk space; rounded down to whole slabs, possibly none.
    pub disk: ByteCount,
    /// What of other machines' memory it uses.
    pub nodes: NodesConfig,
    /// One more than the largest owner number that will be used.
    pub owners: u16,
    /// A random number, for the fingerprints. Pages are told apart by it, so no program may guess it.
    pub seed: u64,
}

/// What a pool has of memory nodes; nothing by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodesConfig {
    /// Limit of what lies on nodes without a copy on disk; rounded down to whole slabs. What has a copy on
    /// disk is within the disk's limit.
    pub alone: ByteCount,
    /// What that limit can be raised to beyond it, where nodes may join; as much of it as can be numbered.
    /// See [`Pool::set_node_limit`](crate::Pool::set_node_limit).
    pub spare: ByteCount,
    /// Lanes in which readers ask for what is on nodes, at most 64; none when there are no nodes.
    pub lanes: u16,
    /// Entries of the read buffer, of 16 pages each, at most 4096.
    pub entries: u16,
}

/// What is wrong with a [`PoolConfig`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PoolConfigError {
    /// The memory limit is below one slab.
    #[error("a pool needs at least {SLAB_BYTES} bytes")]
    TooSmall,
    /// Memory and disk together are more than the pool can number.
    #[error("a pool manages at most 2^24 slabs")]
    TooLarge,
    /// No owner is allowed.
    #[error("a pool needs at least one owner")]
    NoOwner,
}

/// How many there are of each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Counts {
    pub(crate) frames: usize,
    /// Those on disk come first.
    pub(crate) blocks: usize,
    pub(crate) disk_blocks: usize,
    pub(crate) owners: usize,
    pub(crate) lanes: usize,
    pub(crate) entries: usize,
}

/// More lanes than processors that fault at once gain nothing.
const LANE_LIMIT: usize = 64;
/// An answer to a call names an entry in 16 bits, with values to spare.
const ENTRY_LIMIT: usize = 4096;

/// Offsets and counts of a pool's tables. Offsets are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub(crate) frames: usize,
    pub(crate) blocks: usize,
    pub(crate) disk_blocks: usize,
    pub(crate) lanes: usize,
    pub(crate) entries: usize,
    pub(crate) slabs: usize,
    pub(crate) chunks: usize,
    pub(crate) small_chunks: usize,
    pub(crate) owners: usize,
    pub(crate) partial_words: usize,
    pub(crate) patterns_at: usize,
    pub(crate) owners_at: usize,
    pub(crate) queues_at: usize,
    pub(crate) partial_at: usize,
    pub(crate) frame_claims_at: usize,
    pub(crate) block_claims_at: usize,
    pub(crate) copies_at: usize,
    pub(crate) lanes_at: usize,
    pub(crate) entries_at: usize,
    pub(crate) chunk_claims_at: usize,
    pub(crate) small_chunk_claims_at: usize,
    pub(crate) slabs_at: usize,
    pub(crate) small_chunks_at: usize,
    pub(crate) chunks_at: usize,
    pub(crate) buffer_at: usize,
    pub(crate) frames_at: usize,
    pub(crate) length_bytes: usize,
}

impl PoolConfig {
    /// Bytes of shared memory that a pool of this size needs. Nearly all of it takes no memory until it is
    /// used.
    pub fn memory_bytes(&self) -> Result<usize, PoolConfigError> {
        Ok(Layout::new(self)?.length_bytes)
    }
}

/// Whole slabs in so many bytes.
pub(crate) fn slabs_in(bytes: ByteCount) -> usize {
    usize::try_from(bytes.get()).map_or(usize::MAX, |bytes| bytes / SLAB_BYTES)
}

impl Layout {
    pub(crate) fn new(config: &PoolConfig) -> Result<Self, PoolConfigError> {
        if slabs_in(config.limit) == 0 {
            return Err(PoolConfigError::TooSmall);
        }
        let frames = slabs_in(config.limit.max(config.capacity));
        let blocks = slabs_in(config.disk).saturating_add(slabs_in(config.nodes.alone));
        let unnumbered = LOCATION_LIMIT.saturating_sub(frames.saturating_add(blocks));
        Self::of(&Counts {
            frames,
            disk_blocks: slabs_in(config.disk),
            blocks: blocks.saturating_add(slabs_in(config.nodes.spare).min(unnumbered)),
            owners: usize::from(config.owners),
            lanes: usize::from(config.nodes.lanes),
            entries: usize::from(config.nodes.entries),
        })
    }

    pub(crate) fn of(counts: &Counts) -> Result<Self, PoolConfigError> {
        let Counts { frames, blocks, disk_blocks, owners, lanes, entries } = *counts;
        if frames == 0 {
            return Err(PoolConfigError::TooSmall);
        }
        if owners == 0 {
            return Err(PoolConfigError::NoOwner);
        }
        // A leased slab has a frame or a block, so more slabs could never be filled.
        let slabs = frames.saturating_add(blocks);
        let is_too_wide = lanes > LANE_LIMIT || entries > ENTRY_LIMIT || disk_blocks > blocks;
        if is_too_wide || slabs > LOCATION_LIMIT || slabs > SlabIndex::LIMIT as usize {
            return Err(PoolConfigError::TooLarge);
        }
        let chunks = slabs * CHUNKS_PER_SLAB;
        let small_chunks = slabs * SMALL_CHUNKS_PER_SLAB;
        let partial_words = slabs.div_ceil(BITS_PER_WORD);
        let mut end = HEADER_WORDS * WORD_BYTES;
        let mut table = |words: usize| {
            let at = end;
            end = (at + words * WORD_BYTES).next_multiple_of(PAGE_BYTES);
            at
        };
        let patterns_at = table(PATTERN_LIMIT * 2);
        let owners_at = table(owners * CLASS_COUNT);
        let queues_at = table(owners * QUEUE_WORDS);
        let partial_at = table(partial_words * CLASS_COUNT);
        let frame_claims_at = table(frames);
        let block_claims_at = table(blocks);
        let copies_at = table(blocks);
        let lanes_at = table(lanes * LANE_WORDS);
        let entries_at = table(entries * WORDS_PER_ENTRY);
        let chunk_claims_at = table(chunks);
        let small_chunk_claims_at = table(small_chunks);
        let slabs_at = table(slabs * WORDS_PER_SLAB);
        let small_chunks_at = table(small_chunks * WORDS_PER_SMALL_CHUNK);
        let chunks_at = table(chunks * WORDS_PER_CHUNK);
        let buffer_at = end.next_multiple_of(FRAMES_ALIGN_BYTES);
        let frames_at = (buffer_at + entries * ENTRY_BYTES).next_multiple_of(FRAMES_ALIGN_BYTES);
        Ok(Self {
            frames,
            blocks,
            disk_blocks,
            lanes,
            entries,
            slabs,
            chunks,
            small_chunks,
            owners,
            partial_words,
            patterns_at,
            owners_at,
            queues_at,
            partial_at,
            frame_claims_at,
            block_claims_at,
            copies_at,
            lanes_at,
            entries_at,
            chunk_claims_at,
            small_chunk_claims_at,
            slabs_at,
            small_chunks_at,
            chunks_at,
            buffer_at,
            frames_at,
            length_bytes: frames_at + frames * SLAB_BYTES,
        })
    }

    /// Where a frame's content starts.
    pub(crate) const fn frame_at(&self, frame: usize) -> usize {
        self.frames_at + frame * SLAB_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Counts =
        Counts { frames: 100, blocks: 300, disk_blocks: 300, owners: 17, lanes: 2, entries: 4 };

    #[test]
    fn tables_follow_each_other_without_overlap() {
        let layout = Layout::of(&SMALL).unwrap();
        assert_eq!((layout.slabs, layout.chunks), (400, 400 * CHUNKS_PER_SLAB));
        let starts = [
            layout.patterns_at,
            layout.owners_at,
            layout.queues_at,
            layout.partial_at,
            layout.frame_claims_at,
            layout.block_claims_at,
            layout.copies_at,
            layout.lanes_at,
            layout.entries_at,
            layout.chunk_claims_at,
            layout.small_chunk_claims_at,
            layout.slabs_at,
            layout.small_chunks_at,
            layout.chunks_at,
            layout.buffer_at,
            layout.frames_at,
            layout.length_bytes,
        ];
        assert!(starts.is_sorted());
        assert!(layout.chunks_at + layout.chunks * WORDS_PER_CHUNK * WORD_BYTES <= layout.frames_at);
        assert!(layout.slabs_at + layout.slabs * WORDS_PER_SLAB * WORD_BYTES <= layout.small_chunks_at);
    }

    #[test]
    fn chunks_cover_every_slot_and_few_more() {
        for class in SizeClass::new(0).unwrap().and_larger() {
            let cover = Cover::of(class);
            let covered = cover.whole * SLOTS_PER_CHUNK + cover.small * SLOTS_PER_SMALL_CHUNK;
            assert!(covered >= class.slots() && covered < class.slots() + SLOTS_PER_SMALL_CHUNK, "{class:?}");
        }
    }

    #[test]
    fn impossible_sizes_are_refused() {
        let refusal = |counts: Counts| Layout::of(&counts).unwrap_err();
        assert_eq!(refusal(Counts { frames: 0, ..SMALL }), PoolConfigError::TooSmall);
        assert_eq!(refusal(Counts { owners: 0, ..SMALL }), PoolConfigError::NoOwner);
        assert_eq!(refusal(Counts { blocks: usize::MAX, ..SMALL }), PoolConfigError::TooLarge);
        assert_eq!(refusal(Counts { disk_blocks: 301, ..SMALL }), PoolConfigError::TooLarge);
        assert_eq!(refusal(Counts { lanes: LANE_LIMIT + 1, ..SMALL }), PoolConfigError::TooLarge);
    }
}
