//! The program that this library is in. It is the workload as well, and each other program that is measured.

use std::env;
use std::path::PathBuf;

use anyhow::Context;

/// Its file.
///
/// # Errors
/// When the kernel doesn't say.
pub(crate) fn program() -> anyhow::Result<PathBuf> {
    env::current_exe().context("cannot find the program file of farmem-bench")
}

/// The same as a word of a command.
///
/// # Errors
/// As for [`program`].
pub(crate) fn word() -> anyhow::Result<String> {
    Ok(program()?.to_string_lossy().into_owned())
}
