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

#[test]
fn a_process_is_said_to_be_manageable_or_why_it_is_not() {
    let mut child = std::process::Command::new("sleep").arg("20").spawn().unwrap();
    let diagnose = |number: String| {
        let output = farmem(["doctor", "--json", &number]);
        let diagnosis: Value = serde_json::from_slice(&output.stdout).unwrap();
        let checks = diagnosis["checks"].as_array().unwrap();
        let found = checks.iter().find(|check| check["name"] == "process").unwrap()["found"].to_string();
        (
            diagnosis["can_attach"].as_bool().unwrap(),
            found,
            output.status.code(),
            diagnosis["can_run"].as_bool().unwrap(),
        )
    };

    let (can_attach, found, status, can_run) = diagnose(child.id().to_string());
    assert_eq!((can_attach, status), (can_run, Some(if can_run { 0 } else { 1 })), "{found}");
    child.kill().unwrap();
    child.wait().unwrap();

    let (can_attach, found, status, _) = diagnose("999999999".to_owned());
    assert!(
        !can_attach && status == Some(1) && found.contains("no process has the number 999999999"),
        "{found}"
    );
    // The kernel's own.
    let (can_attach, found, status, _) = diagnose("2".to_owned());
    assert!(!can_attach && status == Some(1), "{found}");

    let words = text(&farmem(["doctor", "999999999"]).stdout);
    assert!(
        words.lines().next().unwrap().contains("can't manage it") || words.contains("cannot work here"),
        "{words}"
    );
}
