//! `farmem web` in a real browser.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use farmem_tests::{Browser, Launcher, Node, Program, Scratch, farmem_binary, managed_runner, wait_for};

use crate::host::number as figure;

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
fn site(options: &[&OsStr]) -> (Own, String) {
    let mut child = Command::new(farmem_binary())
        .args(["web", "--listen", "127.0.0.1:0"])
        .args(options)
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
    let (_site, address) = site(&[]);
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

    let mut browser = Browser::open(&scratch, &format!("{address}/#{process}/{process}"));
    let document = browser.document("a table of regions", |document| {
        document.contains("aria-label=\"regions\"") && document.contains("packed to")
    });

    assert!(running.is_running());
    assert!(document.contains("▾ processes") && document.contains("aria-label=\"processes\""), "{document}");
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
    let (_site, address) = site(&[]);
    wait_for("a program that is short of memory", || {
        let state = get(&address, "/api/state");
        (state.contains(&name) && state.contains("\"level\":\"short\"")).then_some(())
    });

    let mut browser = Browser::open(&scratch, &address);
    let document = browser.document("who is short of memory, with charts", |document| {
        document.contains("▲ short of memory") && document.contains("<polyline")
    });

    assert!(running.is_running());
    assert!(document.contains(&format!("<h2>{name}</h2>")), "{document}");
    assert!(document.contains("waits for pages") && document.contains("more local memory"), "{document}");
    assert!(document.contains("role=\"img\""), "{document}");
}

/// Where `FARMEM_TEST_KEEP` is set, the test's directory stays with a picture of the page: `page.png`.
#[test]
fn a_limit_is_changed_in_a_browser_by_who_types_the_token_and_by_nobody_else() {
    if !managed_runner() {
        return;
    }
    const TOKEN: &str = "0123456789abcdef-token";
    let scratch = Scratch::new();
    let token = scratch.file("token");
    std::fs::write(&token, TOKEN).expect("the test's directory can be written");
    // One that others can read is refused.
    let own = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600);
    std::fs::set_permissions(&token, own).expect("own file");
    let name = format!("limited-{}", std::process::id());
    let node = Node::start("256M");
    // Little enough of a pool that its pages come from the node.
    let options = ["--pool", "6M", "--node", node.address(), "--name", &name];
    let launcher = options.into_iter().fold(Launcher::managed(8 * MEBIBYTE), Launcher::option);
    let mut running = launcher.start(hungry());
    let (_site, address) = site(&["--token".as_ref(), token.as_os_str()]);
    let card = format!("<h2>{name}</h2>");
    let has_form = |document: &str| document.contains("aria-label=\"new value\"");

    let mut browser = Browser::open(&scratch, &address);
    let document = browser.document("the program", |document| document.contains(&card));
    assert!(!has_form(&document), "nobody has typed the token: {document}");

    browser.type_into("#token", "another word of some length");
    let document = browser.document("a refusal", |document| document.contains("that is another token"));
    assert!(!has_form(&document), "{document}");

    browser.type_into("#token", TOKEN);
    browser.document("a form", |document| has_form(document) && document.contains(&card));
    let form = format!(
        "[...document.querySelectorAll('article')].find(card => card.querySelector('h2').textContent === '{name}').id = 'own'"
    );
    browser.evaluate(&form);
    browser.evaluate("document.querySelector('#own select').value = 'local'");
    browser.type_into("#own form input", "16M");
    browser.document("what became of it", |document| document.contains("16 MiB"));
    wait_for("the new budget", || (figure(&name, "budget_bytes") == 16 * MEBIBYTE).then_some(()));

    browser.type_into("#own form input", "plenty");
    let status = "document.querySelector('#own form [role=status]').textContent";
    wait_for("why it can't be", || {
        browser.evaluate(status).as_str().filter(|said| said.contains("write a size")).map(|_| ())
    });
    let document = browser.document("links by class", |document| {
        ["from memory nodes, demand", "demand ", "ahead ", "bulk "]
            .iter()
            .all(|words| document.contains(words))
    });
    browser.picture(&scratch.file("page.png"));

    assert_eq!(figure(&name, "budget_bytes"), 16 * MEBIBYTE, "{document}");
    assert!(running.is_running());
}
