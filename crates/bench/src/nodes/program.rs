//! The workload with its far memory in the pool, on disk, or on a node.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use farmem_page::ByteCount;

use super::route::Route;
use crate::below::{Below, small_pool};
use crate::median::median;
use crate::run::Runner;
use crate::workload::{Outcome, Pattern};
use crate::{option, own};

/// What has an order, and what has none.
pub(super) const PATTERNS: [Pattern; 2] = [Pattern::Sequential, Pattern::RandomRead];
/// How many times more data than local memory.
const OVERSUBSCRIPTION: u64 = 4;
/// What a disk file is made in. Folders for what is temporary are often memory.
const DISK_FOLDER: &str = "/var/tmp";

/// Where the far memory of a program is: on this machine, or on a node that is reached by this route.
pub(super) enum ProgramTier<'a> {
    Pool,
    Disk,
    Node(&'a Route),
}

impl ProgramTier<'_> {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Pool => "pool",
            Self::Disk => "disk",
            Self::Node(route) => &route.name,
        }
    }

    /// Options of `farmem run` for it, with so much data.
    pub(super) fn options(&self, data: ByteCount) -> Vec<String> {
        let pool = match self {
            Self::Pool => data,
            Self::Disk | Self::Node(_) => small_pool(data),
        };
        let mut options = vec!["--pool".to_owned(), pool.get().to_string()];
        options.extend(match self {
            Self::Pool => Below::Nothing.options(data),
            Self::Disk => Below::Disk(DISK_FOLDER.into()).options(data),
            Self::Node(route) => route.options(),
        });
        options
    }
}

/// What one run showed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Time of an access, of the middle and of the slowest round.
    pub(super) access_us: f64,
    pub(super) slowest_us: f64,
    pub(super) fault_p50_us: f64,
    pub(super) fault_p99_us: f64,
    pub(super) node_fetches: f64,
    pub(super) read_buffer_hits: f64,
    pub(super) stolen_share: f64,
}

/// Runs the workload once.
///
/// # Errors
/// When it fails, or reads other bytes than it wrote, or what should lie on a node doesn't.
pub(super) fn run(
    runner: &Runner,
    pattern: Pattern,
    far: &ProgramTier<'_>,
    data: ByteCount,
) -> Result<Sample> {
    let mut options = vec!["--local".to_owned(), (data.get() / OVERSUBSCRIPTION).to_string()];
    options.extend(far.options(data));
    let own = own::word()?;
    let (size, pattern) = (data.get().to_string(), option::name(&pattern));
    let program = [&*own, "workload", "--data", &size, "--pattern", &pattern];
    let start = |command: &mut Command| match far {
        ProgramTier::Node(route) => route.near(|| Ok(command.spawn()?)).map_err(std::io::Error::other),
        ProgramTier::Pool | ProgramTier::Disk => command.spawn(),
    };
    let finished = runner
        .run(options, &program, start)
        .with_context(|| format!("{pattern} with far memory: {}", far.name()))?;
    let outcome = Outcome::last_of(&finished.output).context("the workload tells nothing")?;
    ensure!(outcome.mismatches == 0, "{pattern}: pages came back from {} with other bytes", far.name());
    let rounds: Vec<f64> = outcome.rounds.iter().map(|round| round.nanoseconds_per_access / 1e3).collect();
    let sample = Sample {
        slowest_us: rounds.iter().copied().fold(0.0, f64::max),
        access_us: median(rounds),
        fault_p50_us: finished.number("fault_p50_us"),
        fault_p99_us: finished.number("fault_p99_us"),
        node_fetches: finished.number("node_fetches"),
        read_buffer_hits: finished.number("read_buffer_hits"),
        stolen_share: finished.stolen_share,
    };
    ensure!(
        matches!(far, ProgramTier::Node(_)) == (sample.node_fetches > 0.0),
        "{pattern} with far memory: {}: {} fetches from a node",
        far.name(),
        sample.node_fetches
    );
    Ok(sample)
}
