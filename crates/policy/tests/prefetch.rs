//! What the policies of prefetching promise, on seeded traces. What they make of real programs is in
//! `crates/trace/tests/recorded.rs`.
mod support;

use std::collections::HashSet;

use farmem_page::{PageIndex, PageRange};
use farmem_policy::{
    Advice, ChosenPrefetcher, Fault, MOST_WINDOWS, PrefetchPolicy, Prefetcher, Run, Streams,
};
use proptest::prelude::*;
use support::prefetch::{Outcome, alone, run};
use support::trace;

const PAGES: u64 = 1 << 15;
const BUDGET: usize = PAGES as usize / 4;

fn streams(trace: &[(u32, u64)], pages: u64) -> Outcome {
    run(&mut Streams::default(), trace, pages, pages as usize / 4)
}

fn shifted(trace: Vec<u64>, by: u64) -> Vec<u64> {
    trace.into_iter().map(|page| page + by).collect()
}

fn fault(policy: &mut Streams, page: u64) -> Advice {
    let bounds = PageRange::new(PageIndex::new(0), PageIndex::new(PAGES));
    policy.on_fault(Fault { page: PageIndex::new(page), offset_bytes: 0, thread: 0, write: false }, bounds)
}

fn pages_of(run: Option<Run>) -> Vec<u64> {
    run.iter().flat_map(|run| run.pages()).map(PageIndex::get).collect()
}

#[test]
fn random_faults_cost_less_than_one_useless_page_in_a_hundred() {
    for (pages, faults) in [(1 << 12, 300_000), (1 << 14, 300_000), (1 << 18, 300_000)] {
        for seed in 0..3 {
            let outcome = streams(&alone(trace::uniform(pages, faults, seed)), pages);
            let useless = outcome.useless() as f64 / outcome.faults as f64;
            assert!(useless < 0.01, "{useless} useless pages a fault over {pages} pages: {outcome:?}");
        }
    }
    let outcome = streams(&alone(trace::zipf(PAGES, 0.99, 400_000, 7)), PAGES);
    assert!(outcome.useless() * 100 < outcome.faults, "{outcome:?}");
}

#[test]
fn a_sequential_walk_faults_once_in_a_window_either_way() {
    let forward = trace::sequential(PAGES, PAGES as usize);
    let backward = forward.iter().map(|page| PAGES - 1 - page).collect();
    for trace in [forward, backward] {
        let outcome = streams(&alone(trace), PAGES);
        assert!(outcome.faults < PAGES / 65 + 16, "{outcome:?}");
        assert!(outcome.accuracy() > 0.99, "{outcome:?}");
    }
}

#[test]
fn a_strided_walk_is_followed() {
    for stride in [2, 7, 64] {
        let outcome = streams(&alone(trace::strided(PAGES, stride, PAGES as usize)), PAGES);
        assert!(outcome.contribution() > 0.9 && outcome.accuracy() > 0.95, "stride {stride}: {outcome:?}");
    }
}

#[test]
fn threads_that_go_down_columns_of_a_matrix_are_followed() {
    // Rows of 100 pages: each thread takes a page of each row, then its next column.
    let column = |thread: u64, turn: u64| (0..160).map(move |row| row * 100 + thread + 4 * turn);
    let threads: Vec<Vec<u64>> =
        (0..4).map(|thread| (0..25).flat_map(|turn| column(thread, turn)).collect()).collect();
    let outcome = streams(&trace::interleave(&threads, 5), 16_000);
    assert!(outcome.contribution() > 0.8, "{outcome:?}");
    assert!(outcome.accuracy() > 0.95, "{outcome:?}");
}

#[test]
fn threads_that_walk_at_once_are_told_apart() {
    let part = PAGES / 16;
    let walks: Vec<_> =
        (0..16).map(|thread| shifted(trace::sequential(part, part as usize), thread * part)).collect();
    let outcome = streams(&trace::interleave(&walks, 1), PAGES);
    assert!(outcome.contribution() > 0.95 && outcome.accuracy() > 0.98, "{outcome:?}");
}

