//! How an owner comes by a slab with room: the one it is filling, one that has holes, or a new one.

use crate::claims::{Claimable, Turn};
use crate::class::SizeClass;
use crate::layout::{CHUNKS_PER_SLAB, Cover, Header, WORD_BYTES};
use crate::memory::{Atomic, Memory};
use crate::pool::{Damaged, OwnerId, Pool, claim_of, slab_of};
use crate::slab::{Gate, Kind};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// A slab is filled again once this part of it is free: below that, searching for the holes costs more than
/// they are worth.
const REFILL_FREE_PART: usize = 8;
/// Slabs with holes that one search looks at, most of them other owners'.
const REFILL_CANDIDATES: usize = 64;
/// Words of slabs with holes, slabs with any room at all, and free slabs that one search looks at. Where none
/// of these will do, the next search goes on behind them: so what it costs doesn't grow with the pool.
const REFILL_WORDS: usize = 512;
const LEFTOVERS: usize = 256;
const FREE_SLABS: usize = 1024;

impl<M: Memory> Pool<M> {
    /// Lets a writer into a slab to store a page of `length_bytes`; false when the gate is shut to it.
    pub(crate) fn enter(&self, slab: usize, owner: OwnerId, class: SizeClass, length_bytes: usize) -> bool {
        let Ok(word) = self.gate(slab) else { return false };
        let mut now = word.load(Relaxed);
        loop {
            let gate = Gate(now);
            if !gate.admits(owner) || gate.class() != Some(class) || !gate.has_room() {
                return false;
            }
            match word.compare_exchange(now, now + Gate::page(length_bytes) + Gate::WRITER, AcqRel, Relaxed) {
                Ok(_) => return true,
                Err(changed) => now = changed,
            }
        }
    }

    /// A slab of `owner` and `class` that the writer has entered; `None` when the pool is full.
    pub(crate) fn enter_any(&self, owner: OwnerId, class: SizeClass, length_bytes: usize) -> Option<usize> {
        let current = self.current(owner, class).ok()?;
        let now = current.load(Acquire);
        if let Some(slab) = slab_of(now)
            && self.enter(slab, owner, class, length_bytes)
        {
            return Some(slab);
        }
        let slab = self
            .enter_with_holes(owner, class, length_bytes)
            .or_else(|| self.enter_new(owner, class, length_bytes))?;
        // Loses to another thread that brought a slab of its own: this one will be found by its holes.
        match current.compare_exchange(now, claim_of(slab), SeqCst, Relaxed) {
            Ok(_) => {
                if let Some(full) = slab_of(now) {
                    self.retire(full, owner);
                }
            }
            Err(_) => self.mark_partial(slab, class),
        }
        Some(slab)
    }

    /// A slab of any class from `class` up that has room, the smallest of the slabs that this search looks
    /// at: for when no frame is free.
    pub(crate) fn enter_leftover(
        &self,
        owner: OwnerId,
        class: SizeClass,
        length_bytes: usize,
    ) -> Option<(usize, SizeClass)> {
        let used = self.slabs_used();
        let start = self.header_value(Header::LeftoverCursor);
        loop {
            let has_room = |slab: usize| {
                let gate = Gate(self.gate(slab).ok()?.load(Relaxed));
                let found = gate.class().filter(|found| found.number() >= class.number())?;
                (gate.admits(owner) && gate.has_room()).then_some((found.number(), slab, found))
            };
            let best =
                Turn::new(0..used, start, LEFTOVERS).filter_map(has_room).min_by_key(|it| (it.0, it.1));
            let Some((_, slab, found)) = best else {
                self.pass(Header::LeftoverCursor, start, LEFTOVERS, used);
                return None;
            };
            // Another thread may have taken the last of its room.
            if self.enter(slab, owner, found, length_bytes) {
                return Some((slab, found));
            }
        }
    }

