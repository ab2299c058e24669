use serde_json::Value;

use super::{farmem, text};

#[test]
fn the_exit_status_says_whether_run_can_work() {
    let output = farmem(["doctor", "--json"]);

    let diagnosis: Value = serde_json::from_slice(&output.stdout).unwrap();
    let can_run = diagnosis["can_run"].as_bool().unwrap();
    assert_eq!(output.status.code(), Some(if can_run { 0 } else { 1 }));
}

#[test]
fn every_check_has_a_verdict_and_a_meaning_and_every_gap_a_mend() {
    let output = farmem(["doctor", "--json"]);

    let diagnosis: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = diagnosis["checks"].as_array().unwrap();
    for name in
        ["kernel", "userfaultfd", "seccomp", "yama ptrace_scope", "huge pages", "ulimit -Hn", "memory"]
    {
        assert!(checks.iter().any(|check| check["name"] == name), "{name}");
    }
    for check in checks {
        let verdict = check["verdict"].as_str().unwrap();
        assert!(["ok", "gap", "unknown"].contains(&verdict), "{check}");
        assert!(!check["meaning"].as_str().unwrap().is_empty(), "{check}");
        assert_eq!(verdict == "gap", check["mend"].is_string(), "{check}");
    }
}

#[test]
fn people_get_the_conclusion_first_and_a_line_for_each_check_when_they_ask() {
    let [short, all] = ["doctor", "doctor --all"].map(|call| text(&farmem(call.split(' ')).stdout));

    for shown in [&short, &all] {
        assert!(shown.lines().next().unwrap().contains("`farmem run` can"), "{shown}");
    }
    assert!(all.contains("userfaultfd") && all.lines().count() > short.lines().count(), "{short}{all}");
}
