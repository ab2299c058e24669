//! The thread that packs what the processes stored raw in a hurry.
//!
//! It works where it interrupts nobody: in another process than the pages, so that unmapping them flushes no
//! TLB here, and at a low priority, so that it yields to the program's own threads. Where it gets no
//! processor the queues fill up, and the processes pack for themselves.

use std::thread;
use std::time::Duration;

use farmem_store::{OwnerId, Packer};
use farmem_telemetry::SlotState;

use crate::application::Application;
use crate::threads::worker::Worker;

/// Pages of one process that are packed before the next one's turn: a quarter of a queue.
const TURN_PAGES: usize = 256;
/// Below so many pages in a round the next one may come later.
const BUSY_PAGES: usize = 64;
/// The pause while there is much to do; twice as long after each round that found little (PFA §3), up to the
/// longest.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(64);
const NICENESS: i32 = 10;

/// Starts the packer, unless pages stay as they are, or the machine has a single processor: then it would
/// only take turns with the program.
pub(crate) fn start(application: Application) -> Option<Worker> {
    if application.pool.is_raw()
        || thread::available_parallelism().is_ok_and(|processors| processors.get() < 2)
    {
        return None;
    }
    application.pool.announce_packer();
    let mut packer = Packer::new();
    let mut pause = SHORTEST;
    let mut is_polite = false;
    Some(Worker::start(move || {
        if !is_polite {
            // Without it the packer only competes more than it should.
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICENESS);
            is_polite = true;
        }
        let pages = round(application, &mut packer);
        let next = if pages >= BUSY_PAGES { SHORTEST } else { (pause * 2).min(LONGEST) };
        if next == LONGEST && pause < LONGEST {
            application.pool.give_back_spare();
        }
        pause = next;
        if pages >= TURN_PAGES { Duration::ZERO } else { pause }
    }))
}

/// A turn for each process. How many pages were dealt with.
fn round(application: Application, packer: &mut Packer) -> usize {
    let mut pages = 0;
    for slot in application.ledger.slots().filter(|slot| slot.state() == SlotState::Managing) {
        let owner = OwnerId(slot.index() as u16);
        for _ in 0..TURN_PAGES {
            // The holder of the lock may release the slot's owner.
            let Ok(_at_work) = application.packing.lock() else { return pages };
            if !packer.step(application.pool, owner) {
                break;
            }
            pages += 1;
        }
    }
    pages
}