    /// A search found nothing among so many from `start` on, of `count`: the next one goes on behind.
    pub(crate) fn pass(&self, cursor: Header, start: usize, looked_at: usize, count: usize) {
        if count > looked_at
            && let Ok(cursor) = self.header(cursor)
        {
            // The cursor may be anything: whoever shares the memory can write it.
            let next = start.saturating_add(looked_at);
            cursor.store(if next < count { next as u64 } else { 0 }, Relaxed);
        }
    }

    fn enter_with_holes(&self, owner: OwnerId, class: SizeClass, length_bytes: usize) -> Option<usize> {
        let bitmap = self.partial_words(class);
        let mut looked_at = 0;
        let words = bitmap.len().min(self.slabs_used().div_ceil(64));
        let start = self.header_value(Header::PartialCursor);
        for at in Turn::new(0..words, if words > REFILL_WORDS { start } else { 0 }, REFILL_WORDS) {
            let word = &bitmap[at];
            let mut set = word.load(Relaxed);
            while set != 0 {
                let bit = set.trailing_zeros();
                let slab = at * 64 + bit as usize;
                set &= set - 1;
                looked_at += 1;
                if looked_at > REFILL_CANDIDATES {
                    self.pass(Header::PartialCursor, start, REFILL_WORDS, words);
                    return None;
                }
                let gate = Gate(self.gate(slab).ok()?.load(Relaxed));
                if !gate.is_open() || gate.is_away() || gate.class() != Some(class) {
                    word.fetch_and(!(1 << bit), Relaxed);
                } else if gate.owner() == owner && self.enter(slab, owner, class, length_bytes) {
                    word.fetch_and(!(1 << bit), Relaxed);
                    return Some(slab);
                }
            }
        }
        self.pass(Header::PartialCursor, start, REFILL_WORDS, words);
        None
    }

    fn enter_new(&self, owner: OwnerId, class: SizeClass, length_bytes: usize) -> Option<usize> {
        // There are more slabs than frames may be in use: one that can't be filled is not even begun.
        if !self.is_any_free(Claimable::Frame) || self.is_partition_full() {
            return None;
        }
        let slab = self.claim_slab(owner, class)?;
        match self.furnish(slab, owner, class, length_bytes) {
            Ok(true) => Some(slab),
            _ => {
                self.set_free(slab);
                None
            }
        }
    }

    /// Swaps a free slab to leasing (invariant 1).
    fn claim_slab(&self, owner: OwnerId, class: SizeClass) -> Option<usize> {
        let limit = self.slab_limit();
        let start = self.header_value(Header::SlabCursor).min(limit);
        let claim = |slab: &usize| {
            let Ok(word) = self.state_word(*slab) else { return false };
            let bits = word.load(Relaxed);
            let Some(state) = crate::slab::State::decode(bits) else { return false };
            if state.kind != Kind::Free {
                return false;
            }
            // Before the swap, so that a lease is found even if its owner dies right after it.
            if *slab >= self.slabs_used()
                && let Ok(high) = self.header(Header::SlabHigh)
            {
                high.fetch_max(*slab as u64 + 1, Relaxed);
            }
            let generation = state.generation.wrapping_add(1);
            let leasing = crate::slab::State { kind: Kind::Leasing, class, owner, location: 0, generation };
            word.compare_exchange(bits, leasing.encode(), AcqRel, Relaxed).is_ok()
        };
        let slab = Turn::new(0..limit, start, FREE_SLABS).find(claim).or_else(|| {
            let never_used = self.slabs_used().min(limit);
            Turn::new(never_used..limit, never_used, FREE_SLABS).find(claim)
        });
        let Some(slab) = slab else {
            self.pass(Header::SlabCursor, start, FREE_SLABS, limit);
            return None;
        };
        self.header(Header::SlabCursor).ok()?.store(slab as u64 + 1, Relaxed);
        Some(slab)
    }

