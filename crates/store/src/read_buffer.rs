//! The read buffer (COMEX §3.3.5, §4.4): what one read brought from a node, the page that was wanted and its
//! neighbours, until the least recently used of them make room. All processes of the application share it.
//!
//! An entry holds up to 16 pages of one block, as they lie there. Its tag says which ones, and of which
//! content of the block. The thread that fills an entry takes its tag away first and sets the new one last; a
//! reader looks at the tag before and after. Fingerprints are checked as for any other source.

use crate::calls::{Answer, Call};
use crate::layout::{Header, WORD_BYTES};
use crate::memory::{Atomic, Memory};
use crate::pool::{Damaged, OwnerId, Pool};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::fence;
use farmem_page::PAGE_BYTES;

/// Pages of an entry.
pub const ENTRY_PAGES: usize = 16;
/// Bytes of an entry.
pub(crate) const ENTRY_BYTES: usize = ENTRY_PAGES * PAGE_BYTES;
/// Words of an entry: tag, what was used of it and for which thread it was fetched, when it was last used.
pub(crate) const WORDS_PER_ENTRY: usize = 3;

const EMPTY: u64 = 0;
/// The tag while an entry is filled. The highest bit says that a tag names pages; this has not got it.
const FILLING: u64 = 1;
const TAG: u64 = 1 << 63;
const OWNER_SHIFT: u32 = ENTRY_PAGES as u32;

/// The tag of these pages. A call has the same bits, but for the highest.
const fn tag_of(call: &Call) -> u64 {
    Call { is_retry: false, ..*call }.encode() | TAG
}

/// The pages of a tag.
fn pages_of(tag: u64) -> Option<Call> {
    (tag & TAG != 0).then(|| Call::decode(tag & !TAG))
}

/// An entry that is being filled.
#[derive(Debug)]
pub struct Filling {
    entry: usize,
    /// What became of the pages that had to go.
    pub displaced: Option<Displaced>,
}

/// How useful an entry was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Displaced {
    /// The process for which it was fetched.
    pub owner: OwnerId,
    /// Pages that were fetched.
    pub fetched: usize,
    /// Of them, pages that somebody read.
    pub used: usize,
}

impl<M: Memory> Pool<M> {
    fn entry_words(&self, entry: usize) -> Result<&[M::Word], Damaged> {
        if entry >= self.layout.entries {
            return Err(Damaged);
        }
        let at = self.layout.entries_at + entry * WORDS_PER_ENTRY * WORD_BYTES;
        self.memory.words(at, WORDS_PER_ENTRY).ok_or(Damaged)
    }

    /// The entry that has those pages, if one has.
    pub fn buffered(&self, wanted: &Call) -> Option<u16> {
        let words = self.memory.words(self.layout.entries_at, self.layout.entries * WORDS_PER_ENTRY)?;
        let covers =
            |words: &[M::Word]| pages_of(words[0].load(Acquire)).is_some_and(|held| held.covers(wanted));
        words.chunks_exact(WORDS_PER_ENTRY).position(covers).map(|entry| entry as u16)
    }

    /// Copies pages out of an entry. False when it hasn't got them, or lost them meanwhile.
    pub(crate) fn copy_buffered(&self, entry: u16, wanted: &Call, out: &mut [u8]) -> bool {
        let entry = usize::from(entry);
        let Ok([tag, used, last]) = self.entry_words(entry) else { return false };
        let before = tag.load(Acquire);
        let Some(held) = pages_of(before).filter(|held| held.covers(wanted)) else { return false };
        let nth = wanted.first - held.first;
        if out.len() != wanted.count * PAGE_BYTES
            || !self.memory.copy_out(self.layout.buffer_at + entry * ENTRY_BYTES + nth * PAGE_BYTES, out)
        {
            return false;
        }
        fence(Acquire);
        if tag.load(Relaxed) != before {
            return false;
        }
        // Hints for the thread that fills: an entry that changes just now gets a mark that belongs to the one
        // before.
        used.fetch_or(((1 << wanted.count) - 1) << nth, Relaxed);
        if let Ok(time) = self.header(Header::BufferTime) {
            last.store(time.load(Relaxed), Relaxed);
        }
        true
    }

    /// Takes the entry that was not used for longest; `None` when all are being filled. For the carrier.
    pub fn begin_fill(&self) -> Option<Filling> {
        let words = self.memory.words(self.layout.entries_at, self.layout.entries * WORDS_PER_ENTRY)?;
        loop {
            let candidates = words.chunks_exact(WORDS_PER_ENTRY).enumerate();
            let (entry, tag, _) = candidates
                .map(|(entry, words)| (entry, words[0].load(Relaxed), words[2].load(Relaxed)))
                .filter(|(_, tag, _)| *tag != FILLING)
                .min_by_key(|(_, tag, last)| if *tag == EMPTY { 0 } else { *last + 1 })?;
            let [of_tag, used, _] = &words[entry * WORDS_PER_ENTRY..][..WORDS_PER_ENTRY] else { return None };
            if of_tag.compare_exchange(tag, FILLING, AcqRel, Relaxed).is_err() {
                continue;
            }
            let marks = used.load(Relaxed);
            let displaced = pages_of(tag).map(|held| Displaced {
                owner: OwnerId((marks >> OWNER_SHIFT) as u16),
                fetched: held.count,
                used: (marks & ((1 << held.count) - 1)).count_ones() as usize,
            });
            return Some(Filling { entry, displaced });
        }
    }

    /// Fills an entry with `pages`, fetched for `owner`, whose bytes are `content`; with nothing if the bytes
    /// are not as many. For the carrier.
    pub fn fill(&self, filling: Filling, pages: &Call, owner: OwnerId, content: &[u8]) -> Answer {
        let Ok([tag, used, last]) = self.entry_words(filling.entry) else { return Answer::Nowhere };
        // The tag went before the bytes do.
        fence(Release);
        let is_whole = content.len() == pages.count * PAGE_BYTES && pages.count <= ENTRY_PAGES;
        let at = self.layout.buffer_at + filling.entry * ENTRY_BYTES;
        if !is_whole || !self.memory.copy_in(at, content) {
            tag.store(EMPTY, Release);
            return Answer::Nowhere;
        }
        used.store(u64::from(owner.0) << OWNER_SHIFT, Relaxed);
        let time = self.header(Header::BufferTime).map_or(0, |time| time.fetch_add(1, Relaxed) + 1);
        last.store(time, Relaxed);
        tag.store(tag_of(pages), Release);
        self.count(Header::Fetches);
        Answer::Entry(filling.entry as u16)
    }

    /// Forgets what is buffered of those pages: it is damaged. For the carrier.
    pub fn forget_buffered(&self, pages: &Call) {
        for entry in 0..self.layout.entries {
            let Ok(words) = self.entry_words(entry) else { return };
            let tag = words[0].load(Acquire);
            if pages_of(tag).is_some_and(|held| held.covers(pages)) {
                let _ = words[0].compare_exchange(tag, EMPTY, AcqRel, Relaxed);
            }
        }
    }

    /// Counts a call that no node could answer. For the carrier.
    pub fn count_failed_fetch(&self) {
        self.count(Header::FetchesFailed);
    }

    /// Empties all entries, and those half filled. For a carrier that begins, before its lanes do.
    pub fn clear_buffer(&self) {
        (0..self.layout.entries).for_each(|entry| {
            if let Ok(words) = self.entry_words(entry) {
                words[0].store(EMPTY, Release);
            }
        });
    }
}
