//! Java programs: one builds, walks and changes a graph of objects, under two collectors; one reads arrays
//! while garbage is collected; one follows a list.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use farmem_tests::{
    Launcher, Program, Statistics, assert_in_one_of_three, farmem_binary, is_large, managed_runner, scaled,
};
use serde_json::Value;

crate::at_both_shares!(g1, |launcher| super::graph(launcher, "-XX:+UseG1GC"));
crate::at_both_shares!(parallel, |launcher| super::graph(launcher, "-XX:+UseParallelGC"));
crate::at_both_shares!(arrays_beside_a_graph, super::arrays_beside_a_graph);

fn arrays_beside_a_graph(launcher: &Launcher) -> String {
    launcher.helper(Program::new("javac").args(["-d", "."]).arg(crate::program_source("Mixed.java")));
    let heap = format!("-Xmx{}m", scaled(140));
    let program = Program::new("java").args(["-XX:+UseG1GC", &heap, "Mixed"]);
    launcher.run(program.args([scaled(75_000).to_string(), "2".to_owned()])).success().text().to_owned()
}

pub(crate) fn graph(launcher: &Launcher, collector: &str) -> String {
    launcher.helper(Program::new("javac").args(["-d", "."]).arg(crate::program_source("Graph.java")));
    let heap = format!("-Xmx{}m", scaled(136));
    // A collection visits all of the graph, most of it far: one is what a small test has time for.
    let rounds = if is_large() { 3 } else { 1 };
    let program = Program::new("java")
        .args([collector, &heap, "-Xss1m", "Graph"])
        .args([scaled(50_000).to_string(), rounds.to_string()]);
    launcher.run(program).success().text().to_owned()
}

/// A Java VM, a list for it of objects of 64 bytes, and what `References` prints of that.
struct List {
    java: PathBuf,
    objects: u32,
    printed: &'static str,
}

/// What makes the VM's heap small, and its code simple.
const YOUNG: [&str; 5] = ["-XX:+UseSerialGC", "-Xms128m", "-Xmx128m", "-Xmn100m", "-XX:TieredStopAtLevel=1"];

/// Follows a list in 16 MiB by references as `options` make the VM write them. Nothing is collected.
fn follows_a_list(list: &List, policy: &str, options: &[&str]) -> Statistics {
    let launcher = Launcher::managed(16 << 20).option("--prefetch").option(policy);
    let program = Program::new(&list.java).args(YOUNG).args(options.iter().copied());
    follow(&launcher, list, program)
}

fn follow(launcher: &Launcher, list: &List, program: Program) -> Statistics {
    let compiler = Program::new("javac").args(["--release", "17", "-d", "."]);
    launcher.helper(compiler.arg(crate::program_source("References.java")));
    let finished = launcher.run(program.args(["References", &list.objects.to_string(), "1"])).success();
    assert_eq!(finished.text(), list.printed);
    finished.statistics.expect("a managed run").expect("complete statistics")
}

/// Mounts the Java VM at the first word, and becomes the program that the others are.
const IN_A_MOUNT_NAMESPACE: &str = r#"
    mount --bind "$(dirname "$(dirname "$(readlink -f "$(command -v java)")")")" "$1"
    shift
    exec "$@"
"#;

/// The same from outside, by a program in a mount namespace of its own, which loads the VM from there when it
/// has a pager already.
fn follows_a_list_late(list: &List, policy: &str) -> Statistics {
    let launcher = Launcher::managed(16 << 20).option("--prefetch");
    let launcher = launcher.option(policy);
    let mounted = launcher.file("mounted");
    std::fs::create_dir(&mounted).expect("a folder");
    let program = Program::new("unshare")
        .args(["--mount", "sh", "-e", "-c", IN_A_MOUNT_NAMESPACE, "sh"])
        .arg(&mounted)
        .arg(crate::python())
        .arg(crate::program_source("late_java.py"))
        .arg(mounted.join("lib/server/libjvm.so"));
    follow(&launcher, list, program.args(YOUNG).args(["-Djava.class.path=.", "--"]))
}

#[test]
fn what_a_list_of_objects_refers_to_comes_ahead_however_references_are_written() {
    if !managed_runner() {
        return;
    }
    let printed = "1 -3843527906605404025\n";
    let list = List { java: "java".into(), objects: 250_000, printed };
    // As the lowest 32 bits of addresses; and shifted, with a base.
    comes_ahead_of_a_list(&list, &[&[], &WITH_A_BASE]);
}

#[test]
fn what_a_list_of_objects_refers_to_comes_ahead_in_later_versions_of_java() {
    if !managed_runner() {
        return;
    }
    for version in ["21", "25"] {
        // These come with fewer classes, which leaves more of the budget for the list.
        let printed = "1 1261067971133416554\n";
        let list = List { java: crate::java(version), objects: 400_000, printed };
        comes_ahead_of_a_list(&list, &[&WITH_A_BASE]);
    }
}

