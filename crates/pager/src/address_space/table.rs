//! The pager's page table: a [`PageWord`] for every managed page, and the protocol by which threads take a
//! page.

use farmem_page::{PageIndex, PageRange, PageWord, Place, Transition};

use crate::sync::{AtomicU64, Errno, Guard, Ordering, SparseWords, guard};

const EVERYWHERE: PageRange = PageRange::new(PageIndex::new(0), PageIndex::new(u64::MAX));

/// Words of all pages.
#[derive(Debug)]
pub(crate) struct PageTable {
    words: SparseWords,
}

/// A page that the caller has taken (invariant 2 of the page word). Let it go with [`Taken::release`].
#[derive(Debug)]
#[must_use = "a page that is never let go blocks everyone who touches it"]
pub(crate) struct Taken {
    cell: &'static AtomicU64,
    pub(crate) page: PageIndex,
    /// The word when it was taken.
    pub(crate) word: PageWord,
}

/// What became of a page that was let go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Released {
    /// Somebody waits: wake the page.
    pub(crate) is_waited: bool,
    /// The program discarded the page meanwhile: what was to be its entry must be freed.
    pub(crate) is_dropped: bool,
}

/// A look at a page that somebody else, or the caller itself, has taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    cell: &'static AtomicU64,
}

impl Watch {
    /// Whether somebody has come to wait for it.
    pub(crate) fn is_waited(self) -> bool {
        PageWord::from_bits(self.cell.load(Ordering::Acquire)).is_waited()
    }
}

