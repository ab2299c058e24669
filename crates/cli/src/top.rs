//! `farmem top`: what runs under Farmem, at a glance.

use std::io::{IsTerminal, stdin, stdout};
use std::process::ExitCode;

use farmem::Failure;

use crate::arguments::TopArguments;
use crate::web::change;

/// Shows it, once or until a key ends it.
pub(crate) fn top(arguments: &TopArguments) -> Result<ExitCode, Failure> {
    if arguments.once {
        print!("{}", farmem_dash::once(arguments.interval)?);
        return Ok(ExitCode::SUCCESS);
    }
    if !stdin().is_terminal() || !stdout().is_terminal() {
        return Err(Failure::Unusable(
            "`farmem top` needs a terminal; `farmem top --once` prints one screen, `farmem stat --json` is for programs"
                .to_owned(),
        ));
    }
    farmem_dash::top(&farmem_dash::Options { interval: arguments.interval, set: &change })?;
    Ok(ExitCode::SUCCESS)
}