/// Makes a VM write references shifted, with a base.
const WITH_A_BASE: [&str; 1] = ["-XX:HeapBaseMinAddress=64g"];

/// Compared with `streams`, under which hardly anything comes ahead, however references are written in one of
/// `ways`.
fn comes_ahead_of_a_list(list: &List, ways: &[&[&str]]) {
    let without = follows_a_list(list, "streams", &[]);
    for options in ways {
        more_comes_ahead(&without, || follows_a_list(list, "two-tier", options));
    }
}

fn more_comes_ahead(without: &Statistics, follows: impl Fn() -> Statistics) {
    let without = without.number("prefetch_used");
    let of_a_run = || {
        let statistics = follows();
        (statistics.number("prefetch_used"), statistics.number("accuracy"))
    };
    assert_in_one_of_three(of_a_run, |&(used, accuracy)| used > without + 75_000.0 && accuracy > 0.85);
}

#[test]
fn what_a_list_of_objects_refers_to_comes_ahead_of_a_program_that_loads_a_virtual_machine_late() {
    if !managed_runner() {
        return;
    }
    let printed = "1 -3843527906605404025\n";
    let list = List { java: "java".into(), objects: 250_000, printed };
    more_comes_ahead(&follows_a_list_late(&list, "streams"), || follows_a_list_late(&list, "two-tier"));
}

/// Faults on stored pages, and pages that came ahead with them, of one kind of threads.
#[derive(Clone, Copy, Default, Debug)]
struct Fetched {
    faults: u32,
    ahead: u32,
}

impl Fetched {
    fn contribution(self) -> f64 {
        f64::from(self.ahead) / f64::from(self.ahead + self.faults)
    }
}

/// Follows a list three times in two fifths of its memory, with so many collections after each time: what the
/// follower fetched, and what the threads of the collector did.
fn follows_between_collections(collections: u32) -> (Fetched, Fetched) {
    let launcher = Launcher::managed(20 << 20).option("--trace");
    let trace = launcher.file("trace");
    let launcher = launcher.option(&trace);
    launcher.helper(Program::new("javac").args(["-d", "."]).arg(crate::program_source("Collected.java")));
    let collector = ["-XX:+UseParallelGC", "-XX:ParallelGCThreads=2"];
    let options = ["-Xms112m", "-Xmx112m", "-XX:TieredStopAtLevel=1"];
    let words = ["Collected", "24000", "3"].map(str::to_owned).into_iter().chain([collections.to_string()]);
    let program = Program::new("java").args(collector).args(options).args(words);
    let finished = launcher.run(program).success();
    let threads: BTreeMap<u64, &str> = finished
        .text()
        .lines()
        .filter_map(|line| line.strip_prefix("thread ")?.split_once(' '))
        .map(|(number, name)| (number.parse().expect("a number"), name))
        .collect();
    let shown = Command::new(farmem_binary())
        .args(["trace", "show", "--records", "--json"])
        .arg(&trace)
        .output()
        .expect("farmem runs");
    let (mut follower, mut collector) = (Fetched::default(), Fetched::default());
    // What comes ahead is recorded with the fault that it came with, after it.
    let mut faulting = 0;
    for line in shown.stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        let record: Value = serde_json::from_slice(line).expect("a JSON object");
        let kind = record["kind"].as_str().expect("a name");
        let is_fault = kind == "fault" || kind == "write-fault";
        if is_fault {
            faulting = record["detail"].as_u64().expect("a number");
        } else if kind != "prefetch" {
            continue;
        }
        let fetched = match threads.get(&faulting) {
            Some(&"follower") => &mut follower,
            Some(name) if name.starts_with("GC Thread") => &mut collector,
            _ => continue,
        };
        *(if is_fault { &mut fetched.faults } else { &mut fetched.ahead }) += 1;
    }
    (follower, collector)
}

#[test]
fn what_was_learnt_of_a_program_remains_through_collections_of_garbage() {
    if !managed_runner() {
        return;
    }
    let of_a_run = || {
        let (undisturbed, before) = follows_between_collections(0);
        let (disturbed, collecting) = follows_between_collections(1);
        assert!(
            collecting.faults > before.faults + 10_000,
            "collections go over what is far: {before:?}, {collecting:?} with them"
        );
        (undisturbed, disturbed)
    };
    // Without what is learnt of references a tenth comes ahead.
    assert_in_one_of_three(of_a_run, |&(undisturbed, disturbed)| {
        undisturbed.contribution() > 0.2 && disturbed.contribution() > undisturbed.contribution() * 0.7
    });
}