/// Pages that were fetched ahead on a trace whose pages stay resident. At no time are more than `cache_pages`
/// unsettled.
fn fetched_within(policy: &mut dyn Prefetcher, trace: &[(u32, u64)], cache_pages: u32) -> u64 {
    policy.set_cache(cache_pages);
    let bounds = PageRange::new(PageIndex::new(0), PageIndex::new(PAGES));
    let count = |run: Option<Run>| run.map_or(0, |run| run.count);
    let (mut resident, mut fetched) = (HashSet::new(), 0);
    for &(thread, page) in trace {
        if resident.contains(&page) {
            continue;
        }
        let before = policy.unsettled_pages();
        let fault = Fault { page: PageIndex::new(page), offset_bytes: 0, thread, write: false };
        let Advice { fetch, used, expired } = policy.on_fault(fault, bounds);
        let after = policy.unsettled_pages();
        assert!(after <= cache_pages, "{after} pages");
        // A page that was advised and still faulted is settled without a word.
        let named = before + count(fetch) - count(used) - count(expired);
        assert!((after..=after + 1).contains(&named), "{after} pages, but {named} by the advice");
        fetched += u64::from(count(fetch));
        resident.insert(page);
        resident.extend(pages_of(fetch));
    }
    fetched
}

#[test]
fn every_policy_keeps_within_the_cache_and_streams_go_on_there() {
    let part = PAGES / 16;
    let walks: Vec<_> =
        (0..16).map(|thread| shifted(trace::sequential(part, part as usize), thread * part)).collect();
    let trace = trace::interleave(&walks, 1);
    for policy in PrefetchPolicy::BY_ADDRESS {
        let within = |cache| fetched_within(&mut ChosenPrefetcher::new(policy, 64), &trace, cache);
        assert_eq!(within(0), 0, "{policy:?}");
        within(100);
    }
    let fetched = fetched_within(&mut Streams::default(), &trace, 100);
    assert!(fetched > PAGES / 2, "{fetched} of {PAGES}");
}

#[test]
fn advice_that_nobody_asks_about_does_not_keep_later_walks_out_of_the_cache() {
    let (short, long) = (200, PAGES / 2);
    let broken_off = (0..40).map(|walk| PAGES / 2 + walk * 2 * short);
    let walks: Vec<u64> = broken_off.flat_map(|start| start..start + short).collect();
    let last: Vec<u64> = (0..long).collect();
    for policy in PrefetchPolicy::BY_ADDRESS {
        let mut prefetcher = ChosenPrefetcher::new(policy, 64);
        fetched_within(&mut prefetcher, &alone(walks.clone()), 8);

        let fetched = fetched_within(&mut prefetcher, &alone(last.clone()), 8);

        let is_much = fetched > long / 3;
        assert_eq!(is_much, policy != PrefetchPolicy::None, "{policy:?}: {fetched} of {long}");
    }
}

#[test]
fn every_policy_gives_up_what_the_cache_has_no_room_for_any_more() {
    let walk: Vec<u64> = (0..1000).collect();
    for policy in PrefetchPolicy::BY_ADDRESS {
        let mut prefetcher = ChosenPrefetcher::new(policy, 64);
        fetched_within(&mut prefetcher, &alone(walk.clone()), u32::MAX);
        let held = prefetcher.unsettled_pages();
        assert_eq!(held > 0, policy != PrefetchPolicy::None, "{policy:?}");

        prefetcher.set_cache(0);
        let given_up: u32 = (0..MOST_WINDOWS).filter_map(|_| prefetcher.shrink()).map(|run| run.count).sum();

        assert_eq!((given_up, prefetcher.unsettled_pages(), prefetcher.shrink()), (held, 0, None));
    }
}

#[test]
fn where_the_cache_shrinks_the_streams_idle_longest_end_first() {
    let mut policy = Streams::default();
    let mut windows = Vec::new();
    for start in [1000, 2000, 3000] {
        let mut last = Vec::new();
        for page in start..start + 200 {
            if !last.contains(&page) {
                last = pages_of(fault(&mut policy, page).fetch);
            }
        }
        assert!(!last.is_empty());
        windows.push(last);
    }
    policy.set_cache(windows[2].len() as u32);
    assert_eq!(pages_of(policy.shrink()), windows[0]);
    assert_eq!(pages_of(policy.shrink()), windows[1]);
    assert_eq!(policy.shrink(), None);
    policy.set_cache(0);
    assert_eq!(pages_of(policy.shrink()), windows[2]);
    assert!((5000..5100).all(|page| fault(&mut policy, page).fetch.is_none()), "nothing is fetched ahead");
}

