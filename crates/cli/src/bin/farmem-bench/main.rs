//! `farmem-bench`: measures Farmem compared with the kernel's own swap. It is called as `farmem bench`.
#![forbid(unsafe_code)]

mod arguments;
mod commands;

use std::process::ExitCode;

use farmem::Failure;

use arguments::{Arguments, Command, PapersArguments};

fn main() -> ExitCode {
    farmem::start(|arguments: Arguments| dispatch(arguments.command))
}

fn dispatch(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::All(arguments) => commands::measure_all(arguments),
        Command::Faults(arguments) => commands::measure_faults(arguments),
        Command::Attach(arguments) => commands::measure_attaching(arguments),
        Command::Programs(arguments) => commands::measure_programs(arguments),
        Command::Isolation(arguments) => commands::measure_isolation(arguments),
        Command::Prefetch(arguments) => commands::measure_prefetching(arguments),
        Command::Nodes(arguments) => commands::measure_nodes(arguments),
        Command::Steps(arguments) => commands::tell_steps(&arguments),
        Command::Micro(arguments) => commands::measure_primitives(&arguments),
        Command::Scale(arguments) => commands::measure_scale(&arguments),
        Command::Compare(arguments) => commands::compare_records(&arguments),
        Command::Table(arguments) => commands::write_table(&arguments),
        Command::Papers(PapersArguments {}) => commands::write_papers(),
        Command::Cleanup(arguments) => commands::cleanup(&arguments),
        Command::Workload(arguments) => commands::workload(&arguments),
        Command::Compression(arguments) => commands::compression(&arguments),
        Command::Kernel(arguments) => commands::kernel(&arguments),
        Command::Readers(arguments) => commands::readers(&arguments),
        Command::Man(arguments) => farmem::manual::<Arguments>(&arguments.folder, &[]),
        Command::Completions(arguments) => farmem::completions::<Arguments>(arguments.shell),
    }
}
