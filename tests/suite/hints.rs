//! What programs say about their memory (`include/farmem.h`). What becomes of that memory is looked at in `address_space`.

use std::path::Path;

use farmem_tests::{Launcher, Program, managed_runner};

const BUDGET_BYTES: u64 = 16 << 20;

/// Ways to build a program with the header in it: compiler, options, and whether Farmem can be loaded into what comes out.
const BUILDS: [(&str, &[&str], bool); 6] = [
    ("cc", &["-std=c99", "-pedantic", "-O0"], true),
    ("cc", &["-std=gnu17", "-O3"], true),
    ("cc", &["-no-pie", "-fno-pie"], true),
    ("cc", &["-fPIE", "-pie", "-Wl,-z,now"], true),
    ("c++", &["-x", "c++", "-std=c++17"], true),
    ("cc", &["-static"], false),
];

#[test]
fn the_header_is_harmless_without_farmem_and_heard_with_it_however_it_is_built() {
    let native = Launcher::native();
    let managed = managed_runner().then(|| Launcher::managed(BUDGET_BYTES));
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include");
    for (number, (compiler, options, is_loadable)) in BUILDS.into_iter().enumerate() {
        let binary = native.file(&format!("hints.{number}"));
        let build = Program::new(compiler)
            .args(["-Wall", "-Wextra", "-Werror"])
            .args(options)
            .arg("-I")
            .arg(&include);
        native.helper(build.arg("-o").arg(&binary).arg(crate::program_source("hints_anywhere.c")));

        assert_eq!(native.run(Program::new(&binary)).success().text(), "0 0 0 0 0 0 0\n", "{options:?}");
        if let Some(managed) = managed.as_ref().filter(|_| is_loadable) {
            assert_eq!(managed.run(Program::new(&binary)).success().text(), "1 0 0 0 0 1 0\n", "{options:?}");
        }
    }
}

#[test]
fn what_a_program_calls_for_comes_with_its_next_fault() {
    let batches = |launcher: &Launcher, how| {
        let program = Program::new(env!("PROGRAM_BATCHES")).args(["48", "100", how, "1"]);
        launcher.run(program).success()
    };
    let expected = batches(&Launcher::native(), "prefetch");
    if !managed_runner() {
        return;
    }
    let launcher = Launcher::managed(BUDGET_BYTES).option("--prefetch").option("none");
    let without = batches(&launcher, "none");
    let with = batches(&launcher, "prefetch");

    assert_eq!((without.text(), with.text()), (expected.text(), expected.text()));
    let number = |finished: &farmem_tests::Finished, key| {
        finished.statistics.as_ref().expect("a managed run").as_ref().expect("complete").number(key)
    };
    assert_eq!(number(&without, "hinted"), 0.0);
    let (hinted, fetches) = (number(&with, "hinted"), number(&with, "fetches"));
    // Two thirds of 6400 pages are far; most of a batch comes with its first page.
    assert!(hinted > 3000.0, "{hinted} came as they were called for");
    assert!(number(&without, "fetches") > fetches + 0.7 * hinted, "{fetches} were waited for");
}

#[test]
fn a_program_s_own_prefetcher_is_told_of_faults_and_brings_in_what_follows() {
    let follow = |launcher: &Launcher| launcher.run(Program::new(env!("CARGO_BIN_EXE_follow"))).success();
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

/// Who lent the memory gets it back.
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
    let launcher = Launcher::managed(96 << 20).option("--name").option(&name);
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
