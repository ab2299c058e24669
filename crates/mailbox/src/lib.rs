//! The mailbox: memory in which a program leaves word of its memory, and in which the pager finds it
//! (`docs/formats/mailbox.md`).
//!
//! Both sides may write any of it at any time, so nothing in it is believed: positions only count modulo the
//! length of what they are in, and every loop has an end. A zeroed mailbox is an empty one.
//!
//! Invariants:
//! 1. A cell's *turn* says whose it is: that of the position at which it will be written next, or one more
//!    when it has been written. It is kept less the cell's index.
//! 2. The second word of a fault holds its position plus one, from when both words are written until the next
//!    fault begins to take their place.
//! 3. The pins are whole while their version is even.
#![no_std]
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering, fence};

/// The first word, once the mailbox is there.
pub const MAGIC: u64 = u64::from_le_bytes(*b"farmembx");
/// The second one.
pub const VERSION: u64 = 1;

/// Hints that wait, at most.
pub const HINTS: usize = 1024;
/// Ranges that are pinned, at most.
pub const PINS: usize = 1024;
/// Faults that are kept for the program's prefetcher.
pub const FAULTS: usize = 4096;

/// Where things lie, in words. Words of a group are written by one side, and have cache lines of their own.
pub mod at {
    /// [`MAGIC`](super::MAGIC).
    pub const MAGIC: usize = 0;
    /// [`VERSION`](super::VERSION).
    pub const VERSION: usize = 1;
    /// The pager's: odd while there is one, and another number for each.
    pub const PAGER: usize = 2;
    /// The pager's: changes for as long as it works.
    pub const BEAT: usize = 3;
    /// The program's: hints that were left so far.
    pub const HEAD: usize = 8;
    /// The pager's: hints that were taken so far.
    pub const TAIL: usize = 16;
    /// The program's: who pins at this moment (0 nobody, 1 somebody, 2 somebody, and others wait).
    pub const LOCK: usize = 24;
    /// The program's: changes with the pins.
    pub const PINS_VERSION: usize = 25;
    /// The program's: orders so far. The pager sleeps on it.
    pub const ASKED: usize = 26;
    /// The program's: what the order is, 1 to pin, 2 to unpin.
    pub const KIND: usize = 27;
    /// The program's: the first byte that the order is about.
    pub const START: usize = 28;
    /// The program's: the bytes that the order is about.
    pub const LENGTH: usize = 29;
    /// The pager's: the last order that has been answered, four times, plus 1 when it was refused. The
    /// program sleeps on it.
    pub const ANSWER: usize = 32;
    /// The program's: the thread that reads faults, 0 while nobody does.
    pub const READER: usize = 40;
    /// Both sides': 1 while that thread sleeps on it.
    pub const IS_ASLEEP: usize = 41;
    /// The pager's: faults so far.
    pub const FAULT_HEAD: usize = 48;
    /// The program's: ranges that are pinned, first byte and end of each; free where the end is 0.
    pub const PINS: usize = 512;
    /// Cells of hints: turn, first byte, bytes and kind.
    pub const HINTS: usize = PINS + 2 * super::PINS;
    /// Faults: what was touched and how, and position and thread.
    pub const FAULTS: usize = HINTS + 3 * super::HINTS;
    /// The end.
    pub const END: usize = FAULTS + 2 * super::FAULTS;
}

/// Words of a mailbox.
pub const WORDS: usize = at::END;
/// Bytes of a mailbox.
pub const BYTES: usize = 8 * WORDS;
const _: () =
    assert!(BYTES.is_multiple_of(4096), "mailboxes are known by their size, which is that of whole pages");

const COLD: u64 = 1 << 63;
const WRITE: u64 = 1 << 63;
/// Addresses end here.
const USER_END: u64 = 1 << 47;

/// What a hint says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// These bytes will be wanted soon.
    Prefetch,
    /// These bytes won't be wanted for long.
    Cold,
}