impl PageTable {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self { words: SparseWords::new()? })
    }

    /// The words of all pages, for whoever asks what they take.
    pub(crate) fn words(&self) -> &SparseWords {
        &self.words
    }

    /// The word of a page; the default one for pages never seen.
    pub(crate) fn word(&self, page: PageIndex) -> PageWord {
        self.words
            .get(page)
            .map_or(PageWord::default(), |cell| PageWord::from_bits(cell.load(Ordering::Acquire)))
    }

    /// Makes sure that the page has a word. `false` when there is no memory for it.
    pub(crate) fn ensure(&self, page: PageIndex) -> bool {
        self.words.get_or_create(page).is_some()
    }

    /// Takes a page, which must have a word, for a change. `None` when somebody else has it: the thread that
    /// lets it go wakes the page.
    pub(crate) fn take(&self, page: PageIndex) -> Option<Taken> {
        let cell = self.words.get(page)?;
        let mut word = PageWord::from_bits(cell.load(Ordering::Acquire));
        loop {
            let (next, taken) = match word.take() {
                Transition::Take(next) => (next, true),
                Transition::Wait(next) => (next, !guard::stands(Guard::OneHolder)),
            };
            match cell.compare_exchange_weak(word.bits(), next.bits(), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return taken.then_some(Taken { cell, page, word }),
                Err(now) => word = PageWord::from_bits(now),
            }
        }
    }

    /// Takes a page only if nobody has it and `wanted` says so of its word; leaves no mark otherwise.
    pub(crate) fn take_if(&self, page: PageIndex, wanted: impl Fn(PageWord) -> bool) -> Option<Taken> {
        let cell = self.words.get_or_create(page)?;
        let word = PageWord::from_bits(cell.load(Ordering::Acquire));
        let Transition::Take(next) = word.take() else { return None };
        if !wanted(word) {
            return None;
        }
        cell.compare_exchange(word.bits(), next.bits(), Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
            .then_some(Taken { cell, page, word })
    }

    /// Replaces the word of a page that nobody has, if it still is `old`.
    pub(crate) fn replace(&self, page: PageIndex, old: PageWord, new: PageWord) {
        if let Some(cell) = self.words.get_or_create(page) {
            let _ = cell.compare_exchange(old.bits(), new.bits(), Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Changes the word of a page, whoever has it.
    pub(crate) fn update(&self, page: PageIndex, change: impl Fn(PageWord) -> PageWord) {
        if let Some(cell) = self.words.get_or_create(page) {
            let _ = cell.fetch_update(Ordering::AcqRel, Ordering::Acquire, |bits| {
                Some(change(PageWord::from_bits(bits)).bits())
            });
        }
    }

    /// The program discards these pages. `freed` hears of every entry that has no page any more.
    pub(crate) fn discard(&self, range: PageRange, mut freed: impl FnMut(PageWord, Place)) {
        self.each_known(range, |cell, _| {
            let result = cell.fetch_update(Ordering::AcqRel, Ordering::Acquire, |bits| {
                (bits != 0).then(|| PageWord::from_bits(bits).discard().0.bits())
            });
            if let Ok(bits) = result
                && let (_, Some(place)) = PageWord::from_bits(bits).discard()
            {
                freed(PageWord::from_bits(bits), place);
            }
        });
    }

    /// The program moves the pages of `from` to `to`: their words go with them. Whoever holds one must
    /// [`PageTable::follow`]. `false` without memory for the words.
    #[must_use]
    pub(crate) fn relocate(&self, from: PageRange, to: PageIndex) -> bool {
        let mut is_complete = true;
        self.each_known(from, |cell, page| {
            let bits = cell.swap(0, Ordering::AcqRel);
            if bits == 0 {
                return;
            }
            match self.words.get_or_create(to + (page - from.start)) {
                Some(target) => target.store(bits, Ordering::Release),
                None => is_complete = false,
            }
        });
        is_complete
    }

    /// A held page after [`PageTable::relocate`] has moved its word to `to`.
    pub(crate) fn follow(&self, taken: Taken, to: PageIndex) -> Option<Taken> {
        let cell = self.words.get(to)?;
        Some(Taken { cell, page: to, ..taken })
    }

    /// Copies all words to an empty table for a forked child, nobody holding any of them. All: a child may
    /// have pages where this process, or the one that forked it, has none any more.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn copy_to_child(&self, copy: &Self) -> Result<(), Errno> {
        let mut is_complete = true;
        self.each_known(EVERYWHERE, |cell, page| {
            let bits = cell.load(Ordering::Acquire);
            if bits == 0 {
                return;
            }
            match copy.words.get_or_create(page) {
                Some(target) => {
                    target.store(PageWord::from_bits(bits).without_holder().bits(), Ordering::Release);
                }
                None => is_complete = false,
            }
        });
        if is_complete { Ok(()) } else { Err(Errno::NOMEM) }
    }

    /// Forgets all words of a table that nobody uses any more.
    pub(crate) fn clear(&self) {
        self.words.clear();
    }

    /// Makes the words of a child that was served with them say what is local in it, and so far what is
    /// stored and isn't. How many pages of `range` are far. What its parent has pinned isn't pinned in the
    /// child.
    pub(crate) fn settle_in(&self, range: PageRange, is_local: impl Fn(PageIndex) -> bool) -> u64 {
        let mut far = 0;
        self.each_known(range, |cell, page| {
            let word = PageWord::from_bits(cell.load(Ordering::Acquire));
            let is_local = is_local(page);
            let is_far = word.place().is_some() && !is_local;
            let next = word.with_far(is_far).with_prefetched(false).with_pinned(false);
            // Without a page and without a place it is as if it had never been touched.
            cell.store(if is_far || is_local { next.bits() } else { 0 }, Ordering::Release);
            far += u64::from(is_far);
        });
        far
    }

    /// Calls `visit` for the parts of `range` between the pages whose words are `excepted`.
    pub(crate) fn each_gap(
        &self,
        range: PageRange,
        excepted: impl Fn(PageWord) -> bool,
        mut visit: impl FnMut(PageRange),
    ) {
        let mut start = range.start;
        self.each_known(range, |cell, page| {
            if excepted(PageWord::from_bits(cell.load(Ordering::Acquire))) {
                if start < page {
                    visit(PageRange::new(start, page));
                }
                start = PageIndex::new(page.get() + 1);
            }
        });
        if start < range.end {
            visit(PageRange::new(start, range.end));
        }
    }

    /// The first page from `hand` on whose word is `wanted`, among the `left` that are still looked at. The
    /// hand is behind it then, or where the look has ended: at the end of all addresses when there is no
    /// further one.
    pub(crate) fn seek(
        &self,
        hand: &mut PageIndex,
        left: &mut usize,
        wanted: impl Fn(PageWord) -> bool,
    ) -> Option<PageIndex> {
        while *hand < EVERYWHERE.end && *left > 0 {
            let page = *hand;
            let Some(cell) = self.words.get(page) else {
                *hand = self.words.skip_empty(page).unwrap_or(EVERYWHERE.end);
                continue;
            };
            *hand = PageIndex::new(page.get() + 1);
            *left -= 1;
            if wanted(PageWord::from_bits(cell.load(Ordering::Acquire))) {
                return Some(page);
            }
        }
        None
    }

    /// Calls `visit` for every page of `range` that may have a word.
    fn each_known(&self, range: PageRange, mut visit: impl FnMut(&'static AtomicU64, PageIndex)) {
        let mut page = range.start;
        while page < range.end {
            match self.words.get(page) {
                Some(cell) => {
                    visit(cell, page);
                    page = PageIndex::new(page.get() + 1);
                }
                None => match self.words.skip_empty(page) {
                    Some(next) => page = next,
                    None => return,
                },
            }
        }
    }
}

impl Taken {
    pub(crate) fn watch(&self) -> Watch {
        Watch { cell: self.cell }
    }

    /// Whether the program has given the page up since it was taken, or is about to. Within a change that
    /// stays as it is.
    pub(crate) fn is_overtaken(&self) -> bool {
        let now = PageWord::from_bits(self.cell.load(Ordering::Acquire));
        (now.is_dropped() || now.is_discarded() && !self.word.is_discarded())
            && guard::stands(Guard::HeldIsLookedAt)
    }

    /// Lets the page go with what `new` says. That its discard has begun meanwhile stays said.
    pub(crate) fn release(self, new: PageWord) -> Released {
        let mut now = PageWord::from_bits(self.cell.load(Ordering::Acquire));
        loop {
            let next = now.release(new);
            let is_discarded = now.is_discarded() && !self.word.is_discarded();
            let next = if is_discarded { next.with_discarded(true) } else { next };
            match self.cell.compare_exchange_weak(
                now.bits(),
                next.bits(),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    let is_waited = now.is_waited() && guard::stands(Guard::WaitersAreWoken);
                    return Released { is_waited, is_dropped: now.is_dropped() };
                }
                Err(other) => now = PageWord::from_bits(other),
            }
        }
    }
}
