//! Entries that resident pages keep, and give back while far memory is short (Canvas §5.1).

use farmem_tests::{Launcher, Program, Statistics, managed_runner};

const BUDGET_BYTES: u64 = 16 << 20;

/// A hot set of 12 MiB next to a scan over 28 MiB; every byte is checked by the program. Stored, all of it
/// takes 28 MiB.
fn hot_set_beside_a_scan(pool: &str) -> Statistics {
    let launcher = Launcher::managed(BUDGET_BYTES).option("--pool").option(pool);
    let program =
        Program::new(env!("PROGRAM_ADDRESS_SPACE")).arg("hot_set_beside_a_scan").env("ARENA_MIB", "1");
    let finished = launcher.run(program).success();
    assert_eq!(finished.text(), "ok hot_set_beside_a_scan\n");
    finished.statistics.expect("a managed run").expect("complete statistics")
}

#[test]
fn pages_keep_their_entries_while_there_is_room() {
    if !managed_runner() {
        return;
    }
    let statistics = hot_set_beside_a_scan("64M");

    assert_eq!(statistics.number("entries_released"), 0.0);
    assert!(statistics.number("pool_stored_bytes") > 26e6, "{}", statistics.number("pool_stored_bytes"));
}

/// Without releases the pool would refuse pages several times as often as it takes one.
#[test]
fn hot_pages_give_their_entries_back_before_the_pool_overflows() {
    if !managed_runner() {
        return;
    }
    let statistics = hot_set_beside_a_scan("24M");

    assert!(statistics.number("entries_released") > 0.0);
    assert!(statistics.number("pool_stored_bytes") < 26e6, "{}", statistics.number("pool_stored_bytes"));
    let (refused, evicted) = (statistics.number("pool_full"), statistics.number("evicted"));
    assert!(refused < evicted / 10.0, "{refused} refused, {evicted} evicted");
}

/// The far part of the data alone fills nine tenths of the pool.
#[test]
fn a_pool_with_room_for_the_far_pages_alone_holds_them() {
    if !managed_runner() {
        return;
    }
    let statistics = hot_set_beside_a_scan("20M");

    assert!(statistics.number("entries_released") > 0.0);
    let (refused, evicted) = (statistics.number("pool_full"), statistics.number("evicted"));
    assert!(refused < evicted, "{refused} refused, {evicted} evicted");
}
