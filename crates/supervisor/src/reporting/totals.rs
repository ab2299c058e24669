//! What the processes of an application have counted, summed over them.

use std::sync::atomic::AtomicU64;

use farmem_policy::absence::Absences;
use farmem_telemetry::{BUCKETS, COUNTERS, Counter, Histogram, Kind, ProcessSlot, RETURN_BUCKETS};

/// Sums over processes.
pub(crate) struct Totals {
    figures: Vec<u64>,
    latency: Vec<AtomicU64>,
    returned: [u64; RETURN_BUCKETS],
}

impl Clone for Totals {
    fn clone(&self) -> Self {
        let copy = Self { figures: self.figures.clone(), latency: buckets(), returned: self.returned };
        copy.latency().add(&self.latency());
        copy
    }
}

fn buckets() -> Vec<AtomicU64> {
    (0..BUCKETS).map(|_| AtomicU64::new(0)).collect()
}

impl Totals {
    pub(crate) fn new() -> Self {
        Self { figures: vec![0; COUNTERS.len()], latency: buckets(), returned: [0; RETURN_BUCKETS] }
    }

    /// Adds a process's figures; those of this moment only while it lives.
    pub(crate) fn add(&mut self, slot: &ProcessSlot<'_>) {
        for (counter, _, kind, _) in COUNTERS {
            if *kind == Kind::Total {
                self.figures[*counter as usize] += slot.get(*counter);
            }
        }
        self.latency().add(&slot.fault_latency());
        for (sum, count) in self.returned.iter_mut().zip(slot.returns()) {
            *sum += count;
        }
    }

    /// Pages that left, and those that came back.
    pub(crate) fn absences(&self) -> Absences {
        Absences::new(self.returned, self.get(Counter::Evicted))
    }

    /// How long faults took.
    pub(crate) fn latency(&self) -> Histogram<'_> {
        Histogram::new(&self.latency)
    }

    pub(crate) fn get(&self, counter: Counter) -> u64 {
        self.figures[counter as usize]
    }
}
