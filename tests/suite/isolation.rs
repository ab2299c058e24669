//! The benchmark of isolation, as far as it must be right: what it starts it ends, and every byte is looked at.

use std::process::{Command, Stdio};

use farmem_tests::{application, farmem_binary, managed_runner};
use serde_json::Value;

#[test]
fn a_server_is_measured_alone_beside_another_program_and_given_memory() {
    if !managed_runner() || std::thread::available_parallelism().is_ok_and(|processors| processors.get() < 2)
    {
        return;
    }
    let output = Command::new(farmem_binary())
        .args(["bench", "isolation", "--quick", "--data", "24M", "--peer", "farmem", "--json"])
        .stdin(Stdio::null())
        .output()
        .expect("farmem starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("a JSON object");
    let victim = &report["victim"]["farmem"];
    for figure in ["p50_slowdown", "p99_slowdown", "throughput_ratio"] {
        assert!(victim[figure].as_f64().is_some_and(|value| value > 0.0), "{figure}: {report}");
    }
    let recovery = &report["recovery"]["farmem"][0];
    assert!(recovery["starved_requests_per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{report}");
    let swap_in = &report["swap_in"]["farmem"][0];
    assert!(swap_in["touched_us"].as_f64().is_some_and(|time| time > 0.0), "{report}");
    let entries = report["entries"].as_array().expect("for each number of threads");
    assert!(
        entries.iter().all(|entry| entry["reserved_ns"].as_f64().is_some_and(|time| time > 0.0)),
        "{report}"
    );
    assert_eq!(report["left_out"], serde_json::json!({}));
    assert!(application("bench-server").is_none() && application("bench-antagonist").is_none());
}
