//! Keeps the reading of messages and the changing of pages apart.
//!
//! The kernel refuses changes while an event (an unmapping, a discard, a move, a fork) waits to be read. From
//! the moment when one thread has read it, the program goes on, and a change that another thread of the pager
//! began before would land in an address space that is no longer what it was: old content in discarded
//! memory, or a new mapping's page taken for an old one's. So messages are read only while nobody changes
//! pages, and the tables know of an event before the next change begins.
//!
//! A change is a call of the kernel and the look at the page's word directly before it, nothing longer:
//! whoever decides, loads, packs, waits for a disk or a node only *holds* pages. Messages are read meanwhile.
//! What the program discards or unmaps of held pages is marked in their words, and whoever holds them finds
//! that when the change begins. A move or a fork needs words that nobody has in hand: whoever reads of one
//! waits until all is let go.
//!
//! Invariants:
//! 1. While a [`Reading`] is alive, no [`Change`] is, and the other way round.
//! 2. Changes don't exclude each other: faults of unrelated threads share no lock here, only read the same
//!    word.
//! 3. From when [`Reading::settle`] returns until the reading ends, no [`Holding`] is alive.
//! 4. Whoever is in a change waits for the kernel alone: a reader waits for it.

use core::cell::Cell;

use farmem_telemetry::MAX_HANDLERS;

use crate::sync::wait::{self, Scope, Sleepers};
use crate::sync::{AtomicU32, CHANGE_SPINS, Guard, Ordering, SPINS, guard, spin_loop};

/// Threads of the pager that may change pages: handlers, the fetcher, and the bookkeeper.
pub(crate) const PARTIES: usize = MAX_HANDLERS + 2;
/// The party that the bookkeeper is.
pub(crate) const BOOKKEEPER: usize = PARTIES - 1;
/// The party that the fetcher is. Handlers are those with smaller numbers.
pub(crate) const FETCHER: usize = PARTIES - 2;

const OPEN: u32 = 0;
const TAKEN: u32 = 1;
/// With [`TAKEN`]: somebody sleeps until it is open.
const AWAITED: u32 = 2;
/// With [`TAKEN`], of a reading: whoever holds pages must let them go.
const LET_GO: u32 = 4;

/// A word on a cache line of its own.
#[repr(align(64))]
#[derive(Debug)]
struct Line(AtomicU32);

impl Line {
    /// Waits until the word is [`OPEN`], or has one of the bits of `enough`; after so many looks asleep.
    fn until_open_or(&self, enough: u32, most_spins: u32) {
        let mut spins = 0;
        loop {
            let word = self.0.load(Ordering::SeqCst);
            if word == OPEN || word & enough != 0 {
                return;
            }
            if spins < most_spins {
                spins += 1;
                spin_loop();
            } else if word & AWAITED == 0 {
                let _ = self.0.compare_exchange(word, word | AWAITED, Ordering::SeqCst, Ordering::Relaxed);
            } else {
                wait::wait(&self.0, word, None, Scope::Process);
            }
        }
    }

    /// Waits until the word is [`OPEN`].
    fn until_open(&self) {
        self.until_open_or(0, SPINS);
    }

    fn is_open(&self) -> bool {
        self.0.load(Ordering::SeqCst) == OPEN
    }

    /// Demands that all held pages are let go.
    fn demand(&self) {
        if self.0.fetch_or(LET_GO, Ordering::SeqCst) & AWAITED != 0 {
            // They sleep on another value.
            wait::wake(&self.0, Sleepers::All, Scope::Process);
        }
    }

    fn is_demanded(&self) -> bool {
        self.0.load(Ordering::SeqCst) & LET_GO != 0
    }

    /// The same, but sleeps only once, and for `timeout_ns` at most. Whether the word is open.
    fn is_open_within(&self, timeout_ns: u64) -> bool {
        for _ in 0..SPINS {
            if self.is_open() {
                return true;
            }
            spin_loop();
        }
        let word = self.0.load(Ordering::SeqCst);
        if word != OPEN
            && self.0.compare_exchange(word, word | AWAITED, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        {
            wait::wait(&self.0, word | AWAITED, Some(timeout_ns), Scope::Process);
        }
        self.is_open()
    }

    fn open(&self) {
        if self.0.swap(OPEN, Ordering::SeqCst) & AWAITED != 0 {
            wait::wake(&self.0, Sleepers::All, Scope::Process);
        }
    }
}

/// The gate.
#[derive(Debug)]
pub(crate) struct Gate {
    reading: Line,
    /// Handlers that have been let in. A reader looks at no others.
    handlers: AtomicU32,
    changing: [Line; PARTIES],
    holding: [Line; PARTIES],
}

/// The right to read messages.
#[derive(Debug)]
pub(crate) struct Reading<'a> {
    gate: &'a Gate,
    is_settled: Cell<bool>,
}

/// The right to change pages. Passed on as a proof.
#[derive(Debug)]
pub(crate) struct Change<'a> {
    gate: &'a Gate,
    party: usize,
}

/// The right to hold pages while messages are read.
#[derive(Debug)]
pub(crate) struct Holding<'a> {
    gate: &'a Gate,
    party: usize,
}

/// What came of an attempt to begin a change.
#[derive(Debug)]
pub(crate) enum Entry<'a> {
    /// It has begun.
    Change(Change<'a>),
    /// A reading waits until all is let go.
    LetGo,
    /// A reading is under way.
    Reading,
}

impl Gate {
    pub(crate) const fn new() -> Self {
        Self {
            reading: Line(AtomicU32::new(OPEN)),
            handlers: AtomicU32::new(0),
            changing: [const { Line(AtomicU32::new(OPEN)) }; PARTIES],
            holding: [const { Line(AtomicU32::new(OPEN)) }; PARTIES],
        }
    }