/// Bytes of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bytes {
    /// The first.
    pub start: u64,
    /// How many.
    pub length: u64,
}

impl Bytes {
    /// `None` for addresses that no program can have.
    #[must_use]
    pub fn checked(start: u64, length: u64) -> Option<Self> {
        let end = start.checked_add(length)?;
        (end <= USER_END).then_some(Self { start, length })
    }

    /// The first byte behind them.
    fn end(self) -> u64 {
        self.start + self.length
    }
}

/// What a thread of the program waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    /// Its number.
    pub number: u64,
    /// Whether it unpins.
    pub is_unpin: bool,
    /// `None` for addresses that no program can have.
    pub bytes: Option<Bytes>,
}

/// A fault on a page that had to be fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Fault {
    /// The address that was touched.
    pub address: u64,
    /// The kernel's number of the thread.
    pub thread: u32,
    /// 1 if it was written, else 0.
    pub is_write: u32,
}

/// A mailbox, seen from either side.
#[derive(Clone, Copy, Debug)]
pub struct Mailbox<'a> {
    words: &'a [AtomicU64],
}

impl<'a> Mailbox<'a> {
    /// `None` when it has another size.
    #[must_use]
    pub fn over(words: &'a [AtomicU64]) -> Option<Self> {
        (words.len() == WORDS).then_some(Self { words })
    }

