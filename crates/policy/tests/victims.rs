//! What the choice of victims promises, on seeded traces: four budgets of pages unless said otherwise.
mod support;

use farmem_page::{AgeStamp, Level, PageCount, PageWord};
use farmem_policy::{Sweep, Verdict, VictimPolicy, Victims};
use proptest::prelude::*;
use support::paging::{Clock, Fifo, Lru, Pager, hit_ratio};
use support::trace;

const PAGES: u64 = 1 << 13;
const BUDGET: usize = PAGES as usize / 4;
const LENGTH: usize = 600_000;
const WARM_UP: usize = LENGTH / 3;

fn ours() -> Pager<Victims> {
    Pager::new(Victims::new(PageCount::new(BUDGET as u64)), PAGES, BUDGET)
}

fn sweep() -> Pager<Sweep> {
    Pager::new(Sweep, PAGES, BUDGET)
}

/// Hit ratios of ours and of exact LRU, of CLOCK with accessed bits, of FIFO, and of the bare sweep.
fn ratios(trace: &[u64]) -> [f64; 5] {
    [
        hit_ratio(&mut ours(), trace, WARM_UP),
        hit_ratio(&mut Lru::new(PAGES, BUDGET), trace, WARM_UP),
        hit_ratio(&mut Clock::new(PAGES, BUDGET), trace, WARM_UP),
        hit_ratio(&mut Fifo::new(PAGES, BUDGET), trace, WARM_UP),
        hit_ratio(&mut sweep(), trace, WARM_UP),
    ]
}

#[test]
fn zipf_hits_more_often_than_with_lru_or_clock_on_accessed_bits() {
    for (theta, lead) in [(0.8, 0.03), (0.9, 0.02), (0.99, 0.015), (1.2, 0.003)] {
        let trace = trace::zipf(PAGES, theta, LENGTH, 1);
        let [ours, lru, clock, _, _] = ratios(&trace);
        assert!(ours > lru.max(clock) + lead, "theta {theta}: ours {ours}, LRU {lru}, CLOCK {clock}");
    }
}

#[test]
fn uniform_accesses_lose_nothing() {
    let [ours, lru, ..] = ratios(&trace::uniform(PAGES, LENGTH, 2));
    assert!(ours > lru - 0.005, "ours {ours}, LRU {lru}");
}

#[test]
fn a_loop_over_more_than_fits_loses_nothing_against_fifo() {
    for trace in [trace::sequential(PAGES, LENGTH), trace::strided(PAGES, 9, LENGTH)] {
        let [ours, _, _, fifo, _] = ratios(&trace);
        assert!(ours >= fifo, "ours {ours}, FIFO {fifo}");
    }
}

#[test]
fn a_loop_over_a_little_more_than_fits_keeps_part_of_it() {
    let [ours, lru, ..] = ratios(&trace::sequential(BUDGET as u64 * 6 / 5, LENGTH));
    assert!(lru == 0.0 && ours > 0.3, "ours {ours}, LRU {lru}");
}

#[test]
fn a_scan_does_not_push_out_a_hot_set() {
    let trace = trace::hot_and_scan(PAGES, BUDGET as u64 * 9 / 10, 4, LENGTH, 3);
    let [ours, lru, clock, ..] = ratios(&trace);
    assert!(ours > lru.max(clock) + 0.08, "ours {ours}, LRU {lru}, CLOCK {clock}");
    let trace = trace::hot_and_scan(PAGES, BUDGET as u64 / 2, 10, LENGTH, 3);
    let [ours, lru, ..] = ratios(&trace);
    assert!(ours > lru - 0.01, "ours {ours}, LRU {lru}");
}

