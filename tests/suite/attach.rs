//! Pagers that come to programs from outside, while these run; each is a check of `programs/attached`, a
//! static program.

use farmem_tests::{Finished, Launcher, Program, managed_runner};

use crate::far_redis::number;

const BUDGET: u64 = 12 << 20;

fn launcher() -> Launcher {
    Launcher::managed(BUDGET).option("--host").option("none").option("--pool").option("1G")
}

fn check(launcher: &Launcher, name: &str) -> Finished {
    let program = Program::new(env!("PROGRAM_ATTACHED")).arg(name).arg(launcher.directory());
    let finished = launcher.run(program).success();
    assert!(finished.text().ends_with(": 0 wrong\n"), "{}", finished.text());
    assert!(number(&finished, "evicted") > 0.0, "it was managed");
    finished
}

macro_rules! checks {
    ($($name:ident: $check:literal,)*) => {
        $(#[test] fn $name() { if managed_runner() { check(&launcher(), $check); } })*
    };
}

checks! {
    a_static_program_of_four_threads_keeps_every_word: "threads",
    forked_children_and_their_parent_write_what_both_have: "forks",
    forty_eight_children_at_once_and_grandchildren_find_what_was_there: "many",
    a_program_sees_nothing_of_its_pager: "unnoticed",
    a_program_that_has_given_up_root_forks_and_writes: "another_user",
    a_filter_of_system_calls_is_not_met: "filtered",
    children_that_run_other_programs_are_let_go: "execs",
    children_that_are_killed_while_pagers_come_to_them_are_waited_for: "killed",
    a_handler_of_traps_and_a_trap_that_waits_stay: "traps",
    addresses_that_a_program_has_left_free_are_free_for_it_again: "places",
    a_signal_that_comes_with_a_pager_ends_the_call_that_waits_for_it: "signals",
    children_in_strict_mode_find_what_is_far_though_their_puppets_are_ended: "strict",
}

/// Each of their pagers ends while its bookkeeper has pages in hand.
#[test]
fn children_that_run_other_programs_under_pressure_are_let_go() {
    if !managed_runner() {
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/executes.pl");
    let finished = Launcher::managed(8 << 20).run(Program::new("perl").arg(script)).success();
    assert_eq!(finished.text(), "0 wrong\n");
    assert!(number(&finished, "evicted") > 0.0, "it was managed");
}

/// Nothing has to be loaded into it, which such a program would not let in.
#[test]
fn a_program_that_gains_the_rights_of_another_user_is_managed() {
    const NOBODY: u32 = 65534;
    if !managed_runner() || !rustix::process::geteuid().is_root() {
        return;
    }
    let launcher = launcher();
    let python = launcher.file("python");
    std::fs::copy("/usr/bin/python3", &python).expect("a program can be copied");
    std::os::unix::fs::chown(&python, Some(NOBODY), None).expect("root gives files away");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o4755);
    std::fs::set_permissions(&python, mode).expect("it is the test's own");
    let touches = "import os\ndata = bytearray(48 << 20)\nfor turn in range(24):\n  for page in range(12288): data[page << 12] += page % 7\n\
                   print(os.geteuid(), all(data[page << 12] == page % 7 * 24 for page in range(12288)))";

    let finished = launcher.run(Program::new(&python).args(["-c", touches])).success();

    assert_eq!(finished.text(), format!("{NOBODY} True\n"));
    assert!(number(&finished, "evicted") > 0.0, "it was managed");
}

/// Each process of a fork is stopped for a moment while it waits in one of these calls.
mod a_call_goes_on {
    macro_rules! calls {
        ($($name:ident: $number:literal,)*) => {
            $(#[test] fn $name() { if super::managed_runner() { super::check(&super::launcher(), concat!("call-", $number)); } })*
        };
    }
    calls! {
        epoll_wait: 0,
        epoll_wait_for_a_time: 1,
        semop: 2,
        semtimedop: 3,
        sigtimedwait: 4,
        sigwaitinfo: 5,
        poll: 6,
        nanosleep: 7,
        futex: 8,
        read: 9,
        recv_for_a_time: 10,
        select: 11,
    }
}

/// What a process that outlives the one that was started has found.
fn left_behind(name: &str) {
    if !managed_runner() {
        return;
    }
    let launcher = launcher();
    let program = Program::new(env!("PROGRAM_ATTACHED")).arg(name).arg(launcher.directory());
    let finished = launcher.run(program).success();
    assert!(finished.text().ends_with(": 0 wrong\n"), "{}", finished.text());
    let result = launcher.file("result");
    let began = std::time::Instant::now();
    while !result.exists() {
        assert!(began.elapsed().as_secs() < 60, "the process that was left behind is stuck");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(std::fs::read_to_string(result).expect("it was just there"), "0 wrong\n");
}

#[test]
fn a_daemon_goes_on_with_what_is_far_when_its_parent_has_ended() {
    left_behind("daemon");
}

#[test]
fn a_process_that_shares_its_memory_goes_on_when_the_other_has_ended() {
    left_behind("sharing");
}
