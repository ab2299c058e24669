//! The workload, the benchmark, and above all: that it leaves nothing on the machine.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{FARMEM, farmem, is_root, text};

/// How long a benchmark of this size may take, many times over.
const PATIENCE: Duration = Duration::from_secs(300);

#[test]
fn every_pattern_finds_its_data_as_it_was_written() {
    for pattern in ["random-read", "random-write", "sequential", "strided", "zipf", "chase"] {
        for compressibility in ["zero", "quarter", "half", "random"] {
            let output = farmem([
                "workload",
                "--data=1M",
                "--threads=2",
                "--rounds=2",
                &format!("--pattern={pattern}"),
                &format!("--compressibility={compressibility}"),
            ]);

            let event: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(event["mismatches"], 0, "{pattern} {compressibility}");
            assert_eq!(event["rounds"].as_array().unwrap().len(), 2);
            assert!(output.status.success());
        }
    }
}

#[test]
fn rounds_go_on_until_standard_input_ends_and_the_last_ones_are_told() {
    let mut workload = Command::new(FARMEM)
        .args(["workload", "--data=1M", "--accesses=100", "--warm-up=0", "--rounds=2", "--until-end"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(workload.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap()).unwrap();
    for event in ["started", "filled", "warm"] {
        assert_eq!(next()["event"], event);
    }
    assert_eq!(workload.try_wait().unwrap(), None);

    drop(workload.stdin.take());

    let done = next();
    assert_eq!((&done["event"], &done["mismatches"]), (&Value::from("done"), &Value::from(0)));
    assert!((1..=2).contains(&done["rounds"].as_array().unwrap().len()), "{done}");
    assert!(workload.wait().unwrap().success());
}

#[test]
fn readers_do_what_they_are_told_and_find_their_data_as_it_was_written() {
    let mut readers = Command::new(FARMEM)
        .args(["readers", "--data=1M", "--own=64K"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut orders = readers.stdin.take().unwrap();
    for order in [
        r#"{"order":"read","threads":3,"milliseconds":5}"#,
        r#"{"order":"settle"}"#,
        r#"{"order":"stand","threads":2,"milliseconds":5}"#,
    ] {
        writeln!(orders, "{order}").unwrap();
    }

    drop(orders);

    let output = readers.wait_with_output().unwrap();
    assert!(output.status.success());
    let lines = text(&output.stdout);
    let events: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = events.iter().filter_map(|event| event["event"].as_str()).collect();
    assert_eq!(names, ["filled", "read", "settled", "stood", "read", "done"]);
    assert_eq!((&events[1]["threads"], &events[5]["mismatches"]), (&Value::from(3), &Value::from(0)));
    assert!(events[3]["steps"].as_u64() > Some(0), "{lines}");
}

#[test]
fn readers_refuse_what_they_do_not_understand() {
    let mut readers = Command::new(FARMEM)
        .args(["readers", "--data=1M", "--own=64K"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();

    writeln!(readers.stdin.take().unwrap(), "write").unwrap();

    let output = readers.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("not an order: write"), "{}", text(&output.stderr));
}

#[test]
fn a_part_of_the_nodes_that_there_is_not_is_refused_with_those_that_there_are() {
    let output = farmem("bench nodes --only thread".split(' '));

    assert_eq!(output.status.code(), Some(2));
    let errors = text(&output.stderr);
    assert!(errors.contains("spread") && errors.contains("threads"), "{errors}");
}

#[test]
fn a_native_run_makes_a_report() {
    let output = farmem("bench faults --quick --data 4M --only zipf,fits --peer native --json".split(' '));

    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["data_bytes"], 4 << 20);
    assert_eq!(report["local_bytes"], 1 << 20);
    let figures = report["figures"].as_array().unwrap();
    assert_eq!(figures.len(), 2);
    assert!(figures.iter().all(|figure| figure["mismatches"] == 0));
    assert!(figures.iter().all(|figure| figure["nanoseconds_per_access"].as_f64().unwrap() > 0.0));
}

#[test]
fn programs_whose_interpreter_is_not_installed_are_left_out_and_named() {
    let output = farmem(
        "bench programs --quick --only polars,duckdb --share 40 --python /nowhere/python --json".split(' '),
    );

    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["rows"], Value::Array(Vec::new()));
    let left_out = report["left_out"].as_array().unwrap();
    let names: Vec<&str> = left_out.iter().filter_map(|left| left["what"].as_str()).collect();
    assert_eq!(names, ["polars", "duckdb"]);
    assert!(left_out.iter().all(|left| left["reason"].as_str().unwrap().contains("--python")), "{report}");
    assert!(output.status.success());
}

#[test]
fn programs_and_shares_that_there_are_not_are_refused() {
    for (words, named) in [
        ("--only polar", "polars"),
        ("--share 0", "0"),
        ("--share 50,101", "101"),
        ("--share half", "half"),
        ("--peer disk", "zswap"),
    ] {
        let output = farmem(["bench", "programs"].into_iter().chain(words.split(' ')));

        assert_eq!(output.status.code(), Some(2), "{words}");
        assert!(text(&output.stderr).contains(named), "{words}: {}", text(&output.stderr));
    }
}

#[test]
fn a_program_under_kernel_peers_says_the_same_and_leaves_nothing_behind() {
    let Some(_turn) =
        machine_turn_for("a_program_under_kernel_peers_says_the_same_and_leaves_nothing_behind")
    else {
        return;
    };
    let before = Traces::now();

    let output =
        farmem("bench programs --quick --only perl-hash --share 50 --peer zram,zswap --json".split(' '));

    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let left_out =
        report["left_out"].as_array().unwrap().len() + report["failures"].as_array().unwrap().len();
    for row in report["rows"].as_array().unwrap() {
        assert_eq!(row["share_percent"], 50);
        let peers = row["peers"].as_array().unwrap();
        assert_eq!(peers.len() + left_out, 2, "{report}");
        assert!(peers.iter().all(|peer| peer["seconds"].as_f64() > Some(0.0)), "{report}");
    }
    assert_eq!(Traces::now(), before);
}

#[test]
fn the_table_names_targets_that_were_not_measured() {
    let output = farmem("bench faults --quick --data 4M --only zipf --peer native".split(' '));

    let table = text(&output.stdout);
    assert!(table.contains("zipf"), "{table}");
    assert!(table.contains("not measured"), "{table}");
}

#[test]
fn cleanup_has_nothing_to_do_where_nothing_was_left() {
    let _turn = machine_turn();

    assert!(farmem(["bench", "cleanup"]).status.success());
}

#[test]
fn kernel_peers_leave_nothing_behind() {
    let Some(_turn) = machine_turn_for("kernel_peers_leave_nothing_behind") else { return };
    let before = Traces::now();

    let output = farmem(
        "bench faults --quick --data 16M --only random-read --peer zram-lz4,zswap,swap-file,swap-loop --json"
            .split(' '),
    );

    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(Traces::now(), before);
}

#[test]
fn an_interrupted_benchmark_leaves_nothing_behind() {
    let Some(_turn) = machine_turn_for("an_interrupted_benchmark_leaves_nothing_behind") else { return };
    let before = Traces::now();
    let mut bench = start_until_swap_is_on(&before);

    kill_process(Pid::from_child(&bench), Signal::INT).unwrap();

    let status = wait_for("the end", || bench.try_wait().unwrap());
    assert_eq!(status.code(), Some(1));
    assert_eq!(Traces::now(), before);
}

#[test]
fn a_killed_benchmark_leaves_nothing_behind() {
    let Some(_turn) = machine_turn_for("a_killed_benchmark_leaves_nothing_behind") else { return };
    let before = Traces::now();
    let mut bench = start_until_swap_is_on(&before);

    bench.kill().unwrap();
    bench.wait().unwrap();

    wait_for("the watcher", || (Traces::now() == before).then_some(()));
}

/// Everything on the machine that the benchmark touches.
#[derive(PartialEq, Debug)]
struct Traces {
    swaps: String,
    zswap: String,
    readahead: String,
    devices: Vec<PathBuf>,
    loops: Vec<PathBuf>,
    groups: Vec<PathBuf>,
    journals: Vec<PathBuf>,
    mounts: usize,
}

impl Traces {
    fn now() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let list = |folder: &str, prefix: &str| {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let mut paths: Vec<PathBuf> =
                entries.map(|entry| entry.path()).filter(|path| name(path).starts_with(prefix)).collect();
            paths.sort();
            paths
        };
        let mut groups = list("/sys/fs/cgroup", "farmem-bench");
        groups.extend(list("/sys/fs/cgroup/memory", "farmem-bench"));
        Self {
            swaps: read("/proc/swaps"),
            zswap: read("/sys/module/zswap/parameters/enabled"),
            readahead: read("/proc/sys/vm/page-cluster"),
            devices: list("/sys/block", "zram"),
            loops: list("/sys/block", "loop")
                .into_iter()
                .filter(|device| device.join("loop/backing_file").exists())
                .collect(),
            groups,
            journals: list("/run/farmem-bench", ""),
            mounts: read("/proc/mounts").lines().filter(|line| line.contains("farmem-bench")).count(),
        }
    }
}

/// Tests that change the machine, or look whether it changed, run one at a time.
fn machine_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The turn, where this machine can offer kernel peers at all.
fn machine_turn_for(test: &str) -> Option<MutexGuard<'static, ()>> {
    let tool = |name: &str| {
        ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].iter().any(|folder| Path::new(folder).join(name).exists())
    };
    let missing = [
        (!is_root(), "root"),
        (!["mkswap", "swapon", "swapoff", "losetup"].iter().all(|name| tool(name)), "the tools for swap"),
        (!Path::new("/sys/class/zram-control").exists(), "zram"),
        (farmem_machine::control_group::MemoryController::find().is_none(), "memory control groups"),
    ];
    match missing.iter().find(|(missing, _)| *missing) {
        Some((_, what)) => {
            eprintln!("skipped {test}: this machine has no {what}");
            None
        }
        None => Some(machine_turn()),
    }
}

/// Starts a benchmark that would run for long, and comes back when it has turned swap on.
fn start_until_swap_is_on(before: &Traces) -> Child {
    let mut bench = Command::new(FARMEM)
        .args("bench faults --data 64M --repeat 100 --only random-read --peer zram-lz4".split(' '))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut progress = BufReader::new(bench.stderr.take().unwrap());
    thread::spawn(move || while progress.read_line(&mut String::new()).is_ok_and(|length| length > 0) {});
    wait_for("swap", || (Traces::now().swaps != before.swaps).then_some(()));
    bench
}

fn wait_for<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(result) = attempt() {
            return result;
        }
        assert!(Instant::now() < deadline, "waited too long for {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
