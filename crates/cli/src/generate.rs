//! Manual pages and completions, from the one definition of the arguments.

use std::io;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Command, CommandFactory};

use crate::arguments::{Arguments, CompletionsArguments, ManArguments};
use crate::failure::Failure;

/// Writes a manual page for `farmem` and for each of its commands.
pub(crate) fn manual(arguments: &ManArguments) -> Result<ExitCode, Failure> {
    std::fs::create_dir_all(&arguments.folder)
        .and_then(|()| clap_mangen::generate_to(with_all_texts(Arguments::command()), &arguments.folder))
        .with_context(|| format!("cannot write manual pages to {}", arguments.folder.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// The same command, with the texts of options that `-h` leaves out: a manual page would show these options
/// without a word on them.
fn with_all_texts(command: Command) -> Command {
    command.mut_args(|option| option.hide_short_help(false)).mut_subcommands(with_all_texts)
}

/// Prints completions for a shell.
pub(crate) fn completions(arguments: &CompletionsArguments) -> Result<ExitCode, Failure> {
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "farmem", &mut io::stdout());
    Ok(ExitCode::SUCCESS)
}
