//! Prints how often zipf's accesses miss local memory from the first on, by how victims are chosen:
//! `cargo run --release -p farmem-policy --example learning`.
#[path = "../tests/support/mod.rs"]
mod support;

use farmem_page::PageCount;
use farmem_policy::{Sweep, Victims};
use support::paging::{Clock, Fixed, Lru, Machine, Pager};
use support::trace;

const PAGES: u64 = 1 << 16;
const BUDGET: usize = PAGES as usize / 4;
/// Accesses of a round: two budgets.
const ROUND: usize = 2 * BUDGET;
const ROUNDS: usize = 64;
/// The rounds that are shown.
const SHOWN: [usize; 10] = [1, 2, 3, 4, 8, 16, 24, 32, 48, 64];

fn main() {
    let accesses = trace::zipf(PAGES, 0.99, ROUNDS * ROUND, 1);
    let machines: [(&str, Box<dyn Machine>); 5] = [
        ("sweep", Box::new(Pager::new(Sweep, PAGES, BUDGET))),
        ("clock", Box::new(Clock::new(PAGES, BUDGET))),
        ("lru", Box::new(Lru::new(PAGES, BUDGET))),
        ("fixed", Box::new(Fixed::most_popular(PAGES, BUDGET, &accesses))),
        ("ours", Box::new(Pager::new(Victims::new(PageCount::new(BUDGET as u64)), PAGES, BUDGET))),
    ];
    print!("{:8}", "round");
    SHOWN.iter().for_each(|round| print!(" {round:>6}"));
    println!();
    for (name, mut machine) in machines {
        print!("{name:8}");
        (0..PAGES).for_each(|page| {
            machine.access(page);
        });
        for (round, accesses) in (1..).zip(accesses.chunks(ROUND)) {
            let misses = accesses.iter().filter(|&&page| !machine.access(page)).count();
            if SHOWN.contains(&round) {
                print!(" {:6.4}", misses as f64 / ROUND as f64);
            }
        }
        println!();
    }
}