#[test]
fn walks_among_random_faults_are_followed_and_random_faults_are_not() {
    let part = PAGES / 8;
    let threads: Vec<_> = (0..8)
        .map(|thread| match thread {
            0..4 => shifted(trace::sequential(part, part as usize), thread * part),
            _ => trace::uniform(PAGES, part as usize, thread),
        })
        .collect();
    let outcome = streams(&trace::interleave(&threads, 2), PAGES);
    assert!(outcome.used > 4 * part * 7 / 10, "{outcome:?}");
    assert!(outcome.useless() * 50 < outcome.faults, "{outcome:?}");
}

#[test]
fn a_walk_after_many_random_faults_is_found_at_once() {
    let mut policy = Streams::default();
    let bounds = PAGES;
    run(&mut policy, &alone(trace::uniform(bounds, 100_000, 3)), bounds, BUDGET);
    let outcome = run(&mut policy, &alone(trace::sequential(bounds, bounds as usize)), bounds, BUDGET);
    assert!(outcome.contribution() > 0.97, "{outcome:?}");
}

#[test]
fn a_matrix_product_and_a_merge_sort_are_mostly_prefetched() {
    for (trace, pages) in [(trace::matmul(48, 16), 3 * 48 * 16), (trace::merge_sort(8192, 4, 3), 2 * 8192)] {
        let outcome = streams(&alone(trace), pages);
        assert!(outcome.contribution() > 0.94 && outcome.accuracy() > 0.94, "{outcome:?}");
    }
}

fn runs_at_random_places(length: u64) -> Vec<(u32, u64)> {
    let starts = trace::uniform(PAGES / length, 20_000, 6);
    alone(starts.iter().flat_map(|start| (0..length).map(move |page| start * length + page)).collect())
}

#[test]
fn runs_at_random_places_are_prefetched_with_an_accuracy_of_one_half_at_least() {
    for length in [8, 16, 32] {
        let outcome = streams(&runs_at_random_places(length), PAGES);
        assert!(outcome.accuracy() > 0.5 && outcome.contribution() > 0.6, "runs of {length}: {outcome:?}");
    }
}

#[test]
fn runs_too_short_to_tell_cost_less_than_one_useless_page_in_a_hundred_faults() {
    for length in [2, 3, 4] {
        let outcome = streams(&runs_at_random_places(length), PAGES);
        assert!(outcome.useless() * 100 < outcome.faults, "runs of {length}: {outcome:?}");
    }
}

#[test]
fn a_walk_past_pages_that_stayed_local_goes_on() {
    let mut random = support::random::Random::new(8);
    let trace = (0..PAGES).filter(|_| random.below(4) > 0).collect();
    let outcome = streams(&alone(trace), PAGES);
    assert!(outcome.contribution() > 0.9, "{outcome:?}");
}

#[test]
fn what_is_inferred_to_be_used_was_used_on_walks() {
    let outcome = streams(&alone(trace::sequential(PAGES, 4 * PAGES as usize)), PAGES);
    assert!(outcome.inferred_used.abs_diff(outcome.used) * 100 < outcome.used, "{outcome:?}");
}

#[test]
fn a_window_doubles_when_the_next_fault_is_right_behind_it() {
    let mut policy = Streams::default();

    fault(&mut policy, 100);
    let second = fault(&mut policy, 101);
    let third = fault(&mut policy, 104);

    assert_eq!(pages_of(second.fetch), [102, 103]);
    assert_eq!(pages_of(third.used), [102, 103]);
    assert_eq!(pages_of(third.fetch), [105, 106, 107, 108]);
}