    /// Gives a slab that is being leased its frame and chunks and opens its gate, the writer already inside
    /// so that nobody takes the slab away as empty. False, and nothing claimed, when there are not enough.
    fn furnish(
        &self,
        slab: usize,
        owner: OwnerId,
        class: SizeClass,
        length_bytes: usize,
    ) -> Result<bool, Damaged> {
        // Whose it was before, and that the mover gave it back, is over.
        self.gate(slab)?.store(Gate::shut(owner, class).0, Release);
        let Some(frame) = self.claim(Claimable::Frame, slab) else { return Ok(false) };
        let mut chunks = [0u32; CHUNKS_PER_SLAB];
        let cover = Cover::of(class);
        let kind = |nth: usize| if nth < cover.whole { Claimable::Chunk } else { Claimable::SmallChunk };
        for nth in 0..cover.chunks() {
            let Some(chunk) = self.claim(kind(nth), slab) else {
                for (nth, chunk) in chunks[..nth].iter().enumerate() {
                    self.unclaim(kind(nth), *chunk as usize, slab);
                }
                self.unclaim(Claimable::Frame, frame, slab);
                return Ok(false);
            };
            self.clear_chunk((kind(nth), chunk))?;
            chunks[nth] = chunk as u32;
        }
        self.count_frame();
        self.set_chunks(slab, &chunks[..cover.chunks()])?;
        self.sequence(slab)?.store(self.next_sequence(), Relaxed);
        let state = self.state(slab)?;
        self.state_word(slab)?.store(state.at(Kind::Memory, frame).encode(), Release);
        let entered = Gate::open(owner, class).0 + Gate::page(length_bytes) + Gate::WRITER;
        self.gate(slab)?.store(entered, Release);
        Ok(true)
    }

    /// What a slab that `owner` stops filling needs: its place in the order of moves, and a look at whether
    /// it emptied. It may have been given back meanwhile, and be somebody else's.
    fn retire(&self, slab: usize, owner: OwnerId) {
        let (Ok(sequence), Ok(gate)) = (self.sequence(slab), self.gate(slab)) else { return };
        let gate = Gate(gate.load(SeqCst));
        if gate.owner() == owner {
            sequence.store(self.next_sequence(), Relaxed);
            self.after_removal(slab, gate);
        }
    }

    /// Looks after a slab that a page has left: gives it back when it is empty, else lets it be filled again
    /// once it has enough holes. `gate` is the gate after the page left. Only for threads of the gate's
    /// owner, and for the mover where a page is left.
    pub(crate) fn after_removal(&self, slab: usize, gate: Gate) {
        let Some(class) = gate.class() else { return };
        let is_current =
            || self.current(gate.owner(), class).is_ok_and(|word| word.load(SeqCst) == claim_of(slab));
        if gate.pages() == 0 {
            // The slab being filled stays even when it is empty: it is the spare that keeps a page which
            // comes and goes from leasing a slab each time. Away it is of no use as that.
            if gate.is_away() || !is_current() {
                if class == SizeClass::LARGEST && !gate.is_away() && self.has_packer() {
                    // Raw pages come and go with each turn of the packer: their slabs are kept, memory and
                    // all.
                    self.mark_partial(slab, class);
                } else {
                    self.give_back_if_empty(slab, gate.owner());
                }
            }
        } else if !gate.is_away()
            && gate.pages() + class.slots() / REFILL_FREE_PART <= class.slots()
            && !is_current()
        {
            self.mark_partial(slab, class);
        }
    }

    /// The next number in the order in which slabs leave memory. Never
    /// [`UNREADABLE`](crate::raise::UNREADABLE).
    pub(crate) fn next_sequence(&self) -> u64 {
        self.header(Header::Sequence).map_or(1, |word| word.fetch_add(1, Relaxed) + 1)
    }

    fn partial_words(&self, class: SizeClass) -> &[M::Word] {
        let at = self.layout.partial_at + class.number() * self.layout.partial_words * WORD_BYTES;
        self.memory.words(at, self.layout.partial_words).unwrap_or(&[])
    }

    /// Notes that a slab has holes worth filling. A hint: the gate decides.
    pub(crate) fn mark_partial(&self, slab: usize, class: SizeClass) {
        if let Some(word) = self.partial_words(class).get(slab / 64)
            && word.load(Relaxed) >> (slab % 64) & 1 == 0
        {
            word.fetch_or(1 << (slab % 64), Relaxed);
        }
    }
}
