//! `farmem web` in a real browser.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use farmem_tests::{Launcher, Program, Scratch, farmem_binary, managed_runner, wait_for};

const MEBIBYTE: u64 = 1 << 20;
/// A browser needs seconds to start where others work.
const PATIENCE: Duration = Duration::from_secs(120);

/// A process of the test's own, which goes with it.
struct Own(Child);

impl Drop for Own {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `farmem web` on a port of its own, and where that is.
fn site() -> (Own, String) {
    let mut child = Command::new(farmem_binary())
        .args(["web", "--listen", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("farmem can be started");
    let mut line = String::new();
    let stderr = child.stderr.take().expect("a pipe");
    BufReader::new(stderr).read_line(&mut line).expect("a line");
    let address = line.trim().strip_prefix("farmem web: ").expect("it says where it is").to_owned();
    (Own(child), address)
}

/// The answer to a request.
fn get(address: &str, path: &str) -> String {
    let host = address.strip_prefix("http://").expect("an address");
    let mut stream = TcpStream::connect(host).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// A number in an answer in JSON.
fn number(answer: &str, key: &str) -> Option<u32> {
    let (_, rest) = answer.split_once(&format!("\"{key}\":"))?;
    rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

/// What the browser makes of the page: the document after its scripts have run for some seconds, or a picture.
fn browse(scratch: &Scratch, what: &[&str], address: &str) -> String {
    let output = scratch.file("document");
    let browser = ["chromium", "chromium-browser"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok())
        .expect("scripts/setup installs chromium");
    let child = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
        .arg(format!("--user-data-dir={}", scratch.file("browser").display()))
        .args(["--virtual-time-budget=4000"])
        .args(what)
        .arg(address)
        .current_dir(scratch.path())
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(&output).expect("the test's directory can be written"))
        .stderr(Stdio::null())
        .spawn()
        .expect("the browser can be started");
    let mut child = Own(child);
    let end = Instant::now() + PATIENCE;
    while child.0.try_wait().expect("it is a child").is_none() {
        assert!(Instant::now() < end, "the browser doesn't end");
        sleep(Duration::from_millis(50));
    }
    std::fs::read_to_string(output).expect("what it wrote")
}

/// A program that is short of memory where it has 8 MiB.
fn hungry() -> Program {
    let words = ["workload", "--data", "32M", "--pattern", "random-read", "--rounds", "1000"];
    words.iter().fold(Program::new(farmem_binary()), |program, word| program.arg(word))
}

#[test]
fn a_browser_shows_processes_and_regions_of_who_is_looked_into() {
    if !managed_runner() {
        return;
    }
    let scratch = Scratch::new();
    let launcher = Launcher::managed(8 * MEBIBYTE);
    let mut running = launcher.start(hungry());
    let process = wait_for("the program", || running.program_process_id());
    let (_site, address) = site();
    let paths = [
        format!("/api/processes?application={process}"),
        format!("/api/regions?application={process}&process={process}"),
    ];
    wait_for("a process with regions in far memory", || {
        let regions = get(&address, &paths[1]);
        number(&regions, "far_bytes").filter(|&far| far > 0).map(|_| ())
    });
    let processes = get(&address, &paths[0]);
    assert_eq!(number(&processes, "process"), Some(process), "{processes}");
    let regions = get(&address, &paths[1]);
    assert!(regions.contains("\"address\":null"), "a port is everybody's: {regions}");

    let document = browse(&scratch, &["--dump-dom"], &format!("{address}/#{process}/{process}"));

    assert!(running.is_running());
    assert!(document.contains("▾ processes") && document.contains("aria-label=\"processes\""), "{document}");
    assert!(document.contains("aria-label=\"regions\"") && document.contains("packed to"), "{document}");
    assert!(
        document.contains(&format!("<tr aria-current=\"true\"><td class=\"word\"><a href=\"#{process}\">"))
    );
    assert!(document.contains("those with most pages first; addresses are told to who knows the token"));
}

#[test]
fn a_browser_shows_who_is_short_of_memory_and_why() {
    if !managed_runner() {
        return;
    }
    let scratch = Scratch::new();
    let name = format!("starved-{}", std::process::id());
    let launcher = Launcher::managed(8 * MEBIBYTE).option("--name").option(&name);
    let mut running = launcher.start(hungry());
    let (_site, address) = site();
    wait_for("a program that is short of memory", || {
        let state = get(&address, "/api/state");
        (state.contains(&name) && state.contains("\"level\":\"short\"")).then_some(())
    });

    let document = browse(&scratch, &["--dump-dom"], &address);

    assert!(running.is_running());
    assert!(document.contains(&format!("<h2>{name}</h2>")), "{document}");
    assert!(document.contains("▲ short of memory"), "{document}");
    assert!(document.contains("waits for pages") && document.contains("more local memory"), "{document}");
    assert!(document.contains("<polyline") && document.contains("role=\"img\""), "{document}");
}
