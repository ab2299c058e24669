//! What a person is told of a program that pages: while it runs, and when it has ended.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use farmem_tests::{
    Launcher, Program, Scratch, application, assert_refusal, farmem_binary, managed_runner, wait_for,
};
use serde_json::Value;

use crate::redis::{connect, load, server, verify};

const MEBIBYTE: u64 = 1 << 20;
const KEYS: u64 = 30_000;

/// Reads and checks 32 MiB at random, four times the budget, for some seconds: a pager may come late.
fn starved() -> Program {
    ["workload", "--data", "32M", "--pattern", "random-read", "--rounds", "30"]
        .iter()
        .fold(Program::new(farmem_binary()), |program, word| program.arg(word))
}

fn explained(words: &[&str]) -> Value {
    let output = Command::new(farmem_binary())
        .arg("explain")
        .args(words)
        .arg("--json")
        .stdin(Stdio::null())
        .output()
        .expect("farmem can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key} is in {value}"))
}

#[test]
fn the_waiting_of_a_starved_server_is_explained_by_causes_that_add_up() {
    if !managed_runner() {
        return;
    }
    let name = format!("explained-{}", std::process::id());
    let launcher = Launcher::managed(20 * MEBIBYTE).option("--name").option(&name);
    let mut running = launcher.start(server("none"));
    let mut client = connect(&mut running, &launcher.file("redis.socket"));
    load(&mut client, 0..KEYS, 1);
    verify(&mut client, 0..KEYS, |_| 1);

    let explanation = explained(&[&name]);

    let causes = explanation["causes"].as_array().expect("a list").clone();
    let seconds = |cause: &Value| number(cause, "seconds");
    let stall = number(&explanation, "stall_seconds");
    let sum: f64 = causes.iter().map(seconds).sum();
    assert!(stall > 0.0 && (sum - stall).abs() < stall * 0.01, "{explanation}");
    for cause in ["pool", "unpacking"] {
        assert!(causes.iter().any(|part| part["cause"] == cause), "{cause}: {explanation}");
    }
    assert!(!causes.iter().any(|part| part["cause"] == "disk" || part["cause"] == "node"), "{explanation}");
    let [budget, half, most] =
        ["budget_bytes", "local_for_half_bytes", "local_for_most_bytes"].map(|key| number(&explanation, key));
    assert!(budget <= half && half <= most, "{explanation}");
    // Nobody touches anything meanwhile.
    let idle = explained(&[&name, "--over", "100ms"]);
    assert!(number(&idle, "stall_seconds") <= stall / 10.0, "{idle}");
    client.shut_down("NOSAVE");
    running.wait().assert_success();
}

/// 64 MiB of its own, which a forked child sees as well; both wait until there is a file `over`.
const FAMILY: &str = "
import os, time
data = bytearray(64 << 20)
child = os.fork()
while not os.path.exists('over'):
    time.sleep(0.05)
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
";

#[test]
fn a_program_that_needs_no_pager_is_told_of_as_it_is() {
    if !managed_runner() {
        return;
    }
    let name = format!("roomy-{}", std::process::id());
    let launcher = Launcher::managed(1024 * MEBIBYTE).option("--name").option(&name);
    let running = launcher.start(Program::new("python3").args(["-c", FAMILY]));

    let is_size = |bytes: f64| (64e6..96e6).contains(&bytes);
    let is_whole = || {
        let told = application(&name)?;
        (number(&told, "processes") == 2.0 && is_size(number(&told, "resident_bytes"))).then_some(told)
    };
    let told = wait_for("both processes", is_whole);

    assert_eq!(number(&told, "processes_managed"), 0.0, "{told}");
    fs::write(launcher.file("over"), "").expect("the directory of the run can be written");
    let finished = running.wait().success();
    let told = finished.statistics.expect("it ran under Farmem").expect("they are whole");
    assert!(is_size(told.number("resident_peak_bytes")), "{told:?}");
    assert_eq!(told.number("managed_peak_bytes"), 0.0, "{told:?}");
}

#[test]
fn a_summary_of_ten_lines_ends_with_what_would_help() {
    if !managed_runner() {
        return;
    }
    let launcher = Launcher::managed(8 * MEBIBYTE).option("--summary");

    let finished = launcher.run(starved()).success();

    let said = String::from_utf8_lossy(&finished.stderr).into_owned();
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("farmem: ")).collect();
    assert!(lines.len() <= 10, "{said}");
    assert!(said.contains("threads waited"), "{said}");
    assert!(lines.last().is_some_and(|line| line.contains("more local memory (local=")), "{said}");
}

#[test]
fn progress_is_for_terminals_unless_it_is_forced() {
    if !managed_runner() {
        return;
    }
    let lines = |option: &str| {
        let program = Program::new("sleep").arg("2.5");
        let finished = Launcher::managed(64 * MEBIBYTE).option(option).run(program).success();
        String::from_utf8_lossy(&finished.stderr).lines().filter(|line| line.contains(" waits ")).count()
    };

    assert_eq!(lines("--progress"), 0);
    assert!(lines("--progress=always") >= 1);
}

