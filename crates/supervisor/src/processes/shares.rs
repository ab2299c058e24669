//! What forked processes share, as the kernel tells it.
//!
//! Memory that a fork has left shared is resident in several processes, but there once. Two sums come of one
//! measurement:
//!
//! - The ledger's, by which the budget is kept: each process's figure holds for the moment when the
//!   measurement began, and what it has separated from since then is taken off. It may be too high for a
//!   while, not too low.
//! - The resident size as it was. Processes are asked one after the other, and while they are, pages leave
//!   one and come into another: a page may be counted twice. So each is asked again in reverse order; the
//!   means belong to one moment, as far as what moves does so steadily.
//!
//! Asking takes the kernel a walk over all pages of all processes. As long as the ledger turns out to have
//! known what is found, it is asked more and more rarely.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use farmem_page::{ByteCount, PageCount};
use farmem_telemetry::{Header, Ledger, ProcessSlot};

use crate::processes::{Process, Processes};

/// Measuring takes at most this part of the time.
const TIME_SHARE: u32 = 20;
/// Between two measurements at least, and at most unless one takes long.
const LEAST: Duration = Duration::from_millis(50);
const MOST: Duration = Duration::from_secs(1);
/// The ledger has known what is found if it was wrong by no more than one part of the budget in so many.
const EXACT_SHARE: u64 = 100;

/// What a measurement has found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Measured {
    /// How much the application had resident.
    pub(crate) resident: PageCount,
    /// By how many pages the ledger was wrong, all processes together. `None` if there is one of which that
    /// can't be said yet.
    error: Option<PageCount>,
    /// The processes that were asked.
    processes: Vec<u32>,
}

/// When to measure next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schedule {
    pause: Duration,
    /// When the next one is due, and from when on it is if there are other processes.
    due: Option<Instant>,
    soonest: Option<Instant>,
    /// Those that the latest measurement asked.
    processes: Vec<u32>,
}

impl Schedule {
    /// Whether it is time to.
    pub(crate) fn is_due(&self, now: Instant, processes: impl Iterator<Item = u32>) -> bool {
        let has_come = |due: Option<Instant>| due.is_none_or(|due| now >= due);
        has_come(self.due) || has_come(self.soonest) && !processes.eq(self.processes.iter().copied())
    }

    /// After a measurement that took `cost` and has ended `now`.
    pub(crate) fn note(&mut self, measured: Measured, cost: Duration, budget: PageCount, now: Instant) {
        let least = (cost * TIME_SHARE).max(LEAST);
        let is_exact = measured.error.is_some_and(|error| error.get() * EXACT_SHARE <= budget.get());
        let is_as_before = measured.processes == self.processes;
        let longer = (self.pause * 2).min(MOST);
        self.pause = if is_exact && is_as_before { longer.max(least) } else { least };
        self.processes = measured.processes;
        (self.soonest, self.due) = (Some(now + least), Some(now + self.pause));
    }
}

/// Measures what each process shares, and tells the ledger.
pub(crate) fn measure(ledger: &Ledger<'_>, processes: &Processes) -> Measured {
    let inherited = ledger.header(Header::Inherited);
    let settled = inherited.load(Ordering::Relaxed);
    let separated: Vec<_> = ledger.slots().map(|slot| slot.separated()).collect();
    let mut is_anybody_awaited = false;
    let asked: Vec<_> = processes
        .each()
        .filter_map(|process| {
            let slot = ledger.slot(process.slot()?)?;
            let are_relatives_awaited = slot.is_fork_unheard() || processes.awaits_relatives(process);
            is_anybody_awaited |= are_relatives_awaited;
            let is_counted_once = slot.is_protected() && !are_relatives_awaited;
            Some((process, slot, is_counted_once))
        })
        .collect();
    let ask = |&(process, slot, is_counted_once)| Shares::of(process, &slot, is_counted_once);
    let first: Vec<_> = asked.iter().map(ask).collect();
    let second: Vec<_> = asked.iter().rev().map(ask).collect();
    let mut error = if is_anybody_awaited { None } else { Some(0) };
    for ((_, slot, is_counted_once), shares) in asked.iter().zip(&first) {
        let Some(shares) = shares else {
            error = None;
            continue;
        };
        if *is_counted_once {
            let known = slot.credit().max(0) as u64;
            error = error.map(|error| error + known.abs_diff(shares.shared.get()));
            slot.set_shared(shares.shared, separated[slot.index()]);
        }
    }
    inherited.fetch_sub(settled, Ordering::Relaxed);
    let twice: u64 = first.iter().chain(&second).flatten().map(|shares| shares.resident.get()).sum();
    Measured {
        resident: PageCount::new(twice / 2),
        error: error.map(PageCount::new),
        processes: processes.each().map(|process| process.process).collect(),
    }
}

