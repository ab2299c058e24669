//! Starting the program.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Error, Result};
use farmem_sys::signals;
use nix::sys::signal::SigSet;
use rustix::process::{Pid, Resource, Rlimit};

use crate::options::Options;

/// Starts the program. `limits` are those of its limits that this process has changed for itself. `mask` is
/// what was blocked for the user who called; what this process blocks besides waits to be passed on.
pub(crate) fn launch(options: &Options, limits: Vec<(Resource, Rlimit)>, mask: SigSet) -> Result<Pid> {
    let mut command = command(options);
    signals::hand_on(&mut command);
    signals::hand_on_limits(&mut command, limits);
    signals::hand_on_mask(&mut command, mask);
    command.spawn().map(|child| Pid::from_child(&child)).map_err(|error| cannot_start(options, error.into()))
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
