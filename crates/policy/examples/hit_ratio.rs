//! Prints how often accesses hit local memory, by trace and by how victims are chosen:
//! `cargo run --release -p farmem-policy --example hit_ratio`.
#[path = "../tests/support/mod.rs"]
mod support;

use farmem_page::PageCount;
use farmem_policy::{Sweep, Victims};
use support::paging::{Clock, Fifo, Fixed, Lru, Pager, hit_ratio};
use support::trace;

const PAGES: u64 = 1 << 15;
const BUDGET: usize = PAGES as usize / 4;
const LENGTH: usize = 3_000_000;

fn main() {
    let traces = [
        ("zipf 0.8", trace::zipf(PAGES, 0.8, LENGTH, 1)),
        ("zipf 0.9", trace::zipf(PAGES, 0.9, LENGTH, 1)),
        ("zipf 0.99", trace::zipf(PAGES, 0.99, LENGTH, 1)),
        ("zipf 1.2", trace::zipf(PAGES, 1.2, LENGTH, 1)),
        ("uniform", trace::uniform(PAGES, LENGTH, 2)),
        ("loop over 4 budgets", trace::sequential(PAGES, LENGTH)),
        ("loop over 1.2 budgets", trace::sequential(BUDGET as u64 * 6 / 5, LENGTH)),
        ("loop, stride 9", trace::strided(PAGES, 9, LENGTH)),
        ("hot half budget + scan", trace::hot_and_scan(PAGES, BUDGET as u64 / 2, 10, LENGTH, 3)),
        ("hot 0.9 budget + scan", trace::hot_and_scan(PAGES, BUDGET as u64 * 9 / 10, 4, LENGTH, 3)),
        ("zipf 0.99, phase 300k", trace::phases(PAGES, 0.99, 300_000, LENGTH, 4)),
        ("zipf 0.99, phase 60k", trace::phases(PAGES, 0.99, 60_000, LENGTH, 4)),
        ("matrix product", trace::matmul(105, 104)),
        ("merge sort", trace::merge_sort(PAGES / 2, 64, 5)),
    ];
    println!(
        "{:24} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>14} {:>14}",
        "trace", "sweep", "fifo", "clock", "lru", "fixed", "ours", "visits/evicted", "evicted/run"
    );
    for (name, trace) in traces {
        let warm_up = trace.len() / 3;
        let mut ours = Pager::new(Victims::new(PageCount::new(BUDGET as u64)), PAGES, BUDGET);
        let ratios = [
            hit_ratio(&mut Pager::new(Sweep, PAGES, BUDGET), &trace, warm_up),
            hit_ratio(&mut Fifo::new(PAGES, BUDGET), &trace, warm_up),
            hit_ratio(&mut Clock::new(PAGES, BUDGET), &trace, warm_up),
            hit_ratio(&mut Lru::new(PAGES, BUDGET), &trace, warm_up),
            hit_ratio(&mut Fixed::most_popular(PAGES, BUDGET, &trace), &trace, warm_up),
            hit_ratio(&mut ours, &trace, warm_up),
        ];
        print!("{name:24}");
        ratios.iter().for_each(|ratio| print!(" {ratio:7.4}"));
        println!(
            " {:14.2} {:14.1}",
            ours.visits_per_eviction(),
            ours.evictions as f64 / ours.runs.max(1) as f64
        );
    }
}