    /// The word at one of the places of [`at`].
    #[must_use]
    pub fn word(self, at: usize) -> &'a AtomicU64 {
        &self.words[at]
    }

    fn get(self, at: usize) -> u64 {
        self.words[at].load(Ordering::Acquire)
    }

    fn set(self, at: usize, value: u64) {
        self.words[at].store(value, Ordering::Release);
    }

    /// Whether it is one, of this version.
    #[must_use]
    pub fn is_valid(self) -> bool {
        self.get(at::MAGIC) == MAGIC && self.get(at::VERSION) == VERSION
    }

    /// The program's: makes one of zeros.
    pub fn begin(self) {
        self.set(at::VERSION, VERSION);
        self.set(at::MAGIC, MAGIC);
    }

    /// The number of the pager that there is.
    #[must_use]
    pub fn pager(self) -> Option<u64> {
        // Sequentially consistent with what the program has noted before: of the two, one sees the other.
        let number = self.words[at::PAGER].load(Ordering::SeqCst);
        (number & 1 == 1).then_some(number)
    }

    /// The pager's: it is there from now on. The last order that concerns nobody any more.
    #[must_use]
    pub fn arrive(self) -> u64 {
        let asked = self.get(at::ASKED);
        let number = self.get(at::PAGER);
        self.words[at::PAGER].store(number.wrapping_add(1) | 1, Ordering::SeqCst);
        asked
    }

    /// The pager's: it is there no more.
    pub fn leave(self) {
        let number = self.get(at::PAGER);
        self.words[at::PAGER].store((number | 1).wrapping_add(1), Ordering::SeqCst);
    }

    fn cell(self, position: u64) -> (&'a [AtomicU64], u64) {
        let index = position as usize % HINTS;
        (&self.words[at::HINTS + 3 * index..][..3], index as u64)
    }

    /// The program's: leaves a hint. `false` when there is no room.
    #[must_use]
    pub fn push(self, kind: Kind, bytes: Bytes) -> bool {
        let head = &self.words[at::HEAD];
        let mut position = head.load(Ordering::Relaxed);
        loop {
            let (cell, index) = self.cell(position);
            let ahead = cell[0].load(Ordering::Acquire).wrapping_add(index).wrapping_sub(position) as i64;
            if ahead < 0 {
                return false;
            }
            if ahead > 0 {
                position = head.load(Ordering::Relaxed);
                continue;
            }
            let next = position.wrapping_add(1);
            match head.compare_exchange_weak(position, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    let kind = if kind == Kind::Cold { COLD } else { 0 };
                    cell[1].store(bytes.start, Ordering::Relaxed);
                    cell[2].store(bytes.length | kind, Ordering::Relaxed);
                    cell[0].store(next.wrapping_sub(index), Ordering::Release);
                    return true;
                }
                Err(now) => position = now,
            }
        }
    }

    /// The pager's, one thread at a time: the next hint. `None` also while the next one is being written. A
    /// hint about addresses that no program can have is one about nothing.
    #[must_use]
    pub fn pop(self) -> Option<(Kind, Bytes)> {
        let position = self.words[at::TAIL].load(Ordering::Relaxed);
        let (cell, index) = self.cell(position);
        let next = position.wrapping_add(1);
        if cell[0].load(Ordering::Acquire).wrapping_add(index) != next {
            return None;
        }
        let (start, length) = (cell[1].load(Ordering::Relaxed), cell[2].load(Ordering::Relaxed));
        cell[0].store(position.wrapping_add(HINTS as u64).wrapping_sub(index), Ordering::Release);
        self.words[at::TAIL].store(next, Ordering::Relaxed);
        let kind = if length & COLD != 0 { Kind::Cold } else { Kind::Prefetch };
        Some((kind, Bytes::checked(start, length & !COLD).unwrap_or_default()))
    }

    /// The pager's: whether a hint can be taken.
    #[must_use]
    pub fn has_hint(self) -> bool {
        let position = self.words[at::TAIL].load(Ordering::Relaxed);
        let (cell, index) = self.cell(position);
        cell[0].load(Ordering::Acquire).wrapping_add(index) == position.wrapping_add(1)
    }

    /// Hints that wait; any number when the program has written what it must not.
    #[must_use]
    pub fn waiting(self) -> u64 {
        let tail = self.words[at::TAIL].load(Ordering::Relaxed);
        self.words[at::HEAD].load(Ordering::Relaxed).wrapping_sub(tail)
    }

    /// The program's, under its lock: asks for something, and gives its number.
    #[must_use]
    pub fn ask(self, is_unpin: bool, bytes: Bytes) -> u64 {
        self.set(at::KIND, if is_unpin { 2 } else { 1 });
        self.set(at::START, bytes.start);
        self.set(at::LENGTH, bytes.length);
        let number = self.get(at::ASKED).wrapping_add(1);
        self.words[at::ASKED].store(number, Ordering::SeqCst);
        number
    }

    /// The program's: whether the order of that number was followed, once it is answered.
    #[must_use]
    pub fn answer(self, number: u64) -> Option<bool> {
        let answer = self.get(at::ANSWER);
        (answer >> 2 == number & u64::MAX >> 2).then_some(answer & 1 == 0)
    }

    /// The pager's: the order behind number `last`, if there is one.
    #[must_use]
    pub fn order(self, last: u64) -> Option<Order> {
        let number = self.get(at::ASKED);
        (number != last).then(|| Order {
            number,
            is_unpin: self.get(at::KIND) != 1,
            bytes: Bytes::checked(self.get(at::START), self.get(at::LENGTH)),
        })
    }

    /// The pager's: it was followed, or refused.
    pub fn reply(self, number: u64, is_done: bool) {
        self.set(at::ANSWER, number << 2 | u64::from(!is_done));
    }

    fn pin(self, index: usize) -> (&'a AtomicU64, &'a AtomicU64) {
        let at = at::PINS + 2 * (index % PINS);
        (&self.words[at], &self.words[at + 1])
    }

    fn pinned(self, index: usize) -> Option<(u64, u64)> {
        let (start, end) = self.pin(index);
        let (start, end) = (start.load(Ordering::Relaxed), end.load(Ordering::Relaxed));
        (end != 0).then_some((start, end))
    }

    fn put(self, index: usize, (from, to): (u64, u64)) {
        let (start, end) = self.pin(index);
        start.store(from, Ordering::Relaxed);
        end.store(to, Ordering::Relaxed);
    }

    /// The program's, under its lock: notes for a pager that comes later what is pinned, or no longer.
    /// `false`, and nothing noted, when there is no room.
    #[must_use]
    pub fn note(self, is_unpin: bool, bytes: Bytes) -> bool {
        let (mut start, mut end) = (bytes.start & !4095, (bytes.end() + 4095) & !4095);
        let touches = |(from, to): (u64, u64)| from <= end && start <= to;
        let holds = |(from, to): (u64, u64)| from < start && end < to;
        let pins = || (0..PINS).filter_map(|index| Some((index, self.pinned(index)?)));
        let free = (0..PINS).find(|&index| self.pinned(index).is_none());
        let has_room = match is_unpin {
            true => !pins().any(|(_, pin)| holds(pin)),
            false => pins().any(|(_, pin)| touches(pin)),
        };
        if !has_room && free.is_none() {
            return false;
        }
        let version = self.words[at::PINS_VERSION].load(Ordering::Relaxed);
        self.words[at::PINS_VERSION].store(version | 1, Ordering::Relaxed);
        fence(Ordering::Release);
        if is_unpin {
            let mut free = free;
            for (index, (from, to)) in pins().filter(|&(_, (from, to))| from < end && start < to) {
                match (from < start, end < to) {
                    (true, true) => {
                        self.put(index, (from, start));
                        if let Some(free) = free.take() {
                            self.put(free, (end, to));
                        }
                        break;
                    }
                    (true, false) => self.put(index, (from, start)),
                    (false, true) => self.put(index, (end, to)),
                    (false, false) => self.put(index, (0, 0)),
                }
            }
        } else {
            let mut first = None;
            for index in 0..PINS {
                if let Some((from, to)) = self.pinned(index)
                    && from <= end
                    && start <= to
                {
                    (start, end) = (start.min(from), end.max(to));
                    self.put(index, (0, 0));
                    first = first.or(Some(index));
                }
            }
            if let Some(index) = first.or(free) {
                self.put(index, (start, end));
            }
        }
        self.words[at::PINS_VERSION].store((version | 1).wrapping_add(1), Ordering::SeqCst);
        true
    }

    /// The pager's: copies the pins. `false` while they are being changed.
    #[must_use]
    pub fn copy_pins(self, out: &[AtomicU64]) -> bool {
        let version = self.get(at::PINS_VERSION);
        for (to, from) in out.iter().zip(&self.words[at::PINS..][..2 * PINS]) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        fence(Ordering::Acquire);
        version & 1 == 0 && version == self.words[at::PINS_VERSION].load(Ordering::Relaxed)
    }

    fn record(self, position: u64) -> (&'a AtomicU64, &'a AtomicU64) {
        let at = at::FAULTS + 2 * (position as usize % FAULTS);
        (&self.words[at], &self.words[at + 1])
    }

    /// The pager's: reports a fault. Whether the reader sleeps, and is to be woken at [`at::IS_ASLEEP`].
    #[must_use]
    pub fn tell(self, fault: Fault) -> bool {
        let reader = self.words[at::READER].load(Ordering::Relaxed);
        if reader == 0 || reader == u64::from(fault.thread) {
            return false;
        }
        // Sequentially consistent with the reader, which says that it sleeps and looks again: of the two, one
        // sees the other.
        let position = self.words[at::FAULT_HEAD].fetch_add(1, Ordering::SeqCst);
        let (what, who) = self.record(position);
        who.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        what.store(fault.address & !WRITE | if fault.is_write != 0 { WRITE } else { 0 }, Ordering::Relaxed);
        who.store(tag(position) | u64::from(fault.thread), Ordering::Release);
        let is_asleep = &self.words[at::IS_ASLEEP];
        is_asleep.load(Ordering::SeqCst) == 1 && is_asleep.swap(0, Ordering::AcqRel) == 1
    }

    /// The program's: the fault at position `tail`, if it is whole.
    fn fault(self, position: u64) -> Option<Fault> {
        let (what, who) = self.record(position);
        let before = who.load(Ordering::Acquire);
        let address = what.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let is_whole = before == who.load(Ordering::Relaxed) && before >> 32 << 32 == tag(position);
        let thread = before as u32;
        (is_whole && thread != 0).then_some(Fault {
            address: address & !WRITE,
            thread,
            is_write: u32::from(address & WRITE != 0),
        })
    }

    /// Faults so far.
    #[must_use]
    pub fn faults(self) -> u64 {
        self.words[at::FAULT_HEAD].load(Ordering::SeqCst)
    }

    /// The program's: the faults from position `tail` on, as many as there are and fit; `tail` is then behind
    /// them.
    pub fn read(self, tail: &mut u64, faults: &mut [Fault]) -> usize {
        let head = self.get(at::FAULT_HEAD);
        if head.wrapping_sub(*tail) > FAULTS as u64 {
            // The rest is about to be overwritten, too.
            *tail = head.wrapping_sub(FAULTS as u64 / 2);
        }
        let mut count = 0;
        while count < faults.len() && *tail != head {
            let Some(fault) = self.fault(*tail) else { break };
            faults[count] = fault;
            count += 1;
            *tail = tail.wrapping_add(1);
        }
        count
    }
}

