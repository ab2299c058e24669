//! `farmem bench all`: what it keeps, that it goes on where it stopped, and what it refuses.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use farmem_tests::{Scratch, assert_refusal, farmem_binary, managed_runner};
use serde_json::Value;

fn bench(out: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(farmem_binary());
    command.args(["bench", "all", "--quick", "--data", "16M", "--peer", "native,farmem", "--out"]);
    command.arg(out).args(more).stdin(Stdio::null());
    command
}

fn done(out: &Path, only: &str) -> String {
    let output = bench(out, &["--only", only]).output().expect("farmem can be started");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    errors
}

fn records(out: &Path) -> Vec<Value> {
    let text = fs::read_to_string(out.join("records.jsonl")).expect("records");
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON object")).collect()
}

#[test]
fn every_measurement_is_a_line_that_says_all_about_it_and_all_are_in_the_report() {
    if !managed_runner() {
        return;
    }
    let scratch = Scratch::new();
    let out = scratch.file("results");

    done(&out, "faults/sequential");

    let records = records(&out);
    let benches: BTreeSet<&str> = records.iter().filter_map(|record| record["bench"].as_str()).collect();
    assert_eq!(benches, BTreeSet::from(["micro", "faults"]));
    for record in &records {
        for key in ["case", "peer", "measure", "unit", "version", "commit", "better"] {
            assert!(record[key].is_string(), "{key}: {record}");
        }
        assert!(record["value"].is_f64() && record["repetition"] == 1, "{record}");
        assert!(record["machine"]["kernel"].is_string(), "{record}");
    }
    let access = records.iter().find(|record| record["measure"] == "time of an access").expect("a time");
    assert!(access["paper"]["figure"].is_string() && access["paper"]["number"].is_string(), "{access}");
    let report = fs::read_to_string(out.join("report.html")).expect("a report");
    assert!(report.contains("<svg") && report.contains("sequential") && !report.contains("http"), "{report}");
}

#[test]
fn a_second_call_goes_on_where_the_first_stopped() {
    if !managed_runner() {
        return;
    }
    let scratch = Scratch::new();
    let out = scratch.file("results");
    done(&out, "micro");
    let before = records(&out);

    let errors = done(&out, "micro,faults/fits");

    assert!(errors.contains("step 1 of 1, faults/fits"), "{errors}");
    let after = records(&out);
    assert_eq!(after[..before.len()], before);
    assert!(after.len() > before.len());
}

#[test]
fn a_benchmark_that_was_interrupted_keeps_what_it_has_and_goes_on() {
    if !managed_runner() || std::thread::available_parallelism().is_ok_and(|processors| processors.get() < 2)
    {
        return;
    }
    let scratch = Scratch::new();
    let out = scratch.file("results");
    let only = ["--only", "micro,faults/fits,prefetch/c-btree-scan"];
    let mut child = bench(&out, &only).stderr(Stdio::piped()).spawn().expect("farmem can be started");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let last = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("step 3 of 3")));
    assert!(last.is_some(), "the benchmark doesn't begin its last step");
    kill_process(Pid::from_child(&child), Signal::INT).expect("the test's own process");
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    let status = child.wait().expect("the test's own process");

    assert!(!status.success() && rest.iter().any(|line| line.contains("goes on from there")), "{rest:?}");
    let kept = records(&out).len();
    let output = bench(&out, &only).output().expect("farmem can be started");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.contains("step 1 of 1, prefetch/c-btree-scan"), "{errors}");
    assert!(kept > 0 && records(&out).len() > kept);
}

#[test]
fn two_builds_take_turns_and_go_on_where_they_were_interrupted() {
    if !managed_runner() {
        return;
    }
    let scratch = Scratch::new();
    let out = scratch.file("results");
    let more = |command: &mut Command| {
        command.args(["--only", "faults/fits", "--repeat", "2", "--beside"]).arg(farmem_binary());
    };
    let mut command = bench(&out, &[]);
    more(&mut command);
    let mut child = command.stderr(Stdio::piped()).spawn().expect("farmem can be started");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let last =
        lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("faults/fits, repetition 1, by ")));
    assert!(last.is_some(), "the other build has no turn");
    kill_process(Pid::from_child(&child), Signal::TERM).expect("the test's own process");
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    let status = child.wait().expect("the test's own process");
    assert!(!status.success() && rest.iter().any(|line| line.contains("goes on from there")), "{rest:?}");

    let mut command = bench(&out, &[]);
    more(&mut command);
    let output = command.output().expect("farmem can be started");

    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let words = String::from_utf8_lossy(&output.stdout);
    assert!(words.contains("from that one to this one") && words.contains("figures"), "{words}");
    let figures = |folder: &Path| -> Vec<(String, String, u64)> {
        let of = |record: &Value| {
            let text = |key: &str| record[key].as_str().expect("text").to_owned();
            (text("case"), text("measure"), record["repetition"].as_u64().expect("a number"))
        };
        let mut figures: Vec<_> = records(folder).iter().map(of).collect();
        figures.sort();
        figures
    };
    let (this, other) = (figures(&out), figures(&out.join("beside")));
    assert_eq!(this, other);
    assert!(this.iter().any(|(case, _, repetition)| case == "fits" && *repetition == 2), "{this:?}");
}

