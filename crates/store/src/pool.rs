//! The pool as a whole: made once, attached by every process.

use crate::claims::Claimable;
use crate::class::{CLASS_COUNT, SLAB_BYTES, SizeClass};
use crate::layout::{
    Counts, Header, Layout, MAGIC, PoolConfig, PoolConfigError, USE_BUCKETS, VERSION, WORD_BYTES,
    WORDS_PER_SLAB, slabs_in,
};
use crate::memory::{Atomic, Memory};
use crate::slab::{Gate, Kind, State};
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use farmem_codec::{Fingerprint, Fingerprinter};
use farmem_page::{ByteCount, Place, SlabIndex, SlotPlace};

/// A process that leases slabs. Numbers are given out by the supervisor, which reuses one only after
/// [`Pool::release_owner`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct OwnerId(pub u16);

/// The span between two forks of a process, counted from [`Epoch::FIRST`]; each fork ends one and starts the
/// next. A slot remembers the epoch it was stored in. All that was stored up to the epoch which a fork ended
/// may be read by that fork's child: while the child lives such slots are *frozen*, and neither change nor
/// go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Epoch(pub u32);

/// The compressed pool of one application; see the crate's text. Shared freely between threads.
pub struct Pool<M: Memory> {
    pub(crate) memory: M,
    pub(crate) layout: Layout,
    pub(crate) fingerprinter: Fingerprinter,
}

/// Why shared memory holds no pool that can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AttachError {
    /// The configuration makes no sense.
    #[error(transparent)]
    Config(#[from] PoolConfigError),
    /// The memory is smaller than the pool.
    #[error("the shared memory is smaller than the pool in it")]
    TooShort,
    /// There is no pool in the memory, or one of another version of Farmem.
    #[error("the shared memory holds no pool of this version")]
    Foreign,
}

/// Why a limit can't be changed to what is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LimitError {
    /// It is below one slab.
    #[error("a pool needs at least {SLAB_BYTES} bytes")]
    TooSmall,
    /// There is no memory set aside for it.
    #[error("this pool can have {} MiB at most", most.get() >> 20)]
    TooLarge {
        /// What it can be raised to.
        most: ByteCount,
    },
}

/// What became of an entry that its page needs no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreeOutcome {
    /// The slot is free.
    Freed,
    /// A forked child may still read it: free it again later.
    Frozen,
    /// It belongs to another process, which will free it.
    Foreign,
    /// The place takes no slot, or none that is in use.
    NoSlot,
}

impl Epoch {
    /// Before any epoch: no slot has it. As `frozen` it says that no forked child lives.
    pub const NONE: Self = Self(0);
    /// The epoch that the first fork ends.
    pub const FIRST: Self = Self(1);
    /// The epoch that starts when this one is ended by a fork.
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// What is known of a slot.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) length_bytes: usize,
    pub(crate) epoch: Epoch,
}

/// Stands for a table index or a word that a peer damaged: the operation fails, nothing else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Damaged;

impl<M: Memory> Pool<M> {
    /// Makes an empty pool in memory that is all zeros and has at least [`PoolConfig::memory_bytes`].
    pub fn create(memory: M, config: &PoolConfig) -> Result<Self, AttachError> {
        let layout = Layout::new(config)?;
        if memory.length_bytes() < layout.length_bytes {
            return Err(AttachError::TooShort);
        }
        let pool = Self { memory, layout, fingerprinter: Fingerprinter::new(config.seed) };
        for (word, value) in [
            (Header::Version, VERSION),
            (Header::Frames, layout.frames as u64),
            (Header::Blocks, layout.blocks as u64),
            (Header::Owners, layout.owners as u64),
            (Header::DiskBlocks, layout.disk_blocks as u64),
            (Header::Lanes, layout.lanes as u64),
            (Header::Entries, layout.entries as u64),
            (Header::NodeBlocks, slabs_in(config.nodes.alone) as u64),
            (Header::Seed, config.seed),
            (Header::Classes, CLASS_COUNT as u64),
            (Header::Length, layout.length_bytes as u64),
            (Header::FrameLimit, slabs_in(config.limit) as u64),
            (Header::SlabLimit, layout.slabs as u64),
            // Last, so that a pool is only found once it is whole.
            (Header::Magic, MAGIC),
        ] {
            pool.header(word).map_err(|Damaged| AttachError::TooShort)?.store(value, SeqCst);
        }
        Ok(pool)
    }

