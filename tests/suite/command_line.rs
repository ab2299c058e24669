//! What a program and its caller see of `farmem run`: nothing, but its statistics.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use farmem_tests::{
    Finished, Launcher, Program, Scratch, application, assert_refusal, farmem_binary, managed_runner,
    second_launcher, wait_for,
};

const BUDGET_BYTES: u64 = 64 << 20;

fn shell(script: &str) -> Program {
    Program::new("sh").arg("-c").arg(script)
}

fn run(program: Program) -> Finished {
    second_launcher(BUDGET_BYTES).run(program)
}

/// What the program wrote to both streams, with the name of the run's directory taken out.
fn said(launcher: &Launcher, program: &Program) -> String {
    let finished = launcher.run(program.clone()).success();
    let directory = launcher.directory().to_str().expect("a path of text");
    let text = format!("{}--- errors\n{}", finished.text(), String::from_utf8_lossy(&finished.stderr));
    text.replace(directory, "DIRECTORY")
}

/// The program writes the same natively and under the pager.
fn assert_same_output(program: &Program) {
    let native = said(&Launcher::native(), program);
    let second = said(&second_launcher(BUDGET_BYTES), program);

    let missing: Vec<&str> =
        native.lines().filter(|line| !second.lines().any(|other| other == *line)).collect();
    let added: Vec<&str> =
        second.lines().filter(|line| !native.lines().any(|other| other == *line)).collect();
    assert!(
        second == native,
        "under the pager these lines are missing: {missing:#?}\nand these are new: {added:#?}"
    );
}

#[test]
fn the_exit_status_is_the_programs_own() {
    for status in [0, 1, 2, 3, 42, 127, 255] {
        let finished = run(shell(&format!("exit {status}")));
        assert_eq!(finished.status.code(), Some(status), "{finished}");
    }
}

#[test]
fn a_signal_that_ends_the_program_ends_farmem_in_the_same_way() {
    for (name, number) in [("TERM", 15), ("KILL", 9), ("SEGV", 11), ("ABRT", 6), ("INT", 2)] {
        let finished = run(shell(&format!("kill -{name} $$; sleep 5")));
        assert_eq!(finished.status.signal(), Some(number), "{name}: {finished}");
    }
}

#[test]
fn signals_for_farmem_reach_the_program() {
    // The last one is a realtime signal, and has no name.
    for name in ["INT", "TERM", "HUP", "USR1", "QUIT", "PWR", "XCPU", "ABRT", "35"] {
        let launcher = second_launcher(BUDGET_BYTES);
        let script =
            format!("trap 'echo got {name}; exit 5' {name}; touch ready; while :; do sleep 0.05; done");
        let mut running = launcher.start(shell(&script));
        let ready = launcher.file("ready");
        running.until("the program's start", || ready.exists().then_some(()));

        let sent =
            Command::new("kill").arg(format!("-{name}")).arg(running.process_id().to_string()).status();
        assert!(sent.expect("kill can be started").success(), "{name}");

        let finished = running.wait();
        assert_eq!(finished.status.code(), Some(5), "{name}: {finished}");
        assert_eq!(finished.text(), format!("got {name}\n"));
    }
}

