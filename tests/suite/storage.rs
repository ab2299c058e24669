//! A disk tier on storage that pauses: nothing is lost, and nobody is ended.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use farmem_tests::{Scratch, farmem_binary, managed_runner, wait_for};
use rustix::process::{Pid, Signal, kill_process};

use crate::far_redis::{figure, unique};

/// Longer than a pager may do nothing (20 s), and a fault may wait for room (10 s).
const PAUSE_SECONDS: u32 = 23;
/// How long the program works: the pause falls into that.
const WORK_SECONDS: u32 = 28;

fn is_possible() -> bool {
    managed_runner() && rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists()
}

/// A program under Farmem whose disk pauses for so many seconds.
fn command(folder: &Path, pause_seconds: u32, options: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "170", "unshare", "--mount", "--propagation", "private", "bash"]);
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/programs/pausing_storage.sh"));
    command.arg(folder).arg(pause_seconds.to_string()).arg(farmem_binary());
    command.args(["run", "--host", "none", "--local", "32M", "--pool", "16M"]).args(options);
    command.arg("--disk").arg(format!("{}:220M", folder.join("mount/far").display())).arg("--");
    command.stdin(Stdio::null());
    command
}

fn check(work: &str, blocks: u32) {
    if !is_possible() {
        return;
    }
    let folder = Scratch::new();
    let mut command = command(folder.path(), PAUSE_SECONDS, &[]);
    command.arg(crate::python()).arg(concat!(env!("CARGO_MANIFEST_DIR"), "/programs/pausing_storage.py"));
    command.args([work, &WORK_SECONDS.to_string()]);
    let output = command.output().expect("timeout can be started");

    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {said}{errors}", output.status);
    assert_eq!(said, format!("ready\n{blocks} blocks right\n"), "{errors}");
}

#[test]
fn a_program_whose_pages_are_on_storage_that_pauses_goes_on_afterwards() {
    check("reads", 80);
}

#[test]
fn a_program_that_needs_room_while_storage_pauses_waits_for_it() {
    check("fills", 140);
}

/// More threads than handlers for which there are processors.
#[test]
fn a_thread_with_memory_of_its_own_goes_on_while_many_wait_for_storage_that_pauses() {
    const THREADS: u32 = 20;
    const MIB: u64 = 80;
    if !is_possible() {
        return;
    }
    let (folder, name) = (Scratch::new(), unique("waits"));
    let mut command = command(folder.path(), 0, &["--name", &name]);
    command.arg(env!("PROGRAM_FETCHES")).args([MIB.to_string(), THREADS.to_string()]).arg(folder.path());
    let child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("timeout can be started");
    let order = |name: &str| fs::write(folder.file(name), []).expect("the folder is the test's own");
    let comes = |name: &str| wait_for(name, || folder.file(name).exists().then_some(()));
    comes("ready");
    wait_for("slabs on disk", || (figure(&name, "disk_bytes") > 8 << 20).then_some(()));
    order("go");
    order("step-1");
    comes("taken-1");
    let number = fs::read_to_string(folder.file("server-number")).expect("the script has written it");
    let server = number.trim().parse().ok().and_then(Pid::from_raw).expect("a process number");

    kill_process(server, Signal::STOP).expect("the test may");
    order("step-2");
    comes("taken-2");
    kill_process(server, Signal::CONT).expect("the test may");

    order("end");
    let output = child.wait_with_output().expect("own child");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {errors}", output.status);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, format!("{} pages, 0 words wrong\n", MIB * 256), "{errors}");
}
