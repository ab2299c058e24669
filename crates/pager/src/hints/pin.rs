//! Memory that stays local because the program wants it so (PFA §6), within what the application's budget
//! allows.
//!
//! A pinned page has a mark in its word, which the hand of evictions respects; and it is among the ranges of
//! [`Hints::pinned`](crate::hints::Hints), which follow when memory is unmapped or moved: so only managed
//! memory is pinned, of which the kernel says so, and memory that is to be pinned is put under management
//! first. A forked child has nothing pinned. If the budget falls, so much is unpinned that the rest fits.

use farmem_page::{PageCount, PageIndex, PageRange};
use farmem_policy::hints;
use farmem_telemetry::Counter;

use crate::address_space::scan::Scanner;
use crate::engine::Engine;
use crate::gate::{Change, Reading};
use crate::hints::mailboxes::Asker;

/// Pages that are unpinned in one go.
const GIVEN_UP_AT_ONCE: u64 = 1 << 12;

/// What becomes of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pin {
    /// It stays local.
    Pin,
    /// It leaves like any other.
    Unpin,
}

/// An order, and the thread that waits for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ordered {
    asker: Asker,
    pub(crate) pin: Pin,
    pub(crate) range: PageRange,
}

impl Engine {
    /// On the bookkeeper: what somebody wants to be pinned, or not any more, and who.
    pub(crate) fn next_order(&self) -> Option<Ordered> {
        self.mailboxes.next_order().map(|(asker, pin, range)| Ordered { asker, pin, range })
    }

    /// On the bookkeeper: tells who has ordered something what came of it.
    pub(crate) fn answer_order(&self, ordered: &Ordered, is_done: bool) {
        self.mailboxes.answer(ordered.asker, is_done);
    }

    /// On the bookkeeper: puts the memory that somebody wants to pin under management, as far as that can be
    /// done. `false` when that can't be done in this round.
    pub(crate) fn manage_what_is_to_be_pinned(&self, ordered: &Ordered, scanner: Option<&Scanner>) -> bool {
        ordered.pin == Pin::Unpin || scanner.is_some_and(|scanner| scanner.register_in(self, ordered.range))
    }

    /// On the bookkeeper: whether an order is allowed. Memory that is to be pinned counts from now on.
    pub(crate) fn allows_order(&self, ordered: &Ordered) -> bool {
        ordered.pin == Pin::Unpin || self.reserve_pinned(&self.change_as_bookkeeper(), ordered.range)
    }

    /// Adds what of `range` can be far at all. `false` when there would be too much, or there is nothing at
    /// some of its addresses.
    fn reserve_pinned(&self, _change: &Change<'_>, range: PageRange) -> bool {
        let pinned = &self.hints.pinned;
        let mut more = 0;
        let is_mapped = self.each_managed(range, |part| {
            let already: u64 = pinned.within(part).map(|part| part.count().get()).sum();
            more += part.count().get() - already;
        });
        if !is_mapped {
            return false;
        }
        // Counted first: of two processes that ask for the rest at the same time, both may be refused, but
        // not both be allowed.
        let before = self.slot.get(Counter::PinnedPages);
        self.slot.set(Counter::PinnedPages, before + more);
        let (total, most) = self.pinned_and_most();
        let mut is_done = more == 0 || total <= most;
        if is_done {
            self.each_managed(range, |part| is_done &= pinned.insert(part));
        }
        self.count_pinned();
        is_done
    }

    /// Calls `visit` for the parts of `range` that are managed. `false` when some of it isn't mapped.
    fn each_managed(&self, range: PageRange, mut visit: impl FnMut(PageRange)) -> bool {
        let mut at = range.start;
        while at < range.end {
            let Ok(Some(mapping)) = self.pages.files.maps.next(at.addr()) else { return false };
            if mapping.range.start > at {
                return false;
            }
            if mapping.anonymous {
                self.pages
                    .regions
                    .within(mapping.range.intersect(PageRange::new(at, range.end)))
                    .for_each(&mut visit);
            }
            at = mapping.range.end;
        }
        true
    }

    fn count_pinned(&self) {
        self.slot.set(Counter::PinnedPages, self.hints.pinned.pages().get());
    }

    /// Notes in the words of the first `most` pinned pages of `range` that they are pinned, or that they are
    /// so no more; how far it came.
    pub(crate) fn note_pinned(
        &self,
        _change: &Change<'_>,
        pin: Pin,
        range: PageRange,
        most: u64,
    ) -> PageIndex {
        let Some(part) = self.hints.pinned.within(range).next() else { return range.end };
        let end = part.end.min(part.start + PageCount::new(most));
        let part = PageRange::new(part.start, end);
        match pin {
            Pin::Pin => {
                part.iter().for_each(|page| self.pages.table.update(page, |word| word.with_pinned(true)))
            }
            Pin::Unpin => self.unpin_pages(part),
        }
        end
    }

    fn unpin_pages(&self, part: PageRange) {
        part.iter().for_each(|page| self.pages.table.update(page, |word| word.with_pinned(false)));
        self.hints.pinned.remove(part);
        self.count_pinned();
    }

    /// Memory has been unmapped: what comes to be there is other memory.
    pub(crate) fn forget_pinned(&self, _reading: &Reading<'_>, range: PageRange) {
        while let Some(part) = self.hints.pinned.within(range).next() {
            self.unpin_pages(part);
        }
    }

    /// Memory has been moved, and the words with it.
    pub(crate) fn move_pinned(&self, _reading: &Reading<'_>, from: PageRange, to: PageIndex) {
        while let Some(part) = self.hints.pinned.within(from).next() {
            self.hints.pinned.remove(part);
            self.hints.pinned.insert(PageRange::at(to + (part.start - from.start), part.count()));
        }
    }

    /// On the bookkeeper: unpins what the budget no longer has room for, the highest addresses first.
    pub(crate) fn give_up_pinned(&self) {
        let own = PageCount::new(self.slot.get(Counter::PinnedPages));
        if own == PageCount::ZERO {
            return;
        }
        let (total, most) = self.pinned_and_most();
        let mut over = hints::to_give_up(own, total, most).get().min(GIVEN_UP_AT_ONCE);
        while over > 0 {
            let _change = self.change_as_bookkeeper();
            let Some(last) = self.hints.pinned.iter().last() else { return };
            let count = over.min(last.count().get());
            let start = PageIndex::new(last.end.get() - count);
            self.unpin_pages(PageRange::new(start, last.end));
            over -= count;
        }
    }
}
