//! Events of the address space: what the kernel says that the program has done, taken into the tables before anything
//! else is done.

use core::sync::atomic::Ordering;

use farmem_page::PageRange;
use farmem_policy::Fault;
use farmem_sys::uffd::{Message, Uffd};
use farmem_telemetry::Counter;

use crate::engine::{Engine, Failure};
use crate::gate::Reading;

impl Engine {
    /// Reads one message. A fault is returned, an event is dealt with; `None` when there was no message or no fault.
    pub(crate) fn receive(&self, reading: &Reading<'_>) -> Received {
        match self.uffd.read() {
            Ok(None) => Received::Nothing,
            Ok(Some(Message::Fault { page, write, thread })) => {
                Received::Fault(Fault { page, thread, write })
            }
            Ok(Some(event)) => {
                self.slot.add(Counter::Events, 1);
                self.take_in(reading, event);
                Received::Event
            }
            Err(_) => self.fail(Failure::Kernel),
        }
    }

    /// Nobody changes pages while the caller reads, so no page is held.
    fn take_in(&self, _reading: &Reading<'_>, event: Message) {
        match event {
            Message::Remove(range) => self.discard(range),
            Message::Unmap(range) => {
                self.regions.remove(range);
                self.discard(range);
                self.forget_advice(range);
            }
            Message::Remap { from, to, count } => {
                let (old, new) = (PageRange::at(from, count), PageRange::at(to, count));
                self.discard(new);
                self.table.relocate(old, to);
                self.regions.remove(old);
                self.regions.insert(new);
                self.forget_advice(old);
            }
            Message::Fork(uffd) => self.forked(uffd),
            Message::Fault { .. } | Message::Unknown(_) => {}
        }
    }

    fn discard(&self, range: PageRange) {
        self.table.discard(range, |word, place| {
            if word.is_far() {
                self.slot.subtract(Counter::FarPages, 1);
            }
            self.vault.free(place);
        });
    }

    /// A child has come into being. Until it serves itself, it is served here.
    fn forked(&self, uffd: Uffd) {
        let is_announced = self.forking.load(Ordering::Acquire) != 0 && self.fork.is_expected();
        let epoch = if is_announced { self.vault.ended_epoch() } else { self.vault.end_epoch() };
        let is_heard = is_announced && self.fork.tell(&uffd, epoch);
        self.adopt(uffd, epoch, is_heard);
        self.fork.happened(is_heard);
    }
}

/// What reading a message brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Received {
    /// There was none.
    Nothing,
    /// An event, dealt with.
    Event,
    /// A fault to serve.
    Fault(Fault),
}
