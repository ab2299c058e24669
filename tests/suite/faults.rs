//! Things that break: whatever does, a program gets its own bytes, waits, or is told; never zeros, never a
//! hang.
//!
//! What needs a hook inside Farmem is started with `FARMEM_INJECT=NAME`, which takes a build for tests.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use farmem_tests::{
    Finished, Launcher, Program, Scratch, farmem_binary, injection, managed_runner, wait_for,
};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
use rustix::process::{Pid, Signal, kill_process};

const BUDGET_BYTES: u64 = 16 << 20;

fn pressure() -> Program {
    check("mmap_churn")
}

fn check(name: &str) -> Program {
    Program::new(env!("PROGRAM_ADDRESS_SPACE")).arg(name).env("ARENA_MIB", "64").env("HAVE_A_PAGER", "1")
}

/// The check verifies every byte itself, and says `wrong byte` with status 1 when one is not its own.
fn assert_no_wrong_bytes(finished: &Finished) {
    let said = String::from_utf8_lossy(&finished.stderr);
    assert!(!said.contains("wrong byte") && !said.contains("not so"), "{finished}");
}

fn assert_ended_by(finished: &Finished, signal: i32) {
    assert_no_wrong_bytes(finished);
    assert_eq!(finished.status.signal(), Some(signal), "{finished}");
    assert!(!finished.stderr.is_empty(), "nothing was said about it");
}

fn injected(name: &str) -> Launcher {
    let (variable, failure) = injection(name);
    Launcher::managed(BUDGET_BYTES).env(variable, failure)
}

fn with_disk(launcher: Launcher) -> Launcher {
    with_disk_of(launcher, ":256M")
}

fn with_disk_of(launcher: Launcher, size: &str) -> Launcher {
    let mut disk = launcher.file("far").into_os_string();
    disk.push(size);
    launcher.option("--disk").option(disk)
}

fn assert_says(finished: &Finished, what: &str) {
    assert!(String::from_utf8_lossy(&finished.stderr).contains(what), "doesn't say “{what}”: {finished}");
}

/// The program touched a page that is lost, and the summary says which page of which process it was.
fn assert_lost(finished: &Finished) {
    assert_ended_by(finished, SIGBUS);
    let said = String::from_utf8_lossy(&finished.stderr);
    let named = said.lines().find_map(|line| line.strip_prefix("farmem: page 0x")).expect(&said);
    let (address, rest) = named.split_once(" of process ").expect(named);
    assert_eq!(u64::from_str_radix(address, 16).map(|address| address % 4096), Ok(0), "{named}");
    let (process, rest) = rest.split_once(' ').expect(named);
    assert!(process.parse::<u32>().is_ok_and(|process| process > 1), "{named}");
    assert!(rest.starts_with("is lost: it could not be read back"), "{named}");
}

const SIGKILL: i32 = 9;
const SIGBUS: i32 = 7;

#[test]
fn a_killed_supervisor_never_gives_wrong_bytes() {
    if !managed_runner() {
        return;
    }
    let launcher = Launcher::managed(BUDGET_BYTES);
    let started = launcher.file("started");
    let script = format!("touch started; exec {} mmap_churn", env!("PROGRAM_ADDRESS_SPACE"));
    let program = Program::new("sh").arg("-c").arg(script).env("ARENA_MIB", "64");
    let mut running = launcher.start(program);
    running.until("the program's start", || started.exists().then_some(()));
    std::thread::sleep(Duration::from_millis(100));
    let orphan = running.program_process_id();

    let supervisor = Pid::from_raw(i32::try_from(running.process_id()).expect("a process number"));
    kill_process(supervisor.expect("a process number"), Signal::KILL).expect("it is running");

    assert_no_wrong_bytes(&running.wait());
    // The program ends, one way or the other: nothing serves it for ever, and nothing else would end it.
    let orphan = orphan.expect("it was running");
    farmem_tests::wait_for("the end of the program", || {
        let stat = std::fs::read_to_string(format!("/proc/{orphan}/stat")).unwrap_or_default();
        matches!(stat.rsplit(')').next().unwrap_or_default().trim().chars().next(), None | Some('Z' | 'X'))
            .then_some(())
    });
    let stderr = std::fs::read_to_string(launcher.file("stderr.0")).unwrap_or_default();
    assert!(!stderr.contains("wrong byte"), "{stderr}");
}