#[test]
fn standard_streams_are_the_programs_own() {
    let input: Vec<u8> =
        (0..1_000_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let copied = run(Program::new("cat").input(input.clone()));
    assert!(
        copied.status.success() && copied.stdout == input,
        "standard input was not copied to standard output"
    );

    let spoken = run(shell("echo to output; echo to errors >&2"));
    assert_eq!(spoken.text(), "to output\n");
    assert_eq!(String::from_utf8_lossy(&spoken.stderr), "to errors\n");
}

#[test]
fn the_environment_is_the_programs_own() {
    assert_same_output(&Program::new("env"));
    assert_same_output(&Program::new("env").env("LD_PRELOAD", "libm.so.6").env("EMPTY", ""));
    assert_same_output(&Program::new("env").args(["-i", "/usr/bin/env"]));
}

#[test]
fn the_environment_of_a_grandchild_is_its_own() {
    assert_same_output(&shell("env; sh -c 'sh -c env; true'; true"));
    assert_same_output(&shell("LD_PRELOAD=libm.so.6 sh -c 'env; true'"));
    assert_same_output(&shell("env -i /bin/sh -c 'env; true'"));
}

#[test]
fn limits_mask_directory_and_arguments_are_the_programs_own() {
    assert_same_output(&shell("ulimit -a; ulimit -Ha; umask"));
    assert_same_output(&shell("printf '%s\\n' \"$0\" \"$@\"").args([
        "zero",
        "",
        "two words",
        "--local",
        "--",
    ]));
    let launcher = second_launcher(BUDGET_BYTES);
    let finished = launcher.run(Program::new("/bin/pwd")).success();
    assert_eq!(Path::new(finished.text().trim_end()), launcher.directory());
}

#[test]
fn ignored_and_blocked_signals_are_the_programs_own() {
    assert_same_output(&Program::new("grep").args(["-E", "^Sig(Ign|Blk|Cgt):", "/proc/self/status"]));
}

/// Ignored by the caller, as systemd does with SIGPIPE and some launchers with SIGCHLD. A launcher of Rust's
/// would set the first to its default.
#[test]
fn signals_that_the_caller_ignores_are_ignored_by_the_program_and_hide_no_end() {
    if !managed_runner() {
        return;
    }
    // A shell need not let its child processes be ignored.
    let ran = |words: &[&str]| {
        let mut command = Command::new("env");
        command.arg("--ignore-signal=CHLD,PIPE").args(words).stdin(Stdio::null());
        command.output().expect("env can be started")
    };
    let farmem = farmem_binary();
    let farmem = farmem.to_str().expect("a path of text");
    let managed = [farmem, "run", "--local", "64M", "--"];
    let asked = ["grep", "^SigIgn:", "/proc/self/status"];

    let (native, second) = (ran(&asked), ran(&[&managed[..], &asked].concat()));
    let ended = ran(&[&managed[..], &["sh", "-c", "exit 3"]].concat());

    let native = String::from_utf8_lossy(&native.stdout).into_owned();
    let set = u64::from_str_radix(native.trim_start_matches("SigIgn:").trim(), 16).expect("a set");
    assert_eq!((set >> 12 & 1, set >> 16 & 1), (1, 1), "SIGPIPE and SIGCHLD are ignored: {native}");
    assert_eq!(String::from_utf8_lossy(&second.stdout), native);
    assert_eq!(ended.status.code(), Some(3), "{}", String::from_utf8_lossy(&ended.stderr));
}

#[test]
fn open_descriptors_are_the_programs_own() {
    assert_same_output(&Program::new("ls").arg("/proc/self/fd"));
    assert_same_output(&shell("ls /proc/self/fd; true"));
}

#[test]
fn a_program_that_ends_with_a_closed_pipe_ends_quietly() {
    assert_same_output(&shell("yes | head -n 2"));
}

#[test]
fn a_program_that_fits_its_budget_is_left_alone() {
    if !managed_runner() {
        return;
    }
    let finished = run(shell("echo small")).success();

    let statistics = finished.statistics.expect("a managed run").expect("complete statistics");

    assert!(statistics.contradictions(BUDGET_BYTES).is_empty());
    assert!(statistics.number("evicted") == 0.0, "pages of a program that fits were evicted");
    assert!(statistics.number("fetches") == 0.0, "pages of a program that fits were fetched");
}

#[test]
fn a_summary_is_printed_on_standard_error_only() {
    if !managed_runner() {
        return;
    }
    let launcher = second_launcher(BUDGET_BYTES).option("--summary");

    let finished = launcher.run(shell("echo output")).success();

    assert_eq!(finished.text(), "output\n");
    assert!(!finished.stderr.is_empty());
}

/// A terminal that was closed, or `2>&1 | head -1`.
#[test]
fn a_run_whose_lines_nobody_reads_ends_as_its_program_does() {
    if !managed_runner() {
        return;
    }
    let scratch = Scratch::new();
    let statistics = scratch.file("statistics");
    let (read, written) = std::io::pipe().expect("a pipe");
    drop(read);

    let status = Command::new(farmem_binary())
        .args(["run", "--local", "64M", "--progress=always", "--summary", "--stats"])
        .arg(&statistics)
        .args(["--", "sh", "-c", "sleep 2.5; exit 3"])
        .stdin(Stdio::null())
        .stderr(written)
        .status()
        .expect("farmem can be started");

    assert_eq!(status.code(), Some(3), "{status}");
    assert!(statistics.exists());
}

#[test]
fn statistics_that_can_no_longer_be_written_cost_no_program_its_status() {
    if !managed_runner() {
        return;
    }
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.file("folder")).expect("the test's own directory");

    let output = Command::new(farmem_binary())
        .args(["run", "--local", "64M", "--stats", "folder/statistics", "--"])
        .args(["sh", "-c", "rmdir folder; exit 3"])
        .current_dir(scratch.path())
        .stdin(Stdio::null())
        .output()
        .expect("farmem can be started");

    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("cannot write --stats"), "{said}");
}

