//! stress-ng: its memory stressors, which verify what they wrote.

use farmem_tests::{Launcher, Program, scaled};

crate::at_both_shares!(memory, super::memory);

fn memory(launcher: &Launcher) -> String {
    let operations = scaled(20_000).to_string();
    let bytes = format!("{}M", scaled(64));
    let program = Program::new("stress-ng")
        .args(["--vm", "2", "--verify", "--vm-keep", "--oomable", "--seed", "1", "--temp-path", "."])
        .args(["--vm-bytes", &bytes, "--vm-ops", &operations]);
    // Two processes fill all of it in some milliseconds.
    launcher.let_overshoot();
    let finished = launcher.run(program).success();
    let said = format!("{}{}", finished.text(), String::from_utf8_lossy(&finished.stderr));
    assert!(said.contains("successful run completed"), "{finished}");
    assert!(!said.contains("fail:"), "{finished}");
    // What it prints holds times and process numbers; its own verification is what counts.
    "verified".to_owned()
}
