//! Policies on made-up traces of which the right figures are known.

use farmem_page::{PageCount, PageIndex};
use farmem_policy::PrefetchPolicy;
use farmem_telemetry::{TraceKind, TraceRecord};
use farmem_trace::{Replay, Row, courses, replay};

const PAGES: u64 = 4096;
const LOCAL: u64 = 1024;
const ASSUMED: Replay = Replay { budget: PageCount::new(LOCAL), latency_ns: 10_000 };

/// A program that asks for pages in this order, every one stored at first, of which the last [`LOCAL`] stay.
fn trace(order: impl Iterator<Item = u64>) -> Vec<TraceRecord> {
    let record = |kind, page, detail, time_ns| TraceRecord {
        kind,
        slot: 0,
        page: PageIndex::new(page),
        detail,
        time_ns,
    };
    let mut records = vec![record(TraceKind::Region, 0, PAGES as u32, 0)];
    records.extend((0..PAGES).map(|page| record(TraceKind::Evict, page, 0, 0)));
    let order: Vec<u64> = order.collect();
    for (at, &page) in order.iter().enumerate() {
        let time_ns = at as u64 * 1000;
        records.push(record(TraceKind::Fault, page, 1, time_ns));
        if let Some(left) = at.checked_sub(LOCAL as usize) {
            records.push(record(TraceKind::Evict, order[left], 0, time_ns));
        }
    }
    records
}

fn rows(order: impl Iterator<Item = u64>) -> Vec<Row> {
    replay(&courses(trace(order)), &PrefetchPolicy::BY_ADDRESS, ASSUMED)
}

fn row<'a>(rows: &'a [Row], policy: &str) -> &'a Row {
    rows.iter().find(|row| row.policy == policy).unwrap_or_else(|| panic!("no row for {policy}"))
}

/// A permutation of the pages that no policy can foresee.
fn scattered() -> impl Iterator<Item = u64> {
    (0..PAGES).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 17).map(|mixed| mixed % PAGES)
}

#[test]
fn in_order_everything_can_be_had_and_streams_have_nearly_all() {
    let rows = rows((0..PAGES).chain(0..PAGES));
    let bound = row(&rows, "oracle");
    assert!(bound.contribution > 0.98, "{bound:?}");
    assert_eq!(bound.accuracy, 1.0);
    let streams = row(&rows, "streams");
    assert!(streams.of_the_bound > 0.95 && streams.accuracy > 0.95, "{streams:?}");
    assert_eq!(row(&rows, "none").figures.used, 0);
}

#[test]
fn nobody_reaches_more_than_who_knows_the_future() {
    for order in [
        (0..PAGES).chain(0..PAGES).collect::<Vec<_>>(),
        (0..PAGES).map(|at| at * 7 % PAGES).collect(),
        scattered().collect(),
        scattered().flat_map(|page| [page, (page + 1) % PAGES, (page + 2) % PAGES]).collect(),
    ] {
        let rows = rows(order.into_iter());
        for row in &rows {
            assert!(row.of_the_bound <= 1.0, "{row:?}");
            assert_eq!(row.figures.accesses, row.figures.faults + row.figures.used);
            assert!(row.figures.used <= row.figures.prefetched);
        }
    }
}

#[test]
fn what_no_pattern_tells_only_the_oracle_knows() {
    let rows = rows(scattered());
    assert!(row(&rows, "oracle").contribution > 0.9);
    assert!(row(&rows, "streams").contribution < 0.1);
}

#[test]
fn what_is_needed_sooner_than_it_can_come_is_late() {
    let rows = rows((0..PAGES).chain(0..PAGES));
    let bound = row(&rows, "oracle");
    // A page for every microsecond: those that are needed within ten of them, of about 64 with each fault.
    assert!(bound.timeliness > 0.8 && bound.timeliness < 0.9, "{bound:?}");
}

#[test]
fn the_same_trace_gives_the_same_figures() {
    assert_eq!(rows(scattered()), rows(scattered()));
}

#[test]
fn what_the_program_gave_up_is_not_fetched() {
    let mut records = trace(std::iter::empty());
    let gone = TraceRecord {
        kind: TraceKind::Discard,
        slot: 0,
        page: PageIndex::new(2),
        detail: u32::MAX,
        time_ns: 0,
    };
    records.push(gone);
    for page in [0, 1] {
        records.push(TraceRecord { kind: TraceKind::Fault, page: PageIndex::new(page), detail: 1, ..gone });
    }
    let rows = replay(&courses(records), &[PrefetchPolicy::Neighbour], ASSUMED);
    assert!(row(&rows, "neighbour").figures.prefetched <= 1);
    assert_eq!(row(&rows, "oracle").figures.used, 1);
}
