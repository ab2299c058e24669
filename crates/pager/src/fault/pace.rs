//! The class of the first handler: idle while it works alone and gets its processor, ordinary else. And what
//! the bookkeeper does so that it never waits for a handler that nobody lets run.

use core::sync::atomic::Ordering;

use farmem_policy::{STARVED_NS, Sight, Starvation};
use farmem_sys::thread::{self, Class};
use farmem_telemetry::Counter;

use crate::engine::Engine;
use crate::fault::handlers::{Crowd, Crowding, Handlers};
use crate::gate::{BOOKKEEPER, Change, Entry, Holding};

/// The class of the first handler, kept by the bookkeeper.
#[derive(Debug)]
pub(crate) struct Pace {
    class: Class,
    /// Whether the kernel would let the handler out of the idle class again. If not it must never enter it:
    /// next to any busy program it would hardly ever run.
    may_return: bool,
    starvation: Starvation,
    crowding: Crowding,
}

impl Pace {
    pub(crate) fn new(may_return: bool) -> Self {
        Self {
            class: Class::Normal,
            may_return,
            starvation: Starvation::default(),
            crowding: Crowding::default(),
        }
    }

    /// Whether the handler may starve, so that the next look must not be late.
    pub(crate) fn is_delicate(&self) -> bool {
        self.class == Class::Idle
    }

    /// One round, in which so many threads faulted, of which so many can be served at a time.
    pub(crate) fn look_at_crowd(&mut self, handlers: &Handlers, threads: u32, started: u32) {
        if !self.may_return {
            return;
        }
        let Some(crowd) = self.crowding.look(threads, started) else { return };
        handlers.set_nice(if crowd == Crowd::Few { 0 } else { thread::HURRIED_NICE });
        thread::hurry_session(crowd == Crowd::Many);
    }

    /// One look. While the program rests its handler is an ordinary thread, which nobody has to watch.
    pub(crate) fn look(&mut self, engine: &Engine, is_resting: bool) {
        if !self.may_return {
            return;
        }
        let now_ns = thread::now_ns();
        if self.class == Class::Idle && !engine.handlers.is_first_idle() {
            self.class = Class::Normal;
            self.starvation.starved(now_ns);
        }
        let sight = Sight {
            faults: engine.slot.get(Counter::Faults),
            work: engine.slot.work(0).load(Ordering::Relaxed),
            is_waiting: engine.pages.uffd.has_message(),
        };
        let competes = self.starvation.look(sight, now_ns);
        let is_alone = engine.handlers.is_first_alone();
        let wanted = if is_alone && !competes && !is_resting { Class::Idle } else { Class::Normal };
        if wanted == self.class || !engine.handlers.has_first() {
            return;
        }
        if engine.handlers.set_class_of_first(wanted) {
            self.class = wanted;
        } else if wanted == Class::Normal {
            // What was allowed at the start no longer is, by a filter of system calls perhaps. Another
            // handler takes over.
            engine.handlers.need_second();
        }
    }
}

impl Engine {
    /// Enters the gate to change pages, on the bookkeeper.
    pub(crate) fn change_as_bookkeeper(&self) -> Change<'_> {
        self.enter_as_bookkeeper(|| self.pages.gate.change_within(BOOKKEEPER, STARVED_NS))
    }

    /// Enters the gate to hold pages, on the bookkeeper.
    pub(crate) fn hold_as_bookkeeper(&self) -> Holding<'_> {
        self.enter_as_bookkeeper(|| self.pages.gate.hold_within(BOOKKEEPER, STARVED_NS))
    }

    /// Enters the gate to change pages that the caller holds. `None` when all must be let go, for a move or a
    /// fork.
    pub(crate) fn change<'a>(&'a self, holding: &Holding<'a>) -> Option<Change<'a>> {
        if holding.party() != BOOKKEEPER {
            return holding.change();
        }
        self.enter_as_bookkeeper(|| match holding.change_within(STARVED_NS) {
            Entry::Change(change) => Some(Some(change)),
            Entry::LetGo => Some(None),
            Entry::Reading => None,
        })
    }

    /// Tries until `enter` succeeds, each time for [`STARVED_NS`] at most. A handler of the idle class may
    /// have lost its processor while it reads a message: nobody but this thread, which waits for it, would
    /// notice.
    fn enter_as_bookkeeper<T>(&self, enter: impl Fn() -> Option<T>) -> T {
        let began_ns = thread::now_ns();
        loop {
            if let Some(entered) = enter() {
                return entered;
            }
            if thread::now_ns() - began_ns >= STARVED_NS {
                self.handlers.rouse_first();
            }
        }
    }
}
