//! A disk tier on storage that pauses: nothing is lost, and nobody is ended.

use std::process::{Command, Stdio};

use farmem_tests::{Scratch, farmem_binary, managed_runner};

/// Longer than a pager may do nothing (20 s), and a fault may wait for room (10 s).
const PAUSE_SECONDS: u32 = 23;
/// How long the program works: the pause falls into that.
const WORK_SECONDS: u32 = 28;

fn check(work: &str, blocks: u32) {
    if !managed_runner()
        || !rustix::process::geteuid().is_root()
        || !std::path::Path::new("/dev/fuse").exists()
    {
        return;
    }
    let folder = Scratch::new();
    let programs = concat!(env!("CARGO_MANIFEST_DIR"), "/programs");
    let disk = format!("{}:220M", folder.path().join("mount/far").display());

    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "170", "unshare", "--mount", "--propagation", "private", "bash"]);
    command.arg(format!("{programs}/pausing_storage.sh")).arg(folder.path()).arg(PAUSE_SECONDS.to_string());
    command
        .arg(farmem_binary())
        .args(["run", "--host", "none", "--local", "32M", "--pool", "16M", "--disk", &disk]);
    command.arg("--").arg(crate::python()).arg(format!("{programs}/pausing_storage.py"));
    command.args([work, &WORK_SECONDS.to_string()]);
    let output = command.stdin(Stdio::null()).output().expect("timeout can be started");

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
