//! The state word of a page: its entry, what recency knows of it, and who is changing it.
//!
//! The kernel's page table says whether a page is local. The word says what the kernel can't: which entry
//! holds the page's content, and whether a thread of the pager is moving it at this moment.
//!
//! Invariants, numbered for reference from the code that keeps them:
//! 1. An entry is authoritative exactly while the page is absent from the kernel's page table. While the page
//!    is resident its entry is a reservation (Canvas §5.1): valid content only if the page was not written
//!    since.
//! 2. `BUSY` is set by one thread at a time; only that thread clears it, changes the entry, and moves the
//!    page.
//! 3. Whoever clears `BUSY` wakes the page's waiters if `WAITED` was set meanwhile.
//! 4. An entry that was dropped (the program discarded the page) while `BUSY` is marked `DROPPED`; the holder
//!    of `BUSY` then clears the entry instead of publishing one.

use crate::{Place, SlotPlace};

/// How many visits of the eviction hand a page survives without any sign of use; see the `victims` policy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Level(u8);

impl Level {
    /// The highest level.
    pub const MAX: Level = Level(7);
    /// Clamps to [`Level::MAX`].
    pub const fn new(level: u8) -> Self {
        if level > Self::MAX.0 { Self::MAX } else { Self(level) }
    }
    /// The bare number.
    pub const fn get(self) -> u8 {
        self.0
    }
    /// One more, at most [`Level::MAX`].
    pub const fn up(self) -> Self {
        Self::new(self.0 + 1)
    }
    /// One less, at least zero.
    pub const fn down(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

/// When a page left, on a coarse clock that wraps: see [`AgeStamp::since`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AgeStamp(u16);

impl AgeStamp {
    const BITS: u32 = 10;
    /// The stamp of clock value `now` (wraps after 1024 steps).
    pub const fn of(now: u64) -> Self {
        Self((now & ((1 << Self::BITS) - 1)) as u16)
    }
    /// Steps from this stamp to clock value `now`; too small when more than 1023 have passed.
    pub const fn since(self, now: u64) -> u64 {
        now.wrapping_sub(self.0 as u64) & ((1 << Self::BITS) - 1)
    }
    const fn get(self) -> u64 {
        self.0 as u64
    }
}

/// What happened when a thread tried to take a page for a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transition {
    /// Nobody else has it: the caller must swap in this word and then holds the page.
    Take(PageWord),
    /// Somebody has it: the caller must swap in this word (it marks a waiter) and leave the rest to the
    /// holder.
    Wait(PageWord),
}

/// A page's word. `PageWord::default()` is a page that the pager knows nothing of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub struct PageWord(u64);

const AGE_SHIFT: u32 = Place::BITS;
const LEVEL_SHIFT: u32 = AGE_SHIFT + AgeStamp::BITS;
const LEVEL_BITS: u32 = 3;
const PLACE_MASK: u64 = (1 << Place::BITS) - 1;
const AGE_MASK: u64 = ((1 << AgeStamp::BITS) - 1) << AGE_SHIFT;
const LEVEL_MASK: u64 = ((1 << LEVEL_BITS) - 1) << LEVEL_SHIFT;
const MARKED: u64 = 1 << 55;
const PINNED: u64 = 1 << 56;
const DISCARDED: u64 = 1 << 57;
const FAR: u64 = 1 << 58;
const PREFETCHED: u64 = 1 << 59;
const UNEVICTABLE: u64 = 1 << 60;
const DROPPED: u64 = 1 << 61;
const WAITED: u64 = 1 << 62;
const BUSY: u64 = 1 << 63;
/// What neither a discard of the page nor its holder changes.
const LASTING: u64 = UNEVICTABLE | PINNED;

const _: () = assert!(LEVEL_SHIFT + LEVEL_BITS <= 55, "fields and flags of a page word must not overlap");
const _: () = assert!(Level::MAX.0 as u64 == (1 << LEVEL_BITS) - 1, "every level fits its field");

impl PageWord {
    /// The word as it is kept in memory.
    pub const fn bits(self) -> u64 {
        self.0
    }
    /// A word from memory.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
    /// The page's entry, if it has one.
    pub const fn place(self) -> Option<Place> {
        Place::decode(self.0 & PLACE_MASK)
    }
    /// Whether the page has an entry that holds something.
    pub const fn is_stored(self) -> bool {
        !matches!(self.place(), None | Some(Place::Zero))
    }
    /// The same word with this entry, or with none.
    pub const fn with_place(self, place: Option<Place>) -> Self {
        let bits = match place {
            Some(place) => place.encode(),
            None => 0,
        };
        Self(self.0 & !PLACE_MASK | bits)
    }
    /// The page's level.
    pub const fn level(self) -> Level {
        Level::new(((self.0 & LEVEL_MASK) >> LEVEL_SHIFT) as u8)
    }
    /// The same word at this level.
    pub const fn with_level(self, level: Level) -> Self {
        Self(self.0 & !LEVEL_MASK | (level.get() as u64) << LEVEL_SHIFT)
    }
    /// When the page last left or, while it is resident, what the victim policy keeps there: when it came.
    pub const fn age(self) -> AgeStamp {
        AgeStamp(((self.0 & AGE_MASK) >> AGE_SHIFT) as u16)
    }
    /// The same word with this leaving time.
    pub const fn with_age(self, age: AgeStamp) -> Self {
        Self(self.0 & !AGE_MASK | age.get() << AGE_SHIFT)
    }
    /// Whether the pager has taken the page away and not brought it back: a hint that saves asking the
    /// kernel. After a fork it may be set for a page that came back at that very moment.
    pub const fn is_far(self) -> bool {
        self.0 & FAR != 0
    }
    /// The same word with the far mark set or cleared. What isn't far isn't marked.
    pub const fn with_far(self, far: bool) -> Self {
        Self(if far { self.0 | FAR } else { self.0 & !(FAR | MARKED) })
    }
    /// Whether the kernel's page table has a marker where the page was: once that is missing, the program has
    /// discarded the page.
    pub const fn is_marked(self) -> bool {
        self.0 & MARKED != 0
    }
    /// The same word with that said or not.
    pub const fn with_marked(self, marked: bool) -> Self {
        Self(if marked { self.0 | MARKED } else { self.0 & !MARKED })
    }
    /// Whether the program has begun to discard the page and the kernel may not be done with it: until the
    /// pager itself has brought the page in again it must not leave, or content that is about to go would be
    /// kept.
    pub const fn is_discarded(self) -> bool {
        self.0 & DISCARDED != 0
    }
    /// The same word with that mark set or cleared.
    pub const fn with_discarded(self, discarded: bool) -> Self {
        Self(if discarded { self.0 | DISCARDED } else { self.0 & !DISCARDED })
    }
    /// Whether the page was brought in before anybody asked, and isn't known to have been used yet.
    pub const fn is_prefetched(self) -> bool {
        self.0 & PREFETCHED != 0
    }
    /// The same word with the prefetched mark set or cleared.
    pub const fn with_prefetched(self, prefetched: bool) -> Self {
        Self(if prefetched { self.0 | PREFETCHED } else { self.0 & !PREFETCHED })
    }
    /// Whether the page must stay local for the pager's own sake, whatever the program says of it.
    pub const fn is_unevictable(self) -> bool {
        self.0 & UNEVICTABLE != 0
    }
    /// The same word with that mark set or cleared.
    pub const fn with_unevictable(self, unevictable: bool) -> Self {
        Self(if unevictable { self.0 | UNEVICTABLE } else { self.0 & !UNEVICTABLE })
    }
    /// Whether the program has pinned the page: it stays local as long as the budget has room for that.
    pub const fn is_pinned(self) -> bool {
        self.0 & PINNED != 0
    }
    /// The same word with that mark set or cleared.
    pub const fn with_pinned(self, pinned: bool) -> Self {
        Self(if pinned { self.0 | PINNED } else { self.0 & !PINNED })
    }
    /// Whether a thread holds the page.
    pub const fn is_busy(self) -> bool {
        self.0 & BUSY != 0
    }
    /// Whether somebody waits for the holder of the page.
    pub const fn is_waited(self) -> bool {
        self.0 & WAITED != 0
    }
    /// Whether the entry was dropped while somebody held the page.
    pub const fn is_dropped(self) -> bool {
        self.0 & DROPPED != 0
    }

