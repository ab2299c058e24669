//! Frames, blocks and chunks of both sizes: each has a word that names the slab it belongs to. Claiming is
//! one swap of that word, so there is no moment at which a claimed thing has no known holder, whoever dies.

use crate::layout::Header;
use crate::memory::{Atomic, Memory};
use crate::pool::{Pool, claim_of, slab_of};
use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};

/// Words that one search looks at: some microseconds' worth. Where all that a search has looked at is taken,
/// the next one goes on from there. So what it costs doesn't grow with the pool; of a pool that is larger
/// than this and has hardly anything free, a search may miss what there is.
const LOOKED_AT: usize = 4096;

/// What can be claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Claimable {
    /// A slab's worth of the pool's memory.
    Frame,
    /// A slab's worth of room outside memory, on nodes or on disk.
    Block,
    /// Metadata of 64 slots.
    Chunk,
    /// Metadata of 16 slots.
    SmallChunk,
}

impl<M: Memory> Pool<M> {
    pub(crate) fn claims(&self, what: Claimable) -> &[M::Word] {
        let (at, count) = match what {
            Claimable::Frame => (self.layout.frame_claims_at, self.layout.frames),
            Claimable::Block => (self.layout.block_claims_at, self.layout.blocks),
            Claimable::Chunk => (self.layout.chunk_claims_at, self.layout.chunks),
            Claimable::SmallChunk => (self.layout.small_chunk_claims_at, self.layout.small_chunks),
        };
        self.memory.words(at, count).unwrap_or(&[])
    }

    const fn cursor(what: Claimable) -> Header {
        match what {
            Claimable::Frame => Header::FrameCursor,
            Claimable::Block => Header::BlockCursor,
            Claimable::Chunk => Header::ChunkCursor,
            Claimable::SmallChunk => Header::SmallChunkCursor,
        }
    }

    /// The word that says how many were ever in use, counted by their numbers.
    ///
    /// Invariant: none whose number is at or above it was ever claimed. So it grows before a claim, and is
    /// true whoever dies in between.
    const fn high(what: Claimable) -> Header {
        match what {
            Claimable::Frame => Header::FrameHigh,
            Claimable::Block => Header::BlockHigh,
            Claimable::Chunk => Header::ChunkHigh,
            Claimable::SmallChunk => Header::SmallChunkHigh,
        }
    }

    fn raise_high(&self, what: Claimable, index: usize) {
        if let Ok(high) = self.header(Self::high(what))
            && high.load(Relaxed) <= index as u64
        {
            high.fetch_max(index as u64 + 1, SeqCst);
        }
    }

    /// Whether more than `most` frames are in use. As long as no frame above the limit was ever used the
    /// numbers of frames see to the limit; they are counted only after it was lowered.
    fn are_frames_above(&self, most: usize) -> bool {
        let is_any_above =
            self.header(Header::FrameHigh).is_ok_and(|high| high.load(SeqCst) > self.frame_limit() as u64);
        is_any_above && self.claimed(Claimable::Frame) > most
    }

    /// Those that may be claimed. Fewer frames than the limit in use means that one of those below it is
    /// free, wherever the others are.
    fn claimable(&self, what: Claimable) -> &[M::Word] {
        let claims = self.claims(what);
        match what {
            Claimable::Frame => match self.frame_limit() {
                0 => &[],
                limit if self.are_frames_above(limit - 1) => &[],
                limit => claims.get(..limit).unwrap_or(claims),
            },
            _ => claims,
        }
    }

    /// Whether one could be claimed at this moment: one of those that the next search looks at.
    pub(crate) fn is_any_free(&self, what: Claimable) -> bool {
        let claims = self.claimable(what);
        let start = self.header_value(Self::cursor(what)).min(claims.len());
        let found =
            Turn::new(0..claims.len(), start, LOOKED_AT).find(|&index| claims[index].load(Relaxed) == 0);
        if found.is_none() {
            self.pass(Self::cursor(what), start, LOOKED_AT, claims.len());
        }
        found.is_some()
    }

