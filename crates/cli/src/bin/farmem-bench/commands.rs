//! What the commands do: they hand over to the library.

use std::env;
use std::fmt::Display;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use farmem::{CALLER, Failure, commit, find, say};
use farmem_bench::record::Record;
use farmem_bench::steps::Steps;
use farmem_bench::{
    all, attach, compare, compression, faults, isolation, kernels, markdown, micro, nodes, paper, prefetch,
    programs, readers, record, scale, undo, workload,
};
use serde::Serialize;
use serde_json::Value;

use crate::arguments::{
    AllArguments, BenchAttachArguments, CleanupArguments, CompareArguments, CompressionArguments,
    FaultsArguments, IsolationArguments, KernelArguments, MicroArguments, NodesArguments, PrefetchArguments,
    ProgramsArguments, ReadersArguments, ScaleArguments, StepsArguments, TableArguments, WorkloadArguments,
};

/// Runs the workload that benchmarks measure.
pub(crate) fn workload(arguments: &WorkloadArguments) -> Result<ExitCode, Failure> {
    workload::run(&workload::Options {
        data: arguments.data,
        pattern: arguments.pattern,
        threads: arguments.threads,
        compressibility: arguments.compressibility,
        accesses: arguments.accesses,
        warm_up: arguments.warm_up,
        rounds: arguments.rounds,
        until_end: arguments.until_end,
        sibling: arguments.sibling,
        is_shared: arguments.shared,
        paced: arguments.paced,
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Runs a program that benchmarks measure together with others.
pub(crate) fn compression(arguments: &CompressionArguments) -> Result<ExitCode, Failure> {
    compression::run(arguments.data, arguments.rounds)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs one of the kernels that benchmarks measure.
pub(crate) fn kernel(arguments: &KernelArguments) -> Result<ExitCode, Failure> {
    let outcome = kernels::run(arguments.kernel, arguments.data)?;
    let line = serde_json::to_string(&outcome).context("cannot write the outcome")?;
    writeln!(io::stdout(), "{line}").context("cannot print the outcome")?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the program whose threads read from a memory node.
pub(crate) fn readers(arguments: &ReadersArguments) -> Result<ExitCode, Failure> {
    readers::run(&readers::Options { data: arguments.data, own: arguments.own })?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn measure_all(arguments: AllArguments) -> Result<ExitCode, Failure> {
    let out = arguments.out.clone();
    let outcome = all::run(&all::Options {
        out: arguments.out,
        quick: arguments.quick,
        repeat: arguments.repeat,
        data: arguments.data,
        only: arguments.only,
        peers: arguments.peer,
        python: arguments.python,
        swap_folder: arguments.swap_folder,
        farmem: farmem()?,
        beside: arguments.beside,
        commit: commit().unwrap_or("unknown").to_owned(),
    });
    let outcome = outcome.map_err(|error| match error {
        all::Error::Unusable(sentence) => Failure::Unusable(sentence),
        all::Error::Interrupted => Failure::Failed(anyhow!(
            "interrupted; what was measured is in {}, and the same command goes on from there",
            out.display()
        )),
        all::Error::Failed(error) => Failure::Failed(error),
    })?;
    for one in &outcome.left_out {
        say(&format!("farmem: {}, {} left out: {}", one.bench, one.what, one.reason));
    }
    print_line(&format!("{} measurements; report: {}", outcome.records, outcome.report.display()))?;
    if let Some(beside) = outcome.beside {
        let report = beside.report.display();
        print_line(&format!("the other build's: {report}; from that one to this one:\n"))?;
        print(&beside.comparison, false)?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn measure_faults(arguments: FaultsArguments) -> Result<ExitCode, Failure> {
    let report = faults::run(&faults::Options {
        data: arguments.measure.data,
        quick: arguments.measure.rounds.quick,
        repeat: arguments.measure.rounds.repeat,
        only: arguments.only,
        peers: arguments.peer,
        steps: arguments.steps,
        swap_folder: arguments.measure.swap_folder,
        farmem: farmem()?,
    })?;
    print(&report, arguments.measure.rounds.json)?;
    if report.has_mismatches() {
        return Err(Failure::Failed(anyhow!("pages came back with other bytes than were written to them")));
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn measure_attaching(arguments: BenchAttachArguments) -> Result<ExitCode, Failure> {
    let report = attach::run(&attach::Options {
        quick: arguments.rounds.quick,
        repeat: arguments.rounds.repeat,
        only: arguments.only,
        farmem: farmem()?,
    })?;
    print(&report, arguments.rounds.json)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn measure_programs(arguments: ProgramsArguments) -> Result<ExitCode, Failure> {
    let report = programs::run(&programs::Options {
        quick: arguments.rounds.quick,
        repeat: arguments.rounds.repeat,
        only: arguments.only,
        peers: arguments.peer,
        shares: arguments.share,
        python: arguments.python,
        swap_folder: arguments.swap_folder,
        farmem: farmem()?,
    })?;
    print(&report, arguments.rounds.json)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn measure_isolation(arguments: IsolationArguments) -> Result<ExitCode, Failure> {
    let report = isolation::run(&isolation::Options {
        data: arguments.measure.data,
        quick: arguments.measure.rounds.quick,
        repeat: arguments.measure.rounds.repeat,
        only: arguments.only,
        peers: arguments.peer,
        far: arguments.far,
        python: arguments.python,
        swap_folder: arguments.measure.swap_folder,
        farmem: farmem()?,
    })?;
    print(&report, arguments.measure.rounds.json)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn measure_prefetching(arguments: PrefetchArguments) -> Result<ExitCode, Failure> {
    let report = prefetch::run(&prefetch::Options {
        data: arguments.data,
        quick: arguments.rounds.quick,
        repeat: arguments.rounds.repeat,
        policies: arguments.policy,
        local: arguments.local,
        only: arguments.only,
        far: arguments.far,
        program: arguments.program,
        python: arguments.python,
        farmem: farmem()?,
    })?;
    print(&report, arguments.rounds.json)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn measure_nodes(arguments: NodesArguments) -> Result<ExitCode, Failure> {
    let report = nodes::run(&nodes::Options {
        data: arguments.data,
        quick: arguments.rounds.quick,
        repeat: arguments.rounds.repeat,
        swap_folder: arguments.swap_folder,
        only: arguments.only,
        farmem: farmem()?,
    })?;
    print(&report, arguments.rounds.json)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn measure_primitives(arguments: &MicroArguments) -> Result<ExitCode, Failure> {
    let report = micro::run(&micro::Options { quick: arguments.quick, repeat: arguments.repeat })?;
    print(&report, arguments.json)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn measure_scale(arguments: &ScaleArguments) -> Result<ExitCode, Failure> {
    let report = scale::run(&scale::Options { quick: arguments.quick, repeat: arguments.repeat })?;
    print(&report, arguments.json)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn compare_records(arguments: &CompareArguments) -> Result<ExitCode, Failure> {
    let comparison = compare::compare(&read_records(&arguments.first)?, &read_records(&arguments.second)?);
    print(&comparison, arguments.json)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn tell_steps(arguments: &StepsArguments) -> Result<ExitCode, Failure> {
    let all = arguments.files.iter().map(|path| steps_of(path)).collect::<Result<Vec<Steps>, Failure>>()?;
    if arguments.json {
        print_json(&all)?;
    } else {
        all.iter().try_for_each(|steps| print(steps, false))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn steps_of(path: &Path) -> Result<Steps, Failure> {
    let shown = path.display();
    let unusable = |why: &dyn Display| {
        Failure::Unusable(format!("{shown} is not a file that `farmem run --stats` wrote: {why}"))
    };
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::Unusable(format!("cannot read {shown}: {error}")))?;
    let statistics: Value = serde_json::from_str(&text).map_err(|error| unusable(&error))?;
    if statistics["faults"].is_null() {
        return Err(unusable(&"it counts no faults"));
    }
    Steps::of(shown.to_string(), &statistics).ok_or_else(|| {
        Failure::Unusable(format!("the program of {shown} had no fault: its memory was never short"))
    })
}

pub(crate) fn write_table(arguments: &TableArguments) -> Result<ExitCode, Failure> {
    let records = read_records(&arguments.results)?;
    let tables = [markdown::table(&records), markdown::programs_table(&records)];
    if tables.iter().all(Option::is_none) {
        return Err(Failure::Unusable(format!(
            "{} has neither access patterns nor programs; `farmem bench all --only faults,programs` measures them",
            arguments.results.display()
        )));
    }
    let Some(path) = &arguments.update else {
        let text = tables.into_iter().flatten().collect::<Vec<_>>().join("\n");
        io::stdout().write_all(text.as_bytes()).context("cannot print the table")?;
        return Ok(ExitCode::SUCCESS);
    };
    let shown = path.display();
    let document = fs::read_to_string(path)
        .map_err(|error| Failure::Unusable(format!("cannot read {shown}: {error}")))?;
    let [of_patterns, of_programs] = &tables;
    let put = |document: &str, table: &Option<String>, with: fn(&str, &str) -> Option<String>| {
        table.as_ref().and_then(|table| with(document, table))
    };
    let first = put(&document, of_patterns, markdown::with_table);
    let second = put(first.as_ref().unwrap_or(&document), of_programs, markdown::with_programs_table);
    // A document may have a place for one of the tables alone.
    let document = second.or(first).ok_or_else(|| {
        Failure::Unusable(format!(
            "{shown} has no lines between which a table goes; see `farmem bench table --help`"
        ))
    })?;
    fs::write(path, document).with_context(|| format!("cannot write {shown}"))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn write_papers() -> Result<ExitCode, Failure> {
    write!(io::stdout(), "{}", paper::Answers).context("cannot print the table")?;
    Ok(ExitCode::SUCCESS)
}

fn read_records(path: &Path) -> Result<Vec<Record>, Failure> {
    record::read(path).map_err(|error| Failure::Unusable(format!("{error:#}")))
}

/// The `farmem` that is measured.
fn farmem() -> Result<PathBuf, Failure> {
    env::var_os(CALLER).map(PathBuf::from).or_else(|| find("farmem")).ok_or_else(|| {
        Failure::Unusable(
            "farmem is neither next to farmem-bench nor on PATH; install it, or call its own `farmem bench`"
                .to_owned(),
        )
    })
}

fn print_line(words: &str) -> anyhow::Result<()> {
    writeln!(io::stdout(), "{words}").context("cannot print")
}

fn print<R: Display + Serialize>(report: &R, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return print_json(report);
    }
    io::stdout().write_all(report.to_string().as_bytes()).context("cannot print the report")
}

fn print_json(report: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(report).context("cannot write the report")? + "\n";
    io::stdout().write_all(text.as_bytes()).context("cannot print the report")
}

pub(crate) fn cleanup(arguments: &CleanupArguments) -> Result<ExitCode, Failure> {
    match arguments.after {
        Some(process) => {
            undo::cleanup_after(process)?;
        }
        None => match undo::cleanup()? {
            0 => print_line("nothing was left behind")?,
            steps => print_line(&format!("undid {steps} changes"))?,
        },
    }
    Ok(ExitCode::SUCCESS)
}
