//! Mailboxes of the pager's program: what the program says of its memory comes by way of
//! memory that both map (`docs/formats/mailbox.md`).
//!
//! The program may write anything there at any time. All that comes of it is that it is told or brought
//! something that it hasn't asked for: ranges are checked when they are taken out, and of each mailbox a
//! bounded part is looked at in one go.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use farmem_mailbox::{Bytes, Kind, Mailbox, PINS, WORDS, at};
use farmem_page::{PageRange, VirtAddr};
use farmem_policy::Fault;
use farmem_sys::segments::{MOST, Segments};
use farmem_sys::wait::{self, Scope, Sleepers};
use farmem_sys::{memory, thread};

use crate::bell::Bell;
use crate::engine::Engine;
use crate::hints::pin::Pin;
use crate::hints::queue::Hint;
use crate::hints::ranges::pages;

/// How often the program's mappings are looked through: until there is a mailbox, and then.
const FIRST_LOOK_NS: u64 = 10_000_000;
const LOOK_NS: u64 = 100_000_000;
/// A look takes at most one part of the time in so many.
const LOOK_SHARE: u64 = 200;
/// Mappings that are tried in one look.
const MOST_TRIED: usize = 16;
/// How often the pins of a program may be found in the midst of a change before they are given up.
const PATIENCE: u32 = 10_000;

/// Pins that have not been copied yet.
const NOT_COPIED: usize = usize::MAX;

/// Those that have asked for memory to be pinned, or not any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asker {
    /// A thread of the program's, by the order of that number in a mailbox.
    Mailbox(usize, u64),
    /// Nobody waits: the program had it pinned before its pager came.
    Before,
}

/// What is kept of one mailbox. Only the bookkeeper writes it.
#[derive(Debug)]
struct Opened {
    /// The number of the last order that was taken.
    last: AtomicU64,
    /// The next of the copied pins.
    next_pin: AtomicUsize,
    patience: AtomicU32,
}

/// The mailboxes.
#[derive(Debug)]
pub(crate) struct Mailboxes {
    segments: Segments,
    opened: [Opened; MOST],
    /// Pins of one mailbox at a time, and whose they are, plus one.
    pins: &'static [AtomicU64],
    pins_of: AtomicUsize,
    is_any: AtomicBool,
    has_left: AtomicBool,
    last_look_ns: AtomicU64,
    look_took_ns: AtomicU64,
}

impl Mailboxes {
    /// # Errors
    /// No memory.
    pub(crate) fn new() -> Result<Self, farmem_sys::Errno> {
        Ok(Self {
            segments: Segments::new(WORDS),
            opened: [const {
                Opened {
                    last: AtomicU64::new(0),
                    next_pin: AtomicUsize::new(NOT_COPIED),
                    patience: AtomicU32::new(PATIENCE),
                }
            }; MOST],
            pins: memory::table(2 * PINS)?,
            pins_of: AtomicUsize::new(0),
            is_any: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
            last_look_ns: AtomicU64::new(0),
            look_took_ns: AtomicU64::new(0),
        })
    }

