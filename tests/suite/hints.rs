//! What programs say about their memory (`include/farmem.h`). What becomes of that memory is looked at in
//! `address_space`.

use std::path::Path;

use farmem_tests::{Launcher, Program, managed_runner};

use crate::far_redis::number;

const BUDGET_BYTES: u64 = 16 << 20;

/// Ways to build a program with the header in it: compiler and options.
const BUILDS: [(&str, &[&str]); 6] = [
    ("cc", &["-std=c99", "-pedantic", "-O0"]),
    ("cc", &["-std=gnu17", "-O3"]),
    ("cc", &["-no-pie", "-fno-pie"]),
    ("cc", &["-fPIE", "-pie", "-Wl,-z,now"]),
    ("c++", &["-x", "c++", "-std=c++17"]),
    ("cc", &["-static"]),
];

#[test]
fn the_header_is_harmless_without_farmem_and_heard_with_it_however_it_is_built() {
    let native = Launcher::native();
    let managed = managed_runner().then(|| Launcher::managed(BUDGET_BYTES));
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include");
    for (number, (compiler, options)) in BUILDS.into_iter().enumerate() {
        let binary = native.file(&format!("hints.{number}"));
        let build = Program::new(compiler)
            .args(["-Wall", "-Wextra", "-Werror"])
            .args(options)
            .arg("-I")
            .arg(&include);
        native.helper(build.arg("-o").arg(&binary).arg(crate::program_source("hints_anywhere.c")));

        assert_eq!(native.run(Program::new(&binary)).success().text(), "0 0 0 0 0 0 0\n", "{options:?}");
        if let Some(managed) = &managed {
            // No pager comes before memory gets short.
            assert_eq!(managed.run(Program::new(&binary)).success().text(), "0 0 0 0 0 0 0\n", "{options:?}");
        }
    }
}

#[test]
fn what_a_program_calls_for_comes_with_its_next_fault() {
    let run = |launcher: &Launcher, batches, how| {
        let program = Program::new(env!("PROGRAM_BATCHES")).args(["48", batches, how, "1"]);
        let program = if launcher.is_managed() { program.env("HINTS_HAVE_A_PAGER", "1") } else { program };
        launcher.run(program).success()
    };
    let batches = |launcher: &Launcher, how| run(launcher, "100", how);
    let expected = batches(&Launcher::native(), "prefetch");
    if !managed_runner() {
        return;
    }
    let launcher = Launcher::managed(BUDGET_BYTES).option("--prefetch").option("none");
    let without = batches(&launcher, "none");
    let with = batches(&launcher, "prefetch");
    // Before the first batch it reads as many pages as are local, of which nobody has been told.
    let before = run(&launcher, "0", "prefetch");

    assert_eq!((without.text(), with.text()), (expected.text(), expected.text()));
    let number = |finished: &farmem_tests::Finished, key| {
        finished.statistics.as_ref().expect("a managed run").as_ref().expect("complete").number(key)
    };
    assert_eq!(number(&without, "hinted"), 0.0);
    let (hinted, fetches) = (number(&with, "hinted"), number(&with, "fetches"));
    // Two thirds of 6400 pages are far; most of a batch comes with its first page.
    assert!(hinted > 3000.0, "{hinted} came as they were called for");
    let awaited = fetches - number(&before, "fetches");
    assert!(awaited < 0.3 * hinted, "{awaited} pages of batches were waited for");
    assert!(number(&without, "fetches") > fetches + 0.7 * hinted, "{fetches} were waited for");
}

#[test]
fn a_program_s_own_prefetcher_is_told_of_faults_and_brings_in_what_follows() {
    let follow = |launcher: &Launcher| {
        let program = Program::new(env!("CARGO_BIN_EXE_follow"));
        let program = if launcher.is_managed() { program.env("HINTS_HAVE_A_PAGER", "1") } else { program };
        launcher.run(program).success()
    };
    let native = follow(&Launcher::native());
    assert!(native.text().starts_with("true "), "{native}");
    if managed_runner() {
        let managed = follow(&Launcher::managed(BUDGET_BYTES));
        assert_eq!(managed.text(), native.text());
        let statistics = managed.statistics.expect("a managed run").expect("complete statistics");
        assert!(statistics.number("hinted") > 1000.0);
    }
}

/// Python starts with some 20 MiB of its own, and 124 MiB of arrays.
#[test]
fn numpy_arrays_are_prefetched_pinned_and_let_go() {
    let script = |launcher: &Launcher, how| {
        let program = Program::new(crate::python()).arg(crate::program_source("hints.py")).arg(how);
        let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python");
        let program = program.env("PYTHONPATH", package).env("PYTHONDONTWRITEBYTECODE", "1");
        launcher.run(program.env("OPENBLAS_NUM_THREADS", "1")).success().text().to_owned()
    };
    let expected = script(&Launcher::native(), "native");
    if managed_runner() {
        assert_eq!(script(&Launcher::managed(64 << 20), "managed"), expected);
    }
}

