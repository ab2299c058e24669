//! What happens to pages, as it happens: a ring of records that the processes of an application write and
//! their supervisor reads.
//!
//! Writers never wait, and neither locks nor order: a record is three words, each of which carries the number
//! of the ring's lap. A reader of three words of the same lap has one record, whole, whoever wrote or died in
//! between (invariant 1). What is overwritten before it was read is counted as lost.

use core::sync::atomic::{AtomicU64, Ordering};

use farmem_page::PageIndex;

/// Records that the ring holds.
pub const TRACE_RECORDS: usize = 1 << 17;
/// Words of the ring.
pub(crate) const TRACE_WORDS: usize = TRACE_RECORDS * RECORD_WORDS;

const RECORD_WORDS: usize = 3;
/// Laps have numbers from 1 to this: memory that nobody has written is of none.
const LAPS: u64 = 255;
/// A record that is claimed and isn't there after so many looks was left by a writer who died.
const MOST_LOOKS: u32 = 50;

/// What happened to a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum TraceKind {
    /// A thread waits for a page that is stored. `detail` is the thread.
    Fault = 1,
    /// The same, and it is about to write.
    WriteFault = 2,
    /// A thread touches a page that holds nothing yet. `detail` is the thread.
    FirstTouch = 3,
    /// A stored page came ahead of its use.
    Prefetch = 4,
    /// A stored page came back since there was room.
    Return = 5,
    /// A page left local memory.
    Evict = 6,
    /// The program discarded or unmapped `detail` pages from this one on; all that follow if that is the
    /// largest number. So does one that starts.
    Discard = 7,
    /// The region in which the next faults lie begins with this page, and has `detail` pages.
    Region = 8,
}

impl TraceKind {
    /// All there are.
    pub const ALL: [Self; 8] = [
        Self::Fault,
        Self::WriteFault,
        Self::FirstTouch,
        Self::Prefetch,
        Self::Return,
        Self::Evict,
        Self::Discard,
        Self::Region,
    ];

    /// The kind of that number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&kind| kind as u8 == number)
    }

    /// Its name in listings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fault => "fault",
            Self::WriteFault => "write-fault",
            Self::FirstTouch => "first-touch",
            Self::Prefetch => "prefetch",
            Self::Return => "return",
            Self::Evict => "evict",
            Self::Discard => "discard",
            Self::Region => "region",
        }
    }
}

/// One record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceRecord {
    /// What happened.
    pub kind: TraceKind,
    /// The process, by its slot in the ledger.
    pub slot: u16,
    /// The page, below 2^48.
    pub page: PageIndex,
    /// A thread or a count of pages, as the kind says; 0 where it says nothing.
    pub detail: u32,
    /// When, by the process's monotonic clock, in nanoseconds below 2^56.
    pub time_ns: u64,
}

impl TraceRecord {
    fn words(self, lap: u64) -> [u64; RECORD_WORDS] {
        [
            self.time_ns << 8 | lap,
            self.page.get() << 16 | (self.kind as u64) << 8 | lap,
            u64::from(self.detail) << 32 | u64::from(self.slot) << 16 | lap,
        ]
    }

    fn from_words([time, page, rest]: [u64; RECORD_WORDS]) -> Option<Self> {
        Some(Self {
            kind: TraceKind::from_number((page >> 8) as u8)?,
            slot: (rest >> 16) as u16,
            page: PageIndex::new(page >> 16),
            detail: (rest >> 32) as u32,
            time_ns: time >> 8,
        })
    }
}

/// A view over the ring.
#[derive(Clone, Copy, Debug)]
pub struct TraceRing<'a> {
    /// Records that were ever claimed.
    pub(crate) head: &'a AtomicU64,
    pub(crate) words: &'a [AtomicU64],
}

impl TraceRing<'_> {
    /// Adds a record. May be called by any number of threads and processes at once.
    pub fn write(&self, record: TraceRecord) {
        let ticket = self.head.fetch_add(1, Ordering::Relaxed);
        for (place, word) in self.place(ticket).iter().zip(record.words(lap_of(ticket))) {
            place.store(word, Ordering::Relaxed);
        }
    }

    fn place(&self, ticket: u64) -> &[AtomicU64] {
        let at = ticket as usize % TRACE_RECORDS * RECORD_WORDS;
        &self.words[at..at + RECORD_WORDS]
    }
}

fn lap_of(ticket: u64) -> u64 {
    ticket / TRACE_RECORDS as u64 % LAPS + 1
}

/// The reader of the ring, and how far it has read.
#[derive(Debug, Default)]
pub struct TraceReader {
    next: u64,
    looks: u32,
}

impl TraceReader {
    /// Hands out what was written since the last call, in the order of claims, up to a record that is still
    /// being written. How many were lost.
    pub fn read(&mut self, ring: TraceRing<'_>, visit: impl FnMut(TraceRecord)) -> u64 {
        self.read_with(ring, MOST_LOOKS, visit)
    }

