//! The link schedule: shared memory by which the spaces of a machine take turns at the links to memory nodes
//! (docs/adr/0029).
//!
//! The broker makes it and gives every space a *link slot*; without a broker a space has a schedule to
//! itself. For each link, in each direction, a slot has one line, written by the space alone, but for its
//! bell. A space that wants to send says so in its line, looks at the others' lines, and goes when there is
//! room and nobody who waits has a smaller tag. Nobody grants, nobody holds a lock, and a space that ends or
//! hangs in the middle leaves nothing behind but its line.
//!
//! Invariants:
//! 1. A line's words but its bell are written by the slot's space, or by the broker when the space has gone.
//! 2. A space that waits says so before it looks at what is under way; one that has ended a transfer says so
//!    before it looks for spaces that wait. So one of them sees the other.
//! 3. What a line says is only believed for a while ([`link_slot`]): it can hold up others, but not for long,
//!    and can't make them read or write anything.

mod gate;
pub mod link_slot;

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use farmem_sys::shared::{SharedMemory, SharedMemoryError};
use farmem_sys::wait::Sleepers;

pub use gate::{Figures, Gate, Pass, RateLimit, Turn};

/// Slots of a schedule.
pub const LINK_SLOTS: usize = farmem_wire::host::MOST_LINK_SLOTS as usize;
/// Links of a schedule, each with two directions.
pub const LINKS: usize = 16;
const DIRECTIONS: usize = 2;

/// Words before the links.
const HEAD_WORDS: usize = 8;
/// The limits of all spaces together, in bytes per second, one for each direction; then when what has gone is
/// paid for.
const RATES: usize = 0;
const DUES: usize = 2;
/// Slots that were ever taken: the others need no look.
const TAKEN: usize = 4;
/// Words of a link before its lines: who is at the other end, and the virtual time.
const LINK_HEAD_WORDS: usize = 8;
const KEY: usize = 0;
const CLOCK: usize = 1;
/// Words of a line, which is a cache line.
const LINE_WORDS: usize = 8;
const LINK_WORDS: usize = LINK_HEAD_WORDS + LINK_SLOTS * LINE_WORDS;
const WORDS: usize = HEAD_WORDS + LINKS * DIRECTIONS * LINK_WORDS;
/// Bytes of a schedule. What no link needs takes no memory.
pub const LINK_SCHEDULE_BYTES: usize = WORDS * size_of::<u64>();

/// Which way bytes go, as seen from the spaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Direction {
    /// From nodes.
    In,
    /// To nodes.
    Out,
}

/// A word of a schedule. All accesses are sequentially consistent.
#[allow(missing_docs, reason = "the methods are those of an atomic word")]
pub trait Word {
    fn get(&self) -> u64;
    fn set(&self, value: u64);
    fn swap_if(&self, current: u64, new: u64) -> bool;
    fn add(&self, value: u64) -> u64;
    fn raise(&self, value: u64);
}

impl Word for AtomicU64 {
    fn get(&self) -> u64 {
        self.load(SeqCst)
    }
    fn set(&self, value: u64) {
        self.store(value, SeqCst);
    }
    fn swap_if(&self, current: u64, new: u64) -> bool {
        self.compare_exchange(current, new, SeqCst, SeqCst).is_ok()
    }
    fn add(&self, value: u64) -> u64 {
        self.fetch_add(value, SeqCst)
    }
    fn raise(&self, value: u64) {
        self.fetch_max(value, SeqCst);
    }
}

/// The memory of a schedule: the only access to atomics, so that a model checker can put its own behind it.
pub trait Memory: Send + Sync {
    /// Its words.
    type Word: Word;
    /// The word at a position, which is less than the number of words of a schedule.
    fn word(&self, nth: usize) -> &Self::Word;
    /// Sleeps while the low half of a word is `value`, at most so long. Returns early at will.
    fn wait(&self, nth: usize, value: u32, timeout_ns: u64);
    /// Wakes all who sleep on a word.
    fn wake(&self, nth: usize);
}

/// A schedule in memory that processes share.
pub struct Shared {
    memory: SharedMemory,
}

impl Shared {
    /// A new one.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn create() -> Result<Self, SharedMemoryError> {
        Ok(Self { memory: SharedMemory::create(c"farmem-links", LINK_SCHEDULE_BYTES)? })
    }

    /// The one in this file.
    ///
    /// # Errors
    /// It is none.
    pub fn attach(file: OwnedFd) -> Result<Self, SharedMemoryError> {
        Ok(Self { memory: SharedMemory::attach(file, LINK_SCHEDULE_BYTES)? })
    }

    /// The file, for another process.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.memory.file()
    }
}

impl Memory for Shared {
    type Word = AtomicU64;

    fn word(&self, nth: usize) -> &AtomicU64 {
        let words = self.memory.atomics(0, WORDS).expect("the mapping has the length of a schedule");
        &words[nth]
    }
    fn wait(&self, nth: usize, value: u32, timeout_ns: u64) {
        self.memory.wait(nth * size_of::<u64>(), value, timeout_ns);
    }
    fn wake(&self, nth: usize) {
        self.memory.wake(nth * size_of::<u64>(), Sleepers::All);
    }
}

/// A schedule.
pub struct LinkSchedule<M: Memory = Shared> {
    memory: M,
}

/// One direction of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lines {
    at: usize,
    direction: Direction,
}

impl Lines {
    fn clock(self) -> usize {
        self.at + CLOCK
    }
    fn line(self, link_slot: usize) -> usize {
        self.at + LINK_HEAD_WORDS + link_slot * LINE_WORDS
    }
}

impl<M: Memory> LinkSchedule<M> {
    /// The schedule in this memory, which holds one already, or all zeros.
    pub fn new(memory: M) -> Self {
        Self { memory }
    }

    /// The memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Sets the limit of all spaces together, in bytes per second; 0 for none.
    pub fn set_rate(&self, direction: Direction, bytes_per_second: u64) {
        self.memory.word(RATES + direction as usize).set(bytes_per_second);
    }

    /// The lines of a link, by a number that stands for what is at its other end; a place is taken for it if
    /// it has none. `None` when all are taken.
    pub fn link(&self, key: u64, direction: Direction) -> Option<Lines> {
        let key = key.max(1);
        (0..LINKS).find_map(|link| {
            let at = HEAD_WORDS + (link * DIRECTIONS + direction as usize) * LINK_WORDS;
            let word = self.memory.word(at + KEY);
            let is_it = word.get() == key || word.swap_if(0, key) || word.get() == key;
            is_it.then_some(Lines { at, direction })
        })
    }

    /// Clears the lines of a slot: its space has gone, or is about to come. Whoever waited for it looks
    /// again.
    pub fn clear(&self, link_slot: usize) {
        if link_slot >= LINK_SLOTS {
            return;
        }
        for link in 0..LINKS * DIRECTIONS {
            let at = HEAD_WORDS + link * LINK_WORDS;
            if self.memory.word(at + KEY).get() == 0 {
                continue;
            }
            let direction = if link % DIRECTIONS == 0 { Direction::In } else { Direction::Out };
            let lines = Lines { at, direction };
            link_slot::clear(self, lines, link_slot);
        }
    }

    /// Slots that were ever taken.
    fn taken(&self) -> usize {
        (self.memory.word(TAKEN).get() as usize).min(LINK_SLOTS)
    }
}

/// The number that stands for a node's address.
pub fn key_of(address: &str) -> u64 {
    // FNV-1a: addresses that are the same text are the same link, and nothing depends on more.
    address
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
