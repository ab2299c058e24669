//! Real programs, unmodified, that `farmem attach` comes to while they work: they do to the byte what they do
//! without it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farmem_tests::{
    Browser, Etcd, Launcher, Program, Scratch, application, farmem_binary, is_large, managed_runner, scaled,
    wait_for,
};
use serde_json::Value;

use crate::attach_command::Resident;
use crate::far_redis::unique;

const MIB: u64 = 1 << 20;
/// From one look at programs to the next: each costs a process.
const LOOK: Duration = Duration::from_millis(50);

/// Parent and name of each process.
fn processes() -> BTreeMap<u32, (u32, String)> {
    let numbers = fs::read_dir("/proc").expect("it is mounted").flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let told = |number: u32| {
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        let (begin, rest) = stat.rsplit_once(") ")?;
        let parent = rest.split(' ').nth(1)?.parse().ok()?;
        Some((number, (parent, begin.split_once(" (")?.1.to_owned())))
    };
    numbers.filter_map(told).collect()
}

/// Anonymous memory of a process that is resident, in bytes.
fn anonymous_bytes(number: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{number}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or_default() << 10
}

fn is_below(number: u32, root: u32, all: &BTreeMap<u32, (u32, String)>) -> bool {
    let mut at = number;
    while at != root {
        match all.get(&at) {
            Some((parent, _)) if *parent != at => at = *parent,
            _ => return false,
        }
    }
    true
}

/// The processes with that name and a working directory below that folder whose parents have another one, and
/// that have with their children more than so much.
fn grown(name: &str, folder: &Path, bytes: u64) -> Vec<u32> {
    let all = processes();
    let is_called = |number: &u32| all.get(number).is_some_and(|(_, called)| called == name);
    let is_here =
        |number: u32| fs::read_link(format!("/proc/{number}/cwd")).is_ok_and(|cwd| cwd.starts_with(folder));
    let roots = all.iter().filter(|(number, (parent, _))| is_called(number) && !is_called(parent));
    let roots = roots.map(|(&number, _)| number).filter(|&number| is_here(number));
    roots.filter(|&root| bytes_below(root, &all) > bytes).collect()
}

/// Anonymous memory of a process and what comes of it.
fn bytes_below(root: u32, all: &BTreeMap<u32, (u32, String)>) -> u64 {
    let members = all.keys().filter(|&&number| is_below(number, root, all));
    members.map(|&number| anonymous_bytes(number)).sum()
}

/// Attaches to a process that may end meanwhile; whether it has done so. It may be one of Farmem's own, too:
/// a puppet has its program's name at first.
fn attach(name: &str, budget: u64, process: u32) -> bool {
    let output = Command::new(farmem_binary())
        .args(["attach", "--host", "none", "--pool", "1G", "--name", name, "--local", &budget.to_string()])
        .arg(process.to_string())
        .stdin(Stdio::null())
        .output()
        .expect("farmem starts");
    let is_there = Path::new(&format!("/proc/{process}")).exists();
    let is_own = String::from_utf8_lossy(&output.stderr).contains("is Farmem's own");
    assert!(output.status.success() || !is_there || is_own, "{output:?}");
    output.status.success()
}

fn evicted(name: &str) -> u64 {
    application(name).and_then(|figures| figures["evicted"].as_u64()).unwrap_or_default()
}

/// Runs a scenario twice. In the second run each program of that name is attached to when it has passed the
/// budget, while it goes on.
fn same_when_attached(command: &str, budget: u64, scenario: impl Fn(&Launcher) -> String) {
    if !managed_runner() {
        return;
    }
    let expected = scenario(&Launcher::native());
    let launcher = Launcher::native();
    let is_over = AtomicBool::new(false);
    let (transcript, most) = std::thread::scope(|scope| {
        let attacher = scope.spawn(|| {
            let mut attached: Vec<(u32, String)> = Vec::new();
            let mut most = 0;
            while !is_over.load(Ordering::Acquire) {
                for process in grown(command, launcher.directory(), budget) {
                    let name = unique(&format!("attached-{process}"));
                    if attached.iter().all(|(other, _)| *other != process) && attach(&name, budget, process) {
                        attached.push((process, name));
                    }
                }
                most = attached.iter().map(|(_, name)| evicted(name)).fold(most, u64::max);
                std::thread::sleep(LOOK);
            }
            most
        });
        struct Over<'flag>(&'flag AtomicBool);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Release);
            }
        }
        let over = Over(&is_over);
        let transcript = scenario(&launcher);
        drop(over);
        (transcript, attacher.join().expect("farmem attaches"))
    });
    assert_eq!(transcript, expected, "it did something else when it was attached to");
    assert!(most > 0, "nothing of it left: it was never attached to in time");
}

