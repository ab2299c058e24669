//! Prints how each policy of prefetching does on synthetic traces:
//! `cargo run --release -p farmem-policy --example prefetch`.
#[path = "../tests/support/mod.rs"]
mod support;

use farmem_page::{PageIndex, PageRange};
use farmem_policy::{ChosenPrefetcher, Fault, PrefetchPolicy, Prefetcher, Streams};
use support::prefetch::{alone, run};
use support::trace;

fn main() {
    let pages = 1 << 16;
    let traces = [
        ("uniform random", alone(trace::uniform(pages, 400_000, 1)), pages),
        ("uniform random, 4096 pages", alone(trace::uniform(4096, 400_000, 1)), 4096),
        ("uniform random, 1024 pages", alone(trace::uniform(1024, 100_000, 1)), 1024),
        ("zipf 1.0", alone(trace::zipf(pages, 1.0, 400_000, 2)), pages),
        ("sequential", alone(trace::sequential(pages, 200_000)), pages),
        (
            "sequential, backwards",
            alone(trace::sequential(pages, 200_000).iter().map(|page| pages - 1 - page).collect()),
            pages,
        ),
        ("stride 7", alone(trace::strided(pages, 7, 200_000)), pages),
        ("matrix product", alone(trace::matmul(48, 16)), 3 * 48 * 16),
        ("merge sort", alone(trace::merge_sort(8192, 4, 3)), 2 * 8192),
        ("scan and hot set", alone(trace::hot_and_scan(pages, pages / 8, 10, 400_000, 4)), pages),
        (
            "8 threads, sequential",
            trace::interleave(
                &(0..8)
                    .map(|t| trace::sequential(8192, 8192).iter().map(|p| p + t * 8192).collect())
                    .collect::<Vec<_>>(),
                5,
            ),
            pages,
        ),
        (
            "4 threads sequential, 4 random",
            trace::interleave(
                &(0..8)
                    .map(|t| {
                        if t < 4 {
                            trace::sequential(8192, 8192).iter().map(|p| p + t * 8192).collect()
                        } else {
                            trace::uniform(pages, 8192, t)
                        }
                    })
                    .collect::<Vec<_>>(),
                5,
            ),
            pages,
        ),
        (
            "runs of 8 at random",
            alone(
                trace::uniform(pages / 8, 40_000, 6)
                    .iter()
                    .flat_map(|r| (0..8).map(move |p| r * 8 + p))
                    .collect(),
            ),
            pages,
        ),
        (
            "runs of 32 at random",
            alone(
                trace::uniform(pages / 32, 10_000, 6)
                    .iter()
                    .flat_map(|r| (0..32).map(move |p| r * 32 + p))
                    .collect(),
            ),
            pages,
        ),
        (
            "runs of 3 at random",
            alone(
                trace::uniform(pages / 3, 40_000, 6)
                    .iter()
                    .flat_map(|r| (0..3).map(move |p| r * 3 + p))
                    .collect(),
            ),
            pages,
        ),
    ];
    println!(
        "{:32} {:>10} {:>9} {:>9} {:>10} {:>9} {:>8} {:>8} {:>9} {:>9}",
        "trace",
        "policy",
        "accesses",
        "faults",
        "prefetched",
        "useless",
        "contrib",
        "accuracy",
        "inf.used",
        "inf.exp"
    );
    for (name, trace, pages) in traces {
        for policy in PrefetchPolicy::BY_ADDRESS {
            let outcome = run(&mut ChosenPrefetcher::new(policy, 64), &trace, pages, pages as usize / 4);
            println!(
                "{name:32} {:>10} {:9} {:9} {:10} {:9} {:8.3} {:8.3} {:9} {:9}",
                policy.name(),
                outcome.accesses,
                outcome.faults,
                outcome.prefetched,
                outcome.useless(),
                outcome.contribution(),
                outcome.accuracy(),
                outcome.inferred_used,
                outcome.inferred_expired
            );
        }
    }
    for (name, trace) in [
        ("random", trace::uniform(pages, 4_000_000, 1)),
        ("every 65th page", trace::strided(pages * 4, 65, 4_000_000)),
    ] {
        println!("{:.0} ns for a fault, {name}", nanoseconds_per_fault(&trace));
    }
}

fn nanoseconds_per_fault(trace: &[u64]) -> f64 {
    let bounds = PageRange::new(PageIndex::new(0), PageIndex::new(1 << 32));
    let mut policy = Streams::default();
    let start = std::time::Instant::now();
    for &page in trace {
        let fault = Fault { page: PageIndex::new(page), offset_bytes: 0, thread: 1, write: false };
        std::hint::black_box(policy.on_fault(fault, bounds));
    }
    start.elapsed().as_nanos() as f64 / trace.len() as f64
}
