//! Storing pages, new ones and changed ones.

use crate::class::{CLASS_COUNT, SizeClass};
use crate::memory::{Atomic, Memory};
use crate::packing::Packing;
use crate::pool::{Epoch, OwnerId, Pool, Slot};
use crate::slab::{Gate, Kind};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use farmem_codec::{Compressor, ENCODED_MAX_BYTES, Encoded, Fingerprint, uniform};
use farmem_page::{PageBytes, Place, SlabIndex, SlotIndex, SlotPlace};
use farmem_sys::guard::{self, Guard};

/// Why a page can't be stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreError {
    /// No memory is left in the pool: the caller waits until slabs were moved to disk or given back.
    #[error("the pool is full")]
    Full,
}

/// What became of the entry of a page that was written back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Update {
    /// The page is what was stored: its entry stays, nothing was written.
    Clean,
    /// The page was stored in the entry that it had (Canvas §5.1: no allocation, no lock).
    InPlace(Place),
    /// The page was stored elsewhere. The caller frees the old entry once `new` is published.
    Moved {
        /// The new entry.
        new: Place,
    },
}

/// Stores pages for one owner. Owns its scratch memory, so that nothing is allocated; one per thread.
pub struct Writer {
    owner: OwnerId,
    encoder: Encoder,
    hints: Hints,
}

/// Brings pages into the form in which they are stored.
struct Encoder {
    compressor: Compressor,
    encoded: [u8; ENCODED_MAX_BYTES],
    packing: Packing,
}

/// For each class the chunk in which a writer last found a free slot.
#[derive(Debug)]
pub(crate) struct Hints([u8; CLASS_COUNT]);

impl Hints {
    pub(crate) const fn new() -> Self {
        Self([0; CLASS_COUNT])
    }
}

/// A page that may lie in a slot this much larger than it needs stays there rather than move.
const IN_PLACE_WASTE_FACTOR: usize = 2;

/// What a page is stored as.
pub(crate) struct Prepared<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) slot: Slot,
    pub(crate) class: SizeClass,
}

impl Writer {
    /// A writer for a process. `owner` must be below the pool's number of owners.
    pub const fn new(owner: OwnerId) -> Self {
        Self {
            owner,
            encoder: Encoder {
                compressor: Compressor::new(),
                encoded: [0; ENCODED_MAX_BYTES],
                packing: Packing::Now,
            },
            hints: Hints::new(),
        }
    }

    /// From now on pages are packed as `packing` says.
    pub const fn set_packing(&mut self, packing: Packing) {
        self.encoder.packing = packing;
    }

    /// The process that it stores for.
    pub const fn owner(&self) -> OwnerId {
        self.owner
    }

    /// Stores a page that has no entry. `epoch` is the process's present one.
    pub fn store<M: Memory>(
        &mut self,
        pool: &Pool<M>,
        page: &PageBytes,
        epoch: Epoch,
    ) -> Result<Place, StoreError> {
        match slotless(pool, page) {
            Some(place) => Ok(place),
            None => self.store_in_slot(pool, page, pool.fingerprinter.of(page), epoch),
        }
    }

    /// Stores a page whose entry is `old`, if it changed. `frozen` is the epoch that the last fork whose
    /// child still lives has ended, or [`Epoch::NONE`].
    ///
    /// The caller guarantees that nobody reads or frees `old` meanwhile, frozen slots excepted.
    pub fn update<M: Memory>(
        &mut self,
        pool: &Pool<M>,
        old: Place,
        page: &PageBytes,
        epoch: Epoch,
        frozen: Epoch,
    ) -> Result<Update, StoreError> {
        if let Some(new) = slotless(pool, page) {
            return Ok(if new == old { Update::Clean } else { Update::Moved { new } });
        }
        let fingerprint = pool.fingerprinter.of(page);
        if let Place::Slot(at) = old
            && let Some(known) = stored_at(pool, at)
        {
            if known.fingerprint == fingerprint || !guard::stands(Guard::CleanByFingerprint) {
                return Ok(Update::Clean);
            }
            let prepared = self.encoder.prepare(page, fingerprint, epoch);
            if known.epoch > frozen && overwrite(pool, self.owner, at, known, &prepared) {
                return Ok(Update::InPlace(old));
            }
            let new = place(pool, self.owner, &mut self.hints, &prepared)?;
            return Ok(Update::Moved { new });
        }
        Ok(Update::Moved { new: self.store_in_slot(pool, page, fingerprint, epoch)? })
    }

    fn store_in_slot<M: Memory>(
        &mut self,
        pool: &Pool<M>,
        page: &PageBytes,
        fingerprint: Fingerprint,
        epoch: Epoch,
    ) -> Result<Place, StoreError> {
        let prepared = self.encoder.prepare(page, fingerprint, epoch);
        place(pool, self.owner, &mut self.hints, &prepared)
    }
}

/// The place of a page that repeats one word, if it does and the pattern table knows or takes the word.
fn slotless<M: Memory>(pool: &Pool<M>, page: &PageBytes) -> Option<Place> {
    match uniform(page)? {
        0 => Some(Place::Zero),
        word => pool.pattern_index(word).map(Place::Pattern),
    }
}

