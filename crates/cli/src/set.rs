//! `farmem set`: changes limits of a running application.

use std::process::ExitCode;

use farmem::Failure;
use farmem_client::{Limits, PoolRange, Report};
use farmem_machine::Memory;
use farmem_page::mebibytes;

use crate::amount::{PoolAmount, Setting};
use crate::arguments::SetArguments;
use crate::print::print_json;

/// Changes them, all or none, and says how they are then.
pub(crate) fn set(arguments: &SetArguments) -> Result<ExitCode, Failure> {
    let report = change(&arguments.name, &arguments.settings)?;
    if arguments.json {
        print_json(&report)?;
    } else {
        println!("{}", sentence(&report));
    }
    Ok(ExitCode::SUCCESS)
}

/// Changes limits of the application of that name or process. How it is then.
pub(crate) fn change(name: &str, settings: &[Setting]) -> Result<Report, Failure> {
    farmem_client::set(name, limits(settings)?).map_err(|error| Failure::Unusable(error.to_string()))
}

/// What is to be set; each limit once.
pub(crate) fn limits(settings: &[Setting]) -> Result<Limits, Failure> {
    let memory = Memory::current().map_err(|error| Failure::Unusable(error.to_string()))?;
    let mut limits = Limits::default();
    for setting in settings {
        let (is_there, name) = match *setting {
            Setting::Local(local) => {
                let bytes = local.resolve(memory.usable()).map_err(Failure::Unusable)?;
                (limits.local.replace(bytes).is_some(), "local")
            }
            Setting::Pool(PoolAmount { guaranteed, most }) => {
                (limits.pool.replace(PoolRange { guaranteed, most }).is_some(), "pool")
            }
            Setting::Partition(bytes) => (limits.partition.replace(bytes).is_some(), "partition"),
            Setting::Cache(bytes) => (limits.cache.replace(bytes).is_some(), "cache"),
            Setting::Weight(weight) => (limits.weight.replace(weight).is_some(), "weight"),
        };
        if is_there {
            return Err(Failure::Unusable(format!("{name} is given twice; give each limit once")));
        }
    }
    Ok(limits)
}

/// The limits of an application, for a person.
pub(crate) fn sentence(report: &Report) -> String {
    format!(
        "{}: local {:.1} MiB, pool {:.1} MiB, weight {}",
        report.name,
        mebibytes(report.budget_bytes),
        mebibytes(report.pool_limit_bytes),
        report.weight
    )
}
