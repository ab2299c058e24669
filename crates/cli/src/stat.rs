//! `farmem stat`: what runs under Farmem now.

use std::process::ExitCode;

use farmem::Failure;
use farmem_client::{Report, applications, query, troubles};
use farmem_page::mebibytes;

use crate::arguments::StatArguments;
use crate::inside;

/// Prints the running applications, or those of one name.
pub(crate) fn stat(arguments: &StatArguments) -> Result<ExitCode, Failure> {
    if let (Some(name), true) = (&arguments.name, arguments.regions) {
        return inside::print(name, arguments.json);
    }
    let reports = match &arguments.name {
        Some(name) => query(name),
        None => applications(),
    };
    if let (Some(name), true) = (&arguments.name, reports.is_empty()) {
        return Err(Failure::Unusable(format!(
            "no application named {name} runs under Farmem; `farmem stat` lists those that do"
        )));
    }
    let text = match arguments.json {
        true => serde_json::to_string_pretty(&reports).map_err(anyhow::Error::from)? + "\n",
        false => table(&reports),
    };
    print!("{text}");
    Ok(ExitCode::SUCCESS)
}

/// A line for each application, and below them what has gone wrong; one sentence when there is none.
fn table(reports: &[Report]) -> String {
    if reports.is_empty() {
        return "Nothing runs under Farmem. Start something: farmem run --local 512M -- PROGRAM\n".to_owned();
    }
    let mib = |bytes: u64| format!("{:.1}", mebibytes(bytes));
    let mut table = format!(
        "{:<20} {:>8} {:>5} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}\n",
        "NAME", "PID", "PROCS", "BUDGET", "RESIDENT", "FAR", "POOL", "NODES", "DISK", "FAULTS"
    );
    for report in reports {
        table += &format!(
            "{:<20} {:>8} {:>5} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}\n",
            report.name,
            report.process,
            report.processes,
            mib(report.budget_bytes),
            mib(report.resident_bytes),
            mib(report.far_pages << farmem_page::PAGE_SHIFT),
            mib(report.pool_bytes),
            mib(report.node_bytes),
            mib(report.disk_bytes),
            report.counter("faults"),
        );
    }
    table += "sizes in MiB\n";
    for report in reports {
        if report.shrunk_from_bytes > 0 {
            table += &format!(
                "{0}: shrunk from {1} MiB; `farmem grow {0}` gives them back\n",
                report.name,
                mib(report.shrunk_from_bytes)
            );
        }
        troubles(report).iter().for_each(|trouble| table += &format!("{}: {trouble}\n", report.name));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_runs_is_said_in_a_sentence() {
        let said = table(&[]);

        assert!(said.starts_with("Nothing runs under Farmem.") && said.lines().count() == 1, "{said}");
    }
}
