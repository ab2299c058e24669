//! Pages that repeat one 8-byte word need no slot, only the word. The table of words grows and never shrinks,
//! so that an index, once given out, is good for ever.

use crate::layout::{Header, WORD_BYTES};
use crate::memory::{Atomic, Memory};
use crate::pool::Pool;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use farmem_page::PatternIndex;

/// Distinct words that a pool keeps; pages of further ones take slots.
pub const PATTERN_LIMIT: usize = 4096;

/// Entries that one search looks at. With the table half full nearly all words are found or placed in the
/// first few.
const PROBES: usize = 64;

impl<M: Memory> Pool<M> {
    /// The index of a word other than zero, which is entered if need be; `None` when the table has no room
    /// for it.
    pub(crate) fn pattern_index(&self, pattern: u64) -> Option<PatternIndex> {
        let words = self.patterns(0)?;
        let checks = self.patterns(1)?;
        let check = self.pattern_check(pattern);
        for probe in 0..PROBES {
            let at = (check as usize).wrapping_add(probe) % PATTERN_LIMIT;
            let found = match words[at].compare_exchange(0, pattern, AcqRel, Acquire) {
                Ok(_) => {
                    self.header(Header::Patterns).ok()?.fetch_add(1, Relaxed);
                    pattern
                }
                Err(found) => found,
            };
            if found == pattern {
                // Also when the entry isn't new: the thread that entered it may have died before it wrote the
                // check.
                checks[at].store(check, Release);
                return Some(PatternIndex::new(at as u16));
            }
        }
        None
    }

    /// The word at an index; `None` when none was entered there or its check fails.
    pub(crate) fn pattern(&self, index: PatternIndex) -> Option<u64> {
        let pattern = self.patterns(0)?.get(index.get())?.load(Acquire);
        let check = self.patterns(1)?.get(index.get())?.load(Acquire);
        (pattern != 0 && check == self.pattern_check(pattern)).then_some(pattern)
    }

    fn patterns(&self, column: usize) -> Option<&[M::Word]> {
        self.memory.words(self.layout.patterns_at + column * PATTERN_LIMIT * WORD_BYTES, PATTERN_LIMIT)
    }

    fn pattern_check(&self, pattern: u64) -> u64 {
        self.fingerprinter.of_word(pattern)
    }
}
