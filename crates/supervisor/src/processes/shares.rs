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

use std::sync::atomic::Ordering;

use farmem_page::{ByteCount, PageCount};
use farmem_telemetry::{Header, Ledger, ProcessSlot};

use crate::processes::{Process, Processes};

/// Measures what each process shares, and tells the ledger. Returns how much the application had resident.
pub(crate) fn measure(ledger: &Ledger<'_>, processes: &Processes) -> PageCount {
    let inherited = ledger.header(Header::Inherited);
    let settled = inherited.load(Ordering::Relaxed);
    let separated: Vec<_> = ledger.slots().map(|slot| slot.separated()).collect();
    let asked: Vec<_> = processes
        .each()
        .filter_map(|process| {
            let slot = ledger.slot(process.slot()?)?;
            let are_relatives_awaited = slot.is_fork_unheard() || processes.awaits_relatives(process);
            let is_counted_once = slot.is_protected() && !are_relatives_awaited;
            Some((process, slot, is_counted_once))
        })
        .collect();
    let ask = |&(process, slot, is_counted_once)| Shares::of(process, &slot, is_counted_once);
    let first: Vec<_> = asked.iter().map(ask).collect();
    let second: Vec<_> = asked.iter().rev().map(ask).collect();
    for ((_, slot, _), shares) in
        asked.iter().zip(&first).filter(|((_, _, is_counted_once), _)| *is_counted_once)
    {
        if let Some(shares) = shares {
            slot.set_shared(shares.shared, separated[slot.index()]);
        }
    }
    inherited.fetch_sub(settled, Ordering::Relaxed);
    let twice: u64 = first.iter().chain(&second).flatten().map(|shares| shares.resident.get()).sum();
    PageCount::new(twice / 2)
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
