//! What is fetched before it is asked for, by the policy that a user chose.

use std::process::{Command, Output};

use farmem_tests::{Launcher, Program, Statistics, farmem_binary, managed_runner};
use serde_json::Value;

const BUDGET_BYTES: u64 = 16 << 20;

/// Passes in order over 40 MiB, every byte checked by the program.
fn passes_in_order(policy: &str) -> Statistics {
    let launcher = Launcher::managed(BUDGET_BYTES).option("--prefetch").option(policy);
    let program = Program::new(env!("PROGRAM_ADDRESS_SPACE")).arg("only_pressure").env("ARENA_MIB", "40");
    let finished = launcher.run(program).success();
    assert_eq!(finished.text(), "ok only_pressure\n");
    finished.statistics.expect("a managed run").expect("complete statistics")
}

#[test]
fn each_policy_fetches_in_its_own_way_and_the_program_reads_its_own_bytes() {
    if !managed_runner() {
        return;
    }
    for (policy, pages_at_a_time) in
        [("streams", 17..66), ("neighbour", 9..17), ("readahead", 4..9), ("leap", 4..10)]
    {
        let statistics = passes_in_order(policy);
        let (fetches, used) = (statistics.number("fetches"), statistics.number("prefetch_used"));
        let brought = (fetches + used) / fetches;
        assert!(
            (pages_at_a_time.start as f64..pages_at_a_time.end as f64).contains(&brought),
            "{policy} brought {brought} pages with each fetch: {fetches} fetches, {used} prefetched pages used"
        );
    }
}

#[test]
fn without_a_policy_only_what_is_asked_for_is_fetched() {
    if !managed_runner() {
        return;
    }
    let statistics = passes_in_order("none");

    assert_eq!(statistics.number("prefetched"), 0.0);
    assert!(statistics.number("fetches") > 10_000.0);
}

fn measure(words: &str, more: &[&str]) -> Output {
    let words = words.split(' ').chain(more.iter().copied());
    Command::new(farmem_binary())
        .args(["bench", "prefetch"])
        .args(words)
        .output()
        .expect("farmem can be started")
}

#[test]
fn each_policy_is_measured_beside_none() {
    if !managed_runner() {
        return;
    }
    let output = measure("--quick --data 16M --policy none,leap --json", &[]);

    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("a JSON object");
    let figures = report["figures"].as_array().expect("figures");
    assert_eq!(figures.len(), 10);
    for figure in figures {
        let is_quiet = figure["prefetched"].as_f64() == Some(0.0);
        assert_eq!(is_quiet, figure["policy"] == "none", "{figure}");
    }
}

#[test]
fn a_program_that_is_measured_must_say_the_same_every_time() {
    if !managed_runner() {
        return;
    }
    let same = measure("--quick --policy streams -- sh -c", &["echo same"]);
    assert!(same.status.success(), "{}", String::from_utf8_lossy(&same.stderr));

    let other = measure("--quick --policy streams -- sh -c", &["echo $$"]);
    let words = String::from_utf8_lossy(&other.stderr);
    assert_eq!(other.status.code(), Some(1), "{words}");
    assert!(words.contains("said something else under streams"), "{words}");
}
