//! Operations on the page table and the regions, read from the fuzzer's bytes, against plain maps: see the
//! interpreter.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/pager/tests/tables/memory.rs"]
mod memory;
#[path = "../../crates/pager/tests/tables/operations.rs"]
mod operations;
#[path = "../../crates/pager/src/address_space/regions.rs"]
#[allow(dead_code, reason = "the pager uses more of it than the operations need")]
mod regions;
#[path = "../../crates/pager/src/address_space/table.rs"]
#[allow(dead_code, reason = "as above")]
mod table;

use memory as sync;

fuzz_target!(|bytes: &[u8]| operations::run(bytes));
