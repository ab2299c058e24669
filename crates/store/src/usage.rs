//! What the pool holds and costs.

use crate::claims::Claimable;
use crate::class::{CLASS_COUNT, SLAB_BYTES};
use crate::layout::{Header, WORD_BYTES, WORDS_PER_CHUNK, WORDS_PER_SLAB, WORDS_PER_SMALL_CHUNK};
use crate::memory::{Atomic, Memory};
use crate::pool::Pool;
use crate::slab::{Gate, Kind};
use core::sync::atomic::Ordering::Relaxed;
use farmem_page::{ByteCount, PageCount};

/// A pool in figures. They are counted while others go on working, so they fit each other only roughly.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolUsage {
    /// Limit of the memory for content.
    pub limit: ByteCount,
    /// Limit of what is in memory and away together.
    pub partition: ByteCount,
    /// Frames in use, whole.
    pub slab_bytes_in_memory: ByteCount,
    /// Frames that are free.
    pub frames_free: usize,
    /// Pages stored in slots, in memory and away.
    pub stored_pages: PageCount,
    /// What those pages came to after compression.
    pub stored_bytes: ByteCount,
    /// Of them, pages on disk.
    pub disk_pages: PageCount,
    /// Of them, pages on memory nodes; some of these may be on disk as well.
    pub node_pages: PageCount,
    /// Limit of the disk space.
    pub disk_limit: ByteCount,
    /// Slabs on disk, whole.
    pub disk_bytes: ByteCount,
    /// Limit of what lies on nodes alone.
    pub node_limit: ByteCount,
    /// Slabs on nodes, whole, each counted once.
    pub node_bytes: ByteCount,
    /// Slabs of which no copy is left.
    pub lost_slabs: usize,
    /// Pages that were read from slabs on nodes or disk.
    pub away_reads: u64,
    /// Of these, pages that an earlier read had brought into the read buffer.
    pub buffer_hits: u64,
    /// Reads from nodes, of up to 16 pages each.
    pub fetches: u64,
    /// Reads that no node could answer.
    pub fetches_failed: u64,
    /// Slabs that ever left memory.
    pub slabs_moved: u64,
    /// Slabs that were ever brought back from there.
    pub slabs_raised: u64,
    /// Writes to disk that failed.
    pub disk_writes_failed: u64,
    /// Distinct repeated words known.
    pub patterns: usize,
    /// Upper bound of the memory that the pool's own tables take, apart from the limit.
    pub metadata_bytes: ByteCount,
}

impl<M: Memory> Pool<M> {
    /// Counts what is there. Takes about a microsecond for every hundred slabs: not for a hot path.
    pub fn usage(&self) -> PoolUsage {
        let frames_used = self.claimed(Claimable::Frame);
        let (mut pages, mut payload) = (0, 0);
        let (mut disk_pages, mut disk_slabs, mut node_pages, mut node_slabs, mut lost_slabs) =
            (0, 0, 0, 0, 0);
        for slab in 0..self.slabs_used() {
            let (Ok(state), Ok(gate)) = (self.state(slab), self.gate(slab)) else { continue };
            if matches!(state.kind, Kind::Memory | Kind::Moving | Kind::Away) {
                let gate = Gate(gate.load(Relaxed));
                pages += gate.pages();
                payload += gate.payload_bytes();
                let Some(copies) =
                    (state.kind == Kind::Away).then(|| self.copies(state.location).ok()).flatten()
                else {
                    continue;
                };
                if copies.on_disk {
                    (disk_pages, disk_slabs) = (disk_pages + gate.pages(), disk_slabs + 1);
                }
                if copies.on_node {
                    (node_pages, node_slabs) = (node_pages + gate.pages(), node_slabs + 1);
                }
                lost_slabs += usize::from(!copies.on_disk && !copies.on_node);
            }
        }
        let bytes = |slabs: usize| ByteCount::new((slabs * SLAB_BYTES) as u64);
        PoolUsage {
            limit: bytes(self.frame_limit()),
            partition: bytes(self.slab_limit()),
            slab_bytes_in_memory: bytes(frames_used),
            frames_free: self.frame_limit().saturating_sub(frames_used),
            stored_pages: PageCount::new(pages as u64),
            stored_bytes: ByteCount::new(payload as u64),
            disk_pages: PageCount::new(disk_pages as u64),
            disk_limit: bytes(self.layout.disk_blocks),
            disk_bytes: bytes(disk_slabs),
            node_pages: PageCount::new(node_pages as u64),
            node_limit: bytes(self.block_limit() - self.layout.disk_blocks),
            node_bytes: bytes(node_slabs),
            lost_slabs,
            away_reads: self.away_reads(),
            buffer_hits: self.header_value(Header::BufferHits) as u64,
            fetches: self.header_value(Header::Fetches) as u64,
            fetches_failed: self.header_value(Header::FetchesFailed) as u64,
            slabs_moved: self.header_value(Header::SlabsMoved) as u64,
            slabs_raised: self.header_value(Header::SlabsRaised) as u64,
            disk_writes_failed: self.header_value(Header::DiskWritesFailed) as u64,
            patterns: self.header_value(Header::Patterns),
            metadata_bytes: ByteCount::new(self.metadata_bytes() as u64),
        }
    }

    fn metadata_bytes(&self) -> usize {
        let slabs = self.slabs_used();
        let chunks = self.header_value(Header::ChunkHigh).min(self.layout.chunks);
        let words_per_slab = WORDS_PER_SLAB + CLASS_COUNT.div_ceil(64);
        let small = self.header_value(Header::SmallChunkHigh).min(self.layout.small_chunks);
        let claims = self.layout.frames + self.layout.blocks + chunks + small;
        let chunk_words = chunks * WORDS_PER_CHUNK + small * WORDS_PER_SMALL_CHUNK;
        let grown = slabs * words_per_slab + chunk_words + claims;
        self.layout.partial_at + grown * WORD_BYTES
    }
}
