//! What is simulated.

use std::time::Duration;

use farmem_remote::Redundancy;

/// Numbers of nodes have 16 bits.
const MOST_NODES: usize = 1 << 16;
/// A memory node knows so many clients (`MOST_CLIENTS` of `farmem_node`).
const MOST_CLIENTS: usize = 4096;
const MOST_DURATION: Duration = Duration::from_secs(366 * 86_400);
/// A hundred times a day is more than any machine stands.
const MOST_RATE: f64 = 100.0;
const LEAST_BANDWIDTH: u64 = 1 << 20;
const MOST_LATENCY: Duration = Duration::from_millis(100);
/// What a machine lends is a tenth of what it has, or so: with less than this it lends nothing that a block
/// fits into.
const LEAST_MACHINE: u64 = 64 << 20;
const MOST_FETCHES: f64 = 1e6;
/// Blocks are numbered by clients, in 32 bits, and kept in this process's memory.
const MOST_FAR: u64 = 64 << 30;

/// A datacentre, and how long it is watched.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// Machines that lend memory.
    pub nodes: usize,
    /// Machines whose programs use it, each with two applications.
    pub clients: usize,
    /// Simulated time.
    pub duration: Duration,
    /// What is left to chance follows from it.
    pub seed: u64,
    /// How blocks lie on nodes.
    pub redundancy: Redundancy,
    /// Memory of a machine that lends; a tenth of it, on average, is lent.
    pub machine_bytes: u64,
    /// Far memory of a client on average.
    pub far_bytes: u64,
    /// Nodes in a rack.
    pub rack_size: usize,
    /// Whether nodes say in which rack they are.
    pub names_racks: bool,
    /// The part of the machines that die on a day: nothing answers, and after a while they come back empty.
    pub failures: f64,
    /// The part of the nodes that are restarted on a day: links end at once, and seconds later they are back,
    /// empty.
    pub restarts: f64,
    /// The part of the machines that are many times slower for some minutes, on a day.
    pub slowdowns: f64,
    /// The part of the nodes that are emptied and leave on a day; they are back an hour later.
    pub departures: f64,
    /// The part of the racks that fail on a day as a whole: half by their power, half by their switch.
    pub rack_failures: f64,
    /// A round trip within a rack.
    pub latency: Duration,
    /// What a machine's link carries in a second, each way.
    pub bandwidth: u64,
    /// What machines of a rack can send together, as a multiple of what leaves the rack.
    pub oversubscription: f64,
    /// What each application's client reads and writes in a second to restore redundancy (`--rebuild-rate`).
    pub rebuild_bytes_per_second: u64,
    /// Memory that each client has granted ahead of need on each node (`--node-reserve`); without it, what is
    /// measured decides.
    pub reserve_bytes: Option<u64>,
    /// Fetches of a client in a second.
    pub fetches: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nodes: 1000,
            clients: 1000,
            duration: Duration::from_secs(3600),
            seed: 1,
            redundancy: Redundancy::new(4, 2).unwrap_or(Redundancy::NONE),
            machine_bytes: 64 << 30,
            far_bytes: 128 << 20,
            rack_size: 40,
            names_racks: true,
            failures: 0.01,
            restarts: 0.01,
            slowdowns: 0.01,
            departures: 0.01,
            rack_failures: 0.0,
            latency: Duration::from_micros(50),
            bandwidth: 3 << 30,
            oversubscription: 4.0,
            rebuild_bytes_per_second: 64 << 20,
            reserve_bytes: None,
            fetches: 2000.0,
        }
    }
}

/// Why options can't be simulated.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum Unfit {
    /// A number is out of its bounds.
    #[error("{what} must be from {least} to {most}")]
    Bounds {
        /// Which.
        what: &'static str,
        /// At least.
        least: String,
        /// At most.
        most: String,
    },
    /// There are fewer nodes than a block lies on.
    #[error(
        "redundancy {redundancy} needs {needed} nodes, and there are {nodes}; give more nodes, or another redundancy"
    )]
    Nodes {
        /// The redundancy.
        redundancy: Redundancy,
        /// Shards of a block.
        needed: usize,
        /// Nodes.
        nodes: usize,
    },
}

impl Options {
    /// Whether they can be simulated.
    ///
    /// # Errors
    /// The first thing that stands against it, as a sentence.
    pub fn check(&self) -> Result<(), Unfit> {
        let hours = |time: Duration| time.as_secs_f64() / 3600.0;
        bounded("the number of nodes", self.nodes, 1, MOST_NODES)?;
        bounded("the number of clients", self.clients, 1, MOST_CLIENTS)?;
        bounded("the number of hours", hours(self.duration), 0.01, hours(MOST_DURATION))?;
        bounded("the size of a rack", self.rack_size, 1, MOST_NODES)?;
        for (what, rate) in [
            ("the rate of failures, in percent a day,", self.failures),
            ("the rate of restarts, in percent a day,", self.restarts),
            ("the rate of slowdowns, in percent a day,", self.slowdowns),
            ("the rate of departures, in percent a day,", self.departures),
            ("the rate of failures of racks, in percent a day,", self.rack_failures),
        ] {
            bounded(what, 100.0 * rate, 0.0, 100.0 * MOST_RATE)?;
        }
        bounded("the latency, in microseconds,", self.latency.as_micros(), 1, MOST_LATENCY.as_micros())?;
        bounded("the bandwidth, in bytes a second,", self.bandwidth, LEAST_BANDWIDTH, 1 << 40)?;
        bounded("the oversubscription", self.oversubscription, 1.0, 1000.0)?;
        bounded("the memory of a machine, in bytes,", self.machine_bytes, LEAST_MACHINE, 1 << 42)?;
        bounded("the far memory of a client, in bytes,", self.far_bytes, 1 << 20, MOST_FAR)?;
        bounded("the number of fetches a second", self.fetches, 0.0, MOST_FETCHES)?;
        let needed = self.redundancy.shards();
        if self.nodes < needed {
            return Err(Unfit::Nodes { redundancy: self.redundancy, needed, nodes: self.nodes });
        }
        Ok(())
    }

    /// How many racks there are.
    pub(crate) fn racks(&self) -> usize {
        self.nodes.div_ceil(self.rack_size)
    }
}

fn bounded<T: PartialOrd + ToString>(what: &'static str, value: T, least: T, most: T) -> Result<(), Unfit> {
    // What is not a number is in no bounds.
    if value >= least && value <= most {
        return Ok(());
    }
    Err(Unfit::Bounds { what, least: least.to_string(), most: most.to_string() })
}