/// The supervisor is killed, then the program makes a process, then ends first: its pager goes on for that
/// process.
fn a_process_made_without_a_supervisor_is_served(name: &str) {
    if !managed_runner() {
        return;
    }
    let launcher = Launcher::managed(BUDGET_BYTES);
    let mut running = launcher.start(check(name));
    running.until("its far memory", || launcher.file("ready").exists().then_some(()));
    let supervisor = Pid::from_raw(i32::try_from(running.process_id()).expect("a process number"));
    kill_process(supervisor.expect("a process number"), Signal::KILL).expect("it is running");
    assert_no_wrong_bytes(&running.wait());

    for file in ["alone", "end"] {
        std::fs::write(launcher.file(file), "").expect("a file can be written");
    }
    let outlived = || launcher.file("outlived").exists().then_some(());
    farmem_tests::wait_for("the process that was made, its bytes verified", outlived);
    farmem_tests::assert_nothing_is_left();
}

#[test]
fn a_process_forked_without_a_supervisor_is_served_after_its_parents_end() {
    a_process_made_without_a_supervisor_is_served("fork_alone");
}

#[test]
fn a_process_cloned_without_a_supervisor_is_served_after_its_parents_end() {
    a_process_made_without_a_supervisor_is_served("clone_alone");
}

#[test]
fn a_full_pool_and_disk_end_the_program_with_a_message() {
    if !managed_runner() {
        return;
    }
    let launcher = Launcher::managed(BUDGET_BYTES).option("--pool").option("4M");
    let launcher = with_disk_of(launcher, ":4M");

    let finished = launcher.run(pressure());

    assert_ended_by(&finished, SIGKILL);
}

/// What doesn't fit waits until the program frees memory. Meanwhile pages are taken away in vain and put back
/// again and again.
fn waits_for_room(name: &str, launcher: Launcher) {
    let name = format!("{name}-{}", std::process::id());
    let launcher = launcher.option("--pool").option("20M").option("--name").option(&name);
    let mut running = launcher.start(check("freed_while_full").env("ARENA_MIB", "1"));
    running.until("a full pool", || {
        let figures = farmem_tests::application(&name)?;
        (figures["pool_full"].as_u64()? > 1000).then_some(())
    });

    std::fs::write(launcher.file("full"), "").expect("a file can be written");

    assert_eq!(running.wait().success().text(), "ok freed_while_full\n");
}

#[test]
fn a_program_waits_while_the_pool_is_full_until_memory_is_freed() {
    if managed_runner() {
        waits_for_room("full", Launcher::managed(BUDGET_BYTES));
    }
}

/// At the moment at which a page is to be put back another thread's event may be pending, and the kernel
/// refuses.
#[test]
fn pages_that_can_neither_be_stored_nor_put_back_at_once_keep_every_byte() {
    if managed_runner() {
        waits_for_room("refused", injected("refused-put-back"));
    }
}

#[test]
fn pages_come_back_from_the_disk_when_the_pool_is_small() {
    if !managed_runner() {
        return;
    }
    let launcher = with_disk(Launcher::managed(BUDGET_BYTES).option("--pool").option("8M"));

    let finished = launcher.run(check("only_pressure")).success();

    let statistics = finished.statistics.expect("a managed run").expect("complete statistics");
    assert!(statistics.number("disk_bytes") > 0.0, "nothing went to the disk");
}

/// What can't go to the disk stays in the pool, which is too small for all of it.
#[test]
fn a_disk_that_is_full_ends_the_program_with_a_message() {
    if !managed_runner() {
        return;
    }
    let launcher = with_disk(injected("disk-full").option("--pool").option("4M"));

    let finished = launcher.run(pressure());

    assert_ended_by(&finished, SIGKILL);
    assert_says(&finished, "the disk refuses what is written to it");
}

/// The pool is filled to where pages should go to the disk, but holds them all.
#[test]
fn pages_that_the_disk_refuses_stay_in_the_pool() {
    if !managed_runner() {
        return;
    }
    let launcher = with_disk(injected("disk-write-error").option("--pool").option("48M").option("--summary"));

    let finished = launcher.run(pressure()).success();

    let statistics =
        finished.statistics.as_ref().expect("a managed run").as_ref().expect("complete statistics");
    assert!(statistics.number("disk_writes_failed") > 0.0, "nothing was to be written");
    assert_eq!(statistics.number("disk_bytes"), 0.0, "nothing could be written");
    assert_says(&finished, "the disk refused");
}

#[test]
fn a_page_that_cannot_be_read_back_is_a_bus_error_and_named_in_the_summary() {
    if !managed_runner() {
        return;
    }
    let launcher = with_disk(injected("disk-read-error").option("--pool").option("8M").option("--summary"));

    let finished = launcher.run(pressure());

    assert_lost(&finished);
}

#[test]
fn a_corrupt_page_is_a_bus_error_and_named_in_the_summary() {
    if !managed_runner() {
        return;
    }
    let finished = injected("corrupt-page").option("--summary").run(pressure());

    assert_lost(&finished);
}

#[test]
fn a_fault_thread_that_panics_ends_the_program_with_a_message() {
    if !managed_runner() {
        return;
    }
    assert_ended_by(&injected("handler-panic").run(pressure()), SIGKILL);
}

