//! What a look at the application's processes finds: how many there are, and what they have of which the
//! ledger knows nothing.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use farmem_page::PageCount;
use farmem_sys::thread;
use farmem_telemetry::ProcessSlot;

use super::Attacher;
use super::found::{Found, distinct, resident};
use super::pauses::{LOOK_SHARE, RAREST, since};
use crate::processes::lineage::layout;
use crate::processes::shared;
use crate::say::say;

/// Between two looks at what processes share.
const SHARED_LOOK: Duration = Duration::from_millis(20);
/// From so much of the budget on a pager comes for what is shared. That is seen later than what is private:
/// processes are looked at one by one, and all of those that share come under management at once.
const NEAR_SHARED: (u64, u64) = (1, 2);
/// Processes with less than this, 1 MiB, are left alone.
pub(super) const LEAST: PageCount = PageCount::new(256);

/// What the latest look has found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) processes: usize,
    /// What processes have of which the ledger knows nothing: no pager is there, or it has only just come.
    apart: PageCount,
    /// Of that, what is there for certain: forked processes may share what they have.
    distinct: PageCount,
    /// What they share of which the ledger knows nothing.
    pub(super) shared: PageCount,
    /// What they share that has a name or a descriptor.
    named: PageCount,
    /// Why a process has no pager, of the latest that was given up.
    pub(crate) refusal: Option<String>,
}

/// What processes of the application share.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SharedMemory {
    /// The process that manages it, while there is one.
    pub(crate) pager: Option<u32>,
    /// What stays local: it has a name or a descriptor, or no pager has come.
    pub(crate) local: PageCount,
}

impl Seen {
    /// What processes have, or share, of which the ledger knows nothing.
    pub(crate) fn unknown(&self) -> PageCount {
        self.apart + self.shared
    }

    /// What is certainly local in processes of which the ledger knows nothing, without what they share.
    pub(crate) fn distinct(&self) -> PageCount {
        // A pager may have come since that was asked.
        self.distinct.min(self.apart)
    }
}

impl Attacher {
    /// The processes of which the ledger tells.
    pub(super) fn managed(&self) -> HashSet<u32> {
        let told = |slot: &ProcessSlot<'_>| slot.resident() > PageCount::ZERO;
        self.application.ledger.slots().filter(told).map(|slot| slot.process()).collect()
    }

    /// The processes as they are now, and which of them the ledger knows. That is asked last: a process
    /// whose pager has come meanwhile counts once.
    pub(super) fn find(&self) -> (Vec<Found>, HashSet<u32>) {
        let found: Vec<Found> = self
            .living()
            .into_iter()
            .filter_map(|number| {
                let (resident, others) = resident(number)?;
                Some(Found { number, resident, others })
            })
            .collect();
        let known = self.managed();
        let apart: Vec<Found> =
            found.iter().filter(|process| !known.contains(&process.number)).copied().collect();
        let is_due = self.state().distinct_due.is_none_or(|due| Instant::now() >= due);
        let began_ns = thread::cpu_ns();
        let distinct = is_due.then(|| distinct(&apart, layout));
        let mut state = self.state();
        state.seen.processes = found.len();
        state.seen.apart = PageCount::new(apart.iter().map(|process| process.resident.get()).sum());
        if let Some(distinct) = distinct {
            state.seen.distinct = distinct;
            state.distinct_due = Some(Instant::now() + since(began_ns) * LOOK_SHARE);
            if known.is_empty() {
                self.application.ledger.note_resident_peak(distinct);
            }
        }
        (found, known)
    }

    /// What the latest look has found.
    pub(crate) fn seen(&self) -> Seen {
        self.state().seen.clone()
    }

    /// The same after one that attaches to nobody.
    pub(crate) fn see(&self) -> Seen {
        let _ = self.find();
        let _ = self.look_at_shared();
        self.seen()
    }

    /// What processes share, by a look that is no older than it need be.
    pub(crate) fn shared(&self) -> SharedMemory {
        let is_due = self.state().shared_due.is_none_or(|due| Instant::now() >= due);
        if is_due {
            let _ = self.look_at_shared();
        }
        let state = self.state();
        SharedMemory { pager: state.shared.number(), local: state.seen.shared + state.seen.named }
    }

    /// Looks at what the processes share; how long to wait for the next look.
    pub(crate) fn look_at_shared(&self) -> Duration {
        let began_ns = thread::cpu_ns();
        let numbers = self.living();
        // Those that haven't touched it map it all the same.
        let has_pager = self.state().shared.has_pager();
        let found = shared::find(&numbers, has_pager);
        let ledger = self.application.ledger;
        let mut state = self.state();
        let is_known = |slot: &ProcessSlot<'_>| state.shared.is_pager(slot.process());
        let known = ledger.slots().find(is_known).map_or(PageCount::ZERO, |slot| slot.resident());
        state.seen.shared = found.resident.saturating_sub(known);
        state.seen.named = found.named;
        let is_near = is_near_shared((ledger.resident() + state.seen.unknown()).get(), ledger.budget());
        if found.resident >= LEAST
            && is_near
            && !ledger.is_withdrawing()
            && let Err(error) = state.shared.begin(&self.address)
            && !std::mem::replace(&mut state.has_said, true)
        {
            say(&format!("no pager could be started for shared memory: {error}"));
        }
        state.shared.tell(&found.processes);
        let pause = since(began_ns) * LOOK_SHARE;
        state.shared_due = Some(Instant::now() + pause);
        pause.clamp(SHARED_LOOK, RAREST)
    }
}

/// Whether a pager for shared memory is to come.
pub(super) fn is_near_shared(resident: u64, budget: PageCount) -> bool {
    resident * NEAR_SHARED.1 >= budget.get() * NEAR_SHARED.0
}
