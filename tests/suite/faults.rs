//! Things that break: whatever does, a program gets its own bytes, waits, or is told; never zeros, never a hang.
//!
//! What needs a hook inside the pager is started with `FARMEM_INJECT=NAME`, and is ignored while there is no such hook.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use farmem_tests::{Finished, Launcher, Program, managed_runner};
use rustix::process::{Pid, Signal, kill_process};

const BUDGET_BYTES: u64 = 16 << 20;
const LIMIT: Duration = Duration::from_secs(60);

fn pressure() -> Program {
    Program::new(env!("PROGRAM_ADDRESS_SPACE")).arg("mmap_churn").env("ARENA_MIB", "64").limit(LIMIT)
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
    Launcher::managed(BUDGET_BYTES).env("FARMEM_INJECT", name)
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
    let program = Program::new("sh").arg("-c").arg(script).env("ARENA_MIB", "64").limit(LIMIT);
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

#[test]
fn a_full_pool_and_disk_end_the_program_with_a_message() {
    if !managed_runner() {
        return;
    }
    let launcher = Launcher::managed(BUDGET_BYTES).option("--pool").option("4M");
    let mut disk = launcher.file("far").into_os_string();
    disk.push(":4M");
    let launcher = launcher.option("--disk").option(disk);

    let finished = launcher.run(pressure());

    assert_ended_by(&finished, SIGKILL);
}

#[test]
fn pages_come_back_from_the_disk_when_the_pool_is_small() {
    if !managed_runner() {
        return;
    }
    let launcher = Launcher::managed(BUDGET_BYTES).option("--pool").option("8M");
    let mut disk = launcher.file("far").into_os_string();
    disk.push(":256M");
    let launcher = launcher.option("--disk").option(disk);

    let finished = launcher.run(pressure()).success();

    let statistics = finished.statistics.expect("a managed run").expect("complete statistics");
    assert!(statistics.number("disk_bytes") > 0.0, "nothing went to the disk");
}

#[test]
#[ignore = "waits for FARMEM_INJECT=disk-full"]
fn a_disk_that_fills_up_early_ends_the_program_with_a_message() {
    assert_ended_by(&injected("disk-full").option("--pool").option("4M").run(pressure()), SIGKILL);
}

#[test]
#[ignore = "waits for FARMEM_INJECT=disk-write-error"]
fn a_page_that_the_disk_refuses_stays_where_it_is() {
    assert_no_wrong_bytes(&injected("disk-write-error").option("--pool").option("4M").run(pressure()));
}

#[test]
fn a_page_that_cannot_be_read_back_is_a_bus_error() {
    if !managed_runner() {
        return;
    }
    let launcher = injected("disk-read-error").option("--pool").option("8M");
    let mut disk = launcher.file("far").into_os_string();
    disk.push(":256M");

    let finished = launcher.option("--disk").option(disk).option("--summary").run(pressure());

    assert_ended_by(&finished, SIGBUS);
}

#[test]
#[ignore = "waits for FARMEM_INJECT=corrupt-page"]
fn a_corrupt_page_is_a_bus_error_and_named_in_the_summary() {
    let finished = injected("corrupt-page").option("--summary").run(pressure());
    assert_ended_by(&finished, SIGBUS);
    assert!(String::from_utf8_lossy(&finished.stderr).contains("lost"), "{finished}");
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

#[test]
fn a_stall_that_cannot_end_becomes_the_programs_end_with_a_message() {
    if !managed_runner() {
        return;
    }
    assert_ended_by(&injected("handler-stall").run(pressure()), SIGKILL);
}

#[test]
fn a_program_that_is_stopped_for_long_goes_on() {
    if !managed_runner() {
        return;
    }
    /// Longer than a pager may be still.
    const LONG: Duration = Duration::from_secs(25);
    let launcher = Launcher::managed(BUDGET_BYTES);
    // The shell stays: were the program itself stopped, farmem would stop with it.
    let script = format!("{} mmap_churn & echo $! > number; wait $!", env!("PROGRAM_ADDRESS_SPACE"));
    let program = Program::new("sh").arg("-c").arg(script).env("ARENA_MIB", "64").limit(2 * LIMIT);
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

#[test]
fn in_a_pid_namespace_a_program_runs_and_a_stall_ends_the_right_process() {
    if !managed_runner() || !rustix::process::geteuid().is_root() {
        return;
    }
    let inside = |launcher: &Launcher| {
        let program = Program::new("unshare").args(["-p", "-f", "--mount-proc"]);
        let program = program.arg(env!("PROGRAM_ADDRESS_SPACE")).arg("mmap_churn");
        launcher.run(program.env("ARENA_MIB", "64").limit(LIMIT))
    };

    let finished = inside(&Launcher::managed(BUDGET_BYTES)).success();
    let statistics = finished.statistics.expect("a managed run").expect("complete statistics");
    assert!(statistics.number("evicted") > 0.0, "nothing was managed");

    // How `unshare` tells of its child's end differs between versions.
    let finished = inside(&injected("handler-stall"));
    assert_no_wrong_bytes(&finished);
    assert!(!finished.status.success(), "{finished}");
    let said = String::from_utf8_lossy(&finished.stderr);
    assert!(said.contains("has stopped") && !said.contains("of process 1 "), "{said}");
}