#[test]
fn a_window_never_exceeds_its_limit() {
    for limit in [1, 16, 128] {
        let mut policy = Streams::new(limit);
        let bounds = PageRange::new(PageIndex::new(0), PageIndex::new(PAGES));
        let mut page = 0;
        let mut longest = 0;
        while page < PAGES {
            let advice = policy.on_fault(
                Fault { page: PageIndex::new(page), offset_bytes: 0, thread: 3, write: true },
                bounds,
            );
            let count = advice.fetch.map_or(0, |run| run.count);
            longest = longest.max(count);
            page += count as u64 + 1;
        }
        assert_eq!(longest, limit);
    }
}

#[test]
fn a_fault_inside_the_window_shrinks_it_and_settles_both_parts() {
    let mut policy = Streams::default();
    for page in [100, 101, 104, 109] {
        fault(&mut policy, page);
    }

    let advice = fault(&mut policy, 112);

    assert_eq!(pages_of(advice.used), [110, 111]);
    assert_eq!(pages_of(advice.expired), [113, 114, 115, 116, 117]);
    assert_eq!(advice.fetch.map(|run| run.count), Some(4));
}

#[test]
fn a_walk_whose_windows_are_refused_is_still_a_walk() {
    let mut policy = Streams::default();
    for page in [100, 101, 104, 109] {
        fault(&mut policy, page);
    }

    for page in 110..140 {
        fault(&mut policy, page);
    }
    let advice = fault(&mut policy, 142);

    assert_eq!(pages_of(advice.fetch), [143, 144]);
}

#[test]
fn forgotten_pages_are_settled_neither_way() {
    let mut policy = Streams::default();
    fault(&mut policy, 100);
    fault(&mut policy, 101);

    policy.forget(PageRange::new(PageIndex::new(102), PageIndex::new(103)));

    assert_eq!(policy.drain(), None);
    assert_eq!(fault(&mut policy, 104).used, None);
}

#[test]
fn drained_advice_is_what_was_left_open() {
    let mut policy = Streams::default();
    fault(&mut policy, 100);
    fault(&mut policy, 101);

    let drained = policy.drain();

    assert_eq!(pages_of(drained), [102, 103]);
    assert_eq!(policy.drain(), None);
}

fn chosen(policy: PrefetchPolicy, trace: &[(u32, u64)]) -> Outcome {
    run(&mut ChosenPrefetcher::new(policy, 64), trace, PAGES, BUDGET)
}

#[test]
fn without_prefetching_nothing_is_fetched() {
    let outcome = chosen(PrefetchPolicy::None, &alone(trace::sequential(PAGES, PAGES as usize)));
    assert_eq!(outcome.prefetched, 0);
}

#[test]
fn every_policy_that_fetches_follows_a_walk() {
    let walk = alone(trace::sequential(PAGES, PAGES as usize));
    for (policy, pages_at_a_time) in
        [(PrefetchPolicy::Neighbour, 16), (PrefetchPolicy::Readahead, 8), (PrefetchPolicy::Leap, 9)]
    {
        let outcome = chosen(policy, &walk);
        assert!(outcome.faults < PAGES / pages_at_a_time + 16, "{policy:?}: {outcome:?}");
        assert!(outcome.accuracy() > 0.99, "{policy:?}: {outcome:?}");
        assert!(outcome.inferred_used.abs_diff(outcome.used) * 50 < outcome.used, "{policy:?}: {outcome:?}");
    }
}

#[test]
fn a_page_comes_with_its_neighbours_whatever_became_of_earlier_ones() {
    let outcome = chosen(PrefetchPolicy::Neighbour, &alone(trace::uniform(PAGES, 50_000, 5)));
    assert!(outcome.prefetched > 5 * outcome.faults && outcome.accuracy() < 0.5, "{outcome:?}");
}

#[test]
fn readahead_and_leap_stop_where_nothing_is_in_line() {
    for policy in [PrefetchPolicy::Readahead, PrefetchPolicy::Leap] {
        let outcome = chosen(policy, &alone(trace::uniform(PAGES, 50_000, 5)));
        assert!(outcome.useless() * 100 < outcome.faults, "{policy:?}: {outcome:?}");
    }
}

#[test]
fn only_leap_and_streams_follow_strides() {
    let strided = alone(trace::strided(PAGES, 7, PAGES as usize));
    for (policy, follows) in [
        (PrefetchPolicy::Leap, true),
        (PrefetchPolicy::Streams, true),
        (PrefetchPolicy::Readahead, false),
        (PrefetchPolicy::Neighbour, false),
    ] {
        let outcome = chosen(policy, &strided);
        assert_eq!(
            outcome.contribution() > 0.8 && outcome.accuracy() > 0.9,
            follows,
            "{policy:?}: {outcome:?}"
        );
    }
}

