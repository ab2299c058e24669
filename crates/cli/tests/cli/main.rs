//! `farmem` as it is called from a shell.

mod bad_input;
mod bench;
mod bench_program;
mod doctor;
mod help;
mod node;

use std::ffi::OsStr;
use std::process::{Command, Output, Stdio};

/// The program under test.
const FARMEM: &str = env!("CARGO_BIN_EXE_farmem");

/// The program that `farmem bench` becomes, next to it.
const FARMEM_BENCH: &str = env!("CARGO_BIN_EXE_farmem-bench");

/// Runs `farmem` to its end.
fn farmem<Word: AsRef<OsStr>>(words: impl IntoIterator<Item = Word>) -> Output {
    Command::new(FARMEM).args(words).stdin(Stdio::null()).output().expect("farmem can be started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