fn tag(position: u64) -> u64 {
    position.wrapping_add(1) << 32
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::boxed::Box;
    use std::vec::Vec;

    use super::*;

    fn mailbox() -> Mailbox<'static> {
        let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let mailbox = Mailbox::over(Box::leak(words.into_boxed_slice())).unwrap();
        mailbox.begin();
        mailbox
    }

    fn bytes(start: u64, length: u64) -> Bytes {
        Bytes::checked(start, length).unwrap()
    }

    fn pins(mailbox: Mailbox<'_>) -> Vec<(u64, u64)> {
        let copy: Vec<AtomicU64> = (0..2 * PINS).map(|_| AtomicU64::new(0)).collect();
        assert!(mailbox.copy_pins(&copy));
        let words: Vec<u64> = copy.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        let mut pins: Vec<_> = words.chunks(2).map(|pin| (pin[0], pin[1])).filter(|pin| pin.1 != 0).collect();
        pins.sort_unstable();
        pins
    }

    #[test]
    fn hints_come_out_in_order_and_what_does_not_fit_is_refused() {
        let mailbox = mailbox();
        for round in 0..3 {
            for at in 0..HINTS as u64 {
                let kind = if at % 2 == 0 { Kind::Prefetch } else { Kind::Cold };
                assert!(mailbox.push(kind, bytes(round + at, at)));
            }
            assert!(!mailbox.push(Kind::Cold, bytes(7, 7)));
            assert_eq!(mailbox.waiting(), HINTS as u64);
            for at in 0..HINTS as u64 {
                let kind = if at % 2 == 0 { Kind::Prefetch } else { Kind::Cold };
                assert_eq!(mailbox.pop(), Some((kind, bytes(round + at, at))));
            }
            assert_eq!(mailbox.pop(), None);
        }
    }

    #[test]
    fn pins_are_joined_and_cut_by_pages() {
        let mailbox = mailbox();
        assert!(mailbox.note(false, bytes(0x10_0001, 10)));
        assert!(mailbox.note(false, bytes(0x10_2000, 0x1000)));
        assert_eq!(pins(mailbox), [(0x10_0000, 0x10_1000), (0x10_2000, 0x10_3000)]);
        assert!(mailbox.note(false, bytes(0x10_1000, 0x1000)));
        assert_eq!(pins(mailbox), [(0x10_0000, 0x10_3000)]);
        assert!(mailbox.note(true, bytes(0x10_1fff, 1)));
        assert_eq!(pins(mailbox), [(0x10_0000, 0x10_1000), (0x10_2000, 0x10_3000)]);
        assert!(mailbox.note(true, bytes(0, USER_END)));
        assert_eq!(pins(mailbox), []);
    }

    #[test]
    fn a_pin_that_finds_no_room_is_refused_and_leaves_the_others() {
        let mailbox = mailbox();
        for at in 0..PINS as u64 {
            assert!(mailbox.note(false, bytes(at * 0x4000, 0x3000)));
        }
        assert!(!mailbox.note(false, bytes(1 << 40, 1)));
        assert!(!mailbox.note(true, bytes(0x1000, 1)));
        assert_eq!(pins(mailbox).len(), PINS);
        assert!(mailbox.note(true, bytes(0, 1)));
        assert_eq!(pins(mailbox)[0], (0x1000, 0x3000));
    }

    #[test]
    fn an_order_is_answered_once_and_one_of_a_pager_before_concerns_nobody() {
        let mailbox = mailbox();
        let _old = mailbox.ask(false, bytes(1, 2));
        let last = mailbox.arrive();
        assert_eq!(mailbox.order(last), None);
        let number = mailbox.ask(true, bytes(3, 4));
        assert_eq!(mailbox.answer(number), None);
        let order = mailbox.order(last).unwrap();
        assert_eq!(order, Order { number, is_unpin: true, bytes: Some(bytes(3, 4)) });
        mailbox.reply(order.number, false);
        assert_eq!(mailbox.answer(number), Some(false));
        let pager = mailbox.pager();
        mailbox.leave();
        assert!(pager.is_some() && mailbox.pager().is_none());
        let _ = mailbox.arrive();
        assert!(mailbox.pager().is_some() && mailbox.pager() != pager);
    }

    #[test]
    fn faults_are_read_as_they_were_told_and_the_reader_s_own_are_not() {
        let mailbox = mailbox();
        let fault = |at: u64| Fault { address: at * 8, thread: 7, is_write: (at % 2) as u32 };
        assert!(!mailbox.tell(fault(1)));
        assert_eq!(mailbox.faults(), 0, "nobody reads");
        mailbox.word(at::READER).store(9, Ordering::Relaxed);
        mailbox.word(at::IS_ASLEEP).store(1, Ordering::Relaxed);
        assert!(mailbox.tell(fault(0)) && !mailbox.tell(fault(1)));
        assert!(!mailbox.tell(Fault { thread: 9, ..fault(2) }));
        let (mut tail, mut out) = (0, [Fault::default(); 10]);
        assert_eq!(mailbox.read(&mut tail, &mut out), 2);
        assert_eq!(out[..2], [fault(0), fault(1)]);
        for at in 0..2 * FAULTS as u64 {
            let _ = mailbox.tell(fault(at));
        }
        assert_eq!(mailbox.read(&mut tail, &mut out), 10);
        assert_eq!(tail, 2 + 2 * FAULTS as u64 - FAULTS as u64 / 2 + 10);
    }

    /// Whatever the program writes, the pager neither panics nor goes on for ever.
    #[test]
    fn any_bytes_are_read_without_harm() {
        for pattern in [u64::MAX, 1 << 63, 0x5555_5555_5555_5555, 1, 1 << 47] {
            let mailbox = mailbox();
            for at in 0..WORDS {
                mailbox.word(at).store(pattern.wrapping_mul(at as u64 + 1), Ordering::Relaxed);
            }
            for _ in 0..2 * HINTS {
                let _ = (mailbox.pop(), mailbox.waiting());
                let _ = mailbox.tell(Fault { address: 1, thread: 2, is_write: 1 });
            }
            let _ = mailbox.arrive();
            let _ = mailbox.order(0);
            mailbox.leave();
            let copy: Vec<AtomicU64> = (0..2 * PINS).map(|_| AtomicU64::new(0)).collect();
            let _ = mailbox.copy_pins(&copy);
        }
    }
}
