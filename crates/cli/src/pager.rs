//! `farmem pager`: the pager of one process. Supervisors start it; what it has to say it says to
//! them.

use std::env;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use farmem::Failure;
use farmem_attach::AttachError;

use crate::arguments::PagerArguments;

/// The process can't be attached to, and can't at another time.
const NEVER: u8 = 1;
/// It may go better later.
const LATER: u8 = 3;
/// The same, but somebody traces the process, as debuggers do, and mostly to its end.
const TRACED: u8 = 4;
/// The same, but the process looks at its own page table, and may do so again when it seems to have stopped.
const LOOKING: u8 = 5;

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
        Ok(()) | Err(AttachError::Ended) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            println!("{error}");
            Ok(ExitCode::from(match error {
                AttachError::Traced(_) => TRACED,
                AttachError::Looking => LOOKING,
                error if error.is_for_now() => LATER,
                _ => NEVER,
            }))
        }
    }
}
