//! `farmem detach`: all that is far comes back, and the processes are left alone.

use std::process::ExitCode;

use farmem::Failure;
use farmem_client::{Report, SetError};
use farmem_page::mebibytes;
use serde::Serialize;

use crate::arguments::DetachArguments;
use crate::attach::Display;
use crate::print::print_json;

/// What came back.
#[derive(Serialize)]
struct Outcome<'a> {
    name: &'a str,
    process: u32,
    returned_bytes: u64,
}

impl<'a> Outcome<'a> {
    fn of(before: &'a Report) -> Self {
        Self { name: &before.name, process: before.process, returned_bytes: before.far_bytes() }
    }

    fn say(&self) {
        println!(
            "{} (process {}): {:.1} MiB came back; it goes on without Farmem",
            self.name,
            self.process,
            mebibytes(self.returned_bytes)
        );
    }
}

/// Returns when it is done.
pub(crate) fn detach(arguments: &DetachArguments) -> Result<ExitCode, Failure> {
    match &arguments.name {
        Some(name) => detach_one(name, arguments),
        None => detach_all(arguments),
    }
}

fn detach_one(name: &str, arguments: &DetachArguments) -> Result<ExitCode, Failure> {
    let before = bring_back(name, arguments).map_err(|error| Failure::Unusable(error.to_string()))?;
    let outcome = Outcome::of(&before);
    match arguments.watching.json {
        true => print_json(&outcome)?,
        false => outcome.say(),
    }
    Ok(ExitCode::SUCCESS)
}

/// One that can't be detached keeps none of the others from it.
fn detach_all(arguments: &DetachArguments) -> Result<ExitCode, Failure> {
    let (mut detached, mut refusals) = (Vec::new(), Vec::new());
    for application in farmem_client::applications() {
        match bring_back(&application.process.to_string(), arguments) {
            Ok(before) => {
                if !arguments.watching.json {
                    Outcome::of(&before).say();
                }
                detached.push(before);
            }
            // It ended by itself.
            Err(SetError::Gone(_) | SetError::Unknown(_)) => {}
            Err(error) => refusals.push(format!("{} is not detached: {error}", application.name)),
        }
    }
    if arguments.watching.json {
        print_json(&detached.iter().map(Outcome::of).collect::<Vec<_>>())?;
    }
    match refusals.is_empty() {
        true => Ok(ExitCode::SUCCESS),
        false => Err(Failure::Unusable(refusals.join("\n"))),
    }
}

/// Returns when all has come back. How it was before.
fn bring_back(name: &str, arguments: &DetachArguments) -> Result<Report, SetError> {
    let mut display = Display::new(arguments.watching.progress);
    let line = |now: &Report| format!("{}: still far {:.0} MiB", now.name, mebibytes(now.far_bytes()));
    let outcome = farmem_client::detach(name, |now| display.show(|| line(now)));
    display.clear();
    outcome
}