#[test]
fn a_build_that_cannot_measure_is_refused_before_anything_takes_long() {
    let scratch = Scratch::new();
    let out = scratch.file("results");
    assert_refusal(2, &mut bench(&out, &["--only", "faults/fits", "--beside", "/nowhere/farmem"]));
}

#[test]
fn a_result_compared_with_itself_is_the_same_and_a_slower_one_is_worse() {
    let scratch = Scratch::new();
    let line = |case: &str, repetition: u32, value: f64| {
        format!(
            r#"{{"bench":"faults","case":"{case}","peer":"farmem","measure":"time of an access","repetition":{repetition},"value":{value},"unit":"µs","better":"less","machine":{{"kernel":"6.18","architecture":"x86_64","processor":"one","cores":2,"is_virtual":false,"memory_bytes":1,"huge_pages":"never"}},"version":"1.0","commit":"unknown"}}"#
        )
    };
    let results = |name: &str, factor: f64| {
        let zipf = (1..=5).map(|at| line("zipf", at, f64::from(at) + 100.0) + "\n");
        let chase = (1..=5).map(|at| line("chase", at, (f64::from(at) + 100.0) * factor) + "\n");
        let path = scratch.file(name);
        fs::write(&path, zipf.chain(chase).collect::<String>()).expect("the test's own folder");
        path
    };
    let (before, after) = (results("before", 1.0), results("after", 1.5));
    let compare = |second: &Path| {
        let mut command = Command::new(farmem_binary());
        command.args(["bench", "compare", "--json"]).arg(&before).arg(second).stdin(Stdio::null());
        let output = command.output().expect("farmem can be started");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let comparison: Value = serde_json::from_slice(&output.stdout).expect("a JSON object");
        let differences = comparison["differences"].as_array().expect("figures").clone();
        let words = |one: &Value, key: &str| one[key].as_str().expect("text").to_owned();
        differences.iter().map(|one| (words(one, "case"), words(one, "verdict"))).collect::<Vec<_>>()
    };
    let pair = |case: &str, verdict: &str| (case.to_owned(), verdict.to_owned());

    assert_eq!(compare(&before), [pair("chase", "same"), pair("zipf", "same")]);
    assert_eq!(compare(&after), [pair("chase", "worse"), pair("zipf", "same")]);

    let nothing = scratch.file("nothing");
    assert_refusal(2, Command::new(farmem_binary()).args(["bench", "compare"]).arg(&before).arg(&nothing));
    fs::write(&nothing, "dear reader").expect("the test's own folder");
    assert_refusal(2, Command::new(farmem_binary()).args(["bench", "compare"]).arg(&before).arg(&nothing));
}

#[test]
fn what_cannot_be_measured_or_kept_is_refused() {
    let scratch = Scratch::new();
    let (out, full) = (scratch.file("results"), scratch.file("full"));
    fs::create_dir(&full).expect("the test's own folder");
    fs::write(full.join("letter"), "dear reader").expect("the test's own folder");

    assert_refusal(2, &mut bench(&out, &["--only", "falts"]));
    assert_refusal(2, &mut bench(&full, &[]));
    assert_refusal(2, &mut bench(&out, &["--repeat", "0"]));
}

#[test]
fn a_table_takes_its_place_in_a_document_that_has_one() {
    let scratch = Scratch::new();
    let (results, document) = (scratch.file("results"), scratch.file("document"));
    let line = r#"{"bench":"faults","case":"zipf","peer":"farmem","measure":"time of an access","repetition":1,"value":2.5,"unit":"µs","better":"less","machine":{"kernel":"6.18","architecture":"x86_64","processor":"one","cores":2,"is_virtual":false,"memory_bytes":1,"huge_pages":"never"},"version":"1.0","commit":"unknown"}"#;
    fs::write(&results, line).expect("the test's own folder");
    let table = |document: &Path| {
        let mut command = Command::new(farmem_binary());
        command.args(["bench", "table"]).arg(&results).arg("--update").arg(document).stdin(Stdio::null());
        command
    };
    let marks = "<!-- bench-table begin -->\nold\n<!-- bench-table end -->\n";
    fs::write(&document, format!("before\n{marks}after\n")).expect("the test's own folder");

    let output = table(&document).output().expect("farmem can be started");

    assert!(
        output.status.success() && output.stdout.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = fs::read_to_string(&document).expect("the document");
    assert!(text.contains("| zipf (0.99) read | – | – | 2.5 |") && !text.contains("old"), "{text}");
    assert!(text.starts_with("before\n") && text.ends_with("after\n"), "{text}");
    fs::write(&document, "dear reader").expect("the test's own folder");
    assert_refusal(2, &mut table(&document));
}
