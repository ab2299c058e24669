//! `farmem stat NAME --regions`: the processes of an application, and what their regions hold.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use farmem::Failure;
use farmem_client::{ProcessReport, RegionReport, RegionsReport, processes, regions};
use farmem_page::mebibytes;
use serde::Serialize;

/// A process with its regions.
#[derive(Serialize)]
struct Inside {
    #[serde(flatten)]
    process: ProcessReport,
    /// `None` where the process doesn't tell.
    regions: Option<RegionsReport>,
    /// Why it doesn't.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// Asks one process after the other, and prints what they tell.
pub(crate) fn print(name: &str, as_json: bool) -> Result<ExitCode, Failure> {
    let unusable = |error: farmem_client::SetError| Failure::Unusable(error.to_string());
    let found = processes(name).map_err(unusable)?;
    let look = |process: ProcessReport| match regions(name, process.process) {
        Ok(regions) => Inside { process, regions: Some(regions), problem: None },
        Err(error) => Inside { process, regions: None, problem: Some(error.to_string()) },
    };
    let all: Vec<Inside> = found.into_iter().map(look).collect();
    let text = match as_json {
        true => serde_json::to_string_pretty(&all).map_err(anyhow::Error::from)? + "\n",
        false => all.iter().map(table).collect(),
    };
    io::stdout().write_all(text.as_bytes()).context("cannot print")?;
    Ok(ExitCode::SUCCESS)
}

fn mib(bytes: u64) -> String {
    format!("{:.1}", mebibytes(bytes))
}

fn table(inside: &Inside) -> String {
    let process = &inside.process;
    let distance = process.refault_distance_bytes.map_or_else(|| "-".to_owned(), mib);
    let mut text = format!(
        "process {} {}: local {} of {} MiB, far {} MiB, refault distance {distance} MiB\n",
        process.process,
        process.name,
        mib(process.resident_bytes),
        mib(process.limit_bytes),
        mib(process.far_bytes)
    );
    let Some(regions) = &inside.regions else {
        return text + "  " + inside.problem.as_deref().unwrap_or("it tells nothing") + "\n";
    };
    text += &format!(
        "{:<18} {:>10} {:>10} {:>10} {:>6} {:>6} {:>6}\n",
        "ADDRESS", "SIZE", "LOCAL", "FAR", "HOT", "PACKED", "IDLE"
    );
    let part =
        |part: Option<f64>| part.map_or_else(|| "-".to_owned(), |part| format!("{:.0}%", part * 100.0));
    let row = |name: String, size: String, region: &RegionReport| {
        format!(
            "{name:<18} {size:>10} {:>10} {:>10} {:>6} {:>6} {:>6}\n",
            mib(region.resident_bytes),
            mib(region.far_bytes),
            part((region.resident_bytes > 0).then(|| region.heat())),
            part(region.packed_share()),
            part(region.idle())
        )
    };
    for region in &regions.regions {
        text += &row(format!("{:#x}", region.start), mib(region.end.saturating_sub(region.start)), region);
    }
    let more = regions.count.saturating_sub(regions.regions.len() as u64);
    if more > 0 {
        text += &row(format!("{more} smaller ones"), String::new(), &regions.rest);
    }
    text
}
