//! A program that does random things to its own address space, under a budget of a fraction of its memory,
//! every byte checked against what its pages must hold (`churn.c`). Needs a built `farmem` (target/release,
//! or `FARMEM_BIN`) and a C compiler; without them the tests fail: one that passes has run the program.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// After this a run counts as hung; it takes a few seconds.
const PATIENCE: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(20);

/// The program's arguments: one stripe of 24 MiB for each thread.
struct Run {
    seed: u64,
    operations: u64,
    threads: u32,
    kinds: &'static str,
    local: &'static str,
}

/// Where this build of `farmem` is.
fn farmem() -> PathBuf {
    let built = || Some(Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?.join("release/farmem"));
    let farmem = std::env::var_os("FARMEM_BIN").map(PathBuf::from).or_else(built);
    let farmem = farmem.expect("the folder of what is built");
    assert!(farmem.is_file(), "{} is missing: build it first, by `make build-for-tests`", farmem.display());
    farmem
}

/// The compiled program. Tests run as processes of their own, so each compiles under a name of its own and
/// renames: another test's program is never seen half written.
fn churn() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/address_space/churn.c");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("churn");
        let fresh = program.with_extension(std::process::id().to_string());
        let mut compile = Command::new("cc");
        compile.args(["-O1", "-pthread", "-o"]).arg(&fresh).arg(source);
        let status = compile.status().expect("a C compiler, `cc`, can be started");
        assert!(status.success(), "churn.c doesn't compile");
        std::fs::rename(&fresh, &program).expect("a program can be renamed in its directory");
        program
    })
}

/// Waits for a child, and ends it when it hangs. `None` when it did.
fn wait(mut child: Child) -> Option<std::process::Output> {
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().expect("a child can be waited for").is_none() {
        if Instant::now() > deadline {
            child.kill().expect("a child that was not waited for can be killed");
            child.wait().expect("a killed child ends");
            return None;
        }
        std::thread::sleep(LOOK);
    }
    Some(child.wait_with_output().expect("its output is there"))
}

fn finishes(mut command: Command, run: &Run) {
    command.arg(run.seed.to_string()).arg(run.operations.to_string()).arg(run.threads.to_string());
    command.arg(run.kinds).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the program starts");
    let Some(output) = wait(child) else { panic!("hung: seed {}, {}", run.seed, run.kinds) };
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.success() && out == "ok\n",
        "seed {}, {}: {} {out}{err}",
        run.seed,
        run.kinds,
        output.status
    );
}

/// Under `farmem run`, with the budget asked for.
fn keeps_every_byte(run: &Run) {
    let mut command = Command::new(farmem());
    command.args(["run", "--local", run.local, "--pool", "256M", "--"]).arg(churn());
    finishes(command, run);
}

fn alone(seed: u64, kinds: &'static str) {
    keeps_every_byte(&Run { seed, operations: 4000, threads: 1, kinds, local: "8M" });
}

fn together(seed: u64, kinds: &'static str) {
    keeps_every_byte(&Run { seed, operations: 3000, threads: 3, kinds, local: "16M" });
}

#[test]
fn the_program_itself_is_right() {
    finishes(
        Command::new(churn()),
        &Run { seed: 1, operations: 4000, threads: 3, kinds: "wwvvdfmuprks", local: "" },
    );
}

#[test]
fn reads_and_writes_up_and_down() {
    alone(1, "wv");
    together(2, "wv");
}

#[test]
fn discarded_pages_read_as_zeros() {
    alone(3, "wvd");
    together(4, "wvdf");
}

#[test]
fn pages_mapped_anew_read_as_zeros() {
    alone(5, "wvmu");
    together(6, "wvmup");
}

#[test]
fn moved_pages_keep_their_content() {
    alone(7, "wvr");
    together(8, "wvrm");
}

#[test]
fn both_sides_of_a_fork_keep_their_own_content() {
    alone(9, "wvk");
    together(10, "wvkd");
}

#[test]
fn system_calls_see_what_the_program_sees() {
    together(11, "wvs");
}

#[test]
fn everything_at_once() {
    for seed in 12..15 {
        alone(seed, "wwvvdfmuprks");
        together(seed, "wwvvdfmuprks");
    }
}
