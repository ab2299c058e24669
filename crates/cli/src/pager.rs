//! `farmem pager`: the pager of one process. Supervisors start it; what it has to say it says to
//! them.

use std::env;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use farmem::Failure;

use crate::arguments::PagerArguments;

/// The process can't be attached to, and can't at another time.
const NEVER: u8 = 1;
/// It may go better later.
const LATER: u8 = 3;

/// Manages a process until it ends or runs another program.
pub(crate) fn pager(arguments: &PagerArguments) -> Result<ExitCode, Failure> {
    let supervisor = env::var_os("FARMEM_SUPERVISOR").ok_or_else(|| {
        Failure::Unusable(
            "FARMEM_SUPERVISOR isn't set; supervisors start pagers themselves: use `farmem run` or `farmem attach`".to_owned(),
        )
    })?;
    let managed = match arguments.process {
        Some(process) => farmem_attach::pager::run(process, supervisor.as_bytes()),
        None => farmem_attach::shared::run(supervisor.as_bytes()),
    };
    match managed {
        // A process that has ended needs no pager.
        Ok(()) | Err(farmem_attach::AttachError::Ended) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            println!("{error}");
            Ok(ExitCode::from(if error.is_for_now() { LATER } else { NEVER }))
        }
    }
}
