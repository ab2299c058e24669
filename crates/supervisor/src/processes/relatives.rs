//! Relatives: processes that may share memory since a fork, and what each is told of the others.
//!
//! How much they share is measured elsewhere (`shares.rs`). Here is who shares with whom, and what becomes of
//! a share when one of them ends.

use std::sync::atomic::Ordering;

use farmem_page::PageCount;
use farmem_telemetry::Header;

use crate::processes::lineage::Lineage;
use crate::processes::{Process, Processes, shares};

impl Processes {
    /// A process has ended that had `credit` pages counted with its relatives. Those that only one of them
    /// still has are its own now.
    pub(super) fn pass_on(&self, slot: usize, lineage: &Lineage, credit: i64) {
        let ledger = self.application.ledger;
        let relatives: Vec<usize> = self.relatives((Some(slot), lineage)).collect();
        match relatives[..] {
            [] => {}
            [last] => {
                if let Some(view) = ledger.slot(last) {
                    view.set_shared(PageCount::ZERO, view.separated());
                }
            }
            // How many each has is known when they are measured.
            _ => {
                let inherited = credit.max(0) as u64 / relatives.len() as u64;
                ledger.header(Header::Inherited).fetch_add(inherited, Ordering::Relaxed);
            }
        }
    }

    /// A process has come whose relatives didn't protect what they share with it: the fork was made before
    /// there was a pager, or while memory was plentiful. What they share counts once from now on, as it did
    /// while the process had no pager, and all of them protect it before long. Counted for each until then it
    /// would be taken for far too much, and leave one after the other.
    pub(super) fn introduce(&self, slot: usize, key: u64) {
        let Some(process) = self.connected.get(&key) else { return };
        let family: Vec<usize> = self.relatives((Some(slot), &process.lineage)).collect();
        if family.is_empty() {
            return;
        }
        let are_meant =
            |process: &&Process| process.slot.is_some_and(|it| it == slot || family.contains(&it));
        for process in self.connected.values().filter(are_meant) {
            let Some(view) = process.slot.and_then(|slot| self.application.ledger.slot(slot)) else {
                continue;
            };
            view.expect_relative();
            if !view.is_protected()
                && let Some(shared) = shares::of(process.process)
            {
                view.set_shared(shared, view.separated());
                view.set_protected(true);
            }
        }
    }

    /// Slots of the connected processes that may share memory with that one, itself left out.
    fn relatives(&self, one: (Option<usize>, &Lineage)) -> impl Iterator<Item = usize> {
        self.connected
            .values()
            .filter(move |other| {
                other.slot != one.0 && Lineage::are_related(one, (other.slot, &other.lineage))
            })
            .filter_map(|other| other.slot)
    }

    /// Whether there are processes that share memory, or have been told so.
    pub(crate) fn are_relatives_about(&self) -> bool {
        let ledger = self.application.ledger;
        let is_told = |slot: usize| ledger.slot(slot).is_some_and(|view| view.relatives() > 0);
        self.connected.values().any(|process| process.is_forked() || process.slot.is_some_and(is_told))
    }

    /// Whether a child of that process, or of its relatives, is still on its way: what it shares belongs to
    /// nobody yet.
    pub(crate) fn awaits_relatives(&self, process: &Process) -> bool {
        let one = (process.slot, &process.lineage);
        self.silent
            .iter()
            .any(|silent| silent.own.is_none() && Lineage::are_related(one, (None, &silent.lineage)))
    }

    /// Tells each process how many others may share memory with it.
    pub(crate) fn count_relatives(&self) {
        for process in self.connected.values() {
            let Some(view) = process.slot.and_then(|slot| self.application.ledger.slot(slot)) else {
                continue;
            };
            let one = (process.slot, &process.lineage);
            let silent =
                self.silent.iter().filter(|silent| Lineage::are_related(one, (silent.own, &silent.lineage)));
            view.set_relatives((self.relatives(one).count() + silent.count()) as u64);
        }
    }
}
