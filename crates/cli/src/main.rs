//! `farmem`: more memory than the machine has, for unmodified programs.
#![forbid(unsafe_code)]

#[macro_use]
mod print;

mod amount;
mod arguments;
mod attach;
mod bench;
mod certificates;
mod cluster;
mod detach;
mod doctor;
mod explain;
#[cfg(test)]
mod guide;
mod host;
mod host_nodes;
mod inside;
mod log;
mod manage;
mod node;
mod pager;
mod program;
mod resize;
mod run;
mod set;
mod simulate;
mod stat;
mod subject;
mod top;
mod trace;
mod web;

use std::process::ExitCode;

use farmem::Failure;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    farmem::start(|arguments: Arguments| dispatch(arguments.command))
}

fn dispatch(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Run(arguments) => run::run(*arguments),
        Command::Attach(arguments) => attach::attach(*arguments),
        Command::Detach(arguments) => detach::detach(&arguments),
        Command::Host(arguments) => host::host(*arguments),
        Command::Node(arguments) => node::node(&arguments),
        Command::Cluster(arguments) => cluster::cluster(arguments.command),
        Command::Explain(arguments) => explain::explain(&arguments),
        Command::Stat(arguments) => stat::stat(&arguments),
        Command::Top(arguments) => top::top(&arguments),
        Command::Web(arguments) => web::web(&arguments),
        Command::Set(arguments) => set::set(&arguments),
        Command::Shrink(arguments) => resize::shrink(&arguments),
        Command::Grow(arguments) => resize::grow(&arguments),
        Command::Doctor(arguments) => doctor::doctor(&arguments),
        Command::Trace(arguments) => trace::trace(arguments.command),
        Command::Simulate(arguments) => simulate::simulate(&arguments),
        Command::Bench(arguments) => bench::pass(None, &arguments),
        Command::Pager(arguments) => pager::pager(&arguments),
        Command::Workload(arguments) => bench::pass(Some("workload"), &arguments),
        Command::Compression(arguments) => bench::pass(Some("compression"), &arguments),
        Command::Kernel(arguments) => bench::pass(Some("kernel"), &arguments),
        Command::Readers(arguments) => bench::pass(Some("readers"), &arguments),
        Command::Man(arguments) => farmem::manual::<Arguments>(&arguments.folder, &["bench"]),
        Command::Completions(arguments) => farmem::completions::<Arguments>(arguments.shell),
    }
}
