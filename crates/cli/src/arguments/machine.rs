//! What this machine can do; manual pages and completions.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// Check what this machine and user can do, and how to fix what is missing.
///
/// With the number of a process, also check whether `farmem attach` could manage it. The process isn't
/// touched.
///
/// The exit status is 0 when `farmem run` can work here and the process could be managed, else 1.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  farmem doctor\n  farmem doctor 4711")]
pub(crate) struct DoctorArguments {
    /// Number of a running process
    #[arg(value_name = "PID")]
    pub(crate) process: Option<u32>,

    /// Also show the checks that are fine
    #[arg(long)]
    pub(crate) all: bool,

    /// Print one JSON object with all checks
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