#[test]
fn a_bookkeeper_that_panics_ends_the_program_with_a_message() {
    if !managed_runner() {
        return;
    }
    assert_ended_by(&injected("bookkeeper-panic").run(pressure()), SIGKILL);
}

/// The shell, whose pager has nothing to do, goes on.
#[test]
fn a_stall_that_cannot_end_becomes_the_end_of_that_process_alone_with_a_message() {
    if !managed_runner() {
        return;
    }
    let launcher = injected("handler-stall");
    let script = format!("{} mmap_churn; echo $? > status", env!("PROGRAM_ADDRESS_SPACE"));

    let finished = launcher.run(Program::new("sh").arg("-c").arg(script).env("ARENA_MIB", "64")).success();

    assert_no_wrong_bytes(&finished);
    assert_says(&finished, "its pager has stopped");
    let said = String::from_utf8_lossy(&finished.stderr);
    assert_eq!(
        said.lines().filter(|line| line.starts_with("farmem: ")).count(),
        1,
        "it is said once: {said}"
    );
    let status = std::fs::read_to_string(launcher.file("status")).expect("the shell has gone on");
    assert_eq!(status.trim(), "137", "the program was killed");
}

#[test]
fn a_program_that_is_stopped_for_long_goes_on() {
    if !managed_runner() {
        return;
    }
    /// Longer than a pager may be still.
    const LONG: Duration = Duration::from_secs(25);
    let launcher = Launcher::managed(BUDGET_BYTES);
    // The shell stays: were the program itself stopped, farmem would stop with it at a terminal.
    let script = format!("{} mmap_churn & echo $! > number; wait $!", env!("PROGRAM_ADDRESS_SPACE"));
    let program = Program::new("sh").arg("-c").arg(script).env("ARENA_MIB", "64");
    let mut running = launcher.start(program);
    let number = launcher.file("number");
    let number =
        running.until("the program's number", || std::fs::read_to_string(&number).ok()?.trim().parse().ok());
    let program = Pid::from_raw(number).expect("a process number");
    std::thread::sleep(Duration::from_millis(300));

    kill_process(program, Signal::STOP).expect("it is running");
    std::thread::sleep(LONG);
    let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).expect("it is still there");
    assert!(stat.contains(") T "), "it is still stopped: {stat}");
    kill_process(program, Signal::CONT).expect("it is stopped");

    running.wait().assert_success();
}

/// Any user of the machine finds the socket in the kernel's list.
#[test]
fn strangers_who_connect_and_say_nothing_keep_no_process_from_its_start() {
    if !managed_runner() {
        return;
    }
    // So few that unidentified connections alone would have all but those that are kept for the application's
    // processes.
    const DESCRIPTORS: usize = 128;
    let launcher = Launcher::managed(BUDGET_BYTES);
    let script = "touch ready; while ! test -e go; do sleep 0.05; done; for i in 1 2 3 4 5 6 7 8; do sh -c 'sleep 1' & done; wait";
    let farmem = farmem_binary();
    let mut run = Command::new("prlimit")
        .arg(format!("--nofile={DESCRIPTORS}:{DESCRIPTORS}"))
        .arg(farmem)
        // Whoever is to report at the end is the supervisor itself.
        .args(["run", "--stats", "figures", "--local", "16M", "--", "sh", "-c", script])
        .current_dir(launcher.directory())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("prlimit can be started");
    wait_for("the program's start", || launcher.file("ready").exists().then_some(()));
    let name = SocketAddrUnix::new_abstract_name(format!("farmem/{}", run.id()).as_bytes()).expect("a name");

    let strangers: Vec<OwnedFd> = (0..2 * DESCRIPTORS)
        .map(|_| {
            let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
            connect(&socket, &name).expect("it listens");
            socket
        })
        .collect();
    std::fs::write(launcher.file("go"), "").expect("the test's own directory");
    let status = wait_for("the end of the run", || run.try_wait().expect("own child"));

    let mut said = String::new();
    run.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    assert!(status.success() && said.is_empty(), "{status}: {said}");
    drop(strangers);
}