    /// The slot that the page keeps only for its next eviction (invariant 1), and that may be given back
    /// before: none while somebody holds the page, and none of a page that may be far or may be discarded at
    /// this moment.
    ///
    /// The word doesn't know of pages that the kernel has taken away unheard: ask the kernel whether the page
    /// is resident.
    pub const fn reservation(self) -> Option<SlotPlace> {
        if self.is_busy() || self.is_far() || self.is_discarded() {
            return None;
        }
        match self.place() {
            Some(Place::Slot(at)) => Some(at),
            Some(Place::Zero | Place::Pattern(_) | Place::Lost) | None => None,
        }
    }

    /// What to swap in to take the page for a change (invariant 2), or to wait for its holder (invariant 3).
    pub const fn take(self) -> Transition {
        if self.is_busy() {
            Transition::Wait(Self(self.0 | WAITED))
        } else {
            Transition::Take(Self(self.0 | BUSY))
        }
    }

    /// What to swap in when the program has discarded the page: no entry, no history (invariant 4). The entry
    /// to free comes with it; while the page is held that is the holder's task, and there is none.
    pub const fn discard(self) -> (Self, Option<Place>) {
        if self.is_busy() { (Self(self.0 | DROPPED), None) } else { (Self(self.0 & LASTING), self.place()) }
    }

