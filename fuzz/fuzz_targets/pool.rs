//! Operations on the pool, read from the fuzzer's bytes, against plain maps: see the interpreter.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/store/tests/support/mod.rs"]
mod support;

fuzz_target!(|bytes: &[u8]| {
    let mut script = support::operations::Script::new(bytes);
    // The fuzzer takes every panic for a finding, caught or not.
    script.may_panic = false;
    support::operations::run(script);
});
