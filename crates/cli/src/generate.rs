//! Manual pages and completions, from the one definition of a program's arguments.

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::Failure;

/// Writes a manual page for a program and for each of its commands, without those of the commands that
/// another program has and describes.
///
/// # Errors
/// When the folder can't be written.
pub fn manual<Arguments: CommandFactory>(
    folder: &Path,
    described_elsewhere: &[&str],
) -> Result<ExitCode, Failure> {
    let mut command = with_all_texts(Arguments::command()).disable_help_subcommand(true);
    command.build();
    fs::create_dir_all(folder)
        .and_then(|()| write(command, folder, described_elsewhere))
        .with_context(|| format!("cannot write manual pages to {}", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn write(command: Command, folder: &Path, described_elsewhere: &[&str]) -> io::Result<()> {
    let is_here =
        |command: &&Command| !command.is_hide_set() && !described_elsewhere.contains(&command.get_name());
    for below in command.get_subcommands().filter(is_here) {
        write(below.clone(), folder, &[])?;
    }
    Man::new(command).generate_to(folder)?;
    Ok(())
}

/// The same command, with the texts of options that `-h` leaves out: a manual page would show these options
/// without a word on them.
fn with_all_texts(command: Command) -> Command {
    command.mut_args(|option| option.hide_short_help(false)).mut_subcommands(with_all_texts)
}

/// Prints completions for a shell.
///
/// # Errors
/// None.
pub fn completions<Arguments: CommandFactory>(shell: Shell) -> Result<ExitCode, Failure> {
    let mut command = Arguments::command();
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, &mut command, name, &mut io::stdout());
    Ok(ExitCode::SUCCESS)
}