#[test]
fn leap_follows_the_majority_past_strays() {
    let mut stray = support::random::Random::new(4);
    let walk = trace::sequential(PAGES, PAGES as usize);
    let trace = walk.iter().flat_map(|&page| {
        let stray = (page % 64 == 63).then(|| stray.below(PAGES));
        [Some(page), stray].into_iter().flatten()
    });
    let outcome = chosen(PrefetchPolicy::Leap, &alone(trace.collect()));
    assert!(outcome.contribution() > 0.6, "{outcome:?}");
}

#[test]
fn numbers_and_names_of_policies_are_their_own() {
    for policy in PrefetchPolicy::ALL {
        assert_eq!(PrefetchPolicy::from_number(policy as u64), policy);
        assert_eq!(PrefetchPolicy::ALL.iter().filter(|other| other.name() == policy.name()).count(), 1);
    }
    assert_eq!(PrefetchPolicy::from_number(u64::MAX), PrefetchPolicy::default());
}

#[derive(Clone, Debug)]
enum Operation {
    Fault { page: u64, thread: u32, low: u64, high: u64 },
    Forget { low: u64, high: u64 },
}

/// Pages close together, so that streams form and end; some at the ends of what a page number can be.
fn pages() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0_u64..400, 1 => (1_u64 << 52) - 400..1 << 52, 1 => any::<u64>()]
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let fault = (pages(), 0_u32..20, pages(), pages()).prop_map(|(page, thread, low, high)| {
        Operation::Fault { page, thread, low: low.min(page), high: high.max(page).saturating_add(1) }
    });
    let forget = (pages(), pages()).prop_map(|(low, high)| Operation::Forget { low, high });
    prop::collection::vec(prop_oneof![20 => fault, 1 => forget], 0..400)
}

proptest! {
    #[test]
    fn advice_stays_in_bounds_and_is_settled_at_most_once(
        operations in operations(),
        limit in 0_u32..200,
        policy in prop::sample::select(&PrefetchPolicy::BY_ADDRESS),
    ) {
        let most = if policy == PrefetchPolicy::Streams { limit.clamp(1, 128) } else { 15 };
        let mut policy = ChosenPrefetcher::new(policy, limit);
        let mut open = 0_i64;
        for operation in operations {
            match operation {
                Operation::Fault { page, thread, low, high } => {
                    let bounds = PageRange::new(PageIndex::new(low), PageIndex::new(high));
                    let advice = policy.on_fault(Fault { page: PageIndex::new(page), offset_bytes: 0, thread, write: false }, bounds);
                    if let Some(run) = advice.fetch {
                        prop_assert!(run.count >= 1 && run.count <= most && run.stride != 0);
                        prop_assert_eq!(run.pages().count(), run.count as usize);
                        prop_assert!(run.pages().all(|ahead| bounds.contains(ahead) && ahead.get() != page));
                        open += run.count as i64;
                    }
                    for run in advice.used.into_iter().chain(advice.expired) {
                        prop_assert!(run.count >= 1);
                        open -= run.count as i64;
                    }
                    prop_assert!(open >= 0, "more was settled than advised");
                }
                Operation::Forget { low, high } => {
                    policy.forget(PageRange::new(PageIndex::new(low), PageIndex::new(high)));
                }
            }
        }
        while let Some(run) = policy.drain() {
            open -= run.count as i64;
        }
        prop_assert!(open >= 0);
    }

    #[test]
    fn the_span_of_a_run_holds_its_pages(start in 10_000_u64..1 << 40, stride in -64_i64..=64, count in 1_u32..=128) {
        prop_assume!(stride != 0);
        let run = Run { start: PageIndex::new(start), stride, count };
        let span = run.span();
        prop_assert!(run.pages().all(|page| span.contains(page)));
        prop_assert_eq!(span.count().get(), stride.unsigned_abs() * (count as u64 - 1) + 1);
    }
}