    /// Whether the disk has room for a slab.
    pub fn is_disk_block_free(&self) -> bool {
        self.claims(Claimable::Block).iter().take(self.layout.disk_blocks).any(|word| word.load(Relaxed) == 0)
    }

    /// Whether what lies on nodes alone may come to disk: it has room, or every block has its place there.
    pub fn is_disk_open(&self) -> bool {
        self.layout.disk_blocks > 0
            && (self.layout.disk_blocks == self.layout.blocks || self.is_disk_block_free())
    }

    /// Claims a block for a slab: one for the nodes while they have room, else one on disk.
    pub(crate) fn claim_block(&self, slab: usize, nodes_have_room: bool) -> Option<usize> {
        let (disk_blocks, blocks) = (self.layout.disk_blocks, self.block_limit());
        let for_nodes =
            nodes_have_room.then(|| self.claim_among(Claimable::Block, slab, disk_blocks..blocks));
        for_nodes.flatten().or_else(|| self.claim_among(Claimable::Block, slab, 0..disk_blocks))
    }

    /// Whether a block belongs to a slab. Only the mover claims blocks, so for it one that belongs to none
    /// stays so.
    pub fn is_block_claimed(&self, block: usize) -> bool {
        self.claims(Claimable::Block).get(block).is_some_and(|word| word.load(Acquire) != 0)
    }

    /// Claims one for a slab; `None` when all are taken.
    pub(crate) fn claim(&self, what: Claimable, slab: usize) -> Option<usize> {
        self.claim_among(what, slab, 0..usize::MAX)
    }

    /// As [`Pool::claim`], but only one of these numbers.
    fn claim_among(&self, what: Claimable, slab: usize, among: Range<usize>) -> Option<usize> {
        let claims = self.claimable(what);
        let among = among.start.min(claims.len())..among.end.min(claims.len());
        let start = self.header_value(Self::cursor(what)).clamp(among.start, among.end);
        let try_at = |index: &usize| {
            let word = &claims[*index];
            word.load(Relaxed) == 0 && {
                self.raise_high(what, *index);
                word.compare_exchange(0, claim_of(slab), SeqCst, Relaxed).is_ok()
            }
        };
        let claimed = Turn::new(among.clone(), start, LOOKED_AT).find(try_at).or_else(|| {
            let never_used = self.header_value(Self::high(what)).clamp(among.start, among.end);
            Turn::new(never_used..among.end, never_used, LOOKED_AT).find(try_at)
        });
        let Some(claimed) = claimed else {
            self.pass(Self::cursor(what), start, LOOKED_AT, among.end);
            return None;
        };
        if let Ok(cursor) = self.header(Self::cursor(what)) {
            cursor.store(claimed as u64 + 1, Relaxed);
        }
        // Another process may have claimed the last one at the same moment, or the limit may have become
        // lower. Both may then take the pool for full, as it is but for one slab; one that tries again gets
        // it. Of two that claim, one above the limit, at least one sees both: each makes its own claim, or
        // the high mark before it, known before it looks.
        if what == Claimable::Frame && self.are_frames_above(self.frame_limit()) {
            self.unclaim(what, claimed, slab);
            return None;
        }
        Some(claimed)
    }

    /// Gives one back that the slab claimed; does nothing when it isn't the slab's.
    pub(crate) fn unclaim(&self, what: Claimable, index: usize, slab: usize) {
        let Some(word) = self.claims(what).get(index) else { return };
        if word.load(Acquire) != claim_of(slab) {
            return;
        }
        if what == Claimable::Frame {
            let at = self.layout.frame_at(index);
            self.memory.release(at..at + crate::class::SLAB_BYTES);
        }
        let freed = word.compare_exchange(claim_of(slab), 0, AcqRel, Relaxed).is_ok();
        let Ok(cursor) = self.header(Self::cursor(what)) else { return };
        let next = cursor.load(Relaxed);
        let is_better = match what {
            // Metadata is never given back to the machine, so it is kept dense: the lowest free chunk is used
            // first.
            Claimable::Chunk | Claimable::SmallChunk => next > index as u64,
            // The next search finds this one, unless it already begins with another that is free.
            Claimable::Frame | Claimable::Block => {
                self.claims(what).get(next as usize).is_none_or(|word| word.load(Relaxed) != 0)
            }
        };
        if freed && is_better {
            cursor.store(index as u64, Relaxed);
        }
    }