    fn mailbox(&self, index: usize) -> Option<Mailbox<'_>> {
        Mailbox::over(self.segments.words(index)?)
    }

    fn each(&self) -> impl Iterator<Item = (usize, Mailbox<'_>)> {
        let most = if self.is_any.load(Ordering::Acquire) { MOST } else { 0 };
        (0..most).map_while(|index| Some((index, self.mailbox(index)?)))
    }

    fn wake(&self, index: usize, at: usize) {
        if let Some(half) = self.segments.low_half(index, at) {
            wait::wake(half, Sleepers::All, Scope::Machine);
        }
    }

    /// Tells the program's own prefetchers of a fault whose page was stored.
    pub(crate) fn tell(&self, fault: Fault) {
        for (index, mailbox) in self.each() {
            let told = farmem_mailbox::Fault {
                address: fault.address().get(),
                thread: fault.thread,
                is_write: u32::from(fault.write),
            };
            if mailbox.tell(told) {
                self.wake(index, at::IS_ASLEEP);
            }
        }
    }

    /// Whether the program has mailboxes. In them it sees whether its pager still makes its rounds.
    pub(crate) fn are_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    /// Whether there is a hint.
    pub(crate) fn is_any_hint(&self) -> bool {
        self.each().any(|(_, mailbox)| mailbox.has_hint())
    }

    /// The next hint. One thread at a time.
    pub(crate) fn pop(&self) -> Option<(Hint, PageRange)> {
        let (kind, bytes) = self.each().find_map(|(_, mailbox)| mailbox.pop())?;
        let hint = match kind {
            Kind::Prefetch => Hint::Prefetch,
            Kind::Cold => Hint::Cold,
        };
        Some((hint, pages_of(hint, bytes.start, bytes.length)))
    }

    /// While nothing is managed, hints are kept until something is; the oldest make room for others.
    pub(crate) fn thin_out(&self) {
        for (_, mailbox) in self.each() {
            for _ in 0..farmem_mailbox::HINTS {
                if mailbox.waiting() <= farmem_mailbox::HINTS as u64 / 2 || mailbox.pop().is_none() {
                    break;
                }
            }
        }
    }

    /// On the bookkeeper: what is to be pinned next, or not any more. What was pinned before the pager came
    /// goes first, so that what is said afterwards counts.
    pub(crate) fn next_order(&self) -> Option<(Asker, Pin, PageRange)> {
        for (index, mailbox) in self.each() {
            match self.next_pin(index, mailbox) {
                Next::Range(range) => return Some((Asker::Before, Pin::Pin, range)),
                Next::Later => continue,
                Next::None => {}
            }
            let last = &self.opened[index].last;
            let Some(order) = mailbox.order(last.load(Ordering::Relaxed)) else { continue };
            last.store(order.number, Ordering::Relaxed);
            let asker = Asker::Mailbox(index, order.number);
            let Some(bytes) = order.bytes else {
                self.answer(asker, false);
                continue;
            };
            let pin = if order.is_unpin { Pin::Unpin } else { Pin::Pin };
            return Some((asker, pin, pages(bytes.start as usize, bytes.length as usize)));
        }
        None
    }

    fn next_pin(&self, index: usize, mailbox: Mailbox<'_>) -> Next {
        let Opened { next_pin, patience, .. } = &self.opened[index];
        if next_pin.load(Ordering::Relaxed) == NOT_COPIED {
            let owner = self.pins_of.load(Ordering::Relaxed);
            if owner != 0 {
                return Next::Later;
            }
            if !mailbox.copy_pins(self.pins) {
                let left = patience.load(Ordering::Relaxed).saturating_sub(1);
                patience.store(left, Ordering::Relaxed);
                if left > 0 {
                    return Next::Later;
                }
                next_pin.store(PINS, Ordering::Relaxed);
                return Next::None;
            }
            self.pins_of.store(index + 1, Ordering::Relaxed);
            next_pin.store(0, Ordering::Relaxed);
        }
        while next_pin.load(Ordering::Relaxed) < PINS {
            let at = next_pin.fetch_add(1, Ordering::Relaxed);
            let [start, end] = [0, 1].map(|word| self.pins[2 * at + word].load(Ordering::Relaxed));
            let bytes = end.checked_sub(start).and_then(|length| Bytes::checked(start, length));
            if let Some(bytes) = bytes.filter(|bytes| bytes.length > 0) {
                return Next::Range(pages(bytes.start as usize, bytes.length as usize));
            }
        }
        if self.pins_of.load(Ordering::Relaxed) == index + 1 {
            self.pins_of.store(0, Ordering::Relaxed);
        }
        Next::None
    }

    /// Tells who has asked what came of it.
    pub(crate) fn answer(&self, asker: Asker, is_done: bool) {
        if let Asker::Mailbox(index, number) = asker
            && let Some(mailbox) = self.mailbox(index)
        {
            mailbox.reply(number, is_done);
            self.wake(index, at::ANSWER);
        }
    }

    /// The pager leaves the program: whoever waits need not any more.
    pub(crate) fn leave(&self) {
        if self.has_left.swap(true, Ordering::AcqRel) {
            return;
        }
        for (index, mailbox) in self.each() {
            mailbox.leave();
            self.wake(index, at::ANSWER);
        }
    }

    /// The bookkeeper's sleep: ends early when somebody rings, or leaves an order.
    pub(crate) fn sleep(&self, bell: &Bell, pause_ns: u64) {
        if !self.is_any.load(Ordering::Acquire) || self.has_left.load(Ordering::Relaxed) {
            bell.sleep(pause_ns);
            return;
        }
        let orders = (0..MOST).filter_map(|index| {
            let half = self.segments.low_half(index, at::ASKED)?;
            Some((half, self.opened[index].last.load(Ordering::Relaxed) as u32, Scope::Machine))
        });
        wait::wait_any(core::iter::once(bell.word()).chain(orders), pause_ns);
    }
}

