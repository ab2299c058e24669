//! What the README, the guide and the results tell people to type works.
//!
//! Every fenced block says what it holds; those of `sh` are commands, and are run here, one document after
//! the other, each in a folder and in namespaces of its own. HTML comments above a block, which readers don't
//! see, say what the test does in another way:
//!
//! - `<!-- not run: REASON -->`: what takes another machine, or hours;
//! - `<!-- in the test: WORDS is OTHER WORDS; … -->`: smaller sizes, a program for a name that stands for
//!   any;
//! - `<!-- before, in the test: COMMAND -->`: what a reader already has running.

mod block;

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use block::{Block, Treatment, blocks};
use farmem_tests::{Scratch, farmem_binary, managed_runner};

/// A document's commands may take so long together.
const PATIENCE_SECONDS: u32 = 180;

/// For all commands: how a reader calls what is tested here.
const ALWAYS: [(&str, &str); 4] =
    [("sudo ", ""), ("target/release/farmem", "farmem"), ("PROGRAM", "python3 table.py"), (" …", "")];

/// Programs that examples run.
const PROGRAMS: [(&str, &str); 2] = [
    (
        "table.py",
        "rows = {number: 'row %09d ' % number * 8 for number in range(100_000)}\nprint(len(rows))\n",
    ),
    (
        "train.py",
        "rows = [bytes([number % 251]) * 4000 for number in range(10_000)]\nprint(sum(map(sum, rows)))\n",
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn text(document: &str) -> String {
    fs::read_to_string(root().join(document)).unwrap_or_else(|error| panic!("{document}: {error}"))
}

/// The script that a document's commands are.
fn script(document: &str) -> String {
    let mut script = String::from(
        "set -eu\nip link set lo up\nip address add 10.0.0.7/32 dev lo\nip address add 10.0.0.8/32 dev lo\n\
         mkdir -p /run/farmem\nmount -t tmpfs tmpfs /run/farmem\n",
    );
    for block in blocks(&text(document)) {
        let Treatment::Run { before, replaced } = &block.treatment else { continue };
        let replaced: Vec<(&str, &str)> =
            replaced.iter().map(|(words, other)| (words.as_str(), other.as_str())).chain(ALWAYS).collect();
        // Writing to a String does not fail.
        let _ = writeln!(script, "echo '{document}:{}' >&2", block.line);
        for command in before.iter().map(String::as_str).chain([block.text.as_str()]) {
            let command =
                replaced.iter().fold(command.to_owned(), |text, (words, other)| text.replace(words, other));
            script.extend(command.lines().map(staying));
        }
        // What stays ends with its block.
        script += "for job in $(jobs -p); do kill $job 2>/dev/null || :; wait $job 2>/dev/null || :; done\n";
    }
    script
}

/// A line; daemons go on while those that follow run.
fn staying(line: &str) -> String {
    let command = line.split(" #").next().unwrap_or(line).trim_end();
    let is_daemon = ["farmem host", "farmem node --memory", "farmem web"]
        .iter()
        .any(|daemon| command.starts_with(daemon));
    match command.strip_suffix('&') {
        Some(command) => format!("{command}& sleep 1\n"),
        None if is_daemon => format!("{command} & sleep 1; kill -0 $!\n"),
        None => format!("{line}\n"),
    }
}

fn run(document: &str) {
    if !managed_runner() || !rustix::process::geteuid().is_root() {
        return;
    }
    let scratch = Scratch::new();
    let folder = scratch.file("bin");
    fs::create_dir(&folder).expect("the test's own folder");
    symlink(farmem_binary(), folder.join("farmem")).expect("the test's own folder");
    symlink(root().join("docs"), scratch.file("docs")).expect("the test's own folder");
    for (name, program) in PROGRAMS {
        fs::write(scratch.file(name), program).expect("the test's own folder");
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let script = script(document);

    let output = Command::new("timeout")
        .args(["--kill-after=10", &PATIENCE_SECONDS.to_string()])
        .args([
            "unshare",
            "--mount",
            "--net",
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
            "bash",
            "-c",
            &script,
        ])
        .env("PATH", format!("{}:{path}", folder.display()))
        .current_dir(scratch.path())
        .stdin(Stdio::null())
        .output()
        .expect("timeout can be started");

    assert!(
        output.status.success(),
        "{}\n{}\n--- the script\n{script}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

macro_rules! documents {
    ($($name:ident: $path:literal,)*) => {
        const DOCUMENTS: &[&str] = &[$($path),*];

        $(
            #[test]
            fn $name() {
                run($path);
            }
        )*
    };
}

documents! {
    the_readme: "README.md",
    choosing_a_budget: "docs/guide/choosing-a-budget.md",
    large: "docs/guide/large.md",
    databases: "docs/guide/databases.md",
    first_run: "docs/guide/first-run.md",
    idle_applications: "docs/guide/idle-applications.md",
    java: "docs/guide/java.md",
    measuring: "docs/guide/measuring.md",
    memory_nodes: "docs/guide/memory-nodes.md",
    prefetching: "docs/guide/prefetching.md",
    several_applications: "docs/guide/several-applications.md",
    watching: "docs/guide/watching.md",
    results: "docs/results/README.md",
    results_papers: "docs/results/papers.md",
}

/// Documents without commands, or whose commands take what no test has: another machine, a guest, an engine
/// for containers, an idle machine.
const ELSEWHERE: [&str; 17] = [
    "docs/guide/containers.md",
    "docs/guide/hints.md",
    "docs/guide/installing.md",
    "docs/guide/limits.md",
    "docs/guide/managed-by-rules.md",
    "docs/guide/running-programs.md",
    "docs/guide/services.md",
    "docs/guide/troubleshooting.md",
    "docs/guide/virtual-machines.md",
    "docs/results/attaching.md",
    "docs/results/coverage.md",
    "docs/results/isolation.md",
    "docs/results/kernels.md",
    "docs/results/large.md",
    "docs/results/memory-nodes.md",
    "docs/results/prefetching.md",
    "docs/security.md",
];

/// The text of all sources in Rust below a folder.
fn sources(folder: &Path) -> String {
    let mut all = String::new();
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            all += &sources(&path);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all += &fs::read_to_string(&path).expect("text");
        }
    }
    all
}

#[test]
fn every_test_that_the_page_on_security_names_is_there() {
    let page = text("docs/security.md");
    let is_test =
        |word: &&str| word.matches('_').count() > 2 && !word.contains(|letter: char| letter.is_uppercase());
    let named: Vec<&str> = page.split('`').skip(1).step_by(2).filter(is_test).collect();
    let sources = sources(&root().join("crates")) + &sources(&root().join("tests/suite"));

    assert!(named.len() > 20, "{named:?}");
    for name in named {
        let is_there =
            [format!("fn {name}("), format!(" {name}: \"")].iter().any(|there| sources.contains(there));
        assert!(is_there, "docs/security.md names {name}, and no test is called so");
    }
}

#[test]
fn every_page_of_guide_and_results_is_tested_and_every_block_says_what_it_holds() {
    let known: Vec<&str> = DOCUMENTS.iter().chain(&ELSEWHERE).copied().collect();
    for folder in ["docs/guide", "docs/results"] {
        for page in fs::read_dir(root().join(folder)).expect("pages") {
            let name = page.expect("a page").file_name().into_string().expect("text");
            let path = format!("{folder}/{name}");
            let is_known = known.contains(&path.as_str()) || !name.ends_with(".md");
            assert!(is_known, "{path} is not among the documents of this test");
        }
    }
    for document in known {
        for Block { line, language, treatment, .. } in blocks(&text(document)) {
            assert!(!language.is_empty(), "{document}:{line}: say what the block holds: sh, text, …");
            if let Treatment::NotRun { reason } = &treatment {
                assert!(reason.split_whitespace().count() > 2, "{document}:{line}: say why it is not run");
            }
            let is_elsewhere = ELSEWHERE.contains(&document) && language == "sh";
            let is_run = matches!(treatment, Treatment::Run { .. });
            assert!(!(is_elsewhere && is_run), "{document}:{line}: nothing of this document is run: say why");
        }
    }
}