/// What is asked of an address by HTTP.
fn fetched(address: &str, path: &str) -> String {
    let host = address.strip_prefix("http://").expect("an address");
    let mut stream = TcpStream::connect(host).expect("it listens");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn a_run_tells_prometheus_of_itself_and_its_log_what_happens() {
    if !managed_runner() {
        return;
    }
    let mut child = Command::new(farmem_binary())
        .args(["run", "--local", "16M", "--host", "none", "--metrics", "127.0.0.1:0", "--log", "json", "--"])
        .args(["sh", "-c", "read line; exit 3"])
        .env("RUST_LOG", "info")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("farmem can be started");
    let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    errors.read_line(&mut line).expect("a line");
    let first: Value = serde_json::from_str(&line).expect("an object");
    let address = first["message"].as_str().expect("words").strip_prefix("farmem: metrics on ");
    let address = address.expect("it says where").to_owned();

    let metrics = wait_for("figures of the run", || {
        let metrics = fetched(&address, "/metrics");
        metrics.contains("farmem_resident_bytes{application=\"sh\"").then_some(metrics)
    });
    drop(child.stdin.take());
    let status = child.wait().expect("it is a child");
    let mut rest = String::new();
    errors.read_to_string(&mut rest).expect("its log");

    assert_eq!(status.code(), Some(3), "{rest}");
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
    assert!(!metrics.contains("farmem_host"), "{metrics}");
    let events: Vec<Value> =
        rest.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let [started, ended] = ["program started", "program ended"].map(|words| {
        events.iter().find(|event| event["message"] == words).unwrap_or_else(|| panic!("{words}: {rest}"))
    });
    assert_eq!((&started["application"], &started["level"]), (&"sh".into(), &"INFO".into()), "{started}");
    assert_eq!(started["local_bytes"], 16 * MEBIBYTE, "{started}");
    assert!(ended["end"].as_str().is_some_and(|end| end.contains('3')), "{ended}");
}

#[test]
fn a_run_takes_the_socket_of_its_metrics_away_even_when_it_is_refused() {
    if !managed_runner() {
        return;
    }
    let scratch = Scratch::new();
    for (options, status) in [(&["--local", "64M"][..], 3), (&["--local", "64M", "--disk", "/proc:1G"], 2)] {
        let output = Command::new(farmem_binary())
            .args(["run", "--metrics", "unix:socket"])
            .args(options)
            .args(["--", "sh", "-c", "test -S socket && exit 3"])
            .current_dir(scratch.path())
            .stdin(Stdio::null())
            .output()
            .expect("farmem can be started");

        assert_eq!(output.status.code(), Some(status), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(!scratch.file("socket").exists(), "{options:?}");
    }
}

#[test]
fn a_log_that_cannot_be_chosen_from_is_refused() {
    let run = |log: &str, filter: &str| {
        let mut command = Command::new(farmem_binary());
        command.args(["run", "--log", log, "--", "true"]).env("RUST_LOG", filter);
        assert_refusal(2, &mut command)
    };
    assert!(run("loud", "info").contains("loud"));
    assert!(run("text", "a=b=c").contains("RUST_LOG"));
}

/// What `farmem stat NAME --regions --json` prints.
fn inside(name: &str) -> Vec<Value> {
    let output = Command::new(farmem_binary())
        .args(["stat", name, "--regions", "--json"])
        .stdin(Stdio::null())
        .output()
        .expect("farmem can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("a JSON array")
}

#[test]
fn the_regions_of_a_server_hold_what_it_has_here_and_far() {
    if !managed_runner() {
        return;
    }
    let name = format!("inside-{}", std::process::id());
    let launcher = Launcher::managed(20 * MEBIBYTE).option("--name").option(&name);
    let mut running = launcher.start(server("none"));
    let mut client = connect(&mut running, &launcher.file("redis.socket"));
    load(&mut client, 0..KEYS, 1);
    verify(&mut client, 0..KEYS, |_| 1);

    let processes = inside(&name);

    let server = processes.first().expect("a process");
    let told = &server["regions"];
    let regions: Vec<&Value> =
        told["regions"].as_array().expect("regions").iter().chain([&told["rest"]]).collect();
    let sum = |key: &str| regions.iter().map(|region| number(region, key)).sum::<f64>();
    let (resident, far) = (number(server, "resident_bytes"), number(server, "far_bytes"));
    // What is resident in no region is small: stacks, and what libraries write.
    assert!(sum("resident_bytes") <= resident * 1.1 && sum("resident_bytes") > resident / 2.0, "{server}");
    assert!(far > 4e6 && (sum("far_bytes") - far).abs() < far / 10.0, "{server}");
    for region in &regions {
        assert!(number(region, "hot_bytes") <= number(region, "resident_bytes"), "{server}");
        assert!(number(region, "packed_bytes") <= number(region, "stored_bytes"), "{server}");
        let away = region["away_bytes"].as_array().expect("spans");
        let away: f64 = away.iter().filter_map(Value::as_f64).sum();
        assert_eq!(away, number(region, "far_bytes"), "{server}");
    }
    assert!(number(server, "refault_distance_bytes") > 0.0, "{server}");
    client.shut_down("NOSAVE");
    running.wait().assert_success();
}

#[test]
fn regions_are_told_of_one_application_that_there_is() {
    assert_refusal(2, Command::new(farmem_binary()).args(["stat", "--regions"]));
    assert_refusal(2, Command::new(farmem_binary()).args(["stat", "nobody-has-this-name", "--regions"]));
}
