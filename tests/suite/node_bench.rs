//! `farmem bench nodes`: that it measures what it says, and leaves nothing behind.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use farmem_tests::{Scratch, farmem_binary, managed_runner, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const LOCAL_WAYS: [&str; 4] = ["tcp", "tls", "unix", "shm"];

/// The benchmark, with a folder of its own for what is temporary.
fn bench(scratch: &Scratch) -> Command {
    let folder = scratch.file("temporary");
    fs::create_dir(&folder).expect("the test's own folder");
    let mut command = Command::new(farmem_binary());
    command.args(["bench", "nodes", "--quick"]).env("TMPDIR", folder).stdin(Stdio::null());
    command
}

fn assert_nothing_is_left(scratch: &Scratch) {
    let folder = scratch.file("temporary");
    let mut left = fs::read_dir(&folder).expect("the test's own folder");
    assert!(left.next().is_none());
    let folder = folder.to_str().expect("names are text");
    let processes = fs::read_dir("/proc").expect("the kernel tells").flatten();
    // What has ended meanwhile can't be read.
    let words = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    let left: Vec<String> = words.map(|words| String::from_utf8_lossy(&words).replace('\0', " ")).collect();
    let left: Vec<&String> = left.iter().filter(|words| words.contains(folder)).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Network devices where this process is.
fn devices() -> BTreeSet<String> {
    let table = fs::read_to_string("/proc/net/dev").expect("the kernel tells");
    table.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect()
}

#[test]
fn every_way_is_measured_beside_a_bare_connection_and_programs_have_their_far_memory_there() {
    if !managed_runner() {
        return;
    }
    let (scratch, before) = (Scratch::new(), devices());

    let output =
        bench(&scratch).args(["--json", "--only", "ways,programs"]).output().expect("farmem can be started");

    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("a JSON object");
    let rows = |key: &str| report[key].as_array().expect("rows").clone();
    let (ways, programs) = (rows("ways"), rows("programs"));
    let names: Vec<&str> = ways.iter().filter_map(|way| way["way"].as_str()).collect();
    assert_eq!(names[..4], LOCAL_WAYS);
    assert_eq!(names.len() + rows("left_out").len(), 6, "{report}");
    for way in &ways {
        for side in [&way["node"], &way["bare"]] {
            let latencies = [&side["page"], &side["page_under_load"]];
            let p50s = latencies.map(|latency| latency["p50_us"].as_f64().expect("a figure"));
            let p99s = latencies.map(|latency| latency["p99_us"].as_f64().expect("a figure"));
            // Nothing crosses between threads, there and back, in a tenth of a microsecond.
            assert!(p50s.iter().zip(p99s).all(|(&p50, p99)| 0.1 < p50 && p50 <= p99), "{way}");
            let rates = ["write_bytes_per_second", "read_bytes_per_second"].map(|key| side[key].as_f64());
            assert!(rates.iter().all(|rate| rate.is_some_and(|rate| rate > 0.0)), "{way}");
        }
    }
    assert_eq!(programs.len(), 2 * (2 + names.len()), "{report}");
    for program in &programs {
        let is_on_node = !["pool", "disk"].contains(&program["far"].as_str().expect("a name"));
        assert_eq!(program["node_fetches"].as_f64().expect("a figure") > 0.0, is_on_node, "{program}");
    }
    assert_eq!(devices(), before);
    assert_nothing_is_left(&scratch);
}

#[test]
fn a_link_that_is_shared_gives_everybody_a_part_and_what_is_fetched_ahead_some() {
    if !managed_runner() {
        return;
    }
    let (scratch, before) = (Scratch::new(), devices());

    let output =
        bench(&scratch).args(["--json", "--only", "shared"]).output().expect("farmem can be started");

    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("a JSON object");
    let links = report["shared"].as_array().expect("rows");
    let is_left_out = |left: &Value| left["rate"].as_str() == Some("1gbit");
    assert_eq!(links.is_empty(), report["left_out"].as_array().expect("rows").iter().any(is_left_out));
    for link in links {
        let parts = link["bytes_per_second"].as_array().expect("rows");
        assert!(parts.len() == 3 && parts.iter().all(|part| part.as_f64() > Some(0.0)), "{link}");
        let figures = [
            "ratio",
            "demand_p99_us",
            "flooded_p99_us",
            "ahead_p90_us",
            "ahead_bytes_per_second",
            "dropping_p99_us",
            "dropping_p90_us",
            "dropped",
            "one_class_p99_us",
            "one_class_p90_us",
            "unscheduled_p99_us",
            "unscheduled_p90_us",
            "unscheduled_bytes_per_second",
        ];
        assert!(figures.iter().all(|key| link[key].as_f64() > Some(0.0)), "{link}");
    }
    assert_eq!(devices(), before);
    assert_nothing_is_left(&scratch);
}

#[test]
fn programs_that_share_a_link_get_parts_by_weight_and_a_walk_is_told_alone_and_beside_a_flood() {
    if !managed_runner() {
        return;
    }
    let (scratch, before) = (Scratch::new(), devices());

    let output =
        bench(&scratch).args(["--json", "--only", "spaces"]).output().expect("farmem can be started");

    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("a JSON object");
    let rows = |key: &str| report[key].as_array().expect("rows").clone();
    let (spaces, walks, can_link) = (rows("spaces"), rows("walks"), rows("left_out").is_empty());
    assert_eq!((spaces.len(), walks.len()), if can_link { (4, 2) } else { (0, 0) }, "{report}");
    for row in &spaces {
        let parts = row["parts"].as_array().expect("rows");
        let figures =
            |key: &str| -> Vec<f64> { parts.iter().filter_map(|part| part[key].as_f64()).collect() };
        let (weights, rates) = (figures("weight"), figures("bytes_per_second"));
        assert_eq!(weights, [1.0, 2.0, 4.0], "{row}");
        assert!(rates.len() == 3 && rates.iter().all(|rate| *rate > 0.0), "{row}");
        let by_weight: Vec<f64> = rates.iter().zip(weights).map(|(rate, weight)| rate / weight).collect();
        let least = by_weight.iter().copied().fold(f64::MAX, f64::min);
        let ratio = least / by_weight.iter().copied().fold(0.0, f64::max);
        assert!(row["ratio"].as_f64().is_some_and(|told| (told - ratio).abs() < 1e-6), "{row}");
        // One process alone doesn't always want more.
        if row["processes"].as_u64() > Some(1) {
            assert!(rates[0] < rates[2], "{row} is not by weight");
            assert!(figures("reads_waiting").iter().all(|waiting| *waiting > 0.0), "{row}");
        }
    }
    for walk in &walks {
        for side in [&walk["alone"], &walk["flooded"]] {
            let figure = |key: &str| side[key].as_f64().expect("a figure");
            assert!(
                0.0 < figure("fault_p50_us") && figure("fault_p50_us") <= figure("fault_p99_us"),
                "{walk}"
            );
            assert!(
                figure("access_us") > 0.0 && side["class_bytes"]["demand"].as_f64() > Some(0.0),
                "{walk}"
            );
            let shares = ["contribution", "accuracy"].map(figure);
            assert!(shares.iter().all(|share| 0.0 < *share && *share <= 1.0), "{walk}");
            assert!(side["class_bytes"]["ahead"].as_f64() > Some(0.0), "{walk}");
        }
        assert!(walk["flood_bytes_per_second"]["demand"].as_f64() > Some(0.0), "{walk}");
    }
    assert_eq!(devices(), before);
    assert_nothing_is_left(&scratch);
}

#[test]
fn what_is_read_at_once_kept_and_granted_ahead_is_varied() {
    if !managed_runner() {
        return;
    }
    let scratch = Scratch::new();

    let output = bench(&scratch)
        .args(["--json", "--only", "sweeps", "--data", "24M"])
        .output()
        .expect("farmem can be started");

    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("a JSON object");
    let rows = report["sweeps"].as_array().expect("rows");
    let set: Vec<(&str, Option<u64>)> = rows
        .iter()
        .map(|row| (row["parameter"].as_str().expect("a letter"), row["pages"].as_u64()))
        .collect();
    let expected = [("T", Some(64)), ("P", Some(1)), ("P", Some(16)), ("B", Some(256))];
    assert!(expected.iter().all(|row| set.contains(row)), "{set:?}");
    let fetches = |pages: u64| {
        let row = rows.iter().find(|row| row["parameter"] == "P" && row["pages"].as_u64() == Some(pages));
        row.and_then(|row| row["node_fetches"].as_f64()).expect("a figure")
    };
    // A sort reads its data in order: narrow reads are many.
    assert!(fetches(1) > fetches(16), "{report}");
    // COMEX's figures begin and end with values that there are not; the report says why.
    let not_set: Vec<&str> = report["sweeps_not_set"]
        .as_array()
        .expect("pairs")
        .iter()
        .map(|pair| pair[0].as_str().expect("a name"))
        .collect();
    assert_eq!(not_set, ["T of 0", "P of 32 and 64"]);
    assert_nothing_is_left(&scratch);
}

#[test]
fn a_node_of_six_that_is_killed_fails_no_request_and_is_made_good() {
    if !managed_runner() {
        return;
    }
    let scratch = Scratch::new();

    let output = bench(&scratch).args(["--json", "--only", "loss"]).output().expect("farmem can be started");

    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("a JSON object");
    let losses = report["losses"].as_array().expect("rows");
    let redundancies: Vec<&str> = losses.iter().filter_map(|loss| loss["redundancy"].as_str()).collect();
    assert_eq!(redundancies, ["4+2", "mirror"]);
    for loss in losses {
        assert_eq!(loss["failed"].as_u64(), Some(0), "{loss}");
        let figure = |key: &str| loss[key].as_f64().expect("a figure");
        assert!(figure("requests") > 0.0 && figure("rebuilt_bytes") > 0.0, "{loss}");
        assert!(figure("seconds_to_whole") > 0.0, "{loss}");
        assert!(figure("stored_bytes") > figure("kept_bytes"), "{loss}");
    }
    assert_nothing_is_left(&scratch);
}

#[test]
fn what_ten_programs_have_on_twelve_nodes_is_counted_at_each_of_them() {
    if !managed_runner() {
        return;
    }
    let scratch = Scratch::new();

    let output = bench(&scratch)
        .args(["--json", "--only", "spread", "--data", "16M"])
        .output()
        .expect("farmem can be started");

    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("a JSON object");
    let spreads = report["spreads"].as_array().expect("rows");
    assert_eq!(spreads.len(), 1);
    let spread = &spreads[0];
    let bytes = |key: &str| -> Vec<u64> {
        let amounts = spread[key].as_array().expect("amounts");
        amounts.iter().map(|amount| amount.as_u64().expect("bytes")).collect()
    };
    let (written, granted) = (bytes("written_bytes"), bytes("granted_bytes"));
    let kept = spread["kept_bytes"].as_u64().expect("bytes");
    // What doesn't compress, and is neither local nor in the pool, is there. All of it was written, and what
    // is written was granted before.
    assert!(kept >= 10 * (8 << 20), "{spread}");
    assert!(written.iter().sum::<u64>() >= kept && granted.iter().sum::<u64>() >= kept, "{spread}");
    assert_eq!((written.len(), granted.len()), (12, 12));
    let share = |key: &str| spread["written"][key].as_f64().expect("a figure");
    let mean = written.iter().sum::<u64>() as f64 / written.len() as f64;
    let shares: Vec<f64> = written.iter().map(|&bytes| bytes as f64 / mean).collect();
    let variance = shares.iter().map(|share| (share - 1.0).powi(2)).sum::<f64>() / shares.len() as f64;
    let [least, largest] = [f64::min, f64::max].map(|of| shares.iter().copied().fold(1.0, of));
    for (key, expected) in [("least", least), ("largest", largest), ("deviation", variance.sqrt())] {
        assert!((share(key) - expected).abs() < 1e-6, "{key} should be {expected}: {spread}");
    }
    assert_eq!(report["targets"][0]["measured"].as_f64(), Some(share("largest")));
    assert_nothing_is_left(&scratch);
}

#[test]
fn threads_get_pages_of_a_node_that_is_far_away_and_one_goes_on_while_it_is_silent() {
    if !managed_runner() {
        return;
    }
    let scratch = Scratch::new();

    let output = bench(&scratch)
        .args(["--json", "--only", "threads", "--data", "32M"])
        .output()
        .expect("farmem can be started");

    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("a JSON object");
    let figures = report["threads"].as_array().expect("rows");
    assert_eq!(figures.len(), 1);
    let rates = figures[0]["rates"].as_array().expect("rows");
    let threads: Vec<u64> = rates.iter().filter_map(|rate| rate["threads"].as_u64()).collect();
    assert_eq!(threads, [1, 4, 16]);
    assert!(rates.iter().all(|rate| rate["pages_per_second"].as_f64() > Some(0.0)), "{report}");
    let bystander = |key: &str| figures[0]["bystander"][key].as_f64().expect("a figure");
    assert!(bystander("steps") > 0.0 && bystander("pool_faults") > 0.0, "{report}");
    assert!(0.0 < bystander("longest_step_ms"), "{report}");
    let wanted: Vec<f64> = (0..3)
        .filter_map(|at| {
            let target = &report["targets"][at];
            target["at_least"].as_f64().or_else(|| target["at_most"].as_f64())
        })
        .collect();
    assert_eq!(wanted, [3.6, 12.0, 20.0], "{report}");
    assert_nothing_is_left(&scratch);
}

#[test]
fn when_it_is_interrupted_the_relay_and_who_waits_behind_it_end() {
    if !managed_runner() {
        return;
    }
    assert_interrupted_leaves_nothing("threads", "2/100 threads that read");
}

#[test]
fn when_it_is_interrupted_nothing_is_left_behind() {
    if !managed_runner() {
        return;
    }
    // All ways and links are there when the first one has had its turn.
    assert_interrupted_leaves_nothing("ways", "1/100 tls");
}

#[test]
fn when_it_is_interrupted_programs_broker_and_node_end() {
    if !managed_runner() {
        return;
    }
    // A turn ends before that line, and another one begins.
    assert_interrupted_leaves_nothing("spaces", "1/100 three programs, veth-1gbit, one process");
}

/// Interrupts a benchmark of this part once it has said that.
fn assert_interrupted_leaves_nothing(part: &str, once: &str) {
    let (scratch, before) = (Scratch::new(), devices());
    let mut bench = bench(&scratch)
        .args(["--repeat", "100", "--only", part, "--data", "24M"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("farmem can be started");
    let mut progress = BufReader::new(bench.stderr.take().expect("a pipe"));
    let mut line = String::new();
    while !line.contains(once) {
        line.clear();
        if progress.read_line(&mut line).expect("a pipe") == 0 {
            // Where there can be no links, this part has nothing to do.
            assert!(part == "spaces" && bench.wait().expect("own child").success(), "it ended by itself");
            return;
        }
    }

    kill_process(Pid::from_child(&bench), Signal::INT).expect("it is running");

    std::thread::spawn(move || std::io::copy(&mut progress, &mut std::io::sink()));
    let status = wait_for("the end", || bench.try_wait().expect("own child"));
    assert_eq!(status.code(), Some(1));
    assert_eq!(devices(), before);
    assert_nothing_is_left(&scratch);
}
