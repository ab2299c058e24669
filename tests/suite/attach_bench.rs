//! `farmem bench attach`: that each part measures what it says, and leaves nothing behind.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use farmem_tests::{farmem_binary, managed_runner};
use serde_json::Value;

fn bench(more: &[&str]) -> Value {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "120"]).arg(farmem_binary());
    command.args(["bench", "attach", "--quick", "--json"]).args(more);
    let output = command.stdin(Stdio::null()).output().expect("timeout can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("a JSON object")
}

#[test]
fn each_part_has_figures_and_no_call_returns_early() {
    if !managed_runner() || !rustix::process::geteuid().is_root() {
        return;
    }

    let report = bench(&[]);

    let figures = report["figures"].as_array().expect("figures");
    let parts: BTreeSet<&str> = figures.iter().filter_map(|figure| figure["part"].as_str()).collect();
    let all = ["start", "idle", "stop", "early-returns", "into-budget", "overshoot"];
    assert_eq!(parts, BTreeSet::from(all), "{report}");
    for figure in figures {
        assert!(figure["value"].is_f64() && figure["better"].is_string(), "{figure}");
        let texts = ["case", "peer", "measure"].map(|key| figure[key].as_str().unwrap_or_default());
        assert!(texts.iter().all(|text| !text.is_empty()), "{figure}");
    }
    let value = |part: &str, peer: &str, measure: &str| {
        let is_meant = |figure: &&Value| {
            figure["part"] == part && figure["peer"] == peer && figure["measure"] == measure
        };
        figures.iter().find(is_meant).and_then(|figure| figure["value"].as_f64())
    };
    for measure in ["extra threads", "extra descriptors", "lines on standard error"] {
        assert_eq!(value("start", "farmem", measure), Some(0.0), "{report}");
    }
    assert!(value("start", "native", "time of a program") > Some(0.0), "{report}");
    assert!(value("stop", "attach", "standstill, p50") > Some(0.0), "{report}");
    assert_eq!(value("early-returns", "attach", "calls that returned early"), Some(0.0), "{report}");
    let [attaches, kinds] =
        ["attaches", "kinds of calls"].map(|measure| value("early-returns", "attach", measure));
    assert!(attaches >= kinds && kinds > Some(40.0), "{report}");
    assert_eq!(report["early"], serde_json::json!([]));
    // How long anything takes depends on the machine; that everything was judged doesn't.
    let targets = report["targets"].as_array().expect("targets");
    assert!(targets.iter().all(|target| target["measured"].is_f64()), "{report}");
}

#[test]
fn a_part_is_measured_alone() {
    if !managed_runner() || !rustix::process::geteuid().is_root() {
        return;
    }

    let report = bench(&["--only", "into-budget", "--repeat", "2"]);

    let figures = report["figures"].as_array().expect("figures");
    assert_eq!((figures.len(), &report["repetitions"]), (1, &Value::from(2)), "{report}");
    assert_eq!(figures[0]["part"], "into-budget");
    assert!(figures[0]["value"].as_f64() > Some(0.0), "{report}");
}
