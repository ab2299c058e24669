//! Faults as they come, for a prefetcher that the program brings along: a ring that handlers fill and one thread of the program's reads.
//!
//! Nobody waits for the reader, and what it is too slow for is overwritten. It only ever decides on hints.
//!
//! Invariants:
//! 1. The second word of a record holds the record's position in the ring's history, plus one, from when both words are written until the next
//!    record begins to take their place.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use farmem_policy::Fault;
use farmem_sys::wait::{self, Scope, Sleepers};
use farmem_sys::{Errno, memory};

use crate::engine::Engine;

/// Records: 64 KiB.
const LENGTH: u64 = 4096;
const WRITE: u64 = 1 << 63;

/// A fault, as the program sees it: `struct farmem_fault` of `include/farmem.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct ObservedFault {
    /// The address that was touched.
    pub address: u64,
    /// The kernel's number of the thread.
    pub thread: u32,
    /// 1 if it was written, else 0.
    pub is_write: u32,
}

/// The ring.
#[derive(Debug)]
pub(crate) struct Observer {
    words: &'static [AtomicU64],
    /// Records so far.
    head: AtomicU64,
    /// The thread that reads; 0 while nobody does. Its own faults are none of its business.
    reader: AtomicU32,
    /// 1 while the reader sleeps.
    is_asleep: AtomicU32,
}

impl Observer {
    /// # Errors
    /// No memory.
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self {
            words: memory::table(2 * LENGTH as usize)?,
            head: AtomicU64::new(0),
            reader: AtomicU32::new(0),
            is_asleep: AtomicU32::new(0),
        })
    }

    fn record(&self, position: u64) -> (&AtomicU64, &AtomicU64) {
        let at = 2 * (position % LENGTH) as usize;
        (&self.words[at], &self.words[at + 1])
    }

    /// Tells of a fault whose page was stored.
    pub(crate) fn tell(&self, fault: Fault) {
        let reader = self.reader.load(Ordering::Relaxed);
        if reader == 0 || reader == fault.thread {
            return;
        }
        // Sequentially consistent with `wait_for_faults`: of the two, one sees the other.
        let position = self.head.fetch_add(1, Ordering::SeqCst);
        let (what, who) = self.record(position);
        who.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        what.store(fault.address().get() | if fault.write { WRITE } else { 0 }, Ordering::Relaxed);
        who.store(tag(position) | u64::from(fault.thread), Ordering::Release);
        if self.is_asleep.load(Ordering::SeqCst) == 1 && self.is_asleep.swap(0, Ordering::AcqRel) == 1 {
            wait::wake(&self.is_asleep, Sleepers::All, Scope::Process);
        }
    }

    /// The record at that position, if it is whole.
    fn read(&self, position: u64) -> Option<ObservedFault> {
        let (what, who) = self.record(position);
        let before = who.load(Ordering::Acquire);
        let address = what.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let is_whole =
            before == who.load(Ordering::Relaxed) && before & !u64::from(u32::MAX) == tag(position);
        let thread = before as u32;
        (is_whole && thread != 0).then_some(ObservedFault {
            address: address & !WRITE,
            thread,
            is_write: u32::from(address & WRITE != 0),
        })
    }
}

fn tag(position: u64) -> u64 {
    (position + 1) << 32
}

impl Engine {
    /// The calling thread, of that number, reads faults from now on; 0 when nobody does any more. Where it begins to read.
    pub fn observe(&self, thread: u32) -> u64 {
        self.observer.reader.store(thread, Ordering::Relaxed);
        self.observer.head.load(Ordering::Relaxed)
    }

    /// The faults from position `tail` on, as many as there are and fit `faults`; `tail` is then behind them.
    pub fn observed(&self, tail: &mut u64, faults: &mut [ObservedFault]) -> usize {
        let head = self.observer.head.load(Ordering::Acquire);
        if head - *tail > LENGTH {
            // The rest is about to be overwritten, too.
            *tail = head - LENGTH / 2;
        }
        let mut count = 0;
        while count < faults.len() && *tail < head {
            let Some(fault) = self.observer.read(*tail) else {
                // It is being written; or was overwritten just now, which the next look will notice.
                break;
            };
            faults[count] = fault;
            count += 1;
            *tail += 1;
        }
        count
    }

    /// Sleeps until there is a fault behind position `tail`, at most `timeout_ns`.
    pub fn wait_for_faults(&self, tail: u64, timeout_ns: u64) {
        let observer = &self.observer;
        observer.is_asleep.store(1, Ordering::SeqCst);
        if observer.head.load(Ordering::SeqCst) == tail {
            wait::wait(&observer.is_asleep, 1, Some(timeout_ns), Scope::Process);
        }
        observer.is_asleep.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use farmem_page::VirtAddr;

    use super::*;

    fn fault(number: u64) -> Fault {
        Fault::at(VirtAddr::new(number * 8), 7, number % 2 == 1)
    }

    #[test]
    fn records_are_read_as_they_were_told_and_the_reader_s_own_are_not() {
        let observer = Observer::new().unwrap();
        observer.tell(fault(1));
        assert_eq!(observer.head.load(Ordering::Relaxed), 0, "nobody reads");
        observer.reader.store(9, Ordering::Relaxed);
        for number in 0..LENGTH + 10 {
            observer.tell(fault(number));
            observer.tell(Fault::at(VirtAddr::new(0), 9, false));
        }
        for number in 0..10 {
            assert_eq!(observer.read(number), None, "overwritten");
        }
        for number in 10..LENGTH + 10 {
            let expected = ObservedFault { address: number * 8, thread: 7, is_write: (number % 2) as u32 };
            assert_eq!(observer.read(number), Some(expected));
        }
        assert_eq!(observer.read(LENGTH + 10), None, "not told yet");
    }
}