#[test]
fn what_a_program_leaves_behind_holds_nobody_and_keeps_a_supervisor() {
    if !managed_runner() {
        return;
    }
    let scratch = Scratch::new();
    let name = format!("left-behind-{}", std::process::id());
    // It ends by itself, should the test fail.
    let left = "i=0; while ! test -e go && test $((i+=1)) -lt 1200; do sleep 0.05; done; exec touch gone";
    let script = format!("setsid sh -c '{left}' </dev/null >/dev/null 2>&1 & exit 7");

    // Returns when nobody has the pipes any more.
    let output = Command::new(farmem_binary())
        .args(["run", "--local", "64M", "--name", &name, "--", "sh", "-c", &script])
        .current_dir(scratch.path())
        .stdin(Stdio::null())
        .output()
        .expect("farmem can be started");

    assert_eq!(output.status.code(), Some(7));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(application(&name).is_some(), "it is no longer supervised");
    std::fs::write(scratch.file("go"), "").expect("the directory of the test can be written");
    wait_for("the end of what was left behind", || scratch.file("gone").exists().then_some(()));
    wait_for("the end of the supervisor", || application(&name).is_none().then_some(()));
}

#[test]
fn several_processes_share_one_budget() {
    let program = env!("PROGRAM_ADDRESS_SPACE");
    let script = format!("{program} only_pressure & {program} only_pressure & wait %1 && wait %2");

    farmem_tests::same_at(farmem_tests::Share::Half, |launcher| {
        launcher.run(shell(&script)).success().text().to_owned()
    });
}

/// Runs `farmem` itself, which must refuse: status 2 (or the status that shells use for such a program), a
/// sentence that says why, and no program started.
fn assert_refused(arguments: &[&str]) {
    assert_refused_with(2, arguments);
}

fn assert_refused_with(status: i32, arguments: &[&str]) {
    assert_refusal(status, Command::new(farmem_binary()).args(arguments));
}

#[test]
fn bad_options_are_refused() {
    if !managed_runner() {
        return;
    }
    assert_refused(&["run", "--no-such-option", "--", "touch", "started"]);
    assert_refused(&["run", "--local", "plenty", "--", "touch", "started"]);
    assert_refused(&["run", "--local", "-5M", "--", "touch", "started"]);
    assert_refused(&["run", "--local", "64M", "--pool", "?", "--", "touch", "started"]);
    assert_refused(&["run", "--local", "64M", "--disk", "/no/such/directory/far", "--", "touch", "started"]);
    assert_refused(&["run", "--local", "0%", "--", "touch", "started"]);
    assert_refused(&["run", "--local", "150%", "--", "touch", "started"]);
    assert_refused(&["run", "--local", "64M"]);
}