#[test]
fn after_a_change_of_phase_the_old_hot_set_is_let_go_within_twelve_budgets_of_evictions() {
    let phase = LENGTH / 2;
    let trace = trace::phases(PAGES, 0.99, phase, LENGTH, 4);
    let mut ours = ours();
    let mut lru = Lru::new(PAGES, BUDGET);
    hit_ratio(&mut ours, &trace[..phase], 0);
    hit_ratio(&mut lru, &trace[..phase], 0);
    let before = ours.evictions;
    let step = trace[phase..]
        .iter()
        .position(|&page| {
            support::paging::Machine::access(&mut ours, page);
            support::paging::Machine::access(&mut lru, page);
            ours.evictions - before >= 12 * BUDGET as u64
        })
        .expect("the phase is long enough");
    let rest = &trace[phase + step + 1..];
    let (ours, lru) = (hit_ratio(&mut ours, rest, 0), hit_ratio(&mut lru, rest, 0));
    assert!(ours > lru, "ours {ours}, LRU {lru}, over {} accesses", rest.len());
}

#[test]
fn the_hand_visits_few_pages_for_each_that_leaves() {
    for trace in [
        trace::zipf(PAGES, 0.8, LENGTH, 1),
        trace::zipf(PAGES, 1.2, LENGTH, 1),
        trace::uniform(PAGES, LENGTH, 2),
        trace::sequential(PAGES, LENGTH),
        trace::hot_and_scan(PAGES, BUDGET as u64 * 9 / 10, 4, LENGTH, 3),
    ] {
        let mut ours = ours();
        hit_ratio(&mut ours, &trace, WARM_UP);
        assert!(ours.visits_per_eviction() < 8.0, "{} visits", ours.visits_per_eviction());
        assert!(ours.most_visits < 4 * BUDGET as u64, "{} visits for one batch", ours.most_visits);
    }
}

#[test]
fn a_page_back_at_once_rises_and_one_back_late_falls() {
    let victims = Victims::new(PageCount::new(6400));
    let left = victims.on_evict(PageWord::default().with_level(Level::new(4)));
    assert!(victims.on_refault(left).level() > Level::new(4));
    victims.on_evicted(PageCount::new(6400 * 3));
    assert!(victims.on_refault(left).level() < Level::new(4));
}

#[test]
fn memory_in_which_every_page_is_hot_yields_a_victim_within_four_rotations() {
    const RESIDENT: usize = 10_000;
    let victims = Victims::new(PageCount::new(RESIDENT as u64));
    let hot = victims.on_first_touch(PageWord::default()).with_level(Level::MAX);
    let visits = (0..4 * RESIDENT).take_while(|_| victims.visit(hot) != Verdict::Evict).count();
    assert!(visits < 4 * RESIDENT, "{visits} visits");
}

/// What is left of a budget that other memory fills: too few pages for the yield of the hand to say much.
#[test]
fn of_a_few_pages_that_all_are_hot_one_leaves_when_the_hand_has_gone_round_six_times_in_vain() {
    let victims = Victims::new(PageCount::new(100_000));
    let hot: Vec<PageWord> = (0..10)
        .map(|_| {
            victims.on_evicted(PageCount::new(2000));
            victims.on_first_touch(PageWord::default()).with_level(Level::MAX)
        })
        .collect();
    let goes_in_vain = |_: &usize| {
        let is_vain = hot.iter().all(|&page| victims.visit(page) != Verdict::Evict);
        victims.on_want();
        is_vain
    };
    assert!((0..100).take_while(goes_in_vain).count() <= 6);
}

proptest! {
    #[test]
    fn a_policy_changes_nothing_but_level_and_age(
        bits in any::<u64>(),
        evicted in 0_u64..1 << 40,
        budget in any::<u64>(),
    ) {
        let victims = Victims::new(PageCount::new(budget));
        victims.on_evicted(PageCount::new(evicted));
        let word = PageWord::from_bits(bits);
        let bare = |word: PageWord| word.with_level(Level::default()).with_age(AgeStamp::default());
        for new in [
            victims.on_first_touch(word),
            victims.on_refault(word),
            victims.on_unused(word),
            victims.on_evict(word),
        ] {
            prop_assert_eq!(bare(new), bare(word));
        }
        if let Verdict::Keep(new) = victims.visit(word) {
            prop_assert_eq!(bare(new), bare(word));
        }
    }
}
