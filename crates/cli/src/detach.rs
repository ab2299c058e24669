//! `farmem detach`: all that is far comes back, and the processes are left alone.

use std::process::ExitCode;

use farmem::Failure;
use farmem_page::mebibytes;
use farmem_supervisor::Report;
use serde::Serialize;

use crate::arguments::DetachArguments;
use crate::attach::Display;

/// What came back.
#[derive(Serialize)]
struct Outcome<'a> {
    name: &'a str,
    process: u32,
    returned_bytes: u64,
}

/// Returns when it is done.
pub(crate) fn detach(arguments: &DetachArguments) -> Result<ExitCode, Failure> {
    let mut display = Display::new(arguments.watching.progress);
    let line = |now: &Report| format!("{}: still far {:.0} MiB", now.name, mebibytes(now.far_bytes()));
    let outcome = farmem_supervisor::detach(&arguments.name, |now| display.show(|| line(now)));
    display.clear();
    let before = outcome.map_err(|error| Failure::Unusable(error.to_string()))?;
    if arguments.watching.json {
        let outcome =
            Outcome { name: &before.name, process: before.process, returned_bytes: before.far_bytes() };
        println!("{}", serde_json::to_string_pretty(&outcome).map_err(anyhow::Error::from)?);
    } else {
        println!(
            "{} (process {}): {:.1} MiB came back; it goes on without Farmem",
            before.name,
            before.process,
            mebibytes(before.far_bytes())
        );
    }
    Ok(ExitCode::SUCCESS)
}