    /// Lets in the handlers of smaller numbers, before the last of them begins. A reader that has looked
    /// before has taken the gate before, and that is what a new party finds.
    pub(crate) fn let_in(&self, handlers: u32) {
        self.handlers.store(handlers, Ordering::SeqCst);
    }

    /// The lines of all parties.
    fn of_all<'a>(&'a self, lines: &'a [Line; PARTIES]) -> impl Iterator<Item = &'a Line> {
        let handlers = (self.handlers.load(Ordering::SeqCst) as usize).min(FETCHER);
        lines[..handlers].iter().chain(&lines[FETCHER..])
    }

    /// Enters as `party` to change pages. A party enters once at a time.
    pub(crate) fn change(&self, party: usize) -> Change<'_> {
        loop {
            if let Some(change) = self.try_change(party) {
                return change;
            }
            self.reading.until_open();
        }
    }

    /// The same, but a wait for a reading may end in vain: after one sleep, of `timeout_ns` at most.
    pub(crate) fn change_within(&self, party: usize, timeout_ns: u64) -> Option<Change<'_>> {
        self.try_change(party)
            .or_else(|| self.reading.is_open_within(timeout_ns).then(|| self.try_change(party)).flatten())
    }

    fn try_change(&self, party: usize) -> Option<Change<'_>> {
        guard::crossing();
        // Sequentially consistent with `read`: of a reader and a changer at least one sees the other.
        self.changing[party].0.store(TAKEN, Ordering::SeqCst);
        if self.reading.is_open() {
            return Some(Change { gate: self, party });
        }
        self.changing[party].open();
        None
    }

    /// Enters as `party` to hold pages. A party enters once at a time.
    pub(crate) fn hold(&self, party: usize) -> Holding<'_> {
        loop {
            if let Some(holding) = self.try_hold(party) {
                return holding;
            }
            self.reading.until_open();
        }
    }

    /// The same, but a wait for a reading may end in vain: after one sleep, of `timeout_ns` at most.
    pub(crate) fn hold_within(&self, party: usize, timeout_ns: u64) -> Option<Holding<'_>> {
        self.try_hold(party)
            .or_else(|| self.reading.is_open_within(timeout_ns).then(|| self.try_hold(party)).flatten())
    }

    fn try_hold(&self, party: usize) -> Option<Holding<'_>> {
        // Sequentially consistent with `settle`, as above.
        self.holding[party].0.store(TAKEN, Ordering::SeqCst);
        if !self.is_settling() {
            return Some(Holding { gate: self, party });
        }
        self.holding[party].open();
        None
    }

    /// Whether a reading that is under way has ended, in one sleep of `timeout_ns` at most.
    pub(crate) fn is_read_within(&self, timeout_ns: u64) -> bool {
        self.reading.is_open_within(timeout_ns)
    }

    /// Whether a reading waits until nobody holds pages, or goes on from there.
    pub(crate) fn is_settling(&self) -> bool {
        self.reading.is_demanded()
    }

    /// Enters to read messages, when nobody changes pages any more.
    pub(crate) fn read(&self) -> Reading<'_> {
        while self.reading.0.compare_exchange(OPEN, TAKEN, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            self.reading.until_open();
        }
        for line in self.of_all(&self.changing).filter(|_| guard::stands(Guard::ReadingExcludesChanges)) {
            line.until_open_or(0, CHANGE_SPINS);
        }
        Reading { gate: self, is_settled: Cell::new(false) }
    }
}

impl Reading<'_> {
    /// Waits until nobody holds pages: they are let go when a change with them is to begin, or has ended.
    /// Nobody takes any until the reading ends.
    pub(crate) fn settle(&self) {
        if self.is_settled.replace(true) {
            return;
        }
        // Whoever waits to change what it holds would wait for this reading, and this one for it.
        self.gate.reading.demand();
        for line in self.gate.of_all(&self.gate.holding).filter(|_| guard::stands(Guard::MovesWaitForHolders))
        {
            line.until_open();
        }
    }
}

impl<'a> Holding<'a> {
    /// The holders.
    pub(crate) fn party(&self) -> usize {
        self.party
    }

    /// Whether it is a handler's.
    pub(crate) fn is_handlers(&self) -> bool {
        self.party < FETCHER
    }

    /// Enters to change pages. `None` when a reading waits until all is let go: then let go of what is held,
    /// and end this.
    pub(crate) fn change(&self) -> Option<Change<'a>> {
        loop {
            match self.try_change() {
                Entry::Change(change) => return Some(change),
                Entry::LetGo => return None,
                Entry::Reading => self.gate.reading.until_open_or(LET_GO, SPINS),
            }
        }
    }

    /// The same, but a wait for a reading may end in vain: after one sleep, of `timeout_ns` at most.
    pub(crate) fn change_within(&self, timeout_ns: u64) -> Entry<'a> {
        match self.try_change() {
            Entry::Reading => {
                self.gate.reading.is_open_within(timeout_ns);
                self.try_change()
            }
            entry => entry,
        }
    }

    fn try_change(&self) -> Entry<'a> {
        if self.must_let_go() {
            return Entry::LetGo;
        }
        self.gate.try_change(self.party).map_or(Entry::Reading, Entry::Change)
    }

    /// Whether a reading waits until all is let go.
    pub(crate) fn must_let_go(&self) -> bool {
        self.gate.is_settling()
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.gate.changing[self.party].open();
    }
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.gate.holding[self.party].open();
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.gate.reading.open();
    }
}