    /// The same when nobody is left who writes: what isn't whole by now never will be.
    pub fn read_rest(&mut self, ring: TraceRing<'_>, visit: impl FnMut(TraceRecord)) -> u64 {
        self.read_with(ring, 0, visit)
    }

    fn read_with(&mut self, ring: TraceRing<'_>, most_looks: u32, mut visit: impl FnMut(TraceRecord)) -> u64 {
        let head = ring.head.load(Ordering::Relaxed);
        let mut lost = 0;
        if head - self.next > TRACE_RECORDS as u64 {
            // Half a ring ahead of the writers, so that the rest of it isn't overwritten at once.
            let next = head - TRACE_RECORDS as u64 / 2;
            lost += next - self.next;
            self.next = next;
        }
        while self.next < head {
            let lap = lap_of(self.next);
            let mut words = [0; RECORD_WORDS];
            for (word, place) in words.iter_mut().zip(ring.place(self.next)) {
                *word = place.load(Ordering::Relaxed);
            }
            let is_whole = words.iter().all(|word| word & 0xff == lap);
            match TraceRecord::from_words(words).filter(|_| is_whole) {
                Some(record) => visit(record),
                None if self.looks < most_looks => {
                    self.looks += 1;
                    return lost;
                }
                None => lost += 1,
            }
            self.looks = 0;
            self.next += 1;
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    fn memory() -> (AtomicU64, Vec<AtomicU64>) {
        (AtomicU64::new(0), (0..TRACE_WORDS).map(|_| AtomicU64::new(0)).collect())
    }

    fn record(number: u64) -> TraceRecord {
        let kind = TraceKind::ALL[number as usize % TraceKind::ALL.len()];
        let (slot, detail) = ((number % 1024) as u16, number as u32);
        TraceRecord { kind, slot, page: PageIndex::new(number << 4), detail, time_ns: number }
    }

    #[test]
    fn what_is_written_is_read_once_in_order_over_many_laps() {
        let (head, words) = memory();
        let ring = TraceRing { head: &head, words: &words };
        let mut reader = TraceReader::default();
        let mut expected = 0;
        for batch in 0..9 {
            let count = TRACE_RECORDS as u64 - batch * 1000;
            (expected..expected + count).for_each(|number| ring.write(record(number)));
            let lost = reader.read(ring, |read| {
                assert_eq!(read, record(expected));
                expected += 1;
            });
            assert_eq!(lost, 0);
        }
    }

    #[test]
    fn what_was_overwritten_is_counted() {
        let (head, words) = memory();
        let ring = TraceRing { head: &head, words: &words };
        let mut reader = TraceReader::default();
        let count = TRACE_RECORDS as u64 + 10;
        (0..count).for_each(|number| ring.write(record(number)));
        let mut read = 0;
        let lost = reader.read(ring, |_| read += 1);
        assert_eq!(lost + read, count);
        assert_eq!(read, TRACE_RECORDS as u64 / 2);
    }

    #[test]
    fn a_record_whose_writer_died_is_passed_over() {
        let (head, words) = memory();
        let ring = TraceRing { head: &head, words: &words };
        ring.write(record(1));
        head.fetch_add(1, Ordering::Relaxed);
        ring.write(record(3));
        let mut reader = TraceReader::default();
        let mut read = Vec::new();
        let lost: u64 = (0..=MOST_LOOKS).map(|_| reader.read(ring, |record| read.push(record))).sum();
        assert_eq!((lost, read), (1, std::vec![record(1), record(3)]));
    }

    #[test]
    fn at_the_end_nobody_is_waited_for() {
        let (head, words) = memory();
        let ring = TraceRing { head: &head, words: &words };
        head.fetch_add(1, Ordering::Relaxed);
        ring.write(record(3));
        let mut read = Vec::new();
        let lost = TraceReader::default().read_rest(ring, |record| read.push(record));
        assert_eq!((lost, read), (1, std::vec![record(3)]));
    }

    #[test]
    fn records_of_several_threads_come_whole() {
        const EACH: u64 = 100_000;
        let (head, words) = memory();
        let ring = TraceRing { head: &head, words: &words };
        let (mut read, mut lost) = (0, 0);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..EACH).for_each(|number| ring.write(record(number)))))
                .collect();
            let mut reader = TraceReader::default();
            let mut visit = |found: TraceRecord| {
                assert_eq!(found, record(found.time_ns));
                read += 1;
            };
            while !writers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                lost += reader.read(ring, &mut visit);
            }
            // A writer that was held up for a whole lap has spoiled a later record, at which `read` would
            // wait.
            lost += reader.read_rest(ring, &mut visit);
        });
        assert_eq!(read + lost, 4 * EACH);
    }
}
