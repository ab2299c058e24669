//! `farmem top`: what runs under Farmem, at a glance.

use std::io::{IsTerminal, stdin, stdout};
use std::process::ExitCode;

use crate::amount::parse_setting;
use crate::arguments::TopArguments;
use crate::failure::Failure;
use crate::set::{change, sentence};

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
    let set = |process: u32, setting: &str| {
        let setting = parse_setting(setting)?;
        change(&process.to_string(), &[setting])
            .map(|report| sentence(&report))
            .map_err(|error| error.to_string())
    };
    farmem_dash::top(&farmem_dash::Options { interval: arguments.interval, set: &set })?;
    Ok(ExitCode::SUCCESS)
}
