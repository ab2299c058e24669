//! `farmem explain`: what an application waits for, and what would help.

use std::process::ExitCode;
use std::thread::sleep;

use farmem::Failure;
use farmem_client::{Explanation, find};

use crate::arguments::ExplainArguments;
use crate::print::print_json;

/// Explains it, from its start or over some time from now on.
pub(crate) fn explain(arguments: &ExplainArguments) -> Result<ExitCode, Failure> {
    let look = |name: &str| find(name).map_err(|error| Failure::Unusable(error.to_string()));
    let now = look(&arguments.name)?;
    let explanation = match arguments.over {
        None => Explanation::since_start(&now),
        Some(time) => {
            sleep(time);
            // By its number: another one of that name may have come.
            Explanation::between(&now, &look(&now.process.to_string())?)
        }
    };
    if arguments.json {
        print_json(&explanation)?;
    } else {
        print!("{}", explanation.text());
    }
    Ok(ExitCode::SUCCESS)
}
