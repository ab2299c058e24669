//! Slots of a slab: which are taken, and what is known of each. Kept in chunks of 64 slots, and of 16 for
//! what is left over, that a slab claims when it is leased: so a slab of large slots has little metadata.

use crate::claims::Claimable;
use crate::class::SizeClass;
use crate::layout::{
    CHUNKS_PER_SLAB, Cover, SLOTS_PER_CHUNK, SLOTS_PER_SMALL_CHUNK, WORD_BYTES, WORDS_PER_CHUNK,
    WORDS_PER_SLOT, WORDS_PER_SMALL_CHUNK,
};
use crate::memory::{Atomic, Memory};
use crate::pool::{Damaged, Epoch, Pool, Slot};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use farmem_codec::Fingerprint;

const CHUNK_TABLE: usize = 4;
const CHUNK_BITS: u32 = 32;
/// How often the bitmap is searched: a slot is free whenever the gate says so, but another writer may snatch
/// it.
const SEARCH_ROUNDS: usize = 8;

impl<M: Memory> Pool<M> {
    /// A slab's `nth` chunk: what it is and its number. It isn't checked to be the slab's.
    pub(crate) fn chunk(
        &self,
        slab: usize,
        class: SizeClass,
        nth: usize,
    ) -> Result<(Claimable, usize), Damaged> {
        let word = self.slab_words(slab)?.get(CHUNK_TABLE + nth / 2).ok_or(Damaged)?;
        let number = (word.load(Acquire) >> (CHUNK_BITS * (nth % 2) as u32)) as u32 as usize;
        let (what, limit) = if nth < Cover::of(class).whole {
            (Claimable::Chunk, self.layout.chunks)
        } else {
            (Claimable::SmallChunk, self.layout.small_chunks)
        };
        if number < limit { Ok((what, number)) } else { Err(Damaged) }
    }

    /// Writes a slab's chunk table. Only for the thread that is leasing the slab.
    pub(crate) fn set_chunks(&self, slab: usize, chunks: &[u32]) -> Result<(), Damaged> {
        let words = self.slab_words(slab)?;
        for (at, pair) in chunks.chunks(2).enumerate() {
            let high = pair.get(1).copied().unwrap_or(0);
            let word = words.get(CHUNK_TABLE + at).ok_or(Damaged)?;
            word.store(u64::from(pair[0]) | u64::from(high) << CHUNK_BITS, Release);
        }
        Ok(())
    }

    fn chunk_words(&self, (what, number): (Claimable, usize)) -> Result<&[M::Word], Damaged> {
        let (start, words) = if what == Claimable::SmallChunk {
            (self.layout.small_chunks_at, WORDS_PER_SMALL_CHUNK)
        } else {
            (self.layout.chunks_at, WORDS_PER_CHUNK)
        };
        self.memory.words(start + number * words * WORD_BYTES, words).ok_or(Damaged)
    }

    /// Marks all slots of a chunk as free.
    pub(crate) fn clear_chunk(&self, chunk: (Claimable, usize)) -> Result<(), Damaged> {
        self.chunk_words(chunk)?[0].store(0, Release);
        Ok(())
    }

    /// The words of a slot's chunk, and the slot's number in it.
    fn find(&self, slab: usize, class: SizeClass, slot: usize) -> Result<(&[M::Word], usize), Damaged> {
        let whole = Cover::of(class).whole;
        let (nth, rest) = match slot.checked_sub(whole * SLOTS_PER_CHUNK) {
            None => (slot / SLOTS_PER_CHUNK, slot % SLOTS_PER_CHUNK),
            Some(beyond) => (whole + beyond / SLOTS_PER_SMALL_CHUNK, beyond % SLOTS_PER_SMALL_CHUNK),
        };
        Ok((self.chunk_words(self.chunk(slab, class, nth)?)?, rest))
    }

    /// Takes a free slot for a writer that the gate counted. `hint` is where to start; it is moved on.
    pub(crate) fn take_slot(&self, slab: usize, class: SizeClass, hint: &mut u8) -> Result<usize, Damaged> {
        let cover = Cover::of(class);
        for round in 0..SEARCH_ROUNDS * cover.chunks() {
            let nth = (usize::from(*hint) + round) % cover.chunks();
            let (first, length) = match nth.checked_sub(cover.whole) {
                None => (nth * SLOTS_PER_CHUNK, SLOTS_PER_CHUNK),
                Some(small) => {
                    (cover.whole * SLOTS_PER_CHUNK + small * SLOTS_PER_SMALL_CHUNK, SLOTS_PER_SMALL_CHUNK)
                }
            };
            let mask = u64::MAX >> (u64::BITS as usize - length.min(class.slots() - first));
            let word = &self.chunk_words(self.chunk(slab, class, nth)?)?[0];
            let mut free = !word.load(Relaxed) & mask;
            while free != 0 {
                let bit = 1 << free.trailing_zeros();
                let before = word.fetch_or(bit, AcqRel);
                if before & bit == 0 {
                    *hint = nth as u8;
                    return Ok(first + free.trailing_zeros() as usize);
                }
                free = !before & mask;
            }
        }
        Err(Damaged)
    }

    /// Marks a slot as free; false when it was already.
    pub(crate) fn give_slot_back(&self, slab: usize, class: SizeClass, slot: usize) -> Result<bool, Damaged> {
        let (words, rest) = self.find(slab, class, slot)?;
        let bit = 1 << rest;
        Ok(words[0].fetch_and(!bit, AcqRel) & bit != 0)
    }

    /// Whether a slot is taken.
    pub(crate) fn is_taken(&self, slab: usize, class: SizeClass, slot: usize) -> Result<bool, Damaged> {
        let (words, rest) = self.find(slab, class, slot)?;
        Ok(words[0].load(Acquire) >> rest & 1 != 0)
    }

    /// What is known of a slot, as it was last written.
    pub(crate) fn slot(&self, slab: usize, class: SizeClass, slot: usize) -> Result<Slot, Damaged> {
        let words = self.slot_words(slab, class, slot)?;
        let rest = words[2].load(Relaxed);
        let length_bytes = usize::from(rest as u16);
        if length_bytes == 0 || length_bytes > farmem_page::PAGE_BYTES {
            return Err(Damaged);
        }
        Ok(Slot {
            fingerprint: Fingerprint::from_words([words[0].load(Relaxed), words[1].load(Relaxed)]),
            length_bytes,
            epoch: Epoch((rest >> 32) as u32),
        })
    }

    /// Notes what a slot holds. Only for a writer that is inside the gate.
    pub(crate) fn set_slot(
        &self,
        slab: usize,
        class: SizeClass,
        slot: usize,
        value: Slot,
    ) -> Result<(), Damaged> {
        let words = self.slot_words(slab, class, slot)?;
        let [low, high] = value.fingerprint.to_words();
        words[0].store(low, Relaxed);
        words[1].store(high, Relaxed);
        words[2].store(value.length_bytes as u64 | u64::from(value.epoch.0) << 32, Relaxed);
        Ok(())
    }

    fn slot_words(&self, slab: usize, class: SizeClass, slot: usize) -> Result<&[M::Word], Damaged> {
        let (words, rest) = self.find(slab, class, slot)?;
        let at = 1 + rest * WORDS_PER_SLOT;
        words.get(at..at + WORDS_PER_SLOT).ok_or(Damaged)
    }
}

const _: () =
    assert!(SizeClass::SLOTS_MAX <= farmem_page::SlotIndex::LIMIT as usize, "every slot has a number");
const _: () = assert!(CHUNKS_PER_SLAB <= u8::MAX as usize, "a hint holds any chunk of a slab");
