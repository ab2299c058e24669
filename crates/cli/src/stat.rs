//! `farmem stat`: what runs under Farmem now.

use std::process::ExitCode;

use farmem_supervisor::{Report, applications, query, troubles};

use crate::arguments::StatArguments;
use crate::failure::Failure;
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
    if arguments.json {
        let text = serde_json::to_string_pretty(&reports).map_err(anyhow::Error::from)?;
        println!("{text}");
    } else {
        print_table(&reports);
    }
    Ok(ExitCode::SUCCESS)
}

fn print_table(reports: &[Report]) {
    let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
    println!(
        "{:<20} {:>8} {:>5} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "NAME", "PID", "PROCS", "BUDGET", "RESIDENT", "FAR", "POOL", "NODES", "DISK", "FAULTS"
    );
    for report in reports {
        println!(
            "{:<20} {:>8} {:>5} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
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
    println!("sizes in MiB");
    for report in reports {
        troubles(report).iter().for_each(|trouble| println!("{}: {trouble}", report.name));
    }
}