/// The pins of a mailbox.
enum Next {
    Range(PageRange),
    /// They are being changed.
    Later,
    /// All have been taken.
    None,
}

/// The pages that a hint about so many bytes is about: of those that are called cold only whole ones.
pub(crate) fn pages_of(hint: Hint, start: u64, length: u64) -> PageRange {
    let first = VirtAddr::new(start);
    let end = VirtAddr::new(start + length);
    match hint {
        Hint::Prefetch if length > 0 => pages(start as usize, length as usize),
        Hint::Prefetch => PageRange::new(first.page(), first.page()),
        Hint::Cold => PageRange::new(first.page_up(), end.page().max(first.page_up())),
    }
}

impl Engine {
    /// On the bookkeeper: looks for mailboxes, and says in those that there are that it works.
    pub(crate) fn look_for_mailboxes(&self, rounds: u64) {
        let mailboxes = &self.mailboxes;
        if mailboxes.has_left.load(Ordering::Relaxed) {
            return;
        }
        mailboxes.each().for_each(|(_, mailbox)| mailbox.word(at::BEAT).store(rounds, Ordering::Relaxed));
        let took_ns = mailboxes.look_took_ns.load(Ordering::Relaxed);
        let now_ns = thread::now_ns();
        let passed_ns = now_ns - mailboxes.last_look_ns.load(Ordering::Relaxed);
        let look_ns = if mailboxes.is_any.load(Ordering::Relaxed) { LOOK_NS } else { FIRST_LOOK_NS };
        if passed_ns < look_ns.max(took_ns.saturating_mul(LOOK_SHARE)) {
            return;
        }
        let began_ns = thread::cpu_ns();
        let mut from = VirtAddr::new(0);
        let mut tried = 0;
        while let Ok(Some(mapping)) = self.pages.files.maps.next(from) {
            from = mapping.range.end.addr();
            if mapping.shared
                && mapping.writable
                && mapping.range.count().bytes().get() == farmem_mailbox::BYTES as u64
            {
                tried += 1;
                self.open_mailbox(&mapping);
                if tried == MOST_TRIED {
                    break;
                }
            }
        }
        mailboxes.look_took_ns.store(thread::cpu_ns() - began_ns, Ordering::Relaxed);
        mailboxes.last_look_ns.store(thread::now_ns(), Ordering::Relaxed);
    }

    fn open_mailbox(&self, mapping: &farmem_sys::maps::Mapping) {
        let mailboxes = &self.mailboxes;
        let is_wanted = |words: &[AtomicU64]| Mailbox::over(words).is_some_and(Mailbox::is_valid);
        // What can't be mapped is tried again: it may be too early.
        let Ok(Some(index)) = mailboxes.segments.add(&self.pages.files.maps, mapping, is_wanted) else {
            return;
        };
        if let Some(mailbox) = mailboxes.mailbox(index) {
            mailboxes.opened[index].last.store(mailbox.arrive(), Ordering::Relaxed);
            mailboxes.is_any.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_about_pages_that_have_some_of_the_bytes_and_cold_ones_have_nothing_else() {
        let range = |hint, start, length| {
            let range = pages_of(hint, start, length);
            (range.start.get(), range.count().get())
        };
        assert_eq!(range(Hint::Prefetch, 0x1fff, 2), (1, 2));
        assert_eq!(range(Hint::Prefetch, 0x1fff, 0), (1, 0));
        assert_eq!(range(Hint::Cold, 0x1fff, 0x1002), (2, 1));
        assert_eq!(range(Hint::Cold, 0x1001, 0x1000), (2, 0));
        assert_eq!(range(Hint::Cold, (1 << 47) - 1, 1), (1 << 35, 0));
    }
}