/// As `cpulimit` and some monitors do, which know the program and not its supervisor.
#[test]
fn a_program_that_is_stopped_and_continued_by_itself_keeps_its_supervisor() {
    if !managed_runner() {
        return;
    }
    let scratch = Scratch::new();
    let script = format!("echo $$ > number; exec {} mmap_churn", env!("PROGRAM_ADDRESS_SPACE"));
    // Without a terminal, whoever calls the test.
    let mut run = Command::new("setsid")
        .arg("--wait")
        .arg(farmem_binary())
        .args(["run", "--local", "16M", "--pool", "8M", "--disk", "far:256M", "--", "sh", "-c", &script])
        .current_dir(scratch.path())
        .env("ARENA_MIB", "64")
        .stdin(Stdio::null())
        .spawn()
        .expect("setsid can be started");
    let number = wait_for("the program's number", || {
        std::fs::read_to_string(scratch.file("number")).ok()?.trim().parse().ok()
    });
    let program = Pid::from_raw(number).expect("a process number");
    // So often that the supervisor sees some.
    for _ in 0..20 {
        if kill_process(program, Signal::STOP).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
        kill_process(program, Signal::CONT).expect("it is stopped");
    }

    let status = wait_for("the end of the run", || run.try_wait().expect("own child"));

    assert!(status.success(), "{status}");
}

#[test]
fn in_a_pid_namespace_a_program_runs_and_a_stall_ends_the_right_process() {
    if !managed_runner() || !rustix::process::geteuid().is_root() {
        return;
    }
    let inside = |launcher: &Launcher| {
        let program = Program::new("unshare").args(["-p", "-f", "--mount-proc"]);
        let program = program.arg(env!("PROGRAM_ADDRESS_SPACE")).arg("mmap_churn");
        launcher.run(program.env("ARENA_MIB", "64"))
    };

    let finished = inside(&Launcher::managed(BUDGET_BYTES)).success();
    let statistics = finished.statistics.expect("a managed run").expect("complete statistics");
    assert!(statistics.number("evicted") > 0.0, "nothing was managed");

    // How `unshare` reports its child's end differs between versions.
    let finished = inside(&injected("handler-stall"));
    assert_no_wrong_bytes(&finished);
    assert!(!finished.status.success(), "{finished}");
    let said = String::from_utf8_lossy(&finished.stderr);
    assert!(said.contains("has stopped") && !said.contains("process 1 was"), "{said}");
}

/// A mapping can be another one, with a hole or in pieces, by the time at which it is registered. What comes
/// to be where the kernel has registered nothing must not leave: it would come back as zeros.
#[test]
fn mappings_that_change_before_they_are_registered_keep_every_byte() {
    if !managed_runner() {
        return;
    }
    for name in ["mmap_churn_threads", "map_fixed_threads"] {
        injected("late-registration").run(check(name)).assert_success();
    }
}

/// It is tried again for a while. Then the program runs on without one, and the user is told.
#[test]
fn a_program_whose_pagers_die_as_they_begin_runs_without_one() {
    if !managed_runner() {
        return;
    }
    let program =
        Program::new("perl").arg("-e").arg("my $memory = 'x' x (64 << 20); sleep 5; print length $memory");
    let finished = injected("death-at-start").run(program);
    finished.assert_success();
    assert_says(&finished, "runs without Farmem: its pagers end as soon as they begin");
    farmem_tests::assert_nothing_is_left();
}

/// The parent's pager brings a page in for a child that is no more.
#[test]
fn a_child_that_dies_while_its_parent_serves_it_keeps_nobody_waiting() {
    if !managed_runner() {
        return;
    }
    injected("death-in-fault").run(check("fork_ends_early")).assert_success();
}

/// The child's words are those of its parent when its pager hears of the fork. What another thread has done
/// just before comes first.
#[test]
fn changes_that_are_heard_of_after_a_fork_keep_every_byte_of_the_child() {
    if !managed_runner() {
        return;
    }
    Launcher::managed(BUDGET_BYTES).run(check("changes_before_a_fork")).assert_success();
}

/// The kernel has given the parent's pager the child's userfaultfd, and nobody else. With the last one goes
/// what says which of the child's pages are far: from then on they read as zeros. The child runs already, and
/// may find some before it is ended.
#[test]
fn a_child_whose_parents_pager_dies_before_anybody_has_heard_of_it_does_not_go_on() {
    if !managed_runner() {
        return;
    }
    let launcher = injected("death-in-fork");
    // The pipe ends when the child has ended, too. The shell's own forks come before its memory is managed.
    let script = format!("{{ {} child_outlives; echo $? > status; }} | cat", env!("PROGRAM_ADDRESS_SPACE"));

    let finished = launcher.run(Program::new("sh").arg("-c").arg(script).env("ARENA_MIB", "64"));

    let status = std::fs::read_to_string(launcher.file("status")).expect("the shell has gone on");
    assert_eq!(status.trim(), "137", "the parent was killed");
    assert!(!launcher.file("outlived").exists(), "the child went on with memory that nobody serves");
    let said = String::from_utf8_lossy(&finished.stderr);
    let is_ended = said.contains("its memory was served by a pager that has ended");
    assert!(is_ended || said.contains("wrong byte"), "{said}");
    assert_says(&finished, "its pager ended without a word");
    farmem_tests::assert_nothing_is_left();
}
