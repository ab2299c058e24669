//! Faults of the pager's own, on demand: how the tests make true what must never happen. The supervisor takes
//! the order from its environment and leaves it in the ledger. Without the feature `injection` nothing of
//! this is in the program.

use core::sync::atomic::Ordering;

use farmem_sys::{process, thread};
use farmem_telemetry::{Header, Ledger};

use crate::engine::Engine;

/// What to do wrong. The numbers are those of the ledger's word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Injection {
    /// A handler panics at its 500th fault.
    HandlerPanic = 1,
    /// The bookkeeper panics in its 50th round.
    BookkeeperPanic = 2,
    /// A handler stops for good at its 500th fault.
    HandlerStall = 3,
    /// Reads from disk fail.
    DiskReadError = 4,
    /// The process is killed when its first child lives and nobody else has the child's userfaultfd yet.
    DeathInFork = 5,
    /// Mappings are registered late after they were found.
    LateRegistration = 6,
    /// A page that could not be stored is not put back at once, as if an event waited.
    RefusedPutBack = 7,
    /// A child that is served by its parent is killed while it waits for its first page.
    DeathInFault = 8,
    /// The pager is killed before it has anything of its program's.
    DeathAtStart = 9,
}

const AT: [u64; 10] = [0, 500, 50, 500, 0, 1, 0, 0, 0, 0];
/// Long enough for a program to change a mapping.
const LATE_NS: u64 = 3_000_000;
/// Long enough for a child to begin its pager.
const BIRTH_NS: u64 = 100_000_000;
/// Between two looks whether a child has ended.
const LOOK_NS: u64 = 100_000;

impl Injection {
    /// Whether that was ordered.
    pub(crate) fn is_ordered(self, ledger: Ledger<'_>) -> bool {
        cfg!(feature = "injection") && ledger.header(Header::Inject).load(Ordering::Relaxed) == self as u64
    }
}

/// Kills the pager that begins, if it was ordered.
pub(crate) fn inject_death_at_start(ledger: Ledger<'_>) {
    if Injection::DeathAtStart.is_ordered(ledger) {
        process::kill_self();
    }
}

impl Engine {
    /// Does what was ordered when the count is reached.
    pub(crate) fn inject_at(&self, injection: Injection, count: u64) {
        if !injection.is_ordered(self.ledger) || count != AT[injection as usize] {
            return;
        }
        match injection {
            Injection::HandlerPanic | Injection::BookkeeperPanic => panic!("injected"),
            Injection::HandlerStall => loop {
                thread::sleep(1_000_000_000);
            },
            Injection::DeathInFork => {
                thread::sleep(BIRTH_NS);
                process::kill_self()
            }
            Injection::LateRegistration => thread::sleep(LATE_NS),
            Injection::DiskReadError
            | Injection::RefusedPutBack
            | Injection::DeathInFault
            | Injection::DeathAtStart => {}
        }
    }

    /// Kills that child, if it was ordered, and waits for its end.
    pub(crate) fn inject_death_of(&self, child: u32, has_ended: impl Fn() -> bool) {
        if Injection::DeathInFault.is_ordered(self.ledger) {
            process::kill(child);
            while !has_ended() {
                thread::sleep(LOOK_NS);
            }
        }
    }
}
