//! Packing behind the program's back: pages that left in a hurry are stored raw, and packed by another
//! process.
//!
//! Packing takes longer than the rest of a page's way out. A process that writes all over its memory would
//! wait for it at every fault, on the processor where the fault happens, while another processor may be idle.
//! So a writer may store a page raw ([`Packing::Later`]) and ask for it to be packed. The supervisor's packer
//! reads it, stores it packed elsewhere and says where; the owner then gives the page its new entry and frees
//! the raw one. What stays unpacked because nobody packs is as good an entry as any other.
//!
//! Each owner has one queue, a ring with three cursors that only grow: `settled` ≤ `packed` ≤ `asked` ≤
//! `settled` + [`QUEUE_LENGTH`]. Invariants:
//! 1. `asked` and `settled` are moved by the owner, each by one thread at a time; `packed` by the packer
//!    alone.
//! 2. A request between `packed` and `asked` is the packer's, one between `settled` and `packed` the owner's.
//! 3. A packed copy belongs to the queue until its request is settled: then it is a page's entry, or free.

use crate::class::SizeClass;
use crate::disk::NullFile;
use crate::layout::{QUEUE_WORDS, WORD_BYTES};
use crate::memory::{Atomic, Memory};
use crate::pool::{Damaged, OwnerId, Pool, Slot, claim_of};
use crate::reader::Reader;
use crate::slab::Gate;
use crate::writer::{Hints, Prepared, place, stored_at};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use farmem_codec::{Compressor, ENCODED_MAX_BYTES, Encoded};
use farmem_page::{PAGE_BYTES, PageBytes, PageIndex, Place};

/// Requests that a queue holds: 4 MiB of raw pages.
pub(crate) const QUEUE_LENGTH: usize = 1024;
/// Words before the requests: each cursor on a cache line of its own.
pub(crate) const QUEUE_HEAD_WORDS: usize = 24;
/// Words of a request: page, raw entry, packed entry.
pub(crate) const WORDS_PER_REQUEST: usize = 3;

/// When a page is packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Packing {
    /// Before it is stored.
    #[default]
    Now,
    /// Not at all: the caller asks for it afterwards, with [`Pool::ask_to_pack`].
    Later,
    /// Not at all.
    Never,
}

/// What came of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packed {
    /// The page, as the request named it.
    pub page: PageIndex,
    /// Its raw entry, as the request named it.
    pub raw: Place,
    /// The packed copy; `None` when there is none, because the page doesn't get smaller or has gone
    /// meanwhile.
    pub packed: Option<Place>,
}

#[derive(Clone, Copy)]
enum Cursor {
    Asked = 0,
    Packed = 8,
    Settled = 16,
}

/// Packs pages for all owners. Owns its scratch memory; one per pool.
pub struct Packer {
    reader: Reader<NullFile>,
    compressor: Compressor,
    encoded: [u8; ENCODED_MAX_BYTES],
    hints: Hints,
    page: PageBytes,
}

impl Packer {
    /// A packer with its scratch memory.
    pub const fn new() -> Self {
        Self {
            reader: Reader::new(NullFile),
            compressor: Compressor::new(),
            encoded: [0; ENCODED_MAX_BYTES],
            hints: Hints::new(),
            page: [0; PAGE_BYTES],
        }
    }

    /// Deals with the oldest request of `owner`; false when there is none. Not while the owner is being
    /// released.
    pub fn step<M: Memory>(&mut self, pool: &Pool<M>, owner: OwnerId) -> bool {
        let Ok(queue) = pool.queue(owner) else { return false };
        let (asked, at) = (queue.cursor(Cursor::Asked), queue.cursor(Cursor::Packed));
        if at >= asked || asked - at > QUEUE_LENGTH as u64 {
            return false;
        }
        let request = queue.request(at);
        let packed = Place::decode(request[1].load(Relaxed)).and_then(|raw| self.pack(pool, owner, raw));
        request[2].store(packed.map_or(0, Place::encode), Relaxed);
        queue.advance(Cursor::Packed, at);
        true
    }

    /// Stores a packed copy of a raw page. It is of the raw one's epoch: a fork may freeze it too long, never
    /// too short.
    fn pack<M: Memory>(&mut self, pool: &Pool<M>, owner: OwnerId, raw: Place) -> Option<Place> {
        let Place::Slot(at) = raw else { return None };
        let known = stored_at(pool, at).filter(|slot| slot.length_bytes == PAGE_BYTES)?;
        self.reader.load(pool, raw, &mut self.page).ok()?;
        let Encoded::Packed(length_bytes) = self.compressor.compress(&self.page, &mut self.encoded) else {
            return None;
        };
        let class = SizeClass::fitting(length_bytes).filter(|class| *class < SizeClass::LARGEST)?;
        // The page may have been written again since `known` was read.
        let fingerprint = pool.fingerprinter.of(&self.page);
        let slot = Slot { fingerprint, length_bytes, epoch: known.epoch };
        let prepared = Prepared { bytes: &self.encoded[..length_bytes], slot, class };
        place(pool, owner, &mut self.hints, &prepared).ok()
    }
}

impl Default for Packer {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Memory> Pool<M> {
    /// Says that somebody packs for others. Before that, and without it, nobody should store raw.
    pub fn announce_packer(&self) {
        if let Ok(word) = self.header(crate::layout::Header::Packer) {
            word.store(1, Release);
        }
    }

    pub(crate) fn has_packer(&self) -> bool {
        self.header_value(crate::layout::Header::Packer) != 0
    }

