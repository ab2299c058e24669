//! `farmem host`: what a machine has for its applications.

use std::path::PathBuf;

use clap::Args;
use farmem_page::ByteCount;
use farmem_web::Address;

use super::MetricsHosts;
use crate::amount::{parse_bandwidth, parse_size};
use crate::log::Format;

/// Lease one pool, and local memory, to all applications of this machine.
///
/// Applications that `farmem run` starts from then on share what the broker has: each gets what it was guaranteed whenever it wants it, and
/// beyond that by weight what others don't need; idle ones give back first. The broker runs until a signal ends it. It is on nobody's way: if it
/// ends, applications go on with what they hold, and come to the next one.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  farmem host --pool 8G\n  farmem host --pool 8G --local 4G --socket /run/farmem/batch.socket\n\nA \
                  configuration file has lines such as `pool = \"8G\"`, `local = \"4G\"`, `socket = \"/run/farmem/host.socket\"`; what is given \
                  on the command line counts before it."
)]
pub(crate) struct HostArguments {
    /// Memory for the pools of all applications together [default: half of what is free]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) pool: Option<ByteCount>,
    /// Local memory of all applications together [default: the sum of their budgets]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) local: Option<ByteCount>,
    /// Most bytes per second that all applications together read from memory nodes: 125M are a gigabit per second (bytes, not bits) [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = parse_bandwidth)]
    pub(crate) bandwidth_in: Option<ByteCount>,
    /// The same for what they write to them
    #[arg(long, value_name = "SIZE", value_parser = parse_bandwidth)]
    pub(crate) bandwidth_out: Option<ByteCount>,
    /// Socket to listen on [default: /run/farmem/host.socket, for other users than root farmem/host.socket in their runtime directory]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Log what happens on standard error, one event a line; `RUST_LOG` chooses what [default: no log]
    #[arg(long, value_name = "text|json", value_enum)]
    pub(crate) log: Option<Format>,
    /// Tell Prometheus about the broker and all applications, at /metrics of this address of this machine [default: nowhere]
    #[arg(long, value_name = "ADDRESS:PORT|unix:PATH")]
    pub(crate) metrics: Option<Address>,
    #[command(flatten)]
    pub(crate) metrics_hosts: MetricsHosts,
    /// Take what is not given here from this file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}