    /// The word as a forked child must see it: the thread that held the page in the parent doesn't exist in
    /// the child.
    pub const fn without_holder(self) -> Self {
        if self.is_dropped() { Self(self.0 & LASTING) } else { Self(self.0 & !(BUSY | WAITED)) }
    }

    /// What the holder swaps in to let the page go, keeping `new`'s entry, level, age and marks. The caller
    /// must wake waiters if `self` was waited for, and free `new`'s entry instead if `self` was dropped.
    pub const fn release(self, new: Self) -> Self {
        let left = new.0 & !(BUSY | WAITED | DROPPED | LASTING) | self.0 & LASTING;
        if self.is_dropped() { Self(self.0 & LASTING) } else { Self(left) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SlabIndex, SlotIndex, SlotPlace};

    const PLACE: Place = Place::Slot(SlotPlace {
        slab: match SlabIndex::new(77) {
            Some(slab) => slab,
            None => panic!(),
        },
        slot: match SlotIndex::new(5) {
            Some(slot) => slot,
            None => panic!(),
        },
    });

    #[test]
    fn fields_do_not_disturb_each_other() {
        let word = PageWord::default()
            .with_place(Some(PLACE))
            .with_level(Level::new(5))
            .with_age(AgeStamp::of(1023))
            .with_prefetched(true)
            .with_unevictable(true)
            .with_pinned(true);
        assert_eq!(word.place(), Some(PLACE));
        assert_eq!(word.level(), Level::new(5));
        assert_eq!(word.age(), AgeStamp::of(1023));
        assert!(word.is_prefetched() && word.is_unevictable() && word.is_pinned() && !word.is_busy());
        assert!(word.with_unevictable(false).is_pinned() && word.with_pinned(false).is_unevictable());
        assert_eq!(word.with_place(None).level(), Level::new(5));
    }

    #[test]
    fn a_held_page_is_not_taken_twice() {
        let Transition::Take(held) = PageWord::default().take() else { panic!("nobody holds it") };
        let Transition::Wait(waited) = held.take() else { panic!("it is held") };
        assert!(waited.is_busy() && waited.is_waited());
    }

    #[test]
    fn a_page_discarded_while_held_keeps_no_entry() {
        let Transition::Take(held) = PageWord::default().take() else { panic!("nobody holds it") };
        let (held, free_now) = held.discard();
        assert_eq!(free_now, None);
        assert_eq!(held.release(held.with_place(Some(PLACE))).place(), None);
    }

    #[test]
    fn a_page_that_is_wanted_local_while_held_is_so_when_it_is_let_go_and_discarded() {
        let Transition::Take(held) = PageWord::default().take() else { panic!("nobody holds it") };
        let released = held.with_pinned(true).release(PageWord::default().with_place(Some(PLACE)));
        assert!(released.is_pinned() && released.discard().0.is_pinned());
        assert!(!held.release(PageWord::default().with_pinned(true)).is_pinned(), "the holder doesn't know");
    }

    #[test]
    fn a_free_page_that_is_discarded_gives_its_entry_back() {
        let word = PageWord::default().with_place(Some(PLACE)).with_level(Level::MAX);
        assert_eq!(word.discard(), (PageWord::default(), Some(PLACE)));
    }

    #[test]
    fn only_a_resident_page_that_nobody_holds_has_a_reservation() {
        let word = PageWord::default().with_place(Some(PLACE));
        let Place::Slot(at) = PLACE else { panic!("it is a slot") };
        assert_eq!(word.reservation(), Some(at));
        let Transition::Take(held) = word.take() else { panic!("nobody holds it") };
        for other in [held, word.with_far(true), word.with_discarded(true), word.with_place(None)] {
            assert_eq!(other.reservation(), None);
        }
        for place in [Place::Zero, Place::Lost] {
            assert_eq!(word.with_place(Some(place)).reservation(), None, "it takes no slot");
        }
    }

    #[test]
    fn what_is_not_far_is_not_marked() {
        let word = PageWord::default().with_place(Some(PLACE)).with_far(true).with_marked(true);
        assert!(word.is_marked() && word.with_pinned(true).is_marked());
        assert!(!word.with_far(false).with_far(true).is_marked());
        assert!(!word.discard().0.is_marked());
    }

    #[test]
    fn ages_wrap() {
        assert_eq!(AgeStamp::of(1020).since(1030), 10);
    }
}
