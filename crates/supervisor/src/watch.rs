//! What the supervisor looks at from time to time: peaks, memory that forked processes share, pagers that no
//! longer move.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use farmem_policy::absence::Absences;
use farmem_store::PoolUsage;
use farmem_telemetry::{Counter, Failure, Header, MAX_HANDLERS, ProcessSlot, SlotState};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::application::Application;
use crate::processes::Processes;
use crate::processes::shares::{self, Schedule};
use crate::processes::silent::has_messages;
use crate::processes::stall::{Judgement, Patience, ProcessorTime, Signs, is_held};
use crate::reporting::returns::Returns;
use crate::reporting::totals::Totals;

/// Looking how much the pool holds takes at most this part of the time.
const USAGE_TIME_SHARE: u32 = 20;
const USAGE_LEAST: Duration = Duration::from_millis(50);
/// Between two looks no more time passes than this, unless the supervisor itself was stopped.
const LATE: Duration = Duration::from_secs(1);

/// The watch.
pub(crate) struct Watch {
    application: Application,
    shares: Schedule,
    last_look: Instant,
    /// By slot and process.
    patience: HashMap<(usize, u32), Patience>,
    usage_due: Instant,
    peak: PoolUsage,
    returns: Returns,
}

impl Watch {
    pub(crate) fn new(application: Application) -> Self {
        Self {
            application,
            shares: Schedule::default(),
            last_look: Instant::now(),
            patience: HashMap::new(),
            usage_due: Instant::now(),
            peak: PoolUsage::default(),
            returns: Returns::new(application.ledger.budget(), Totals::new().absences()),
        }
    }

    /// One look.
    pub(crate) fn look(&mut self, processes: &mut Processes) {
        let is_late = self.last_look.elapsed() > LATE;
        self.last_look = Instant::now();
        if is_late {
            // A process that was stopped together with the supervisor has had no time either.
            self.patience.clear();
        }
        processes.look_after_silent(is_late);
        self.note_managed_peak();
        self.note_usage();
        self.returns.follow(self.application.ledger.budget(), || processes.sum().absences());
        if !processes.are_relatives_about() {
            self.application.ledger.note_resident_peak(self.application.ledger.resident());
        } else {
            self.measure_shares(processes);
        }
        self.end_stalled(processes);
    }

    fn measure_shares(&mut self, processes: &Processes) {
        let ledger = self.application.ledger;
        let began = Instant::now();
        if !self.shares.is_due(began, processes.each().map(|process| process.process)) {
            return;
        }
        processes.count_relatives();
        let measured = shares::measure(&ledger, processes);
        ledger.note_resident_peak(measured.resident);
        self.shares.note(measured, began.elapsed(), ledger.budget(), Instant::now());
    }

    fn note_managed_peak(&self) {
        let ledger = self.application.ledger;
        let managed = ledger
            .slots()
            .filter(|slot| slot.state() != SlotState::Free)
            .map(|slot| slot.get(Counter::ManagedPages))
            .sum::<u64>();
        ledger.header(Header::ManagedPeakPages).fetch_max(managed, Ordering::Relaxed);
    }

    /// What of all that has left and come back did so under the present budget.
    pub(crate) fn under_budget(&self, all: &Absences) -> Absences {
        self.returns.under_budget(all)
    }

    /// The pool when it held most, from the looks at it so far.
    pub(crate) fn peak(&self) -> PoolUsage {
        self.peak
    }

    fn note_usage(&mut self) {
        if Instant::now() < self.usage_due {
            return;
        }
        let began = Instant::now();
        let now = self.application.pool.usage();
        if now.stored_pages >= self.peak.stored_pages {
            self.peak = now;
        }
        self.usage_due = Instant::now() + (began.elapsed() * USAGE_TIME_SHARE).max(USAGE_LEAST);
    }

    fn end_stalled(&mut self, processes: &Processes) {
        let now = Instant::now();
        let mut watched = HashMap::new();
        for process in processes.each() {
            let (Some(slot), Some(uffd)) = (process.slot(), process.uffd()) else { continue };
            let Some(view) = self.application.ledger.slot(slot) else { continue };
            let number = process.process;
            let known = self.patience.remove(&(slot, number));
            let patience = watched.entry((slot, number)).or_insert(known.unwrap_or(Patience::new(now)));
            let judgement = patience.judge(now, signs(&view, has_messages(uffd)));
            if judgement == Judgement::Fine {
                continue;
            }
            let is_starved = patience.is_starved(now, ProcessorTime::of(process.pager));
            if is_starved || is_held(number) || process.pager != number && is_held(process.pager) {
                patience.renew(now);
            } else if judgement == Judgement::Stalled {
                view.set_failure(Failure::Stalled);
                for number in [number, process.pager] {
                    let _ = nix::sys::signal::kill(Pid::from_raw(number as i32), Signal::SIGKILL);
                }
                patience.renew(now);
            }
        }
        self.patience = watched;
    }
}

/// What a pager has to do. Messages that wait come along while anything of the pager moves.
fn signs(view: &ProcessSlot<'_>, has_messages: bool) -> Signs {
    let mut signs = [0; _];
    for (handler, sign) in signs[..MAX_HANDLERS].iter_mut().enumerate() {
        *sign = view.work(handler).load(Ordering::Relaxed);
    }
    signs[MAX_HANDLERS] = if has_messages { view.heartbeat().max(1) } else { 0 };
    signs
}
