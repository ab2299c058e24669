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
mod failure;
mod generate;
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
mod version;
mod web;

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, Command};
use failure::Failure;

fn main() -> ExitCode {
    let words: Vec<OsString> = env::args_os().collect();
    let outcome = match Arguments::try_parse_from(&words) {
        Ok(arguments) => dispatch(arguments.command),
        Err(error) => failure::from_clap(&error, &words),
    };
    outcome.unwrap_or_else(|failure| {
        log::say(&format!("farmem: {failure}"));
        failure.status()
    })
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
        Command::Bench(arguments) => bench::bench(arguments.command),
        Command::Pager(arguments) => pager::pager(&arguments),
        Command::Workload(arguments) => bench::workload(&arguments),
        Command::Compression(arguments) => bench::compression(&arguments),
        Command::Kernel(arguments) => bench::kernel(&arguments),
        Command::Readers(arguments) => bench::readers(&arguments),
        Command::Man(arguments) => generate::manual(&arguments),
        Command::Completions(arguments) => generate::completions(&arguments),
    }
}
