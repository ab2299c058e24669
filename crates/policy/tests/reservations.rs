//! What is promised of reservations: an entry that counts is never given back, a partition that would
//! overflow doesn't, and while there is room nothing changes.
mod support;

use farmem_page::{AgeStamp, ByteCount, Level, PageCount, PageWord, Place, SlabIndex, SlotIndex, SlotPlace};
use farmem_policy::{Partition, Pressure, Reservations, Sweep, VictimPolicy, Victims};
use proptest::prelude::*;
use support::paging::{Machine, Pager, hit_ratio};
use support::trace;

const PAGES: u64 = 1 << 12;
const BUDGET: usize = PAGES as usize / 4;
const LENGTH: usize = 400_000;

fn pager(entries: u64) -> Pager<Victims> {
    Pager::new(Victims::new(PageCount::new(BUDGET as u64)), PAGES, BUDGET).within(entries)
}

fn run(entries: u64, trace: &[u64]) -> (Pager<Victims>, f64) {
    let mut pager = pager(entries);
    let hits = hit_ratio(&mut pager, trace, trace.len() / 3);
    (pager, hits)
}

fn slot() -> Option<Place> {
    let (slab, slot) = SlabIndex::new(3).zip(SlotIndex::new(4)).expect("small numbers");
    Some(Place::Slot(SlotPlace { slab, slot }))
}

/// Scans that both begin now.
fn twice_scanned(policy: &impl VictimPolicy) -> Reservations {
    let mut reservations = Reservations::new();
    reservations.begin_scan(policy.now());
    reservations.begin_scan(policy.now());
    reservations
}

#[test]
fn nothing_is_given_back_while_there_is_room() {
    for trace in
        [trace::zipf(PAGES, 0.99, LENGTH, 1), trace::hot_and_scan(PAGES, BUDGET as u64 / 2, 4, LENGTH, 2)]
    {
        let (pager, _) = run(2 * PAGES, &trace);
        assert_eq!((pager.far.released, pager.far.refused), (0, 0));
    }
}

#[test]
fn a_partition_that_all_entries_would_overflow_holds_the_far_pages_and_refuses_none() {
    // Three quarters of the pages are far; a sixteenth more is room for those on their way.
    for (name, trace) in [
        ("zipf", trace::zipf(PAGES, 0.99, LENGTH, 1)),
        ("hot and scan", trace::hot_and_scan(PAGES, BUDGET as u64 * 9 / 10, 4, LENGTH, 3)),
    ] {
        let (pager, _) = run(PAGES * 15 / 16, &trace);
        assert!(pager.far.released > 0, "{name}");
        assert!(pager.far.most_stored < PAGES * 15 / 16, "{name}: {} stored", pager.far.most_stored);
        assert_eq!(pager.far.refused, 0, "{name}");
    }
}

#[test]
fn a_partition_with_room_for_the_far_pages_alone_still_works() {
    let entries = PAGES - BUDGET as u64 + 64;
    for trace in [
        trace::zipf(PAGES, 0.99, LENGTH, 1),
        trace::uniform(PAGES, LENGTH, 2),
        trace::sequential(PAGES, LENGTH),
    ] {
        let (pager, hits) = run(entries, &trace);
        let (_, unlimited) = run(2 * PAGES, &trace);
        assert!(pager.far.most_stored <= entries);
        assert!(hits > unlimited - 0.01, "hits {hits}, with any number of entries {unlimited}");
    }
}

#[test]
fn hot_pages_lose_their_reservations_and_cold_ones_keep_them() {
    let hot = BUDGET as u64 * 3 / 4;
    let trace = trace::hot_and_scan(PAGES, hot, 4, LENGTH, 3);
    let (pager, _) = run(PAGES * 15 / 16, &trace);
    let cold_kept = pager.far.kept as f64 / (pager.far.kept + pager.far.allocated) as f64;
    assert!(cold_kept > 0.8, "only {cold_kept} of the evictions found their entry");
}

#[test]
fn which_pages_leave_is_the_same_with_and_without_pressure() {
    let trace = trace::zipf(PAGES, 0.99, LENGTH, 1);
    let (mut tight, mut roomy) = (pager(PAGES * 15 / 16), pager(2 * PAGES));
    for &page in &trace {
        assert_eq!(tight.access(page), roomy.access(page));
    }
    assert!(tight.far.released > 0);
}

