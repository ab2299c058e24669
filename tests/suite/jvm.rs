//! A Java program that builds, walks and changes a graph of objects, under two collectors.

use farmem_tests::{Launcher, Program, is_large, scaled};

crate::at_both_shares!(g1, |launcher| super::graph(launcher, "-XX:+UseG1GC"));
crate::at_both_shares!(parallel, |launcher| super::graph(launcher, "-XX:+UseParallelGC"));

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
