//! Prints what it costs to give reservations back, by trace and by the size of the partition:
//! `cargo run --release -p farmem-policy --example reservations`. Each page takes one entry; a partition of
//! 100% has room for all pages, a quarter of which is local.
#[path = "../tests/support/mod.rs"]
mod support;

use farmem_page::PageCount;
use farmem_policy::Victims;
use support::paging::{Pager, hit_ratio};
use support::trace;

const PAGES: u64 = 1 << 15;
const BUDGET: usize = PAGES as usize / 4;
const LENGTH: usize = 3_000_000;

fn main() {
    let traces = [
        ("zipf 0.8", trace::zipf(PAGES, 0.8, LENGTH, 1)),
        ("zipf 0.99", trace::zipf(PAGES, 0.99, LENGTH, 1)),
        ("zipf 1.2", trace::zipf(PAGES, 1.2, LENGTH, 1)),
        ("uniform", trace::uniform(PAGES, LENGTH, 2)),
        ("loop over 4 budgets", trace::sequential(PAGES, LENGTH)),
        ("hot half budget + scan", trace::hot_and_scan(PAGES, BUDGET as u64 / 2, 10, LENGTH, 3)),
        ("hot 0.9 budget + scan", trace::hot_and_scan(PAGES, BUDGET as u64 * 9 / 10, 4, LENGTH, 3)),
        ("zipf 0.99, phase 300k", trace::phases(PAGES, 0.99, 300_000, LENGTH, 4)),
    ];
    println!(
        "{:24} {:>9} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "trace", "partition", "hits", "evicted", "no entry", "released", "refused", "most used"
    );
    for (name, trace) in traces {
        for percent in [200, 110, 100, 90, 80] {
            let policy = Victims::new(PageCount::new(BUDGET as u64));
            let entries = PAGES * percent / 100;
            let mut pager = Pager::new(policy, PAGES, BUDGET).within(entries);
            let hits = hit_ratio(&mut pager, &trace, trace.len() / 3);
            let far = &pager.far;
            let share = |part: u64| 100.0 * part as f64 / pager.evictions.max(1) as f64;
            println!(
                "{name:24} {percent:8}% {hits:8.4} {:9} {:8.1}% {:8.1}% {:8.1}% {:8.1}%",
                pager.evictions,
                share(far.allocated),
                share(far.released),
                share(far.refused),
                100.0 * far.most_stored as f64 / entries as f64
            );
        }
    }
}