#[test]
fn a_page_is_hot_once_it_has_come_back_soon_and_no_more_when_it_stayed_away() {
    let victims = Victims::new(PageCount::new(6400));
    let came = victims.on_first_touch(PageWord::default());
    let back = victims.on_refault(victims.on_evict(came));
    victims.on_evicted(PageCount::new(6400));
    assert!(!victims.is_hot(came, victims.now()) && victims.is_hot(back, victims.now()));
    let left = victims.on_evict(back);
    victims.on_evicted(PageCount::new(6400 * 2));
    let back_late = victims.on_refault(left);
    victims.on_evicted(PageCount::new(6400));
    assert!(!victims.is_hot(back_late, victims.now()));
}

#[test]
fn a_page_that_came_after_the_scan_before_is_not_hot_yet() {
    let victims = Victims::new(PageCount::new(6400));
    let mut reservations = Reservations::new();
    let word = victims.on_first_touch(PageWord::default()).with_level(Level::MAX).with_place(slot());
    let tick = || victims.on_evicted(PageCount::new(200));
    let mut scan = |word| {
        tick();
        reservations.begin_scan(victims.now());
        tick();
        reservations.gives_back(&victims, Pressure::High, word)
    };
    assert!(!scan(word), "the first scan has none before it");
    assert!(scan(word));
    let came_now = victims.on_refault(victims.on_evict(word));
    assert!(!scan(came_now), "it came after the scan before this one");
    assert!(!scan(victims.on_refault(victims.on_evict(word))));
    assert!(scan(came_now), "it has met two scans");
}

#[test]
fn a_policy_without_recency_calls_nothing_hot() {
    let word = PageWord::default().with_level(Level::MAX).with_place(slot());
    assert!(!twice_scanned(&Sweep).gives_back(&Sweep, Pressure::High, word));
    assert!(twice_scanned(&Sweep).gives_back(&Sweep, Pressure::Full, word));
}

proptest! {
    #[test]
    fn an_entry_that_counts_is_never_given_back(bits in any::<u64>(), evicted in 0_u64..1 << 40, waited in 0_u64..1 << 20) {
        let victims = Victims::new(PageCount::new(1000));
        victims.on_evicted(PageCount::new(evicted));
        let reservations = twice_scanned(&victims);
        victims.on_evicted(PageCount::new(waited));
        let word = PageWord::from_bits(bits);
        for pressure in [Pressure::Low, Pressure::High, Pressure::Full] {
            if reservations.gives_back(&victims, pressure, word) {
                prop_assert!(!word.is_far() && !word.is_busy() && !word.is_discarded());
                prop_assert!(matches!(word.place(), Some(Place::Slot(_))));
                prop_assert!(pressure != Pressure::Low);
            }
        }
    }

    #[test]
    fn who_gives_back_under_less_pressure_gives_back_under_more(bits in any::<u64>(), waited in 0_u64..1 << 20) {
        let victims = Victims::new(PageCount::new(1000));
        let reservations = twice_scanned(&victims);
        victims.on_evicted(PageCount::new(waited));
        let gives = |pressure| reservations.gives_back(&victims, pressure, PageWord::from_bits(bits));
        prop_assert!(!gives(Pressure::Low));
        prop_assert!(!gives(Pressure::High) || gives(Pressure::Full));
    }

    #[test]
    fn pressure_begins_at_three_quarters_of_any_partition(limit in 1_u64..u64::MAX, stored in any::<u64>(), pages in any::<u64>()) {
        let (stored, stored_pages) = (stored.max(pages), PageCount::new(pages));
        let partition =
            Partition { stored: ByteCount::new(stored), stored_pages, limit: ByteCount::new(limit) };
        let is_above = u128::from(stored) * 100 > u128::from(limit) * 75;
        let expected = if is_above { Pressure::High } else { Pressure::Low };
        // Up to the rounding of a byte.
        prop_assume!((u128::from(stored) * 4).abs_diff(u128::from(limit) * 3) > 4);
        prop_assert_eq!(partition.pressure(false), expected);
        prop_assert_eq!(partition.pressure(true), Pressure::Full);
        prop_assert!(partition.surplus() <= stored_pages);
    }

    #[test]
    fn no_stamp_of_any_age_upsets_the_policy(bits in any::<u64>(), since in any::<u64>(), evicted in 0_u64..1 << 40) {
        let victims = Victims::new(PageCount::new(1));
        victims.on_evicted(PageCount::new(evicted));
        let word = PageWord::from_bits(bits);
        prop_assert!(!victims.is_hot(word, AgeStamp::of(since)) || word.level() > Level::new(1));
    }
}
