//! Processes that do nothing. Their pagers sleep for long, and rely on one thread here that looks at the
//! processor time of all of them: each pager for itself would have to look as often.

use std::collections::HashMap;
use std::time::Duration;

use farmem_page::PageCount;
use farmem_sys::wait::{self, Scope, Sleepers};
use farmem_telemetry::{Ledger, ProcessSlot};

/// Between two looks while a process rests: it may begin at any time, and map and fill an array at once.
const LOOK: Duration = Duration::from_millis(8);
/// The same while none does.
const NONE: Duration = Duration::from_millis(50);
/// Processor time in which a process takes a thousand pages at most: a first touch costs the kernel 250 ns.
const LITTLE_NS: u64 = 250_000;

/// The processor time that one process, or several, had used at some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Used {
    ns: u64,
}

impl Used {
    pub(super) fn by(processes: &[u32], cpu_ns: impl Fn(u32) -> u64) -> Self {
        Self { ns: processes.iter().copied().map(cpu_ns).sum() }
    }

    /// Whether next to nothing has been done from then to `now`. Where less is used now, a process has ended.
    pub(super) fn is_idle_until(self, now: Self) -> bool {
        now.ns.checked_sub(self.ns).is_some_and(|used_ns| used_ns <= LITTLE_NS)
    }
}

/// A process when its watch began.
#[derive(Clone, Copy, Debug)]
struct Beginning {
    process: u32,
    used: Used,
}

/// The watch over those of an application.
#[derive(Debug)]
pub(super) struct RestWatch {
    ledger: Ledger<'static>,
    /// By slot.
    known: HashMap<usize, Beginning>,
    budget: PageCount,
}

impl RestWatch {
    pub(super) fn new(ledger: Ledger<'static>) -> Self {
        Self { ledger, known: HashMap::new(), budget: ledger.budget() }
    }

    /// One look; how long to wait for the next one. `cpu_ns` says what processor time a process has used,
    /// less than before when it has ended. Those that `is_exempt` says are not watched.
    pub(super) fn step(&mut self, is_exempt: impl Fn(u32) -> bool, cpu_ns: impl Fn(u32) -> u64) -> Duration {
        let concerns_all = self.concerns_all();
        let report = self.ledger.region_report();
        let mut pause = NONE;
        for slot in self.ledger.slots() {
            let (index, process) = (slot.index(), slot.process());
            if !slot.rests() {
                self.known.remove(&index);
                continue;
            }
            if is_exempt(process) {
                continue;
            }
            pause = LOOK;
            let now = Beginning { process, used: Used::by(&[process], &cpu_ns) };
            let beginning = *self.known.entry(index).or_insert(now);
            if concerns_all || beginning.has_run_by(now) || report.question(index).is_some() {
                call(&slot);
                self.known.remove(&index);
            } else {
                slot.watch();
            }
        }
        pause
    }

    /// Whether there is something to do for all of them, whatever they do: their budget is another one, or
    /// used up, or they are to leave.
    fn concerns_all(&mut self) -> bool {
        let budget = self.ledger.budget();
        let is_other = budget != std::mem::replace(&mut self.budget, budget);
        is_other || self.ledger.wanted() > budget || self.ledger.is_withdrawing()
    }
}

impl Beginning {
    fn has_run_by(self, now: Beginning) -> bool {
        self.process != now.process || !self.used.is_idle_until(now.used)
    }
}

/// Calls the pager of that process.
fn call(slot: &ProcessSlot<'_>) {
    slot.end_watch();
    wait::wake(wait::low_half(slot.rest()), Sleepers::All, Scope::Machine);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use farmem_telemetry::{Counter, Header, LEDGER_BYTES, Rest, SlotState};

    use super::*;

    const BUDGET: PageCount = PageCount::new(100);

    /// An application of two processes that rest.
    fn ledger() -> Ledger<'static> {
        let words: Vec<AtomicU64> = (0..LEDGER_BYTES / 8).map(|_| AtomicU64::new(0)).collect();
        let ledger = Ledger::new(words.leak()).expect("enough words");
        ledger.set_budget(BUDGET);
        ledger.header(Header::SlotsUsed).store(2, std::sync::atomic::Ordering::Release);
        for index in 0..2 {
            let slot = ledger.slot(index).expect("a slot");
            slot.assign(10 + index as u32);
            slot.set_state(SlotState::Managing);
            slot.ask_for_watch();
        }
        ledger
    }

    fn rest(ledger: Ledger<'static>) -> [u64; 2] {
        [0, 1].map(|index| {
            ledger.slot(index).expect("a slot").rest().load(std::sync::atomic::Ordering::Acquire)
        })
    }

    const WATCHED: u64 = Rest::Watched as u64;
    const CALLED: u64 = Rest::None as u64;

    #[test]
    fn a_process_that_has_used_some_time_is_called_and_others_sleep_on() {
        let ledger = ledger();
        let mut watch = RestWatch::new(ledger);
        assert_eq!(watch.step(|_| false, |_| 7), LOOK);
        assert_eq!(rest(ledger), [WATCHED; 2]);
        // Little by little.
        watch.step(|_| false, |process| if process == 11 { 7 + LITTLE_NS } else { 7 });
        assert_eq!(rest(ledger), [WATCHED; 2]);
        watch.step(|_| false, |process| if process == 11 { 8 + LITTLE_NS } else { 7 });
        assert_eq!(rest(ledger), [WATCHED, CALLED]);
        // It has ended.
        watch.step(|_| false, |_| 0);
        assert_eq!(rest(ledger), [CALLED; 2]);
        assert_eq!(watch.step(|_| false, |_| 0), NONE);
    }

    #[test]
    fn all_are_called_when_the_budget_changes_or_is_used_up() {
        let ledger = ledger();
        let mut watch = RestWatch::new(ledger);
        watch.step(|_| false, |_| 7);
        ledger.set_budget(PageCount::new(50));
        watch.step(|_| false, |_| 7);
        assert_eq!(rest(ledger), [CALLED; 2]);

        (0..2).for_each(|index| _ = ledger.slot(index).expect("a slot").ask_for_watch());
        watch.step(|_| false, |_| 7);
        assert_eq!(rest(ledger), [WATCHED; 2]);
        ledger.slot(0).expect("a slot").set(Counter::ResidentPages, 51);
        watch.step(|_| false, |_| 7);
        assert_eq!(rest(ledger), [CALLED; 2]);
    }

    #[test]
    fn who_is_asked_for_its_regions_is_called() {
        let ledger = ledger();
        let mut watch = RestWatch::new(ledger);
        watch.step(|_| false, |_| 7);
        ledger.region_report().ask(1).expect("nobody is asked");
        watch.step(|_| false, |_| 7);
        assert_eq!(rest(ledger), [WATCHED, CALLED]);
    }

    #[test]
    fn those_that_cannot_be_watched_keep_their_own_watch() {
        let ledger = ledger();
        let mut watch = RestWatch::new(ledger);
        watch.step(|process| process == 10, |_| 7);
        assert_eq!(rest(ledger), [Rest::Asked as u64, WATCHED]);
    }
}
