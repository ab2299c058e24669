//! What this machine can do; manual pages and completions.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// Check what this machine and user can do, and how to repair what is missing.
///
/// With the number of a process: whether that could be attached to, too. It isn't touched.
///
/// Exit status 0 when `farmem run` can work here and the process could be attached to, else 1.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  farmem doctor\n  farmem doctor 4711")]
pub(crate) struct DoctorArguments {
    /// Number of a process that runs
    #[arg(value_name = "PID")]
    pub(crate) process: Option<u32>,

    /// Show the checks that are fine, too
    #[arg(long)]
    pub(crate) all: bool,

    /// Print one JSON object, with all checks
    #[arg(long, conflicts_with = "all")]
    pub(crate) json: bool,
}

/// Write the manual pages.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  farmem man target/man")]
pub(crate) struct ManArguments {
    /// Folder for the pages, created if it doesn't exist
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
}

/// Write the completions for a shell to standard output.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  farmem completions bash > /usr/share/bash-completion/completions/farmem")]
pub(crate) struct CompletionsArguments {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}
