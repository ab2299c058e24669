//! `farmem trace`: records, shows and replays what happened to a program's pages.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use farmem::Failure;
use farmem_page::{ByteCount, mebibytes};
use farmem_supervisor::PrefetchPolicy;
use farmem_trace::{Replay, Row, Summary, TraceEntry, TraceError, TraceReader, courses, replay, summarise};
use serde::Serialize;

use crate::arguments::{TraceCommand, TraceRecordArguments, TraceReplayArguments, TraceShowArguments};
use crate::run;

/// Does what was asked of a trace.
pub(crate) fn trace(command: TraceCommand) -> Result<ExitCode, Failure> {
    match command {
        TraceCommand::Record(arguments) => record(*arguments),
        TraceCommand::Show(arguments) => show(&arguments),
        TraceCommand::Replay(arguments) => replay_file(&arguments),
    }
}

fn record(TraceRecordArguments { file, mut run }: TraceRecordArguments) -> Result<ExitCode, Failure> {
    if run.trace.replace(file).is_some() {
        return Err(Failure::Unusable("the trace's file is named twice; leave `--trace` out".to_owned()));
    }
    run::run(run)
}

fn show(arguments: &TraceShowArguments) -> Result<ExitCode, Failure> {
    let file = &arguments.file;
    let reader = open(file)?;
    let printed = if arguments.records {
        print_records(reader, arguments.json)
    } else {
        let summary = summarise(reader.header(), reader).map_err(|error| unreadable(file, &error))?;
        if arguments.json { print_json(&summary) } else { print_summary(&summary) }
    };
    match printed {
        // The reader of the output has seen enough.
        Err(Unprinted::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(Unprinted::Output(error)) => Err(Failure::Failed(error.into())),
        Err(Unprinted::Trace(error)) => Err(unreadable(file, &error)),
        Ok(()) => Ok(ExitCode::SUCCESS),
    }
}

fn replay_file(arguments: &TraceReplayArguments) -> Result<ExitCode, Failure> {
    let file = &arguments.file;
    let reader = open(file)?;
    let header = reader.header();
    let (mut records, mut lost, mut is_complete) = (Vec::new(), 0_u64, false);
    for entry in reader {
        match entry.map_err(|error| unreadable(file, &error))? {
            TraceEntry::Record(record) => records.push(record),
            TraceEntry::Lost(count) => lost = lost.saturating_add(count),
            TraceEntry::End => is_complete = true,
        }
    }
    let policies = match arguments.policy.as_slice() {
        [] => &PrefetchPolicy::BY_ADDRESS,
        some => some,
    };
    let assumed = Replay {
        budget: arguments.local.map_or(header.budget, ByteCount::pages),
        latency_ns: arguments.latency.as_nanos() as u64,
    };
    let rows = replay(&courses(records), policies, assumed);
    if arguments.json {
        print_json(&rows).map_err(|error| Failure::Failed(error.into()))?;
        return Ok(ExitCode::SUCCESS);
    }
    print_rows(&rows);
    if header.policy != PrefetchPolicy::None {
        println!(
            "recorded with --prefetch {}: what came ahead counts as asked for when it came",
            header.policy.name()
        );
    }
    if lost > 0 {
        println!("{lost} records are missing, since they came faster than they were written");
    }
    if !is_complete {
        println!("the recording was cut off");
    }
    Ok(ExitCode::SUCCESS)
}

fn open(path: &Path) -> Result<TraceReader<BufReader<File>>, Failure> {
    let file = File::open(path).map_err(|error| unreadable(path, &error.into()))?;
    TraceReader::new(BufReader::new(file)).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &TraceError) -> Failure {
    Failure::Unusable(format!("cannot read the trace {}: {error}", path.display()))
}

/// Why nothing more was printed.
#[derive(Debug, thiserror::Error)]
enum Unprinted {
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
    #[error("{0}")]
    Trace(#[from] TraceError),
}

/// One record as JSON.
#[derive(Serialize)]
struct Line {
    time_ns: u64,
    slot: u16,
    kind: &'static str,
    page: u64,
    detail: u32,
}

fn print_records(
    entries: impl Iterator<Item = Result<TraceEntry, TraceError>>,
    is_json: bool,
) -> Result<(), Unprinted> {
    let mut out = BufWriter::new(io::stdout().lock());
    if !is_json {
        writeln!(out, "{:>16} {:>5} {:<12} {:>16} {:>10}", "TIME", "SLOT", "KIND", "ADDRESS", "DETAIL")?;
    }
    for entry in entries {
        let TraceEntry::Record(record) = entry? else { continue };
        let line = Line {
            time_ns: record.time_ns,
            slot: record.slot,
            kind: record.kind.name(),
            page: record.page.get(),
            detail: record.detail,
        };
        if is_json {
            serde_json::to_writer(&mut out, &line).map_err(io::Error::from)?;
            writeln!(out)?;
        } else {
            let seconds = line.time_ns as f64 / 1e9;
            let address = line.page << farmem_page::PAGE_SHIFT;
            writeln!(
                out,
                "{seconds:>16.6} {:>5} {:<12} {address:>16x} {:>10}",
                line.slot, line.kind, line.detail
            )?;
        }
    }
    Ok(out.flush()?)
}

fn print_json(value: &impl Serialize) -> Result<(), Unprinted> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value).map_err(io::Error::from)?;
    Ok(writeln!(out)?)
}

fn print_summary(summary: &Summary) -> Result<(), Unprinted> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "budget {:.1} MiB, prefetching by {}, {:.1} s, {}",
        mebibytes(summary.budget_bytes),
        summary.prefetch,
        summary.seconds,
        if summary.is_complete { "complete" } else { "cut off" },
    )?;
    if summary.lost > 0 {
        writeln!(out, "{} records are missing, since they came faster than they were written", summary.lost)?;
    }
    writeln!(out, "\n{:<12} {:>12}", "KIND", "RECORDS")?;
    for (kind, count) in &summary.records {
        writeln!(out, "{kind:<12} {count:>12}")?;
    }
    writeln!(out, "\n{:>5} {:>12} {:>12} {:>8}", "SLOT", "FAULTS", "ON PAGES", "THREADS")?;
    for process in &summary.processes {
        writeln!(
            out,
            "{:>5} {:>12} {:>12} {:>8}",
            process.slot,
            process.faults,
            process.pages,
            process.threads.len()
        )?;
    }
    Ok(())
}

fn print_rows(rows: &[Row]) {
    println!(
        "{:<10} {:>12} {:>12} {:>12} {:>13} {:>9} {:>7} {:>6}",
        "POLICY", "ACCESSES", "FAULTS", "PREFETCHED", "CONTRIBUTION", "ACCURACY", "TIMELY", "BOUND"
    );
    for row in rows {
        println!(
            "{:<10} {:>12} {:>12} {:>12} {:>13.3} {:>9.3} {:>7.3} {:>6.2}",
            row.policy,
            row.figures.accesses,
            row.figures.faults,
            row.figures.prefetched,
            row.contribution,
            row.accuracy,
            row.timeliness,
            row.of_the_bound
        );
    }
}
