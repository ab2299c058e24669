//! Events of the address space: what the kernel says that the program has done, taken into the tables before
//! anything else is done.

use farmem_page::PageRange;
use farmem_policy::Fault;
use farmem_sys::Errno;
use farmem_sys::guard::{self, Guard};
use farmem_sys::pagemap::Runs;
use farmem_sys::uffd::{Message, Uffd};
use farmem_telemetry::{Counter, Step};

use crate::address_space::scan::windows;
use crate::engine::Engine;
use crate::gate::Reading;
use crate::inject::Injection;

impl Engine {
    /// Reads one message. A fault is returned, an event is dealt with; `None` when there was no message or no
    /// fault.
    pub(crate) fn receive(&self, reading: &Reading<'_>) -> Received {
        match self.pages.uffd.read() {
            Ok(None) => Received::Nothing,
            Ok(Some(Message::Fault { address, write, protected, thread })) => {
                let fault = Fault::at(address, thread, write);
                if protected { Received::Write(fault) } else { Received::Fault(fault) }
            }
            Ok(Some(event)) => {
                self.slot.add(Counter::Events, 1);
                self.take_in(reading, event);
                while let Some(rest) = self.pages.uffd.read_rest() {
                    self.take_in(reading, rest);
                }
                Received::Event
            }
            Err(error) => self.refused(Step::Message, error),
        }
    }

    /// Nobody changes pages while the caller reads. What is discarded or unmapped while somebody holds it is
    /// marked in its word; before anything is moved or copied to a child, all is let go but pages that are
    /// stranded or on their way from nodes.
    fn take_in(&self, reading: &Reading<'_>, event: Message) {
        match event {
            Message::Remove(range) => {
                self.family.sharing.note_let_go();
                if guard::stands(Guard::DiscardedHasNoEntry) {
                    self.discard(range);
                }
                self.forget_flights(reading, range);
                if guard::stands(Guard::DiscardedStays) {
                    self.mark_discarded(range);
                }
            }
            Message::Unmap(range) => {
                self.family.sharing.note_let_go();
                if guard::stands(Guard::UnmappedIsForgotten) {
                    self.pages.regions.remove(range);
                }
                self.forget_pinned(reading, range);
                self.discard(range);
                self.forget_flights(reading, range);
                self.forget_advice(range);
            }
            Message::Remap { from, to, count } => {
                let (old, new) = (PageRange::at(from, count), PageRange::at(to, count));
                reading.settle();
                self.forget_pinned(reading, new);
                self.discard(new);
                self.forget_stranded(reading, new);
                self.forget_flights(reading, new);
                if guard::stands(Guard::EntriesFollowMoves) && !self.pages.table.relocate(old, to) {
                    self.refused(Step::Table, Errno::NOMEM);
                }
                self.move_stranded(reading, old, to);
                self.move_flights(reading, old, to);
                self.move_pinned(reading, old, to);
                self.pages.regions.remove(old);
                self.pages.regions.insert(new);
                self.forget_advice(old);
            }
            Message::Fork(uffd) => self.forked(reading, uffd),
            Message::Fault { .. } | Message::Unknown(_) => {}
        }
    }

    fn discard(&self, range: PageRange) {
        self.trace_discard(range);
        self.pages.table.discard(range, |word, place| {
            if word.is_far() {
                self.slot.subtract(Counter::FarPages, 1);
            }
            self.vault.free(place);
        });
    }

    /// The kernel reports a discard before it does it. Pages that are still there must not leave until it is
    /// done, or what they held would come back. When it is done can't be known; that a page has come in again
    /// can.
    fn mark_discarded(&self, range: PageRange) {
        let mut runs = Runs::empty();
        for window in windows(range) {
            if let Err(errno) = self.pages.files.pagemap.resident(window, &mut runs) {
                self.refused(Step::Mappings, errno);
            }
            for page in runs.iter().flat_map(PageRange::iter) {
                if !self.pages.table.ensure(page) {
                    self.refused(Step::Table, Errno::NOMEM);
                }
                self.pages.table.update(page, |word| word.with_discarded(true));
            }
        }
    }

    /// A child has come into being. Until it has a pager of its own, it is served here.
    fn forked(&self, reading: &Reading<'_>, uffd: Uffd) {
        reading.settle();
        // First of all: until then both may write.
        let is_protected = self.protect_after_fork(reading, &uffd);
        let epoch = self.vault.end_epoch();
        self.inject_at(Injection::DeathInFork, epoch);
        self.tell_of_fork(&uffd, epoch);
        self.adopt(reading, uffd, epoch, is_protected);
    }
}

/// What reading a message brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Received {
    /// There was none.
    Nothing,
    /// An event, dealt with.
    Event,
    /// A touch of a missing page, to serve.
    Fault(Fault),
    /// A write to a protected page, to let through.
    Write(Fault),
}