    /// Attaches the pool that another process made.
    pub fn attach(memory: M) -> Result<Self, AttachError> {
        let word = |word: Header| {
            let words = memory.words(word as usize * WORD_BYTES, 1).ok_or(AttachError::TooShort)?;
            Ok::<u64, AttachError>(words[0].load(Acquire))
        };
        let (magic, version, classes) =
            (word(Header::Magic)?, word(Header::Version)?, word(Header::Classes)?);
        if (magic, version, classes) != (MAGIC, VERSION, CLASS_COUNT as u64) {
            return Err(AttachError::Foreign);
        }
        let count = |which| usize::try_from(word(which)?).map_err(|_| AttachError::Foreign);
        let layout = Layout::of(&Counts {
            frames: count(Header::Frames)?,
            blocks: count(Header::Blocks)?,
            disk_blocks: count(Header::DiskBlocks)?,
            owners: count(Header::Owners)?,
            lanes: count(Header::Lanes)?,
            entries: count(Header::Entries)?,
        })?;
        if count(Header::Length)? != layout.length_bytes {
            return Err(AttachError::Foreign);
        }
        if memory.length_bytes() < layout.length_bytes {
            return Err(AttachError::TooShort);
        }
        let fingerprinter = Fingerprinter::new(word(Header::Seed)?);
        Ok(Self { memory, layout, fingerprinter })
    }

    /// Changes the limit of the pool's memory, rounded down to whole slabs. From then on no more is taken;
    /// what is in use above a lower limit stays until it is freed or leaves memory.
    ///
    /// # Errors
    /// The pool was not made for so much, or for so little.
    pub fn set_limit(&self, limit: ByteCount) -> Result<(), LimitError> {
        let frames = slabs_in(limit);
        if frames == 0 {
            return Err(LimitError::TooSmall);
        }
        if frames > self.layout.frames {
            return Err(LimitError::TooLarge { most: self.capacity() });
        }
        if let Ok(word) = self.header(Header::FrameLimit) {
            word.store(frames as u64, SeqCst);
        }
        Ok(())
    }

    /// Changes what may be stored in memory and away together, rounded down to whole slabs; more than there
    /// is means all of it. What is in use above a lower limit stays until it is freed.
    ///
    /// # Errors
    /// It is below one slab.
    pub fn set_partition(&self, partition: ByteCount) -> Result<(), LimitError> {
        let slabs = slabs_in(partition).min(self.layout.slabs);
        if slabs == 0 {
            return Err(LimitError::TooSmall);
        }
        if let Ok(word) = self.header(Header::SlabLimit) {
            word.store(slabs as u64, SeqCst);
        }
        Ok(())
    }

    /// Changes what may lie on nodes without a copy on disk, rounded down to whole slabs; more than the pool
    /// was made for means all of that. What lies there above a lower limit stays until it is freed.
    pub fn set_node_limit(&self, limit: ByteCount) {
        if let Ok(word) = self.header(Header::NodeBlocks) {
            word.store(slabs_in(limit).min(self.layout.blocks - self.layout.disk_blocks) as u64, SeqCst);
        }
    }

    /// Blocks that may be in use, those of the disk among them.
    pub(crate) fn block_limit(&self) -> usize {
        self.header_value(Header::NodeBlocks).saturating_add(self.layout.disk_blocks).min(self.layout.blocks)
    }

    /// Slabs that may be in use.
    pub(crate) fn slab_limit(&self) -> usize {
        self.header_value(Header::SlabLimit).min(self.layout.frames + self.block_limit())
    }

    /// Whether so many slabs are in use as may be. Below the limit the numbers of slabs see to that; they are
    /// counted only after it was lowered.
    pub(crate) fn is_partition_full(&self) -> bool {
        let (used, limit) = (self.slabs_used(), self.slab_limit());
        let is_in_use = |slab: &usize| self.state(*slab).is_ok_and(|state| state.kind != Kind::Free);
        used > limit && (0..used).filter(is_in_use).count() >= limit
    }

