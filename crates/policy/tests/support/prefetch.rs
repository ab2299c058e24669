//! A machine that pages with a policy of prefetching: pages leave first in, first out, and what was
//! prefetched is known.

use std::collections::{HashMap, VecDeque};

use farmem_page::{PageIndex, PageRange};
use farmem_policy::{Fault, Prefetcher};

/// What happened. The `is_`-truth comes from the machine; `inferred_*` is what the policy found out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    pub accesses: u64,
    pub faults: u64,
    pub prefetched: u64,
    pub used: u64,
    pub inferred_used: u64,
    pub inferred_expired: u64,
}

impl Outcome {
    /// Prefetched pages used / prefetched pages.
    pub fn accuracy(&self) -> f64 {
        if self.prefetched == 0 { 1.0 } else { self.used as f64 / self.prefetched as f64 }
    }
    /// Faults that prefetching saved / faults there would have been.
    pub fn contribution(&self) -> f64 {
        self.used as f64 / (self.used + self.faults).max(1) as f64
    }
    pub fn useless(&self) -> u64 {
        self.prefetched - self.used
    }
}

struct Machine {
    /// Resident pages: the number of their stay, and whether they were prefetched and not used.
    resident: HashMap<u64, (u64, bool)>,
    order: VecDeque<(u64, u64)>,
    stays: u64,
    budget: usize,
}

impl Machine {
    fn bring(&mut self, page: u64, is_prefetched: bool) -> bool {
        if self.resident.contains_key(&page) {
            return false;
        }
        self.stays += 1;
        self.resident.insert(page, (self.stays, is_prefetched));
        self.order.push_back((page, self.stays));
        while self.resident.len() > self.budget {
            let (page, stay) = self.order.pop_front().expect("a resident page is in the order");
            if self.resident.get(&page).is_some_and(|&(current, _)| current == stay) {
                self.resident.remove(&page);
            }
        }
        true
    }
}

/// Runs `trace` of (thread, page) over a region of `pages` pages, `budget` of which fit.
pub fn run(policy: &mut dyn Prefetcher, trace: &[(u32, u64)], pages: u64, budget: usize) -> Outcome {
    let bounds = PageRange::new(PageIndex::new(BASE), PageIndex::new(BASE + pages));
    let mut machine = Machine { resident: HashMap::new(), order: VecDeque::new(), stays: 0, budget };
    let mut outcome = Outcome::default();
    for &(thread, page) in trace {
        outcome.accesses += 1;
        if let Some((_, is_prefetched)) = machine.resident.get_mut(&page) {
            outcome.used += *is_prefetched as u64;
            *is_prefetched = false;
            continue;
        }
        outcome.faults += 1;
        machine.bring(page, false);
        let fault = Fault { page: PageIndex::new(BASE + page), offset_bytes: 0, thread, write: false };
        let advice = policy.on_fault(fault, bounds);
        for ahead in advice.fetch.iter().flat_map(|run| run.pages()) {
            assert!(bounds.contains(ahead) && ahead != fault.page);
            outcome.prefetched += machine.bring(ahead.get() - BASE, true) as u64;
        }
        outcome.inferred_used += advice.used.map_or(0, |run| run.count as u64);
        outcome.inferred_expired += advice.expired.map_or(0, |run| run.count as u64);
    }
    while let Some(run) = policy.drain() {
        outcome.inferred_expired += run.count as u64;
    }
    outcome
}

/// One thread's trace.
pub fn alone(trace: Vec<u64>) -> Vec<(u32, u64)> {
    trace.into_iter().map(|page| (1, page)).collect()
}

const BASE: u64 = 0x7_0000;
