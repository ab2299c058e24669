//! What `farmem` says when it refuses: one sentence, and nothing was done.

use std::process::{Command, Output, Stdio};

use crate::scratch::Scratch;

/// The sentence of a command that has refused with this status.
///
/// # Panics
/// When it ended in another way, printed something, or said more than a sentence.
#[must_use]
pub fn refusal(status: i32, output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert!(output.stdout.is_empty(), "it printed on standard output; {said}");
    assert!(said.starts_with("farmem: ") && said.lines().count() == 1, "{said}");
    said
}

/// Runs a command, which must refuse with this status and leave its folder empty. What it said.
///
/// # Panics
/// When it doesn't, or can't be started.
pub fn assert_refusal(status: i32, command: &mut Command) -> String {
    let scratch = Scratch::new();
    let output = command
        .current_dir(scratch.path())
        .stdin(Stdio::null())
        .output()
        .expect("the command can be started");
    let left = std::fs::read_dir(scratch.path()).expect("the test's own directory").count();
    assert_eq!(left, 0, "{command:?} started the program, or left something behind");
    refusal(status, &output)
}