    /// What the limit can be raised to.
    pub fn capacity(&self) -> ByteCount {
        ByteCount::new((self.layout.frames * SLAB_BYTES) as u64)
    }

    /// Slabs in memory, full or not.
    pub fn slabs_in_memory(&self) -> usize {
        self.claimed(Claimable::Frame)
    }

    /// Slabs that are away, and how many more could be. Takes about a microsecond for every thousand that
    /// were ever away at a time.
    pub fn away_slabs(&self) -> (usize, usize) {
        let used = self.claimed(Claimable::Block);
        (used, self.block_limit().saturating_sub(used))
    }

    /// Frames that may be in use.
    pub(crate) fn frame_limit(&self) -> usize {
        self.header_value(Header::FrameLimit).min(self.layout.frames)
    }

    /// Hints that the page at `place` is about to be read: what is stored begins to come into the processor's
    /// cache.
    pub fn prefetch(&self, place: Place) {
        let Place::Slot(at) = place else { return };
        let (slab, slot) = (at.slab.get(), at.slot.get());
        let Ok(state) = self.state(slab) else { return };
        if state.kind != Kind::Memory || slot >= state.class.slots() || state.location >= self.layout.frames {
            return;
        }
        if let Ok(known) = self.slot(slab, state.class, slot) {
            let start = self.layout.frame_at(state.location) + slot * state.class.slot_bytes();
            self.memory.prefetch(start, known.length_bytes);
        }
    }

    /// The bytes that the page at `place` takes, compressed; `None` where it takes no room of its own, or
    /// nothing is known of it. For figures: the entry may change at any moment.
    pub fn stored_bytes(&self, place: Place) -> Option<u64> {
        let Place::Slot(at) = place else { return None };
        let state = self.state(at.slab.get()).ok()?;
        if at.slot.get() >= state.class.slots() {
            return None;
        }
        let slot = self.slot(at.slab.get(), state.class, at.slot.get()).ok()?;
        Some(slot.length_bytes.min(state.class.slot_bytes()) as u64)
    }

    /// The memory that the pool lies in.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Frees the entry of a page that `owner` no longer needs. `frozen` is the epoch that the last fork whose
    /// child still lives has ended, or [`Epoch::NONE`]. The slab is given back when it becomes empty and
    /// isn't the one that is being filled; that punches a hole, which takes some ten microseconds.
    ///
    /// The caller guarantees that the entry is reachable from no page word any more.
    pub fn free(&self, place: Place, owner: OwnerId, frozen: Epoch) -> FreeOutcome {
        let (at, class, slot) = match self.own_slot(place, owner, frozen) {
            Ok(found) => found,
            Err(refused) => return refused,
        };
        let slab = at.slab.get();
        let Ok(gate) = self.gate(slab) else { return FreeOutcome::NoSlot };
        match self.give_slot_back(slab, class, at.slot.get()) {
            Ok(true) => {
                let before = Gate(gate.fetch_sub(Gate::page(slot.length_bytes), SeqCst));
                self.after_removal(slab, Gate(before.0.wrapping_sub(Gate::page(slot.length_bytes))));
                FreeOutcome::Freed
            }
            _ => FreeOutcome::NoSlot,
        }
    }

    /// Whether [`Pool::free`] would free the entry now.
    pub fn is_freeable(&self, place: Place, owner: OwnerId, frozen: Epoch) -> bool {
        self.own_slot(place, owner, frozen).is_ok()
    }

    /// The slot of an entry that `owner` may free; else what hinders it.
    fn own_slot(
        &self,
        place: Place,
        owner: OwnerId,
        frozen: Epoch,
    ) -> Result<(SlotPlace, SizeClass, Slot), FreeOutcome> {
        let Place::Slot(at) = place else { return Err(FreeOutcome::NoSlot) };
        let slab = at.slab.get();
        let gate = Gate(self.gate(slab).map_err(|Damaged| FreeOutcome::NoSlot)?.load(Acquire));
        let class = gate.class().ok_or(FreeOutcome::NoSlot)?;
        if !gate.is_open() || at.slot.get() >= class.slots() {
            return Err(FreeOutcome::NoSlot);
        }
        if gate.owner() != owner {
            return Err(FreeOutcome::Foreign);
        }
        let slot = self.slot(slab, class, at.slot.get()).map_err(|Damaged| FreeOutcome::NoSlot)?;
        if slot.epoch <= frozen {
            return Err(FreeOutcome::Frozen);
        }
        Ok((at, class, slot))
    }

