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
use std::panic::resume_unwind;
use std::process::ExitCode;
use std::thread;

use clap::Parser;
use rustix::process::{Resource, getrlimit};

use arguments::{Arguments, Command};
use failure::Failure;

/// Bytes of stack with which arguments are parsed: ten times what it takes now.
const PARSER_STACK: usize = 1 << 20;

fn main() -> ExitCode {
    let words: Vec<OsString> = env::args_os().collect();
    let outcome = match parse(&words) {
        Ok(arguments) => dispatch(arguments.command),
        Err(error) => failure::from_clap(&error, &words),
    };
    outcome.unwrap_or_else(|failure| {
        log::say(&format!("farmem: {failure}"));
        failure.status()
    })
}

/// Parses the arguments, on a thread of its own where the caller's limit leaves less stack than the options
/// of all commands may take. Where no thread can be made it is tried anyway.
fn parse(words: &[OsString]) -> Result<Arguments, clap::Error> {
    let in_place = || Arguments::try_parse_from(words);
    if getrlimit(Resource::Stack).current.is_none_or(|bytes| bytes >= PARSER_STACK as u64) {
        return in_place();
    }
    thread::scope(|scope| {
        match thread::Builder::new().stack_size(PARSER_STACK).spawn_scoped(scope, in_place) {
            Ok(parser) => parser.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) => in_place(),
        }
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
