//! Going on in the background, for processes that the program has left behind: the caller of `farmem run`
//! gets the program's exit status, and they keep a supervisor.

use anyhow::{Result, bail};
use daemonize::{Daemonize, Outcome};

use crate::say;

/// Which of the two the calling process is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// The one that was called, and ends now.
    Caller,
    /// A copy of it in a session of its own, without the caller's streams and directory.
    Background,
}

/// Splits the calling process in two. It must have one thread only: the copy has no other.
///
/// # Errors
/// No further process is possible; then there is only the caller.
pub(crate) fn split() -> Result<Role> {
    match Daemonize::new().working_directory("/").execute() {
        Outcome::Parent(Ok(parent)) if parent.first_child_exit_code == 0 => Ok(Role::Caller),
        Outcome::Parent(Ok(_)) => bail!("the process in the background has failed"),
        Outcome::Parent(Err(error)) => Err(error.into()),
        Outcome::Child(Ok(_)) => {
            say::go_to_background();
            Ok(Role::Background)
        }
        Outcome::Child(Err(_)) => std::process::exit(1),
    }
}
