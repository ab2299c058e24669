//! The pool against a reference map, over fixed seeds and over generated scripts.

mod support;

use proptest::prelude::*;
use support::operations::{Script, run, script_bytes};

#[test]
fn the_pool_agrees_with_a_plain_map_over_fixed_seeds() {
    for seed in 0..200 {
        run(Script::new(&script_bytes(seed, 250)));
    }
}

#[test]
fn the_pool_agrees_with_a_plain_map_over_a_long_run() {
    run(Script::new(&script_bytes(0xfa3, 6_000)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn the_pool_agrees_with_a_plain_map_over_any_script(bytes in prop::collection::vec(any::<u8>(), 0..1500)) {
        run(Script::new(&bytes));
    }
}
