//! A Java program that builds, walks and changes a graph of objects, under two collectors.

use farmem_tests::{Launcher, Program, scaled};

crate::at_both_shares!(g1, |launcher| super::graph(launcher, "-XX:+UseG1GC"));
crate::at_both_shares!(parallel, |launcher| super::graph(launcher, "-XX:+UseParallelGC"));

fn graph(launcher: &Launcher, collector: &str) -> String {
    launcher.helper(Program::new("javac").args(["-d", "."]).arg(crate::program_source("Graph.java")));
    let heap = format!("-Xmx{}m", scaled(192));
    let program =
        Program::new("java").args([collector, &heap, "-Xss1m", "Graph"]).arg(scaled(400_000).to_string());
    launcher.run(program).success().text().to_owned()
}
