//! Java programs: one builds, walks and changes a graph of objects, under two collectors; one reads arrays while garbage is collected.

use farmem_tests::{Launcher, Program, is_large, scaled};

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
