//! What is fetched before it is asked for, by the policy that a user chose.

use std::process::{Command, Output};

use farmem_tests::{
    Launcher, Node, Program, Statistics, assert_in_one_of_three, farmem_binary, is_large, managed_runner,
};
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

/// Follows references through 40 MiB of objects, every byte checked by the program.
fn follows(pattern: &str, policy: &str) -> Statistics {
    follows_by(Launcher::managed(BUDGET_BYTES), pattern, policy)
}

fn follows_by(launcher: Launcher, pattern: &str, policy: &str) -> Statistics {
    let launcher = launcher.option("--prefetch").option(policy);
    let words = ["workload", "--data", "40M", "--accesses", "40000", "--rounds", "2", "--pattern", pattern];
    let program = words.iter().fold(Program::new(farmem_binary()), |program, word| program.arg(word));
    launcher.run(program).success().statistics.expect("a managed run").expect("complete statistics")
}

#[test]
fn what_a_list_refers_to_comes_ahead_and_the_program_reads_its_own_bytes() {
    if !managed_runner() {
        return;
    }
    for pattern in ["list", "tree"] {
        // By the sample, too: of what references lead to not all is known for certain.
        let used_and_accuracy = |policy: &str| {
            let statistics = follows(pattern, policy);
            let accuracy = statistics.number("accuracy");
            (accuracy * statistics.number("prefetched"), accuracy)
        };
        let (without, _) = used_and_accuracy("streams");
        assert_in_one_of_three(
            || used_and_accuracy("two-tier"),
            |&(used, accuracy)| used > 2.0 * without + 10_000.0 && accuracy > 0.8,
        );
    }
}

#[test]
fn what_a_list_refers_to_is_asked_of_a_node_ahead_and_the_program_reads_its_own_bytes() {
    if !managed_runner() {
        return;
    }
    for pattern in ["list", "tree"] {
        let used_and_asked = |policy: &str| {
            let node = Node::start("256M");
            let launcher = Launcher::managed(BUDGET_BYTES).option("--pool").option("2M");
            let launcher = launcher.option("--node").option(node.address()).option("--plain");
            let statistics = follows_by(launcher, pattern, policy);
            (statistics.number("prefetch_used"), statistics.number("fetches_from_nodes"))
        };
        let (without, _) = used_and_asked("streams");
        assert_in_one_of_three(
            || used_and_asked("two-tier"),
            // Nobody asks for more than the next object's page: what it refers to is known when it has come.
            |&(used, asked)| asked > 10_000.0 && used > 2.0 * without + 5_000.0,
        );
    }
}

#[test]
fn nothing_comes_ahead_into_a_cache_of_nothing() {
    if !managed_runner() {
        return;
    }
    let launcher = Launcher::managed(BUDGET_BYTES).option("--cache").option("0");
    let words = ["workload", "--data", "40M", "--accesses", "20000", "--rounds", "1", "--pattern", "list"];
    let program = words.iter().fold(Program::new(farmem_binary()), |program, word| program.arg(word));
    let statistics = launcher.run(program).success().statistics.expect("a managed run").expect("complete");
    assert_eq!(statistics.number("prefetched"), 0.0);
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
    // One of each kind; a virtual machine at so small a size spends most of a minute on its own memory.
    let names = if is_large() {
        "sequential,random-read,c-btree-scan,numpy-multiply,java-breadth,redis-scan"
    } else {
        "sequential,random-read,c-btree-scan,numpy-multiply,redis-scan"
    };
    let python = crate::python();
    let words = ["--only", names, "--python", python.to_str().expect("a path of plain letters")];
    let output = measure("--quick --repeat 1 --data 16M --policy none,leap --json", &words);

    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("a JSON object");
    let figures = report["figures"].as_array().expect("figures");
    let left_out = report["left_out"].as_object().expect("an object");
    assert_eq!(figures.len(), 2 * (names.split(',').count() - left_out.len()), "{left_out:?}");
    for figure in figures {
        let share = figure["share_of_oracle"].as_f64().unwrap_or(0.0);
        assert!((0.0..1.5).contains(&share), "{figure}");
        let is_quiet = figure["prefetched"].as_f64() == Some(0.0);
        assert!(is_quiet || figure["policy"] == "leap", "{figure}");
        assert!(!is_quiet || figure["policy"] == "none" || figure["program"] != "sequential", "{figure}");
        assert!(figure["seconds"].as_f64() > Some(0.0), "{figure}");
        let is_pattern = figure["program"] == "sequential" || figure["program"] == "random-read";
        assert_eq!(figure["processor_beyond_none"].is_f64(), is_pattern, "{figure}");
    }
}

