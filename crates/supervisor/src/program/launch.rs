//! Starting the program.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use anyhow::{Error, Result};
use farmem_sys::signals;
use nix::sys::signal::SigSet;
use rustix::process::{Pid, Rlimit};

use crate::options::Options;

/// Starts the program. `file_size` is its limit of the size of files, where this process's is another one.
pub(crate) fn launch(options: &Options, file_size: Option<Rlimit>, mask: SigSet) -> Result<Pid> {
    let mut command = command(options);
    signals::hand_on(&mut command);
    if let Some(limit) = file_size {
        signals::hand_on_file_size(&mut command, limit);
    }
    start(command, mask).map(|child| Pid::from_child(&child)).map_err(|error| cannot_start(options, error))
}

/// The program with its arguments, and nothing else.
pub(crate) fn command(options: &Options) -> Command {
    let mut command = Command::new(&options.executable);
    command.arg0(&options.program).args(&options.arguments);
    command
}

pub(crate) fn cannot_start(options: &Options, error: Error) -> Error {
    error.context(format!("cannot start {}", options.executable.display()))
}

/// The program begins with the signals blocked that were blocked for the user who called, not those that wait to be
/// passed on.
fn start(mut command: Command, mask: SigSet) -> Result<Child> {
    // The mask of the calling thread is what a child begins with, so it is set for the length of the call.
    let own = mask.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_SETMASK)?;
    let child = command.spawn();
    own.thread_set_mask()?;
    Ok(child?)
}
