//! `farmem bench programs`: that a program says the same under Farmem as by itself, and that it is an error
//! if it doesn't.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use farmem_tests::{Scratch, farmem_binary, managed_runner};
use serde_json::Value;

fn bench(more: &[&str]) -> Command {
    let mut command = Command::new(farmem_binary());
    command.args(["bench", "programs", "--quick", "--json", "--peer", "farmem"]).args(more);
    command.stdin(Stdio::null());
    command
}

#[test]
fn a_program_is_measured_with_parts_of_its_own_peak() {
    if !managed_runner() {
        return;
    }

    let output = bench(&["--only", "perl-hash", "--share", "80,50"]).output().expect("farmem can be started");

    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("a JSON object");
    let rows = report["rows"].as_array().expect("rows");
    let shares: Vec<u64> = rows.iter().filter_map(|row| row["share_percent"].as_u64()).collect();
    assert_eq!(shares, [80, 50]);
    for row in rows {
        let number = |key: &str| row[key].as_f64().expect("a figure");
        let part = number("local_bytes") / number("native_peak_bytes");
        assert!((part - number("share_percent") / 100.0).abs() < 0.01, "{row}");
        assert_eq!(row["peers"][0]["peer"], "farmem");
        assert!(row["peers"][0]["resident_peak_bytes"].as_f64() > Some(0.0), "{row}");
        assert!(row["of_zram"].is_null(), "{row}");
    }
}

#[test]
fn a_program_that_says_something_else_ends_the_benchmark_with_an_error() {
    if !managed_runner() {
        return;
    }
    // It has every module, and says another thing each time.
    let scratch = Scratch::new();
    let python = scratch.file("python");
    fs::write(&python, "#!/bin/sh\n[ \"$1\" = -c ] || date +%N\n").expect("the test's own folder");
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).expect("the test's own file");

    let output = bench(&["--only", "python-dict", "--share", "50", "--python"])
        .arg(&python)
        .output()
        .expect("farmem can be started");

    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("python-dict") && errors.contains("it says something else"), "{errors}");
    assert!(output.stdout.is_empty());
}
