//! Anonymous memory that processes share leaves and comes back, once for all of them.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use farmem_tests::{
    Finished, Launcher, Program, assert_in_one_of_three, farmem_binary, figure, is_large, managed_runner,
    wait_for,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::attach_command::{attached, detach, end_of};
use crate::far_redis::{number, unique};

const MIB: u64 = 1 << 20;

fn launcher(budget: u64) -> Launcher {
    Launcher::managed(budget).option("--host").option("none").option("--pool").option("1G")
}

fn run(budget: u64, words: &[&str]) -> Finished {
    run_by(&launcher(budget), words)
}

fn run_by(launcher: &Launcher, words: &[&str]) -> Finished {
    let finished = launcher.run(Program::new(env!("PROGRAM_SHARED")).args(words.iter().copied())).success();
    assert_eq!(finished.text(), "right\n");
    assert_eq!(String::from_utf8_lossy(&finished.stderr), "");
    finished
}

#[test]
fn eight_processes_write_what_all_of_them_read() {
    if !managed_runner() {
        return;
    }
    let mebibytes = if is_large() { 1024 } else { 96 };
    let budget = mebibytes / 4 * MIB;
    let finished = run(budget, &["write", "8", &mebibytes.to_string(), "8"]);
    assert!(number(&finished, "evicted") > 10_000.0 && number(&finished, "fetches") > 10_000.0);
}

#[test]
fn what_two_processes_write_keeps_to_the_budget() {
    if !managed_runner() {
        return;
    }
    const BUDGET: u64 = 64 * MIB;
    let peak = || {
        let launcher = launcher(BUDGET);
        run_by(&launcher, &["write", "2", "160", "1"]);
        launcher.shared_peak_bytes()
    };
    // A budget is kept by a thread that needs a core in time.
    assert_in_one_of_three(peak, |peak| *peak <= BUDGET + BUDGET / 20 + 16 * MIB);
}

#[test]
fn a_program_without_shared_memory_has_no_pager_for_it() {
    if !managed_runner() {
        return;
    }
    let name = unique("private");
    let filled = Filled::start("private", 64);
    attached(&name, "16M", &[&filled.number().to_string()]);
    wait_for("pages that have left", || (figure(&name, "far_pages") >= Some(10_000)).then_some(()));
    assert_eq!(pagers_of_application(filled.number()), 1);
    assert_eq!(figure(&name, "shared_local_bytes"), Some(0));
    detach(&name, &[filled.number()]);
    assert!(filled.look().success());
}

/// Its private memory has a pager already, whose puppet maps what the program maps.
#[test]
fn what_a_program_shares_leaves_after_what_is_private() {
    if !managed_runner() {
        return;
    }
    let name = unique("both");
    let mut command = Command::new(farmem_binary());
    command.args(["run", "--host", "none", "--pool", "1G", "--name", &name, "--local", "16M", "--"]);
    let filled = Filled::start_by(command.arg(env!("PROGRAM_SHARED")), "both", 32);
    wait_for("shared pages that have left", || {
        (figure(&name, "shared_far_bytes") >= Some(12 * MIB) && filled.shared_bytes() < 24 * MIB)
            .then_some(())
    });
    assert!(filled.look().success());
}

/// Pagers that the supervisor of a process's pager has started.
fn pagers_of_application(process: u32) -> usize {
    let processes = fs::read_dir("/proc").expect("the kernel tells").flatten();
    let pagers = processes.filter_map(|entry| {
        let read = |file: &str| fs::read_to_string(entry.path().join(file)).ok();
        let parent: u32 = read("stat")?.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()?;
        (read("comm")? == "farmem-pager\n").then_some((parent, read("cmdline")?))
    });
    let pagers: Vec<(u32, String)> = pagers.collect();
    let is_its_own = |words: &str| words.split('\0').nth(2) == Some(&process.to_string());
    let its_own = pagers.iter().find(|(_, words)| is_its_own(words));
    let (supervisor, _) = its_own.expect("it has a pager");
    pagers.iter().filter(|(parent, _)| parent == supervisor).count()
}

#[test]
fn what_is_discarded_punched_unmapped_and_moved_is_so_for_whom_it_is() {
    if !managed_runner() {
        return;
    }
    let finished = run(24 * MIB, &["calls", "96"]);
    assert!(number(&finished, "evicted") > 10_000.0);
}

/// The kernel tells neither how long a mapping is that a call of no length has made of another one, nor that
/// one stays that was moved.
#[test]
fn pages_at_two_addresses_of_a_process_are_the_same() {
    if !managed_runner() {
        return;
    }
    let finished = run(24 * MIB, &["again", "96"]);
    assert!(number(&finished, "evicted") > 10_000.0);
}

/// Each has its mapping in more than three hundred pieces.
#[test]
fn more_than_a_thousand_processes_share() {
    if !managed_runner() {
        return;
    }
    let finished = run(24 * MIB, &["crowd", "1100", "40"]);
    assert!(number(&finished, "evicted") > 1000.0);
}

