//! `farmem simulate`: the same options print the same, and those that make no sense are refused.

use std::process::{Command, Output};

use farmem_tests::{Scratch, assert_refusal, farmem_binary, managed_runner};
use serde_json::Value;

fn command(words: &str) -> Command {
    let mut command = Command::new(farmem_binary());
    command.arg("simulate").args(words.split_whitespace());
    command
}

fn simulate(words: &str) -> Output {
    let output = command(words).output().expect("farmem can be started");
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn a_small_datacentre_is_the_same_whenever_it_is_simulated() {
    if !managed_runner() {
        return;
    }
    let words = "--nodes 20 --clients 20 --hours 1 --seed 1 --failures 200% --slowdowns 200%";
    let (once, again) = (simulate(words), simulate(words));
    assert_eq!(String::from_utf8_lossy(&once.stdout), String::from_utf8_lossy(&again.stdout));
    // How long it took here is said elsewhere, and is not the same.
    assert!(String::from_utf8_lossy(&once.stderr).contains("on this machine: "));
    let other = simulate(&words.replace("--seed 1", "--seed 2"));
    assert_ne!(once.stdout, other.stdout);
}

#[test]
fn figures_come_as_json_and_plots_as_one_file() {
    if !managed_runner() {
        return;
    }
    let scratch = Scratch::new();
    let report = scratch.file("datacentre.html");
    let path = report.to_str().expect("a path of text");
    let output = simulate(&format!("--nodes 20 --clients 5 --hours 0.2 --json --report {path}"));

    let figures: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(figures["losses"]["pages_covered"], 0);
    assert!(figures["fetches"][0]["p50_us"].as_f64().is_some_and(|time| time > 0.0), "{figures}");
    let page = std::fs::read_to_string(&report).expect("the report");
    assert!(page.contains("<svg") && !page.contains("http"));
}

#[test]
fn a_datacentre_that_makes_no_sense_is_refused_in_a_sentence() {
    for (words, said) in [
        ("--nodes 5", "needs 6 nodes"),
        ("--nodes 0", "the number of nodes"),
        ("--hours 0", "hours"),
        ("--hours nan", "hours"),
        ("--failures 1", "write a rate as `1%`"),
        ("--oversubscription 0.5", "oversubscription"),
        ("--redundancy 3+1", "write none, mirror, or K+M"),
        ("--hours 0.1 --report /no/such/folder/report.html", "/no/such/folder/report.html"),
    ] {
        let sentence = assert_refusal(2, &mut command(words));
        assert!(sentence.contains(said), "{words}: {sentence}");
    }
}
