//! What the thread of a fault waits for: noted while the fault is served, counted when it has been.
//!
//! The whole of a fault's time is put down to where its page came from, but for the time in which other pages
//! had to leave first. So an ordinary fault costs no look at the clock beyond the two that it takes in any
//! case.

use farmem_store::Origin;
use farmem_sys::thread;
use farmem_telemetry::{Counter, ProcessSlot};

/// Of so many steps of a kind, one is timed. No power of two: programs have patterns.
const SAMPLED: u32 = 61;

/// Which steps of a kind are timed.
#[derive(Debug)]
pub(crate) struct Sampler {
    /// Steps until the next one that is.
    left: u32,
}

impl Sampler {
    /// Not the first step, which takes longer than others.
    pub(crate) const fn new() -> Self {
        Self { left: SAMPLED - 1 }
    }

    /// Whether the step that begins is timed.
    pub(crate) fn is_due(&mut self) -> bool {
        let is_due = self.left == 0;
        self.left = self.left.checked_sub(1).unwrap_or(SAMPLED - 1);
        is_due
    }
}

/// What all steps of a kind have taken, if one that was timed took so long.
pub(crate) const fn of_all(timed_ns: u64) -> u64 {
    timed_ns * SAMPLED as u64
}

/// Where the page of a fault came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whence {
    /// Not told, or from nowhere: on its way out, shared after a fork, or not to be had yet.
    Unknown,
    /// It holds only zeros.
    Zeros,
    /// It was stored.
    Stored(Origin),
}

/// Steps of a fault that follow each other, if they are timed.
#[derive(Debug)]
pub(crate) struct Timing {
    last_ns: Option<u64>,
}

impl Timing {
    /// None is timed.
    pub(crate) const NONE: Self = Self { last_ns: None };

    /// Begins with the next step, in so many steps one that is timed.
    pub(crate) fn sampled(nth: u64) -> Self {
        Self { last_ns: nth.is_multiple_of(u64::from(SAMPLED)).then(thread::now_ns) }
    }

    /// A step has ended that `counter` is of, and the next one begins.
    pub(crate) fn end_step(&mut self, slot: &ProcessSlot<'_>, counter: Counter) {
        if let Some(last_ns) = &mut self.last_ns {
            let now_ns = thread::now_ns();
            slot.add(counter, of_all(now_ns - *last_ns));
            *last_ns = now_ns;
        }
    }
}

/// The fault in hand of one thread.
#[derive(Debug)]
pub(crate) struct Waiting {
    whence: Whence,
    room_ns: u64,
    /// When the thread went on, where other things were done for it after that.
    let_go_ns: Option<u64>,
    loads: Sampler,
    /// Whether the load in hand, and what follows it, is timed.
    is_timed: bool,
    /// Whether all that was loaded came from the pool's memory.
    is_from_memory: bool,
}

impl Waiting {
    pub(crate) const fn new() -> Self {
        Self {
            whence: Whence::Unknown,
            room_ns: 0,
            let_go_ns: None,
            loads: Sampler::new(),
            is_timed: false,
            is_from_memory: true,
        }
    }

    /// The next fault.
    pub(crate) fn begin(&mut self) {
        self.whence = Whence::Unknown;
        self.room_ns = 0;
        self.let_go_ns = None;
    }

    pub(crate) fn comes_from(&mut self, whence: Whence) {
        self.whence = whence;
    }

    /// Makes room, and counts how long that took.
    pub(crate) fn for_room<T>(&mut self, make: impl FnOnce() -> T) -> T {
        let began_ns = thread::now_ns();
        let made = make();
        self.waited_for_room(thread::now_ns() - began_ns);
        made
    }

    pub(crate) fn waited_for_room(&mut self, waited_ns: u64) {
        self.room_ns += waited_ns;
    }

    /// Pages are about to be loaded. When that was, if it is to be timed.
    pub(crate) fn begin_loading(&mut self) -> Option<u64> {
        self.is_from_memory = true;
        self.is_timed = self.loads.is_due();
        self.is_timed.then(thread::now_ns)
    }

    /// Whether what is done with the pages that have just been loaded is to be timed.
    pub(crate) fn timing(&self) -> Timing {
        Timing { last_ns: self.is_timed.then(thread::now_ns) }
    }

    /// A page has been loaded: the one that the thread waits for, or one that comes along.
    pub(crate) fn loaded(&mut self, origin: Origin, is_waited_for: bool) {
        self.is_from_memory &= origin == Origin::Memory;
        if is_waited_for {
            self.whence = Whence::Stored(origin);
        }
    }

    /// They have been loaded. What of that was waiting for a node or a disk is none of unpacking.
    pub(crate) fn end_loading(&self, began_ns: Option<u64>, slot: &ProcessSlot<'_>) {
        let Some(began_ns) = began_ns.filter(|_| self.is_from_memory) else { return };
        slot.add(Counter::UnpackNs, of_all(thread::now_ns() - began_ns));
    }

    /// The thread goes on: what is done from here on it does not wait for.
    pub(crate) fn let_go(&mut self) {
        self.let_go_ns = Some(thread::now_ns());
    }

    /// How long the thread has waited for a fault since then, which it doesn't after it was let go.
    pub(crate) fn took_ns(&self, since_ns: u64) -> u64 {
        self.let_go_ns.unwrap_or_else(thread::now_ns).saturating_sub(since_ns)
    }

    /// The fault has been served, or put aside, and took so long.
    pub(crate) fn count(&self, slot: &ProcessSlot<'_>, took_ns: u64) {
        slot.add(Counter::StallNs, took_ns);
        if self.room_ns > 0 {
            slot.add(Counter::StallRoomNs, self.room_ns);
        }
        let rest_ns = took_ns.saturating_sub(self.room_ns);
        match self.whence {
            Whence::Unknown => {}
            Whence::Zeros => slot.add(Counter::StallZerosNs, rest_ns),
            Whence::Stored(Origin::Memory) => slot.add(Counter::StallPoolNs, rest_ns),
            Whence::Stored(Origin::Node) => {
                slot.add(Counter::StallNodeNs, rest_ns);
                slot.add(Counter::FetchesFromNodes, 1);
            }
            Whence::Stored(Origin::Disk) => {
                slot.add(Counter::StallDiskNs, rest_ns);
                slot.add(Counter::FetchesFromDisk, 1);
            }
        }
    }
}