#[test]
fn files_that_are_no_statistics_have_no_steps() {
    let folder = Scratch::new();
    for (name, content) in [("words", "no JSON"), ("other", "{}"), ("idle", r#"{"faults": 0}"#)] {
        let file = folder.file(name);
        std::fs::write(&file, content).expect("the folder is the test's own");
        assert_refusal(2, Command::new(farmem_binary()).args(["bench", "steps"]).arg(&file));
    }
    assert_refused(&["bench", "steps", "no-such-file"]);
}

#[test]
fn a_budget_below_what_a_program_needs_to_start_is_refused() {
    if !managed_runner() {
        return;
    }
    assert_refused(&["run", "--local", "64K", "--", "touch", "started"]);
}

#[test]
fn a_limit_of_the_size_of_files_holds_for_the_program_and_not_for_the_pool() {
    if !managed_runner() {
        return;
    }
    let limited = |command: &[&std::ffi::OsStr]| {
        let output = Command::new("prlimit")
            .arg("--fsize=1073741824:")
            .args(command)
            .args(["sh", "-c", "ulimit -f; ulimit -Hf"])
            .output()
            .expect("util-linux is installed");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let farmem = farmem_binary();
    let under_farmem =
        [farmem.as_os_str(), "run".as_ref(), "--local".as_ref(), "64M".as_ref(), "--".as_ref()];
    assert_eq!(limited(&under_farmem), limited(&[]));
}

#[test]
fn a_program_that_cannot_be_executed_is_refused_as_by_a_shell() {
    if !managed_runner() {
        return;
    }
    assert_refused_with(127, &["run", "--local", "64M", "--", "no-such-program-anywhere"]);
    assert_refused_with(126, &["run", "--local", "64M", "--", "/etc/passwd"]);
}

/// Without these the supervisor could not tell what a program's memory is, or take any of it away.
#[test]
fn a_kernel_that_is_too_old_is_refused() {
    if !managed_runner() {
        return;
    }
    const PROCMAP_QUERY: &str = "0xc0686611";
    const UFFDIO_API: &str = "0xc018aa3f";
    for (request, sentence) in [(PROCMAP_QUERY, "use Linux 6.11 or newer"), (UFFDIO_API, "userfaultfd")] {
        let said = assert_refusal(
            2,
            Command::new(env!("PROGRAM_OLD_KERNEL"))
                .arg(request)
                .arg(farmem_binary())
                .args(["run", "--local", "64M", "--", "touch", "started"]),
        );
        assert!(said.contains(sentence) && said.contains("farmem doctor"), "{said}");
    }
}

#[test]
fn a_user_without_the_permission_is_refused() {
    if !managed_runner() || !rustix::process::geteuid().is_root() {
        return;
    }
    // Where that user may read it: the build's own folder may be closed to others.
    let scratch = farmem_tests::Scratch::new();
    std::fs::copy(farmem_binary(), scratch.file("farmem")).expect("a built file can be copied");
    let said = assert_refusal(
        2,
        Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--"])
            .arg(scratch.file("farmem"))
            .args(["run", "--local", "64M", "--", "touch", "started"]),
    );
    assert!(said.contains("CAP_SYS_PTRACE") && said.contains("run as root"), "{said}");
}

/// Its root has all capabilities, which are good for the namespace alone.
#[test]
fn a_user_namespaces_root_is_refused_and_told_why() {
    if !managed_runner() || !rustix::process::geteuid().is_root() {
        return;
    }
    let said = assert_refusal(
        2,
        Command::new("unshare")
            .args(["--user", "--map-root-user", "--"])
            .arg(farmem_binary())
            .args(["run", "--local", "64M", "--", "touch", "started"]),
    );
    assert!(said.contains("this is a user namespace"), "{said}");
}

/// A percentage is one of what the user may use; where /proc is missing that isn't known.
#[test]
fn a_percentage_of_unknown_memory_is_refused() {
    if !managed_runner() || !rustix::process::geteuid().is_root() {
        return;
    }
    let script = format!("mount -t tmpfs none /proc && exec {} \"$@\"", farmem_binary().display());
    let said = assert_refusal(
        2,
        Command::new("unshare")
            .args(["--mount", "sh", "-c", &script, "sh"])
            .args(["run", "--local", "25%", "--", "touch", "started"]),
    );
    assert!(said.contains("/proc/meminfo"), "{said}");
}
