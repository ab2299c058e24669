//! `farmem simulate`: a datacentre, under a clock of events.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use farmem_page::ByteCount;
use farmem_supervisor::Redundancy;

use crate::amount::{parse_latency, parse_node_reserve, parse_rate, parse_redundancy, parse_size};

const FAILURES: &str = "What happens to machines";
const NETWORK: &str = "Network";
const MEMORY: &str = "Memory";

/// Simulate a datacentre: what is lost, how soon it is made good, and how long fetches take.
///
/// Farmem's own policies decide where blocks go, which nodes are lost, what is repaired, and whom a page is
/// asked of. Machines, network and demand for memory are simulated. The same options print the same. How long
/// decisions took on this machine goes to standard error.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  farmem simulate --hours 24 --report datacentre.html\n  farmem simulate --nodes 200 --clients 50 --failures 10% --redundancy mirror"
)]
pub(crate) struct SimulateArguments {
    /// Machines that lend memory
    #[arg(long, value_name = "NUMBER", default_value_t = 1000)]
    pub(crate) nodes: usize,
    /// Machines whose programs use it
    #[arg(long, value_name = "NUMBER", default_value_t = 1000)]
    pub(crate) clients: usize,
    /// Simulated time, in hours
    #[arg(long, value_name = "HOURS", default_value_t = 1.0)]
    pub(crate) hours: f64,
    /// What is left to chance follows from it
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,
    /// How pages lie on nodes: none, mirror, or K+M
    #[arg(long, value_name = "REDUNDANCY", default_value = "4+2", value_parser = parse_redundancy)]
    pub(crate) redundancy: Redundancy,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a report with plots, as one HTML file
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Machines that die on a day; they come back empty, after some minutes
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = parse_rate, help_heading = FAILURES)]
    pub(crate) failures: f64,
    /// Nodes that are restarted on a day; they come back empty, after some seconds
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = parse_rate, help_heading = FAILURES)]
    pub(crate) restarts: f64,
    /// Machines that take dozens of times as long for some minutes, on a day
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = parse_rate, help_heading = FAILURES)]
    pub(crate) slowdowns: f64,
    /// Nodes that are emptied and leave on a day; they join again an hour later
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = parse_rate, help_heading = FAILURES)]
    pub(crate) departures: f64,
    /// Racks that fail on a day, half of them by their power and half by their switch
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = parse_rate, help_heading = FAILURES)]
    pub(crate) rack_failures: f64,
    /// Nodes in a rack
    #[arg(long, value_name = "NUMBER", default_value_t = 40, help_heading = NETWORK)]
    pub(crate) rack: usize,
    /// Nodes don't say in which rack they are, so blocks are not spread over racks
    #[arg(long, help_heading = NETWORK)]
    pub(crate) unnamed_racks: bool,
    /// A round trip within a rack; between racks it is half as long again
    #[arg(long, value_name = "TIME", default_value = "50us", value_parser = parse_latency, help_heading = NETWORK)]
    pub(crate) latency: Duration,
    /// What a machine's link carries in a second, each way
    #[arg(long, value_name = "SIZE", default_value = "3G", value_parser = parse_size, help_heading = NETWORK)]
    pub(crate) bandwidth: ByteCount,
    /// What the machines of a rack can send together, divided by what leaves the rack
    #[arg(long, value_name = "RATIO", default_value_t = 4.0, help_heading = NETWORK)]
    pub(crate) oversubscription: f64,
    /// Fetches of each client in a second; one in many is followed
    #[arg(long, value_name = "NUMBER", default_value_t = 2000.0, help_heading = NETWORK)]
    pub(crate) fetches: f64,
    /// Far memory of a client on average
    #[arg(long, value_name = "SIZE", default_value = "128M", value_parser = parse_size, help_heading = MEMORY)]
    pub(crate) far: ByteCount,
    /// Memory of a machine that lends; a tenth of it, on average, is lent
    #[arg(long, value_name = "SIZE", default_value = "64G", value_parser = parse_size, help_heading = MEMORY)]
    pub(crate) machine: ByteCount,
    /// Most bytes per second that each client reads and writes to restore redundancy
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = parse_size, help_heading = MEMORY)]
    pub(crate) rebuild_rate: ByteCount,
    /// Memory that each client has granted on each node ahead of need [default: follows what is measured]
    #[arg(long, value_name = "SIZE", value_parser = parse_node_reserve, help_heading = MEMORY)]
    pub(crate) node_reserve: Option<ByteCount>,
}
