//! What [`Absences`] says of more memory, compared with what an exact LRU of that size misses.

mod support;

use std::collections::{BTreeMap, HashMap};

use farmem_policy::TICKS_PER_BUDGET;
use farmem_policy::absence::{Absences, BUCKETS, bucket_of};
use support::trace;

const PAGES: u64 = 4000;
const ACCESSES: usize = 80_000;

/// An exact LRU: what was used last stays.
struct Lru {
    budget: usize,
    now: u64,
    used: HashMap<u64, u64>,
    order: BTreeMap<u64, u64>,
}

impl Lru {
    fn new(budget: usize) -> Self {
        Self { budget, now: 0, used: HashMap::new(), order: BTreeMap::new() }
    }

    /// Whether the page was there, and which one had to leave for it.
    fn access(&mut self, page: u64) -> (bool, Option<u64>) {
        self.now += 1;
        let before = self.used.insert(page, self.now);
        if let Some(before) = before {
            self.order.remove(&before);
        }
        self.order.insert(self.now, page);
        let victim = (self.order.len() > self.budget).then(|| self.order.pop_first()).flatten();
        if let Some((_, victim)) = victim {
            self.used.remove(&victim);
        }
        (before.is_some(), victim.map(|(_, page)| page))
    }
}

/// Misses but for the first touches.
fn misses(trace: &[u64], budget: usize) -> u64 {
    let mut lru = Lru::new(budget);
    let mut known = std::collections::HashSet::new();
    trace.iter().filter(|&&page| !lru.access(page).0 && !known.insert(page)).count() as u64
}

/// What a pager with that budget sees.
fn absences(trace: &[u64], budget: usize) -> Absences {
    let mut lru = Lru::new(budget);
    let (mut returned, mut left) = ([0; BUCKETS], 0);
    let mut left_at = HashMap::new();
    for &page in trace {
        let (is_there, victim) = lru.access(page);
        if let Some(at) = left_at.remove(&page).filter(|_| !is_there) {
            let ticks = (left - at) * TICKS_PER_BUDGET / budget as u64;
            returned[bucket_of(ticks)] += 1;
        }
        if let Some(victim) = victim {
            left_at.insert(victim, left);
            left += 1;
        }
    }
    Absences::new(returned, left)
}

/// With the memory that is said to keep this share of the returning pages, an exact LRU keeps nearly that
/// share or more, and with a third less memory it doesn't keep much more.
fn agrees(trace: &[u64], budget: usize, share: f64) {
    let more = absences(trace, budget).more_for(share).expect("pages came back");
    let before = misses(trace, budget) as f64;
    let saved = |more: f64| 1.0 - misses(trace, (budget as f64 * (1.0 + more)) as usize) as f64 / before;
    assert!(
        saved(more) > share - 0.06,
        "{share} of {before} at {budget}: {more} budgets more save {}",
        saved(more)
    );
    let less = saved(more * 0.66);
    assert!(less < share + 0.06, "{share} of {before} at {budget}: {more} budgets more are too much, {less}");
}

fn agrees_throughout(trace: &[u64]) {
    for budget in [PAGES / 8, PAGES / 3] {
        [0.3, 0.5, 0.9].into_iter().for_each(|share| agrees(trace, budget as usize, share));
    }
}

#[test]
fn uniformly_random_accesses_want_memory_in_proportion() {
    agrees_throughout(&trace::uniform(PAGES, ACCESSES, 1));
}

#[test]
fn popular_pages_want_little_memory_for_much() {
    agrees_throughout(&trace::zipf(PAGES, 0.9, ACCESSES, 2));
}

#[test]
fn hot_pages_beside_a_scan_want_no_room_for_the_scan() {
    agrees_throughout(&trace::hot_and_scan(PAGES, PAGES / 8 * 5, 4, ACCESSES, 3));
}

#[test]
fn a_loop_wants_all_or_nothing() {
    let trace = trace::sequential(PAGES, ACCESSES);
    let budget = PAGES / 4 * 3;

    let more = absences(&trace, budget as usize).more_for(0.5).unwrap();

    // A third more is what is missing; the buckets of the clock are a quarter wide at most.
    assert!((0.25..0.42).contains(&more), "{more}");
}
