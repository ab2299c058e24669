//! The benchmark of isolation, as far as it must be right: what it starts it ends, and every byte is looked
//! at.

use std::process::{Command, Stdio};

use farmem_tests::{application, farmem_binary, is_large, managed_runner, wait_for};
use serde_json::Value;

/// A small run of Farmem alone.
fn report(data: &str, options: &[&str]) -> Value {
    let output = Command::new(farmem_binary())
        .args(["bench", "isolation", "--quick", "--data", data, "--peer", "farmem", "--json", "--python"])
        .arg(crate::python())
        .args(options)
        .stdin(Stdio::null())
        .output()
        .expect("farmem starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).expect("a JSON object")
}

/// Each program says the same alone, together with the others, and with all its memory: the benchmark leaves
/// it out otherwise. With less data a quarter of what the programs take is less than an interpreter and a
/// virtual machine for Java can do without.
#[test]
fn programs_of_several_kinds_are_measured_beside_each_other() {
    let is_root = rustix::process::geteuid().is_root();
    if !is_large()
        || !managed_runner()
        || !is_root
        || std::thread::available_parallelism().is_ok_and(|processors| processors.get() < 2)
    {
        return;
    }
    for far in ["pool", "node", "disk"] {
        let report = report("96M", &["--only", "co-runs", "--far", far]);
        assert_eq!(report["left_out"], serde_json::json!({}));
        assert_eq!(report["far"], far);
        let programs = &report["co_runs"]["farmem"]["programs"];
        for program in ["snappy", "memcached", "xgboost", "java-g1"] {
            assert!(programs[program]["mean"].as_f64().is_some_and(|slowdown| slowdown > 0.0), "{report}");
        }
        for run in report["co_runs"]["farmem"]["runs"].as_array().expect("each run") {
            assert!(run["beside_figures"]["swap_outs"].as_f64().is_some_and(|pages| pages > 0.0), "{run}");
        }
        assert!(application("bench-snappy").is_none() && application("bench-java-g1").is_none());
    }
}

#[test]
fn a_server_is_measured_alone_beside_another_program_and_given_memory() {
    if !managed_runner() || std::thread::available_parallelism().is_ok_and(|processors| processors.get() < 2)
    {
        return;
    }
    let report = report("24M", &["--only", "victim,recovery,swap-in,entries"]);
    let victim = &report["victim"]["farmem"];
    for figure in ["p50_slowdown", "p99_slowdown", "throughput_ratio"] {
        assert!(victim[figure].as_f64().is_some_and(|value| value > 0.0), "{figure}: {report}");
    }
    let recovery = &report["recovery"]["farmem"][0];
    assert!(recovery["starved_requests_per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{report}");
    let swap_in = &report["swap_in"]["farmem"][0];
    assert!(swap_in["touched_us"].as_f64().is_some_and(|time| time > 0.0), "{report}");
    assert!(victim["swap_outs_per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{report}");
    let entries = report["entries"].as_array().expect("for each number of threads");
    assert!(
        entries.iter().all(|entry| entry["reserved_ns"].as_f64().is_some_and(|time| time > 0.0)),
        "{report}"
    );
    assert_eq!(report["left_out"], serde_json::json!({}));
    let reservations = report["reservations"].as_array().expect("for each number of threads");
    assert_eq!(reservations.len(), 9, "{report}");
    for figure in reservations {
        let count = |name: &str| figure[name].as_f64().expect("a figure");
        assert!(count("swap_outs") > 0.0 && count("allocated") > 0.0, "{figure}");
        match figure["entries"].as_str().expect("a name") {
            "kept" => assert!(count("given_back") == 0.0, "{figure}"),
            "given-back" => assert!(count("given_back") > 0.0, "{figure}"),
            other => assert!(other == "new" && count("reused") == 0.0, "{figure}"),
        }
    }
    assert!(application("bench-server").is_none() && application("bench-antagonist").is_none());
}

#[test]
fn redis_is_measured_while_its_data_outgrows_its_memory_and_after_it_was_given_more() {
    if !managed_runner() || std::thread::available_parallelism().is_ok_and(|processors| processors.get() < 2)
    {
        return;
    }
    let report = report("48M", &["--only", "growth"]);
    assert_eq!(report["left_out"], serde_json::json!({}));
    let growth = &report["growth"]["farmem"][0];
    let sizes = growth["sizes"].as_array().expect("sizes");
    assert_eq!(sizes.last().map(|size| &size["of_local"]), Some(&serde_json::json!(4.0)), "{report}");
    let after = growth["after"].as_array().expect("windows");
    let are_rates =
        |rates: Vec<&Value>| rates.iter().all(|rate| rate.as_f64().is_some_and(|rate| rate > 0.0));
    assert!(are_rates(sizes.iter().map(|size| &size["requests_per_second"]).collect()), "{report}");
    assert!(!after.is_empty() && are_rates(after.iter().map(|window| &window[1]).collect()), "{report}");
    wait_for("its end", || application("bench-growth").is_none().then_some(()));
}