/// What is stored in a slot, if anything is, and anybody has it still: what was lost with a node counts for
/// nothing.
pub(crate) fn stored_at<M: Memory>(pool: &Pool<M>, at: SlotPlace) -> Option<Slot> {
    let (slab, slot) = (at.slab.get(), at.slot.get());
    let gate = Gate(pool.gate(slab).ok()?.load(Acquire));
    let class = gate.class()?;
    if !gate.is_open() || slot >= class.slots() || !pool.is_taken(slab, class, slot).ok()? {
        return None;
    }
    let state = pool.state(slab).ok()?;
    if state.kind == Kind::Away && !pool.copies(state.location).ok()?.is_any() {
        return None;
    }
    pool.slot(slab, class, slot).ok()
}

impl Encoder {
    fn prepare<'a>(
        &'a mut self,
        page: &'a PageBytes,
        fingerprint: Fingerprint,
        epoch: Epoch,
    ) -> Prepared<'a> {
        let encoded = match self.packing {
            Packing::Now => self.compressor.compress(page, &mut self.encoded),
            Packing::Later | Packing::Never => Encoded::Raw,
        };
        let bytes = match encoded {
            Encoded::Packed(length) => &self.encoded[..length],
            Encoded::Raw => page.as_slice(),
        };
        let class = SizeClass::fitting(bytes.len()).unwrap_or(SizeClass::LARGEST);
        Prepared { bytes, slot: Slot { fingerprint, length_bytes: bytes.len(), epoch }, class }
    }
}

/// Stores in a free slot.
pub(crate) fn place<M: Memory>(
    pool: &Pool<M>,
    owner: OwnerId,
    hints: &mut Hints,
    prepared: &Prepared<'_>,
) -> Result<Place, StoreError> {
    let length_bytes = prepared.slot.length_bytes;
    let (slab, class) = pool
        .enter_any(owner, prepared.class, length_bytes)
        .map(|slab| (slab, prepared.class))
        .or_else(|| pool.enter_leftover(owner, prepared.class, length_bytes))
        .ok_or(StoreError::Full)?;
    let stored = pool.take_slot(slab, class, &mut hints.0[class.number()]).and_then(|slot| {
        if write(pool, slab, slot, class, prepared) {
            Ok(slot)
        } else {
            pool.give_slot_back(slab, class, slot).and(Err(crate::pool::Damaged))
        }
    });
    let numbers =
        stored.ok().and_then(|slot| Some((SlabIndex::new(slab as u32)?, SlotIndex::new(slot as u16)?)));
    let Ok(gate) = pool.gate(slab) else { return Err(StoreError::Full) };
    match numbers {
        Some((slab, slot)) => {
            gate.fetch_sub(Gate::WRITER, Release);
            Ok(Place::Slot(SlotPlace { slab, slot }))
        }
        None => {
            let counted = Gate::WRITER + Gate::page(length_bytes);
            let before = gate.fetch_sub(counted, SeqCst);
            pool.after_removal(slab, Gate(before.wrapping_sub(counted)));
            Err(StoreError::Full)
        }
    }
}

/// Stores in the slot that the page has already, if that may be.
fn overwrite<M: Memory>(
    pool: &Pool<M>,
    owner: OwnerId,
    at: SlotPlace,
    known: Slot,
    prepared: &Prepared<'_>,
) -> bool {
    let (slab, slot) = (at.slab.get(), at.slot.get());
    let Ok(word) = pool.gate(slab) else { return false };
    let mut now = word.load(Relaxed);
    let class = loop {
        let gate = Gate(now);
        let Some(class) = gate.class() else { return false };
        let fits = prepared.class <= class
            && class.slot_bytes() <= prepared.class.slot_bytes() * IN_PLACE_WASTE_FACTOR;
        if !gate.admits(owner) || !fits {
            return false;
        }
        match word.compare_exchange(now, now + Gate::WRITER, AcqRel, Relaxed) {
            Ok(_) => break class,
            Err(changed) => now = changed,
        }
    };
    let written =
        pool.is_taken(slab, class, slot).unwrap_or(false) && write(pool, slab, slot, class, prepared);
    if written {
        let (new, old) = (prepared.slot.length_bytes as u64, known.length_bytes as u64);
        word.fetch_add(new.wrapping_sub(old), Relaxed);
        if let (Ok(sequence), Ok(last)) = (pool.sequence(slab), pool.header(crate::layout::Header::Sequence))
        {
            sequence.store(last.load(Relaxed), Relaxed);
        }
    }
    word.fetch_sub(Gate::WRITER, Release);
    written
}

/// Writes a slot's content and what is known of it. Only for a writer that is inside the gate, which is why
/// the slab is in memory and stays in its frame.
fn write<M: Memory>(
    pool: &Pool<M>,
    slab: usize,
    slot: usize,
    class: SizeClass,
    prepared: &Prepared<'_>,
) -> bool {
    let Ok(state) = pool.state(slab) else { return false };
    if state.kind != Kind::Memory || state.location >= pool.layout.frames || state.class != class {
        return false;
    }
    let at = pool.layout.frame_at(state.location) + slot * class.slot_bytes();
    pool.set_slot(slab, class, slot, prepared.slot).is_ok() && pool.memory.copy_in(at, prepared.bytes)
}