    pub(crate) fn word(&self, offset_bytes: usize) -> Result<&M::Word, Damaged> {
        self.memory.words(offset_bytes, 1).and_then(<[_]>::first).ok_or(Damaged)
    }

    pub(crate) fn header(&self, word: Header) -> Result<&M::Word, Damaged> {
        self.word(word as usize * WORD_BYTES)
    }

    /// A header word's value; a hint, so zero will do where it can't be had.
    pub(crate) fn header_value(&self, word: Header) -> usize {
        self.header(word).map_or(0, |word| word.load(Relaxed) as usize)
    }

    /// Counts a page of a node that was used, by how long before that it was asked for ahead.
    pub fn note_use(&self, bucket: usize) {
        if let Some(word) = self.use_words().and_then(|words| words.get(bucket)) {
            word.fetch_add(1, Relaxed);
        }
    }

    /// What was counted so.
    pub fn uses(&self) -> [u64; USE_BUCKETS] {
        let words = self.use_words();
        core::array::from_fn(|bucket| words.map_or(0, |words| words[bucket].load(Relaxed)))
    }

    fn use_words(&self) -> Option<&[M::Word]> {
        self.memory.words(Header::Uses as usize * WORD_BYTES, USE_BUCKETS)
    }

    /// Counts one more.
    pub(crate) fn count(&self, what: Header) {
        if let Ok(word) = self.header(what) {
            word.fetch_add(1, Relaxed);
        }
    }

    /// The words of a slab: state, gate, sequence, reads while it was away, chunk numbers.
    pub(crate) fn slab_words(&self, slab: usize) -> Result<&[M::Word], Damaged> {
        if slab >= self.layout.slabs {
            return Err(Damaged);
        }
        let at = self.layout.slabs_at + slab * WORDS_PER_SLAB * WORD_BYTES;
        self.memory.words(at, WORDS_PER_SLAB).ok_or(Damaged)
    }

    pub(crate) fn state_word(&self, slab: usize) -> Result<&M::Word, Damaged> {
        Ok(&self.slab_words(slab)?[0])
    }

    pub(crate) fn state(&self, slab: usize) -> Result<State, Damaged> {
        State::decode(self.state_word(slab)?.load(Acquire)).ok_or(Damaged)
    }

    pub(crate) fn gate(&self, slab: usize) -> Result<&M::Word, Damaged> {
        Ok(&self.slab_words(slab)?[1])
    }

    pub(crate) fn sequence(&self, slab: usize) -> Result<&M::Word, Damaged> {
        Ok(&self.slab_words(slab)?[2])
    }

    /// The slab that `owner` fills at present with pages of a class, as its number plus one; zero for none.
    pub(crate) fn current(&self, owner: OwnerId, class: SizeClass) -> Result<&M::Word, Damaged> {
        if usize::from(owner.0) >= self.layout.owners {
            return Err(Damaged);
        }
        let index = usize::from(owner.0) * CLASS_COUNT + class.number();
        self.word(self.layout.owners_at + index * WORD_BYTES)
    }

    /// Slabs that were ever leased: no slab at or above this number is in use.
    pub(crate) fn slabs_used(&self) -> usize {
        self.header_value(Header::SlabHigh).min(self.layout.slabs)
    }
}

/// The slab number that a claim or a `current` word names.
pub(crate) fn slab_of(claim: u64) -> Option<usize> {
    usize::try_from(claim.checked_sub(1)?).ok().filter(|slab| *slab < SlabIndex::LIMIT as usize)
}

/// The inverse of [`slab_of`].
pub(crate) const fn claim_of(slab: usize) -> u64 {
    slab as u64 + 1
}