/// The owner of the memory gets it back.
#[test]
fn pins_that_a_lower_budget_has_no_room_for_are_given_up() {
    const SCRIPT: &str = "
import array, os, sys, time, farmem
pinned = array.array('q', range(5 << 20))
farmem.pin(pinned)
while not os.path.exists('end'):
    time.sleep(0.01)
farmem.unpin(pinned)
assert sum(pinned) == sum(range(5 << 20))
";
    if !managed_runner() {
        return;
    }
    let name = format!("pins-{}", std::process::id());
    let launcher = Launcher::managed(56 << 20).option("--name").option(&name);
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python");
    let program = Program::new(crate::python()).args(["-c", SCRIPT]).env("PYTHONPATH", package);
    let mut running = launcher.start(program.env("PYTHONDONTWRITEBYTECODE", "1"));
    let pinned_bytes = || farmem_tests::application(&name)?["pinned_bytes"].as_u64();
    running.until("a pin of 40 MiB", || pinned_bytes().filter(|&pinned| pinned >= 40 << 20));

    assert!(farmem_tests::set_limits(&name, &["local=40M"]).status.success());

    running.until("less that is pinned", || pinned_bytes().filter(|&pinned| pinned <= 30 << 20));
    let pinned = pinned_bytes().expect("the application runs");
    assert!(pinned > 29 << 20, "no more is given up than must be: {pinned}");
    std::fs::write(launcher.file("end"), "").expect("the directory of the run can be written");
    running.wait().assert_success();
}

/// Pagers, which hear of hints by the mailbox alone.
mod mailbox {
    use super::{Launcher, Program, managed_runner, number};

    const BUDGET_BYTES: u64 = 12 << 20;

    fn beside(program: &str, what: &str) -> farmem_tests::Finished {
        let launcher = Launcher::managed(BUDGET_BYTES);
        let finished = launcher.run(Program::new(program).arg(what)).success();
        assert_eq!(finished.text(), format!("ok {what}\n"));
        assert!(number(&finished, "evicted") > 0.0, "it was managed");
        finished
    }

    macro_rules! checks {
        ($($name:ident: $what:literal,)*) => {
            $(#[test] fn $name() { if managed_runner() { beside(env!("PROGRAM_MAILBOX"), $what); } })*
        };
    }

    checks! {
        what_is_pinned_before_a_pager_comes_stays_and_what_was_unpinned_leaves: "pin_before",
        a_full_mailbox_refuses_with_a_pager_and_leaves_out_without: "full",
        a_forked_child_begins_without_pins_and_has_a_mailbox_of_its_own: "forked",
        a_static_program_s_prefetcher_that_was_there_before_the_pager_is_told_of_faults: "prefetcher",
        a_mailbox_of_wild_words_harms_nobody_and_other_segments_are_left_alone: "hostile",
    }

    /// A library that others than glibc's programs use, where it is installed.
    #[test]
    fn programs_of_musl_have_a_mailbox_as_well() {
        let compiler = "musl-gcc";
        if !managed_runner() || std::process::Command::new(compiler).arg("--version").output().is_err() {
            eprintln!("skipped: there is no {compiler}");
            return;
        }
        let native = Launcher::native();
        let binary = native.file("mailbox.musl");
        let build =
            Program::new(compiler).args(["-std=gnu11", "-O1", "-static", "-pthread", "-o"]).arg(&binary);
        native.helper(build.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/programs/mailbox/main.c")));
        for what in ["pin_before", "prefetcher"] {
            beside(binary.to_str().expect("a path of the tests"), what);
        }
    }

    #[test]
    fn a_pin_that_waits_ends_when_its_pager_leaves_the_program() {
        if !managed_runner() {
            return;
        }
        let name = format!("left-{}", std::process::id());
        let farmem = |words: &[&str]| {
            let output = std::process::Command::new(farmem_tests::farmem_binary()).args(words).output();
            let output = output.expect("farmem starts");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        };
        let launcher = Launcher::native();
        let mut running = launcher.start(Program::new(env!("PROGRAM_MAILBOX")).arg("left"));
        let process = running.process_id().to_string();
        farmem(&["attach", "--host", "none", "--pool", "1G", "--name", &name, "--local", "12M", &process]);
        running.until("a pager that pins", || {
            let pinned = farmem_tests::application(&name)?["pinned_bytes"].as_u64()?;
            (pinned > 0).then_some(())
        });

        farmem(&["detach", &name]);

        assert_eq!(running.wait().success().text(), "managed\nok left\n");
    }

    #[test]
    fn a_pager_that_ends_while_a_pin_waits_takes_its_program_along() {
        if !managed_runner() {
            return;
        }
        let name = format!("killed-{}", std::process::id());
        let launcher = Launcher::managed(BUDGET_BYTES).option("--name").option(&name);
        let mut running = launcher.start(Program::new(env!("PROGRAM_MAILBOX")).arg("left"));
        let supervisor = running.process_id();
        let pager = running.until("a pager that pins", || {
            let pinned = farmem_tests::application(&name)?["pinned_bytes"].as_u64()?;
            if pinned == 0 { None } else { pager_of(supervisor) }
        });

        let pager = rustix::process::Pid::from_raw(pager).expect("a number");
        rustix::process::kill_process(pager, rustix::process::Signal::KILL).expect("it can be ended");

        let finished = running.wait();
        assert!(!finished.text().contains("ok"), "{finished}");
    }

    /// A pager that this supervisor has started.
    fn pager_of(supervisor: u32) -> Option<i32> {
        let parent = format!("PPid:\t{supervisor}");
        std::fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            let status = std::fs::read_to_string(entry.path().join("status")).ok()?;
            let is_pager = status.lines().next() == Some("Name:\tfarmem-pager");
            (is_pager && status.lines().any(|line| line == parent)).then_some(number)
        })
    }
}
