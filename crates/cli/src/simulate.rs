//! `farmem simulate`: a datacentre, under a clock of events.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use farmem::Failure;
use farmem_datacentre::{Options, Timing};
use farmem_page::ByteCount;

use crate::arguments::SimulateArguments;

/// More hours than are ever simulated, so that they can be told as a duration.
const MOST_HOURS: f64 = 1e6;

/// Simulates, prints what came of it, and writes the report.
pub(crate) fn simulate(arguments: &SimulateArguments) -> Result<ExitCode, Failure> {
    let options = options(arguments)?;
    options.check().map_err(|unfit| Failure::Unusable(unfit.to_string()))?;
    // A report that can't be written is refused at once, not hours later.
    let mut report = arguments.report.as_deref().map(create).transpose()?;
    let (outcome, timings) =
        farmem_datacentre::simulate(&options).map_err(|unfit| Failure::Unusable(unfit.to_string()))?;
    if let Some(file) = &mut report {
        file.write_all(farmem_datacentre::page(&outcome).as_bytes()).context("cannot write the report")?;
    }
    if arguments.json {
        let text = serde_json::to_string_pretty(&outcome).context("cannot write figures as JSON")?;
        println!("{text}");
    } else {
        print!("{outcome}");
    }
    tell(&timings);
    Ok(ExitCode::SUCCESS)
}

fn options(arguments: &SimulateArguments) -> Result<Options, Failure> {
    let hours = arguments.hours;
    if !(0.0..=MOST_HOURS).contains(&hours) {
        return Err(Failure::Unusable(
            "the number of hours must be more than 0; write it as `24` or `0.5`".to_owned(),
        ));
    }
    Ok(Options {
        nodes: arguments.nodes,
        clients: arguments.clients,
        duration: Duration::from_secs_f64(hours * 3600.0),
        seed: arguments.seed,
        redundancy: arguments.redundancy,
        machine_bytes: arguments.machine.get(),
        far_bytes: arguments.far.get(),
        rack_size: arguments.rack,
        names_racks: !arguments.unnamed_racks,
        failures: arguments.failures,
        restarts: arguments.restarts,
        slowdowns: arguments.slowdowns,
        departures: arguments.departures,
        rack_failures: arguments.rack_failures,
        latency: arguments.latency,
        bandwidth: arguments.bandwidth.get(),
        oversubscription: arguments.oversubscription,
        rebuild_bytes_per_second: arguments.rebuild_rate.get(),
        reserve_bytes: arguments.node_reserve.map(ByteCount::get),
        fetches: arguments.fetches,
    })
}

fn create(path: &Path) -> Result<File, Failure> {
    File::create(path).map_err(|error| {
        Failure::Unusable(format!(
            "cannot write the report {}: {error}; name a file in a folder that you may write to",
            path.display()
        ))
    })
}

/// How long decisions took is never the same twice, so it is no part of the output.
fn tell(timings: &[Timing]) {
    for Timing { decision, mean_ns, most_ns } in timings.iter().filter(|timing| timing.most_ns > 0) {
        eprintln!("on this machine: {}: {mean_ns:.0} ns on average, {most_ns} ns at most", decision.words());
    }
}
