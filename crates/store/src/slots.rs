//! Slots of a slab: which are taken, and what is known of each. Kept in chunks of 64 slots that a slab claims when it is
//! leased, so that a slab of large slots has little metadata.

use crate::class::SizeClass;
use crate::layout::{CHUNKS_PER_SLAB, SLOTS_PER_CHUNK, WORD_BYTES, WORDS_PER_CHUNK, WORDS_PER_SLOT};
use crate::memory::{Atomic, Memory};
use crate::pool::{Damaged, Epoch, Pool, Slot};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use farmem_codec::Fingerprint;

const CHUNK_TABLE: usize = 4;
const CHUNK_BITS: u32 = 32;
/// How often the bitmap is searched: a slot is free whenever the gate says so, but another writer may snatch it.
const SEARCH_ROUNDS: usize = 8;

impl<M: Memory> Pool<M> {
    /// The number of a slab's chunk; the chunk isn't checked to be the slab's.
    pub(crate) fn chunk(&self, slab: usize, nth: usize) -> Result<usize, Damaged> {
        let word = self.slab_words(slab)?.get(CHUNK_TABLE + nth / 2).ok_or(Damaged)?;
        let chunk = (word.load(Acquire) >> (CHUNK_BITS * (nth % 2) as u32)) as u32 as usize;
        if chunk < self.layout.chunks { Ok(chunk) } else { Err(Damaged) }
    }

    /// Writes a slab's chunk table. Only for who is leasing the slab.
    pub(crate) fn set_chunks(&self, slab: usize, chunks: &[u32]) -> Result<(), Damaged> {
        let words = self.slab_words(slab)?;
        for (at, pair) in chunks.chunks(2).enumerate() {
            let high = pair.get(1).copied().unwrap_or(0);
            let word = words.get(CHUNK_TABLE + at).ok_or(Damaged)?;
            word.store(u64::from(pair[0]) | u64::from(high) << CHUNK_BITS, Release);
        }
        Ok(())
    }

    fn chunk_words(&self, chunk: usize) -> Result<&[M::Word], Damaged> {
        let at = self.layout.chunks_at + chunk * WORDS_PER_CHUNK * WORD_BYTES;
        self.memory.words(at, WORDS_PER_CHUNK).ok_or(Damaged)
    }

    /// Marks all slots of a chunk as free.
    pub(crate) fn clear_chunk(&self, chunk: usize) -> Result<(), Damaged> {
        self.chunk_words(chunk)?[0].store(0, Release);
        Ok(())
    }

    fn chunk_of_slot(&self, slab: usize, slot: usize) -> Result<&[M::Word], Damaged> {
        self.chunk_words(self.chunk(slab, slot / SLOTS_PER_CHUNK)?)
    }

    /// Takes a free slot for a writer that the gate counted. `hint` is where to start; it is moved on.
    pub(crate) fn take_slot(&self, slab: usize, class: SizeClass, hint: &mut u8) -> Result<usize, Damaged> {
        let chunks = class.slots().div_ceil(SLOTS_PER_CHUNK);
        for round in 0..SEARCH_ROUNDS * chunks {
            let nth = (usize::from(*hint) + round) % chunks;
            let words = self.chunk_words(self.chunk(slab, nth)?)?;
            let beyond = SLOTS_PER_CHUNK.saturating_sub(class.slots() - nth * SLOTS_PER_CHUNK);
            let mut free = !words[0].load(Relaxed) & u64::MAX >> beyond;
            while free != 0 {
                let bit = 1 << free.trailing_zeros();
                let before = words[0].fetch_or(bit, AcqRel);
                if before & bit == 0 {
                    *hint = nth as u8;
                    return Ok(nth * SLOTS_PER_CHUNK + free.trailing_zeros() as usize);
                }
                free = !before & u64::MAX >> beyond;
            }
        }
        Err(Damaged)
    }

    /// Marks a slot as free; false when it was already.
    pub(crate) fn give_slot_back(&self, slab: usize, slot: usize) -> Result<bool, Damaged> {
        let bit = 1 << (slot % SLOTS_PER_CHUNK);
        Ok(self.chunk_of_slot(slab, slot)?[0].fetch_and(!bit, AcqRel) & bit != 0)
    }

    /// Whether a slot is taken.
    pub(crate) fn is_taken(&self, slab: usize, slot: usize) -> Result<bool, Damaged> {
        Ok(self.chunk_of_slot(slab, slot)?[0].load(Acquire) >> (slot % SLOTS_PER_CHUNK) & 1 != 0)
    }

    /// What is known of a slot, as it was last written.
    pub(crate) fn slot(&self, slab: usize, slot: usize) -> Result<Slot, Damaged> {
        let words = self.slot_words(slab, slot)?;
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
    pub(crate) fn set_slot(&self, slab: usize, slot: usize, value: Slot) -> Result<(), Damaged> {
        let words = self.slot_words(slab, slot)?;
        let [low, high] = value.fingerprint.to_words();
        words[0].store(low, Relaxed);
        words[1].store(high, Relaxed);
        words[2].store(value.length_bytes as u64 | u64::from(value.epoch.0) << 32, Relaxed);
        Ok(())
    }

    fn slot_words(&self, slab: usize, slot: usize) -> Result<&[M::Word], Damaged> {
        let at = 1 + slot % SLOTS_PER_CHUNK * WORDS_PER_SLOT;
        self.chunk_of_slot(slab, slot)?.get(at..at + WORDS_PER_SLOT).ok_or(Damaged)
    }
}

const _: () =
    assert!(SizeClass::SLOTS_MAX <= farmem_page::SlotIndex::LIMIT as usize, "every slot has a number");
const _: () = assert!(CHUNKS_PER_SLAB <= u8::MAX as usize, "a hint holds any chunk of a slab");