    /// The words of those that were ever in use. Even reading the others would take memory for them.
    fn ever_claimed(&self, what: Claimable) -> &[M::Word] {
        let claims = self.claims(what);
        &claims[..self.header_value(Self::high(what)).min(claims.len())]
    }

    /// How many are claimed. Takes about a microsecond for every thousand of them that were ever in use.
    pub(crate) fn claimed(&self, what: Claimable) -> usize {
        self.ever_claimed(what).iter().filter(|word| word.load(SeqCst) != 0).count()
    }

    /// Gives back all that belong to slabs which `is_lost` names.
    pub(crate) fn unclaim_where(&self, what: Claimable, is_lost: impl Fn(usize, usize) -> bool) {
        for (index, word) in self.ever_claimed(what).iter().enumerate() {
            if let Some(slab) = slab_of(word.load(Acquire))
                && is_lost(slab, index)
            {
                self.unclaim(what, index, slab);
            }
        }
    }
}

/// Numbers of a range from one of them on, and then from the first one on; so many at most.
pub(crate) struct Turn {
    range: Range<usize>,
    next: usize,
    left: usize,
}

impl Turn {
    pub(crate) fn new(range: Range<usize>, start: usize, most: usize) -> Self {
        Self { next: start, left: range.len().min(most), range }
    }
}

impl Iterator for Turn {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let found = if self.range.contains(&self.next) { self.next } else { self.range.start };
        self.next = found + 1;
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::OwnerId;
    use crate::populate::tests::full;
    use std::vec::Vec;

    #[test]
    fn a_turn_goes_round_once() {
        let turn = |range, start, most| Turn::new(range, start, most).collect::<Vec<_>>();
        assert_eq!(turn(2..6, 4, 99), [4, 5, 2, 3]);
        assert_eq!(turn(2..6, 4, 3), [4, 5, 2]);
        assert_eq!(turn(2..6, usize::MAX, 2), [2, 3]);
        assert_eq!(turn(2..2, 2, 9), []);
    }

    #[test]
    fn what_is_free_far_from_the_cursor_is_found_after_some_searches() {
        const FRAMES: usize = 5 * LOOKED_AT / 2;
        let pool = full(FRAMES);
        for lonely in [0, LOOKED_AT, FRAMES - 1] {
            pool.claims(Claimable::Frame)[lonely].store(0, SeqCst);
            let searches = (0..4).map(|_| pool.claim(Claimable::Frame, 7)).collect::<Vec<_>>();
            assert_eq!(searches.into_iter().flatten().collect::<Vec<_>>(), [lonely]);
        }
    }

    #[test]
    fn what_was_given_back_is_found_at_once() {
        let pool = full(5 * LOOKED_AT / 2);
        pool.unclaim(Claimable::Frame, 9000, 9000);
        assert!(pool.is_any_free(Claimable::Frame));
        assert_eq!(pool.claim(Claimable::Frame, 7), Some(9000));
        assert!(!pool.is_any_free(Claimable::Frame));
    }

    #[test]
    fn a_cursor_that_somebody_has_spoiled_does_no_harm() {
        let pool = full(5 * LOOKED_AT / 2);
        for header in [Header::FrameCursor, Header::SlabCursor, Header::PartialCursor, Header::LeftoverCursor]
        {
            pool.header(header).unwrap().store(u64::MAX, SeqCst);
        }
        let mut writer = crate::Writer::new(OwnerId(0));
        let mut page = [3; farmem_page::PAGE_BYTES];
        for number in 0..8_u64 {
            page[..8].copy_from_slice(&number.to_le_bytes());
            assert!(writer.store(&pool, &page, crate::Epoch::FIRST).is_err(), "all is full");
        }
    }
}
