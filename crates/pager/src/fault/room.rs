//! Waiting for room: what a fault does while its process is far above its limit.

use farmem_sys::thread;
use farmem_telemetry::{Counter, Failure};

use crate::engine::Engine;
use crate::eviction::residency::TOLERATED_PAGES;

/// How long a fault waits for room in a full pool before the program is ended, nanoseconds. A memory node
/// that falls silent is waited for for five seconds, and what was on its way to it is tried elsewhere only
/// then: meanwhile a pool that is full may be so for a moment only.
const PATIENCE_NS: u64 = 10_000_000_000;
const RETRY_NS: u64 = 1_000_000;
/// How often in a row a fault finds that somebody else evicts before it is put aside. Where processors are
/// short, the puppet may be long about one call.
const MOST_BUSY: u32 = 50;

impl Engine {
    /// Waits while the process is far above its limit and nothing can leave; ends the program when that
    /// doesn't end. `false` when somebody else makes room and is long about it, or messages have to be read:
    /// then ask again later. The caller holds nothing. `come_along` is called while something does leave.
    pub(crate) fn wait_for_room(&self, party: usize, mut come_along: impl FnMut()) -> bool {
        let mut evicted = None;
        let mut deadline_ns = 0;
        let mut busy = 0;
        loop {
            let excess = self.residency.excess(0);
            // While the pager leaves, nothing else may.
            if excess <= self.residency.tolerated() || self.eviction.is_leaving() {
                return true;
            }
            let now_ns = thread::now_ns();
            let evicted_now = Some(self.slot.get(Counter::Evicted));
            if evicted != evicted_now || self.ledger.is_storage_pausing(now_ns) {
                // Something does leave: clean pages go even when the pool is full. The excess itself goes up
                // and down with pages that are tried and put back. Or the supervisor waits for the storage:
                // so does this thread, however long that takes.
                evicted = evicted_now;
                deadline_ns = now_ns + PATIENCE_NS;
                come_along();
            }
            let outcome = self.evict(&self.pages.gate.hold(party), TOLERATED_PAGES as usize / 2);
            if outcome.is_changing {
                return false;
            }
            if outcome.evicted == 0 && outcome.shared > 0 {
                return !self.family.sharing.must_fetch_wait(excess);
            }
            busy = if outcome.is_busy { busy + 1 } else { 0 };
            if busy == MOST_BUSY {
                return false;
            }
            if now_ns >= deadline_ns && outcome.evicted == 0 && !outcome.is_busy {
                self.fail(Failure::NoRoom);
            }
            if outcome.evicted == 0 {
                if !outcome.is_full && !outcome.is_busy {
                    // Nothing can be moved, or nothing more before others have run.
                    return true;
                }
                thread::sleep(RETRY_NS);
            }
        }
    }
}