/// The same of a program that runs by itself and prints what came out.
fn same_output_when_attached(command: &str, budget: u64, program: &Program) {
    same_when_attached(command, budget, |launcher| launcher.run(program.clone()).success().text().to_owned());
}

#[test]
fn redis_saves_and_restarts() {
    same_when_attached("redis-server", 24 * MIB, crate::redis::snapshot_and_restart);
}

#[test]
fn memcached_serves_four_clients() {
    same_when_attached("memcached", scaled(24) * MIB, crate::memcached::verifying_clients);
}

#[test]
fn postgresql_sorts_beside_transactions() {
    same_when_attached("postgres", scaled(24) * MIB, crate::postgresql::transactions_and_sorts);
}

#[test]
fn a_java_virtual_machine_collects_garbage() {
    same_when_attached("java", scaled(64) * MIB, |launcher| crate::jvm::graph(launcher, "-XX:+UseG1GC"));
}

/// A source of the benchmarks' programs.
fn benchmark_source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/bench/src/programs/sources").join(name)
}

#[test]
fn node_works_on_a_map() {
    let program = Program::new("node").arg(benchmark_source("map.js")).arg(scaled(300_000).to_string());
    same_output_when_attached("node", 48 * MIB, &program);
}

#[test]
fn duckdb_groups_and_joins() {
    let python = crate::python();
    let has = Command::new(&python).args(["-c", "import duckdb"]).stderr(Stdio::null()).status();
    if !has.is_ok_and(|status| status.success()) {
        eprintln!("skipped: the Python of the tests has no duckdb");
        return;
    }
    // It is called after the link by which it is started.
    let name = Path::new(&python).file_name().expect("a file").to_string_lossy().into_owned();
    let program = Program::new(&python).arg(benchmark_source("duckdb_tables.py"));
    same_output_when_attached(&name, 64 * MIB, &program.arg(scaled(1_500_000).to_string()));
}

#[test]
fn a_static_go_program_has_many_goroutines_and_collects_garbage() {
    let scratch = Scratch::new();
    let binary = scratch.file("goroutines");
    let built = Command::new("go")
        .args(["build", "-o"])
        .arg(&binary)
        .arg(crate::program_source("goroutines.go"))
        .env("CGO_ENABLED", "0")
        .env("GO111MODULE", "off")
        .output();
    let built = built.expect("`scripts/setup` installs go");
    assert!(built.status.success(), "{built:?}");
    let program = Program::new(&binary).args(["64".to_owned(), "3000".to_owned(), scaled(6).to_string()]);
    same_output_when_attached("goroutines", 32 * MIB, &program);
}

#[test]
fn a_rust_program_of_musl_has_threads() {
    let scratch = Scratch::new();
    let binary = scratch.file("threads");
    let built = Command::new("rustc")
        .args(["--edition", "2024", "-O", "--target", "x86_64-unknown-linux-musl", "-o"])
        .arg(&binary)
        .arg(crate::program_source("threads.rs"))
        .output()
        .expect("rustc starts");
    if !built.status.success() {
        let said = String::from_utf8_lossy(&built.stderr).into_owned();
        assert!(said.contains("can't find crate for"), "{said}");
        eprintln!("skipped: Rust has no musl target here");
        return;
    }
    let program = Program::new(&binary).args(["8".to_owned(), "12000".to_owned(), scaled(4).to_string()]);
    same_output_when_attached("threads", 24 * MIB, &program);
}

/// A shell with 24 MiB of its own that begins so many programs, of which each says something. Now and then it
/// looks at all that it has.
const SCRIPT: &str = r#"
LC_ALL=C
text=$(head -c 12000000 /dev/zero | tr '\0' x)
other=$text$text
for number in $(seq "$1"); do
    /bin/echo "$number"
    [ $((number % 50)) = 0 ] && echo "${#other}"
done | sha256sum
echo "${#text} ${#other} $(printf %s "$other" | sha256sum)"
"#;

#[test]
fn a_shell_begins_hundreds_of_short_programs_and_ten_thousand_at_the_large_scale() {
    // A fork of so much memory near its budget takes some 10 ms.
    let count = if is_large() { 10_000 } else { 300 };
    let program = Program::new("bash").args(["-c", SCRIPT, "bash", &count.to_string()]);
    same_output_when_attached("bash", 16 * MIB, &program);
}

