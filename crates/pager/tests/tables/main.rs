//! Random operations on the page table and the regions, compiled from the pager's own source files.
//! `fuzz/fuzz_targets/pages.rs` runs the same interpreter on the fuzzer's bytes.
//!
//! Has its own `main`: the tested files' unit tests must not run in so little memory.

mod memory;
mod operations;
#[path = "../../src/address_space/regions.rs"]
#[allow(dead_code, reason = "the pager uses more of it than the operations need")]
mod regions;
#[path = "../../src/address_space/table.rs"]
#[allow(dead_code, reason = "as above")]
mod table;

use memory as sync;

const SEEDS: u64 = 150;
const OPERATIONS: usize = 600;

/// Bytes of operations, from a seed.
fn script(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..3 * OPERATIONS).map(|_| next()).collect()
}

fn random_operations_show_every_page_its_own_content() {
    (0..SEEDS).for_each(|seed| operations::run(&script(seed)));
}

fn operations_on_few_pages_show_each_its_own_content() {
    for seed in 0..SEEDS {
        let mut script = script(seed);
        script.chunks_mut(3).for_each(|operation| operation[1] %= 4);
        operations::run(&script);
    }
}

fn main() {
    let tests: [(&str, fn()); 2] = [
        (
            "random_operations_show_every_page_its_own_content",
            random_operations_show_every_page_its_own_content,
        ),
        (
            "operations_on_few_pages_show_each_its_own_content",
            operations_on_few_pages_show_each_its_own_content,
        ),
    ];
    let trials = tests.map(|(name, test)| {
        libtest_mimic::Trial::test(name, move || {
            test();
            Ok(())
        })
    });
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), trials.into()).exit();
}
