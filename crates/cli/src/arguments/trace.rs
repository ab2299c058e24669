//! `farmem trace`: recordings, and policies tried on them.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use farmem_page::ByteCount;
use farmem_supervisor::PrefetchPolicy;

use super::RunArguments;
use crate::amount::{parse_latency, parse_replayed, parse_size};

/// Record what happens to a program's pages, and try policies on recordings.
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
    /// Show what is in a trace
    Show(TraceShowArguments),
    /// Show how prefetching policies would have done on a trace
    Replay(TraceReplayArguments),
}

/// Run a program, and record its faults, fetches and evictions.
///
/// It takes the options of `farmem run`. To replay the trace later, record it with `--prefetch none`: only
/// then is every first use of a page that came back a fault.
#[derive(Args, Debug)]
pub(crate) struct TraceRecordArguments {
    /// The file to write
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) run: RunArguments,
}

/// Show what is in a trace.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  farmem trace show sort.trace\n  farmem trace show sort.trace --records | grep evict"
)]
pub(crate) struct TraceShowArguments {
    /// The trace
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Print every record instead of a summary
    #[arg(long)]
    pub(crate) records: bool,
    /// Print one JSON object, or with `--records` one for each record
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show how prefetching policies would have done on a trace.
///
/// For each policy: the faults that would have been left; of all accesses, the share that it would have
/// served (contribution); of the pages that it would have fetched, the share that was used (accuracy), and of
/// these the share that was there in time (timely); and the contribution as a share of the best possible one
/// (bound), that of an oracle that knows the faults to come.
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
    /// Local memory, which limits what may be fetched ahead [default: that of the recording]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) local: Option<ByteCount>,
    /// Time until a page that is fetched ahead is there
    #[arg(long, value_name = "TIME", value_parser = parse_latency, default_value = "10us")]
    pub(crate) latency: Duration,
    /// Print one JSON array instead of the table
    #[arg(long)]
    pub(crate) json: bool,
}