#[test]
fn etcd_keeps_what_is_put_meanwhile() {
    if !managed_runner() {
        return;
    }
    const LENGTH: usize = 100_000;
    let etcd = Etcd::start();
    let (name, process) = (unique("etcd"), etcd.process_id());
    let value = |number: u64| {
        let word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (0..LENGTH as u64 / 16).map(|nth| format!("{:016x}", word.wrapping_mul(nth + 1))).collect::<String>()
    };
    let is_attached = std::thread::scope(|scope| {
        let attacher = scope.spawn(|| {
            wait_for("memory of its own", || (anonymous_bytes(process) > 40 * MIB).then_some(()));
            attach(&name, 24 * MIB, process)
        });
        (0..200).for_each(|number| etcd.put(&format!("key{number}"), &value(number)));
        attacher.join().expect("farmem attaches")
    });
    assert!(is_attached && evicted(&name) > 0, "nothing of it left");
    for number in 0..200 {
        assert!(etcd.get(&format!("key{number}")).trim_end() == value(number), "key{number}");
    }
}

/// Fills a table, and from then on changes entries in every turn of the page's, and compares them.
const PAGE: &str = "(() => {
    const content = (number, age) => ({ age, text: `value-${number * 7919}-${age}`.repeat(8) });
    globalThis.table = Array.from({ length: 100000 }, (_, number) => content(number, 0));
    globalThis.turns = 0;
    globalThis.wrong = 0;
    globalThis.look = (number) => {
        const entry = table[number];
        if (entry.text !== content(number, entry.age).text) globalThis.wrong++;
        table[number] = content(number, entry.age + 1);
    };
    setInterval(() => {
        for (let nth = 0; nth < 500; nth++) look((turns * 500 + nth) * 7 % table.length);
        globalThis.turns++;
    }, 1);
    return table.length;
})()";

#[test]
fn a_browser_without_a_screen_goes_on() {
    if !managed_runner() {
        return;
    }
    let scratch = Scratch::new();
    let mut browser = Browser::open(&scratch, "about:blank");
    assert_eq!(browser.evaluate(PAGE), 100_000);
    let name = unique("browser");
    // How much it needs differs from one browser to the next, and far below that it does nothing else.
    let budget = bytes_below(browser.process_id(), &processes()) / 10 * 9;
    assert!(attach(&name, budget, browser.process_id()), "it has ended");
    let turns = |browser: &mut Browser| browser.evaluate("turns").as_u64().expect("a number");
    let before = turns(&mut browser);
    wait_for("turns of the page's", || (turns(&mut browser) > before + 100).then_some(()));
    assert!(evicted(&name) > 0, "nothing of it left");
    let all = "for (let number = 0; number < table.length; number++) look(number); wrong";
    assert_eq!(browser.evaluate(all), Value::from(0));
}

/// Attached to, with pages that are far.
fn managed_resident(name: &str) -> Resident {
    let resident = Resident::start(48, 60, 0);
    assert!(attach(name, 24 * MIB, resident.child.id()), "it has ended");
    assert!(evicted(name) > 0, "nothing of it left");
    resident
}

#[test]
fn strace_follows_an_attached_program_and_leaves_it() {
    if !managed_runner() {
        return;
    }
    let resident = managed_resident(&unique("straced"));
    let scratch = Scratch::new();
    let log = scratch.file("log");
    let mut tracer = Command::new("strace")
        .args(["-f", "-qq", "-o"])
        .arg(&log)
        .args(["-p", &resident.child.id().to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("`scripts/setup` installs strace");
    wait_for("calls of each thread", || {
        let text = fs::read_to_string(&log).unwrap_or_default();
        let threads: std::collections::BTreeSet<&str> =
            text.lines().filter_map(|line| line.split_once(' ')).map(|(number, _)| number).collect();
        (threads.len() >= 4 && text.lines().count() > 1000).then_some(())
    });
    let number = i32::try_from(tracer.id()).expect("a process");
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(number).expect("a process"),
        rustix::process::Signal::INT,
    )
    .expect("it lives");
    tracer.wait().expect("own child");
    let text = fs::read_to_string(&log).expect("it was just there");
    assert!(!text.contains("puppet"), "the puppet isn't the program's");
    assert_eq!(resident.wrong(), 0);
}

#[test]
fn gdb_looks_into_an_attached_program_and_leaves_it() {
    if !managed_runner() {
        return;
    }
    let resident = managed_resident(&unique("debugged"));
    let output = Command::new("gdb")
        .args(["-nx", "-batch", "-ex", "set pagination off", "-ex", "thread apply all backtrace"])
        .args(["-ex", "print pages", "-ex", "info threads", "-ex", "detach", "-p"])
        .arg(resident.child.id().to_string())
        .stdin(Stdio::null())
        .output()
        .expect("`scripts/setup` installs gdb");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("= 12288"), "{said}");
    // Its first thread, and four that work.
    assert!(said.contains("Thread 5") && !said.contains("Thread 6") && said.contains("check"), "{said}");
    assert_eq!(resident.wrong(), 0);
}