/// A program that has filled what it shares, and looks at all of it when it is sent a line. Dropped, it is
/// ended.
struct Filled {
    child: Child,
}

impl Filled {
    fn start(kind: &str, mebibytes: u64) -> Self {
        Self::start_by(&mut Command::new(env!("PROGRAM_SHARED")), kind, mebibytes)
    }

    fn start_by(command: &mut Command, kind: &str, mebibytes: u64) -> Self {
        let mut child = command
            .args(["wait", kind, &mebibytes.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        let output = child.stdout.as_mut().expect("it is piped");
        BufReader::new(output).read_line(&mut line).expect("it tells");
        assert_eq!(line, "filled\n");
        Self { child }
    }

    fn number(&self) -> u32 {
        self.child.id()
    }

    /// Pages of the machine's that what it shares has, by the kernel's word.
    fn shared_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.number())).expect("it lives");
        let kib = status.lines().find_map(|line| line.strip_prefix("RssShmem:")?.split_whitespace().next());
        kib.and_then(|kib| kib.parse::<u64>().ok()).expect("a number") << 10
    }

    /// How it ends.
    fn look(mut self) -> ExitStatus {
        self.child.stdin.as_mut().expect("it is piped").write_all(b"look\n").expect("it reads");
        end_of(&mut self.child)
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Attached to, with most of what it shares far.
fn shrunk(name: &str) -> Filled {
    let filled = Filled::start("anonymous", 64);
    attached(name, "16M", &[&filled.number().to_string()]);
    wait_for("room", || (filled.shared_bytes() < 24 * MIB).then_some(()));
    filled
}

#[test]
fn what_a_running_program_shares_leaves_and_comes_back_when_it_is_detached() {
    if !managed_runner() {
        return;
    }
    let name = unique("shared");
    let filled = shrunk(&name);
    detach(&name, &[filled.number()]);
    assert!(filled.shared_bytes() >= 64 * MIB, "all of it has come back");
    assert!(filled.look().success());
}

#[test]
fn what_processes_share_is_told_apart() {
    if !managed_runner() {
        return;
    }
    let name = unique("shared");
    let filled = shrunk(&name);
    wait_for("both parts", || {
        let [resident, far] = ["shared_resident_bytes", "shared_far_bytes"].map(|key| figure(&name, key));
        let (resident, far) = (resident?, far?);
        (resident + far >= 64 * MIB && far >= 40 * MIB).then_some(())
    });
    assert!(figure(&name, "shared_managed_bytes") >= Some(64 * MIB));
    assert_eq!(figure(&name, "shared_local_bytes"), Some(0));
    detach(&name, &[filled.number()]);
    assert!(filled.look().success());
}

/// What the kernel would show to others as zeros, or not give up, isn't touched, whatever the budget; it is
/// counted, and the same by all ways.
#[test]
fn what_has_a_name_or_a_descriptor_or_is_locked_stays() {
    if !managed_runner() {
        return;
    }
    for kind in ["memfd", "sealed", "posix", "system-v", "tmpfs", "locked"] {
        let name = unique(kind);
        let filled = Filled::start(kind, 32);
        attached(&name, "8M", &[&filled.number().to_string()]);
        wait_for(kind, || (figure(&name, "shared_local_bytes") >= Some(32 * MIB)).then_some(()));
        // Long enough for a pager to have begun with it.
        std::thread::sleep(Duration::from_millis(300));
        assert!(filled.shared_bytes() >= 32 * MIB, "{kind}");
        assert_eq!(figure(&name, "shared_far_bytes"), Some(0), "{kind}");
        assert!(filled.look().success(), "{kind}");
    }
}

#[test]
fn without_the_pager_of_what_is_shared_nobody_finds_zeros() {
    if !managed_runner() {
        return;
    }
    let name = unique("shared");
    let filled = shrunk(&name);
    let pager = pager_of_shared_memory(filled.number());
    kill_process(Pid::from_raw(pager as i32).expect("a process"), Signal::KILL).expect("it lives");
    assert_eq!(filled.look().signal(), Some(Signal::BUS.as_raw()));
}

/// The process that manages what that one shares: it has the object open.
fn pager_of_shared_memory(number: u32) -> u32 {
    let maps = fs::read_to_string(format!("/proc/{number}/maps")).expect("it lives");
    let object = maps.lines().find(|line| line.contains("/dev/zero")).expect("it shares memory");
    let inode: u64 = object.split_whitespace().nth(4).and_then(|word| word.parse().ok()).expect("a number");
    let has_open = |process: &u32| {
        let descriptors = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
        descriptors.into_iter().any(|descriptor| {
            fs::metadata(descriptor.path()).is_ok_and(|file| file.ino() == inode && file.nlink() == 0)
        })
    };
    let processes = fs::read_dir("/proc").expect("the kernel tells").flatten();
    processes
        .filter_map(|process| process.file_name().to_str()?.parse().ok())
        .find(has_open)
        .expect("it has a pager for what is shared")
}
