//! Keeps the reading of messages and the changing of pages apart.
//!
//! The kernel refuses changes while an event (an unmapping, a discard, a move, a fork) waits to be read. From the moment
//! when one thread has read it, the program goes on, and a change that another thread of the pager began before would
//! land in an address space that is no longer what it was: old content in discarded memory, or a new mapping's page
//! taken for an old one's. So messages are read only while nobody changes pages, and the tables know of an event before
//! the next change begins.
//!
//! Invariants:
//! 1. While a [`Reading`] is alive, no [`Change`] is, and the other way round.
//! 2. Changes don't exclude each other: faults of unrelated threads share no lock here, only read the same word.

use crate::sync::wait::{self, Scope, Sleepers};
use crate::sync::{AtomicU32, Guard, Ordering, SPINS, guard, spin_loop};

/// Threads of the pager that may change pages: one handler for each processor up to a limit, the fetcher, and the bookkeeper.
pub(crate) const PARTIES: usize = 10;

const OPEN: u32 = 0;
const TAKEN: u32 = 1;
const AWAITED: u32 = 2;

/// A word on a cache line of its own.
#[repr(align(64))]
#[derive(Debug)]
struct Line(AtomicU32);

impl Line {
    /// Waits until the word is [`OPEN`].
    fn until_open(&self) {
        let mut spins = 0;
        loop {
            match self.0.load(Ordering::SeqCst) {
                OPEN => return,
                _ if spins < SPINS => {
                    spins += 1;
                    spin_loop();
                }
                TAKEN => {
                    let _ = self.0.compare_exchange(TAKEN, AWAITED, Ordering::SeqCst, Ordering::Relaxed);
                }
                _ => wait::wait(&self.0, AWAITED, None, Scope::Process),
            }
        }
    }

    /// The same, but sleeps only once, and for `timeout_ns` at most. Whether the word is open.
    fn is_open_within(&self, timeout_ns: u64) -> bool {
        for _ in 0..SPINS {
            if self.0.load(Ordering::SeqCst) == OPEN {
                return true;
            }
            spin_loop();
        }
        let _ = self.0.compare_exchange(TAKEN, AWAITED, Ordering::SeqCst, Ordering::Relaxed);
        wait::wait(&self.0, AWAITED, Some(timeout_ns), Scope::Process);
        self.0.load(Ordering::SeqCst) == OPEN
    }

    fn open(&self) {
        if self.0.swap(OPEN, Ordering::SeqCst) == AWAITED {
            wait::wake(&self.0, Sleepers::All, Scope::Process);
        }
    }
}

/// The gate.
#[derive(Debug)]
pub(crate) struct Gate {
    reading: Line,
    changing: [Line; PARTIES],
}

/// The right to read messages.
#[derive(Debug)]
pub(crate) struct Reading<'a> {
    gate: &'a Gate,
}

/// The right to change pages. Passed on as a proof.
#[derive(Debug)]
pub(crate) struct Change<'a> {
    gate: &'a Gate,
    party: usize,
}

impl Gate {
    pub(crate) const fn new() -> Self {
        Self {
            reading: Line(AtomicU32::new(OPEN)),
            changing: [const { Line(AtomicU32::new(OPEN)) }; PARTIES],
        }
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
        // Sequentially consistent with `read`: of a reader and a changer at least one sees the other.
        self.changing[party].0.store(TAKEN, Ordering::SeqCst);
        if self.reading.0.load(Ordering::SeqCst) == OPEN {
            return Some(Change { gate: self, party });
        }
        self.changing[party].open();
        None
    }

    /// The same, in one sleep of `timeout_ns` at most. Whether it has.
    pub(crate) fn is_read_within(&self, timeout_ns: u64) -> bool {
        self.reading.is_open_within(timeout_ns)
    }

    /// Enters to read messages, when nobody changes pages any more.
    pub(crate) fn read(&self) -> Reading<'_> {
        while self.reading.0.compare_exchange(OPEN, TAKEN, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            self.reading.until_open();
        }
        for line in self.changing.iter().filter(|_| guard::stands(Guard::ReadingExcludesChanges)) {
            line.until_open();
        }
        Reading { gate: self }
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.gate.changing[self.party].open();
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.gate.reading.open();
    }
}