#[test]
fn what_is_not_installed_is_left_out_of_the_measurement_and_named() {
    if !managed_runner() {
        return;
    }
    let output = measure(
        "--quick --data 16M --policy none --json --only xgboost,spark-kmeans,c-list --python",
        &["/nowhere"],
    );

    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("a JSON object");
    let reason = report["left_out"]["xgboost"].as_str().expect("a reason");
    assert!(reason.contains("--python"), "{reason}");
    let spark = report["left_out"]["spark-kmeans"].as_str().expect("a reason");
    assert!(spark.contains("java-kmeans stands for it"), "{spark}");
    assert_eq!(report["figures"].as_array().map(Vec::len), Some(1));
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

fn trace(words: &[&str]) -> Output {
    Command::new(farmem_binary()).arg("trace").args(words).output().expect("farmem runs")
}

fn json(words: &[&str]) -> Value {
    let output = trace(words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn a_trace_has_every_fault_and_shows_what_a_policy_would_have_been_worth() {
    if !managed_runner() {
        return;
    }
    let launcher = Launcher::managed(BUDGET_BYTES).option("--prefetch").option("none").option("--trace");
    let file = launcher.file("recorded");
    let launcher = launcher.option(&file);
    let program = Program::new(env!("PROGRAM_ADDRESS_SPACE")).arg("only_pressure").env("ARENA_MIB", "40");

    let finished = launcher.run(program).success();

    assert_eq!(finished.text(), "ok only_pressure\n");
    let statistics = finished.statistics.expect("a managed run").expect("complete statistics");
    let file = file.to_str().expect("a path of plain letters");
    let summary = json(&["show", "--json", file]);
    assert_eq!((&summary["is_complete"], &summary["lost"]), (&true.into(), &0.into()));
    let records = |kind: &str| summary["records"][kind].as_f64().expect("a number");
    assert_eq!(records("prefetch"), 0.0);
    assert_eq!(records("evict"), statistics.number("evicted"));
    // A fault that meets an event is served twice.
    let faults = records("fault") + records("write-fault");
    let fetches = statistics.number("fetches");
    assert!((fetches..fetches * 1.01 + 5.0).contains(&faults), "{faults} recorded, {fetches} fetched");

    let rows = json(&["replay", "--json", file]);
    assert_eq!(rows, json(&["replay", "--json", file]));
    let contribution = |policy: &str| {
        let rows = rows.as_array().expect("an array");
        let row = rows.iter().find(|row| row["policy"] == policy).expect("a row for each policy");
        row["contribution"].as_f64().expect("a number")
    };
    assert_eq!(contribution("none"), 0.0);
    assert!(contribution("streams") > 0.9, "{rows}");
    assert!(contribution("oracle") >= contribution("streams"), "{rows}");
}

#[test]
fn what_is_no_trace_is_refused_and_a_place_that_cant_be_written_too() {
    let refused = |words: &[&str], reason: &str| {
        let output = trace(words);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(reason) && told.lines().count() == 1, "{told}");
    };
    refused(&["show", "/etc/hostname"], "is not a trace");
    refused(&["replay", "/nowhere/at-all"], "No such file");
    refused(&["record", "/nowhere/at-all", "--", "true"], "cannot write --trace");
    refused(&["record", "one", "--trace", "two", "--", "true"], "named twice");
}
