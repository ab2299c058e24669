//! `farmem stat`: what runs under Farmem now.

use std::process::ExitCode;

use crate::arguments::StatArguments;
use crate::failure::Failure;

/// Prints the running applications, or those of one name.
pub(crate) fn stat(arguments: &StatArguments) -> Result<ExitCode, Failure> {
    let _ = (&arguments.name, arguments.json);
    Err(Failure::Unusable("this build has no supervisor to ask for its applications".to_owned()))
}