    /// From now on pages are to be stored as they are: those who store them ask with [`Pool::is_raw`].
    pub fn store_raw(&self) {
        if let Ok(word) = self.header(crate::layout::Header::Raw) {
            word.store(1, Release);
        }
    }

    /// Whether pages are to be stored as they are.
    pub fn is_raw(&self) -> bool {
        self.header_value(crate::layout::Header::Raw) != 0
    }

    /// From now on a page that leaves is to get a new entry, as one that the kernel swaps does, though it has
    /// kept the old one: those who store ask with [`Pool::is_renewing`]. To compare with.
    pub fn renew_entries(&self) {
        if let Ok(word) = self.header(crate::layout::Header::Renewing) {
            word.store(1, Release);
        }
    }

    /// Whether pages are to get new entries.
    pub fn is_renewing(&self) -> bool {
        self.header_value(crate::layout::Header::Renewing) != 0
    }

    /// Gives back the slabs that are kept empty for raw pages. For the packer, when it has had nothing to do
    /// for a while.
    pub fn give_back_spare(&self) {
        for slab in 0..self.slabs_used() {
            let Ok(gate) = self.gate(slab) else { return };
            let gate = Gate(gate.load(Acquire));
            if gate.class() == Some(SizeClass::LARGEST)
                && gate.pages() == 0
                && !self
                    .current(gate.owner(), SizeClass::LARGEST)
                    .is_ok_and(|word| word.load(Acquire) == claim_of(slab))
            {
                self.take_back_if_empty(slab);
            }
        }
    }

    /// Whether a page that `owner` stores raw now would be packed later.
    pub fn is_packing_later(&self, owner: OwnerId) -> bool {
        self.has_packer()
            && self.queue(owner).is_ok_and(|queue| {
                let (asked, settled) = (queue.cursor(Cursor::Asked), queue.cursor(Cursor::Settled));
                asked.wrapping_sub(settled) < QUEUE_LENGTH as u64
            })
    }

    /// Asks for `page`, stored raw at `raw`, to be packed. False when the queue is full. One thread of the
    /// owner at a time.
    pub fn ask_to_pack(&self, owner: OwnerId, page: PageIndex, raw: Place) -> bool {
        let Ok(queue) = self.queue(owner) else { return false };
        let (asked, settled) = (queue.cursor(Cursor::Asked), queue.cursor(Cursor::Settled));
        if asked.wrapping_sub(settled) >= QUEUE_LENGTH as u64 {
            return false;
        }
        let request = queue.request(asked);
        for (word, value) in request.iter().zip([page.get(), raw.encode(), 0]) {
            word.store(value, Relaxed);
        }
        queue.advance(Cursor::Asked, asked);
        true
    }

    /// The oldest request that has been dealt with and not settled. One thread of the owner at a time.
    pub fn next_packed(&self, owner: OwnerId) -> Option<Packed> {
        let queue = self.queue(owner).ok()?;
        let (packed, at) = (queue.cursor(Cursor::Packed), queue.cursor(Cursor::Settled));
        if at >= packed || packed - at > QUEUE_LENGTH as u64 {
            return None;
        }
        let request = queue.request(at);
        let [page, raw, packed] = [0, 1, 2].map(|word: usize| request[word].load(Relaxed));
        Some(Packed {
            page: PageIndex::new(page),
            raw: Place::decode(raw).unwrap_or(Place::Lost),
            packed: Place::decode(packed),
        })
    }

    /// Takes the request that [`Pool::next_packed`] shows off the queue.
    pub fn settle_packed(&self, owner: OwnerId) {
        if let Ok(queue) = self.queue(owner) {
            queue.advance(Cursor::Settled, queue.cursor(Cursor::Settled));
        }
    }

    /// Whether two entries hold the same page. The caller guarantees that nobody changes either meanwhile.
    pub fn is_same(&self, one: Place, other: Place) -> bool {
        let fingerprint = |place| match place {
            Place::Slot(at) => stored_at(self, at).map(|slot| slot.fingerprint),
            _ => None,
        };
        fingerprint(one).is_some_and(|one| fingerprint(other) == Some(one))
    }

    /// Forgets what a dead owner has asked for. Its slots are freed with the rest.
    pub(crate) fn clear_queue(&self, owner: OwnerId) {
        if let Ok(queue) = self.queue(owner) {
            for cursor in [Cursor::Asked, Cursor::Packed, Cursor::Settled] {
                queue.words[cursor as usize].store(0, Release);
            }
        }
    }

    fn queue(&self, owner: OwnerId) -> Result<Queue<'_, M::Word>, Damaged> {
        if usize::from(owner.0) >= self.layout.owners {
            return Err(Damaged);
        }
        let at = self.layout.queues_at + usize::from(owner.0) * QUEUE_WORDS * WORD_BYTES;
        Ok(Queue { words: self.memory.words(at, QUEUE_WORDS).ok_or(Damaged)? })
    }
}

struct Queue<'a, W> {
    words: &'a [W],
}

impl<'a, W: Atomic> Queue<'a, W> {
    fn cursor(&self, cursor: Cursor) -> u64 {
        self.words[cursor as usize].load(Acquire)
    }

    /// The words of the request at a cursor's value: any value names some request.
    fn request(&self, at: u64) -> &'a [W] {
        let start = QUEUE_HEAD_WORDS + (at % QUEUE_LENGTH as u64) as usize * WORDS_PER_REQUEST;
        &self.words[start..start + WORDS_PER_REQUEST]
    }

    /// Publishes the request at `from` to whoever comes next.
    fn advance(&self, cursor: Cursor, from: u64) {
        self.words[cursor as usize].store(from + 1, Release);
    }
}