/// A process's part of what is resident.
struct Shares {
    /// Pages that count for another process.
    shared: PageCount,
    /// Pages that count for this one.
    resident: PageCount,
}

impl Shares {
    /// Asks the kernel; `None` for a process that has ended. What isn't `counted_once` counts as the ledger
    /// has it.
    fn of(process: &Process, slot: &ProcessSlot<'_>, is_counted_once: bool) -> Option<Self> {
        if !process.is_beside() {
            // What processes map in common is there once, and belongs to none of them.
            return Some(Self { shared: PageCount::ZERO, resident: slot.resident() });
        }
        let anonymous = Anonymous::of(process.process)?;
        let shared =
            if is_counted_once { anonymous.shared() } else { PageCount::new(slot.credit().max(0) as u64) };
        // What the process said last may be more than it still has.
        Some(Self { shared, resident: slot.resident().saturating_sub(shared).min(anonymous.proportional) })
    }
}

/// Pages of a process that count for others.
pub(super) fn of(process: u32) -> Option<PageCount> {
    Some(Anonymous::of(process)?.shared())
}

/// What a process has that belongs to no file.
struct Anonymous {
    all: PageCount,
    /// Each page divided by how many processes have it.
    proportional: PageCount,
}

impl Anonymous {
    /// Asks the kernel; `None` for a process that has ended.
    fn of(process: u32) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?;
        Some(Self { all: pages(&text, "Anonymous:")?, proportional: pages(&text, "Pss_Anon:")? })
    }

    /// Pages that count for other processes.
    fn shared(&self) -> PageCount {
        self.all.saturating_sub(self.proportional)
    }
}

/// A line of `smaps_rollup`.
fn pages(text: &str, name: &str) -> Option<PageCount> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(ByteCount::new(kib << 10).pages())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: PageCount = PageCount::new(1000);

    fn measured(error: Option<u64>, processes: &[u32]) -> Measured {
        let processes = processes.to_vec();
        Measured { resident: PageCount::ZERO, error: error.map(PageCount::new), processes }
    }

    /// The pauses after these measurements.
    fn pauses(measurements: &[Measured], cost: Duration) -> Vec<Duration> {
        let mut schedule = Schedule::default();
        let mut pause = |measured: &Measured| {
            schedule.note(measured.clone(), cost, BUDGET, Instant::now());
            schedule.pause
        };
        measurements.iter().map(&mut pause).collect()
    }

    #[test]
    fn what_the_ledger_knows_is_measured_more_and_more_rarely() {
        let exact = vec![measured(Some(10), &[1, 2]); 8];
        let pauses = pauses(&exact, Duration::ZERO);
        assert_eq!((pauses[0], pauses[1], pauses[2]), (LEAST, LEAST * 2, LEAST * 4));
        assert_eq!(pauses[7], MOST);
    }

    #[test]
    fn an_error_or_another_process_is_followed_closely() {
        for other in [measured(Some(11), &[1, 2]), measured(None, &[1, 2]), measured(Some(0), &[1, 3])] {
            let mut measurements = vec![measured(Some(0), &[1, 2]); 5];
            measurements.push(other);
            assert_eq!(pauses(&measurements, Duration::ZERO)[5], LEAST);
        }
    }

    #[test]
    fn measurements_that_take_long_are_rare_however_wrong_the_ledger_was() {
        let cost = Duration::from_millis(100);
        assert_eq!(pauses(&[measured(None, &[1])], cost), [cost * TIME_SHARE]);
        assert_eq!(pauses(&vec![measured(Some(0), &[1]); 3], cost)[2], cost * TIME_SHARE);
    }

    #[test]
    fn one_is_due_when_its_time_has_come_or_there_are_other_processes() {
        let mut schedule = Schedule::default();
        let now = Instant::now();
        assert!(schedule.is_due(now, [1].into_iter()));
        (0..3).for_each(|_| schedule.note(measured(Some(0), &[1]), Duration::ZERO, BUDGET, now));
        assert!(!schedule.is_due(now + LEAST * 4 - LEAST / 2, [1].into_iter()));
        assert!(schedule.is_due(now + LEAST * 4, [1].into_iter()));
        assert!(!schedule.is_due(now + LEAST / 2, [1, 2].into_iter()));
        assert!(schedule.is_due(now + LEAST, [1, 2].into_iter()));
    }
}
