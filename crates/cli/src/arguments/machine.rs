//! What this machine can do; manual pages and completions.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// Check what this machine and user can do, and how to repair what is missing.
///
/// Exit status 0 when `farmem run` can work here, else 1.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  farmem doctor")]
pub(crate) struct DoctorArguments {
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
