//! What the supervisor looks at from time to time: peaks, memory that forked processes share, pagers that no longer move.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use farmem_page::{ByteCount, PageCount};
use farmem_store::PoolUsage;
use farmem_telemetry::{Counter, Handover, Header, MAX_HANDLERS, ProcessSlot, SlotState};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::application::Application;
use crate::processes::Processes;
use crate::say::say;
use crate::silent::has_messages;
use crate::sizing::Sizing;
use crate::stall::{Judgement, Patience, Signs, is_held};

/// Asking for shared memory takes the kernel a walk over the process's pages: at most this part of the time.
const SHARED_TIME_SHARE: u32 = 20;
const SHARED_LEAST: Duration = Duration::from_millis(50);
/// Between two looks no more time passes than this, unless the supervisor itself was stopped.
const LATE: Duration = Duration::from_secs(1);

/// The watch.
pub(crate) struct Watch {
    application: Application,
    shared_due: Instant,
    last_look: Instant,
    /// By slot and process.
    patience: HashMap<(usize, u32), Patience>,
    usage_due: Instant,
    peak: PoolUsage,
    /// While the budget follows the program.
    sizing: Option<Sizing>,
}

impl Watch {
    pub(crate) fn new(application: Application, sizing: Option<Sizing>) -> Self {
        Self {
            application,
            shared_due: Instant::now(),
            last_look: Instant::now(),
            patience: HashMap::new(),
            usage_due: Instant::now(),
            peak: PoolUsage::default(),
            sizing,
        }
    }

    /// From now on the budget stays as somebody has set it.
    pub(crate) fn leave_budget(&mut self) {
        self.sizing = None;
    }

    /// One look.
    pub(crate) fn look(&mut self, processes: &mut Processes) {
        let is_late = self.last_look.elapsed() > LATE;
        self.last_look = Instant::now();
        if is_late {
            // Who was stopped together with the supervisor has had no time either.
            self.patience.clear();
        }
        processes.look_after_silent(is_late);
        self.note_managed_peak();
        self.note_usage();
        if let Some(sizing) = self.sizing.as_mut().filter(|sizing| sizing.is_due()) {
            sizing.step(self.application.ledger, processes.sum().get(Counter::StallNs));
        }
        if !processes.are_kin_about() {
            self.note_resident_peak();
        } else if Instant::now() >= self.shared_due {
            let began = Instant::now();
            processes.count_kin();
            if self.measure_shared(processes) {
                // What is resident is known best now: what processes have separated from since they were measured makes it look like
                // more.
                self.note_resident_peak();
            }
            self.shared_due = Instant::now() + (began.elapsed() * SHARED_TIME_SHARE).max(SHARED_LEAST);
        }
        self.end_stalled(processes);
    }

    fn note_resident_peak(&self) {
        let ledger = self.application.ledger;
        ledger.header(Header::ResidentPeakPages).fetch_max(ledger.resident().get(), Ordering::Relaxed);
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
        self.usage_due = Instant::now() + (began.elapsed() * SHARED_TIME_SHARE).max(SHARED_LEAST);
    }

    /// Memory that a fork has left shared is resident in several processes, but there once. What they separate from while they are
    /// measured one after the other is taken off all of them: the sum may be too high for a while, not too low.
    /// `false` while somebody forks: then it is not known.
    fn measure_shared(&self, processes: &Processes) -> bool {
        let ledger = self.application.ledger;
        let inherited = ledger.header(Header::Inherited);
        let settled = inherited.load(Ordering::Relaxed);
        // A child that is being forked shares memory, but has no slot yet.
        let forks = || ledger.slots().map(|slot| slot.handover().load(Ordering::Acquire)).collect::<Vec<_>>();
        let before = forks();
        if before.iter().any(|&word| Handover::is_pending(word)) {
            return false;
        }
        let protected: Vec<_> = processes
            .each()
            .filter(|process| !processes.awaits_kin(process))
            .filter_map(|process| Some((process.process, ledger.slot(process.slot()?)?)))
            .filter(|(_, slot)| slot.is_protected())
            .map(|(process, slot)| (process, slot, slot.separated()))
            .collect();
        let measured: Vec<_> = protected
            .into_iter()
            .filter_map(|(process, slot, separated)| Some((slot, separated, shared_pages(process)?)))
            .collect();
        if forks() != before {
            return false;
        }
        for (slot, separated, shared) in measured {
            // The pager's own memory is shared, too, and doesn't count.
            let own = PageCount::new(slot.get(Counter::OwnPages));
            slot.set_shared(shared.saturating_sub(own), separated);
        }
        inherited.fetch_sub(settled, Ordering::Relaxed);
        true
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
            if is_held(number) {
                patience.renew(now);
            } else if judgement == Judgement::Stalled {
                say(&format!(
                    "the pager of process {number} has stopped; the process can't go on and is ended"
                ));
                let _ = nix::sys::signal::kill(Pid::from_raw(number as i32), Signal::SIGKILL);
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

/// Pages of a process that count for another one: what is resident, less its proportional share.
fn shared_pages(process: u32) -> Option<PageCount> {
    let text = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?;
    let bytes = |name: &str| {
        text.lines().find_map(|line| {
            let kib: u64 = line.strip_prefix(name)?.trim().strip_suffix(" kB")?.trim().parse().ok()?;
            Some(kib << 10)
        })
    };
    let shared = bytes("Anonymous:")?.saturating_sub(bytes("Pss_Anon:")?);
    Some(ByteCount::new(shared).pages())
}
