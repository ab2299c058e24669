//! Java programs: one builds, walks and changes a graph of objects, under two collectors; one reads arrays while garbage is collected; one
//! follows a list.

use farmem_tests::{Launcher, Program, Statistics, is_large, managed_runner, scaled};

crate::at_both_shares!(g1, |launcher| super::graph(launcher, "-XX:+UseG1GC"));
crate::at_both_shares!(parallel, |launcher| super::graph(launcher, "-XX:+UseParallelGC"));
crate::at_both_shares!(arrays_beside_a_graph, super::arrays_beside_a_graph);

fn arrays_beside_a_graph(launcher: &Launcher) -> String {
    launcher.helper(Program::new("javac").args(["-d", "."]).arg(crate::program_source("Mixed.java")));
    let heap = format!("-Xmx{}m", scaled(140));
    let program = Program::new("java").args(["-XX:+UseG1GC", &heap, "Mixed"]);
    launcher.run(program.args([scaled(75_000).to_string(), "2".to_owned()])).success().text().to_owned()
}

fn graph(launcher: &Launcher, collector: &str) -> String {
    launcher.helper(Program::new("javac").args(["-d", "."]).arg(crate::program_source("Graph.java")));
    let heap = format!("-Xmx{}m", scaled(136));
    // A collection visits all of the graph, most of it far: one is what a small test has time for.
    let rounds = if is_large() { 3 } else { 1 };
    let program = Program::new("java")
        .args([collector, &heap, "-Xss1m", "Graph"])
        .args([scaled(50_000).to_string(), rounds.to_string()]);
    launcher.run(program).success().text().to_owned()
}

/// Follows a list of 16 MiB by references as `options` make the VM write them. Nothing is collected.
fn follows_a_list(policy: &str, options: &[&str]) -> Statistics {
    let launcher = Launcher::managed(16 << 20).option("--prefetch").option(policy);
    launcher.helper(Program::new("javac").args(["-d", "."]).arg(crate::program_source("References.java")));
    let young = ["-XX:+UseSerialGC", "-Xms128m", "-Xmx128m", "-Xmn100m", "-XX:TieredStopAtLevel=1"];
    let program = Program::new("java").args(young).args(options.iter().copied());
    let finished = launcher.run(program.args(["References", "250000", "2"])).success();
    assert_eq!(finished.text(), "2 -3843527906605404025\n1 -3843527906605404025\n");
    finished.statistics.expect("a managed run").expect("complete statistics")
}

#[test]
fn what_a_list_of_objects_refers_to_comes_ahead_however_references_are_written() {
    if !managed_runner() {
        return;
    }
    let without = follows_a_list("streams", &[]).number("prefetch_used");
    // As the lowest 32 bits of addresses; and shifted, with a base.
    let ways: [&[&str]; 2] = [&[], &["-XX:HeapBaseMinAddress=64g"]];
    for options in ways {
        let statistics = follows_a_list("two-tier", options);
        let (used, accuracy) = (statistics.number("prefetch_used"), statistics.number("accuracy"));
        assert!(used > without + 150_000.0, "{options:?}: {used} used, {without} without references");
        assert!(accuracy > 0.85, "{options:?}: {accuracy}");
    }
}
