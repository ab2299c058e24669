//! `farmem trace`: recordings, and policies tried on them.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use farmem_page::ByteCount;
use farmem_supervisor::PrefetchPolicy;

use super::RunArguments;
use crate::amount::{parse_latency, parse_replayed, parse_size};

/// Look at what was recorded of a program's pages, and try policies on it.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  farmem trace record --local 25% --prefetch none search.trace -- python3 search.py\n  \
                  farmem trace show search.trace\n  farmem trace replay search.trace"
)]
pub(crate) struct TraceArguments {
    #[command(subcommand)]
    pub(crate) command: TraceCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum TraceCommand {
    /// Run a program, and record its faults, fetches and evictions
    Record(Box<TraceRecordArguments>),
    /// Tell what is in a trace
    Show(TraceShowArguments),
    /// Tell what policies of prefetching would have made of a trace
    Replay(TraceReplayArguments),
}

/// Run a program, and record its faults, fetches and evictions.
///
/// All options are those of `farmem run`. A trace that is to be replayed is best recorded with `--prefetch none`: only then is every first use of a
/// page that came back a fault.
#[derive(Args, Debug)]
pub(crate) struct TraceRecordArguments {
    /// The file to write
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) run: RunArguments,
}

/// Tell what is in a trace.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  farmem trace show sort.trace\n  farmem trace show sort.trace --records | grep evict"
)]
pub(crate) struct TraceShowArguments {
    /// The trace
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Print every record instead
    #[arg(long)]
    pub(crate) records: bool,
    /// Print one JSON object, or with `--records` one for each
    #[arg(long)]
    pub(crate) json: bool,
}

/// Tell what policies of prefetching would have made of a trace.
///
/// Shows for each policy the faults that would have been left, the share of accesses that it would have served (contribution), of what it fetched that
/// was used (accuracy), of that what was there in time (timely), and of what the best could have been (bound): that of an oracle which knows
/// the faults to come.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  farmem trace record --prefetch none sort.trace -- python3 sort.py\n  farmem trace replay sort.trace"
)]
pub(crate) struct TraceReplayArguments {
    /// The trace
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Only these policies
    #[arg(long, value_name = "POLICY", value_delimiter = ',', value_parser = parse_replayed())]
    pub(crate) policy: Vec<PrefetchPolicy>,
    /// Local memory, which bounds what may come ahead [default: that of the recording]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) local: Option<ByteCount>,
    /// How long it takes until a page that is fetched ahead is there
    #[arg(long, value_name = "TIME", value_parser = parse_latency, default_value = "10us")]
    pub(crate) latency: Duration,
    /// Print one JSON array instead of the table
    #[arg(long)]
    pub(crate) json: bool,
}
