//! `farmem run`: what a program is given, and what becomes of it.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use farmem_page::ByteCount;
use farmem_supervisor::{ClusterSource, PrefetchPolicy, Redundancy};
use farmem_web::Address;

use super::{EtcdArguments, MetricsHosts, SecurityArguments, TransportName, heading};
use crate::amount::{
    DiskAmount, LocalAmount, NodeChoice, PoolAmount, parse_bandwidth, parse_cache, parse_cluster, parse_disk,
    parse_local, parse_name, parse_node_choice, parse_node_read, parse_node_reserve, parse_partition,
    parse_pool, parse_prefetch, parse_read_buffer, parse_redundancy, parse_size, parse_stall, parse_weight,
};
use crate::log::Format;

/// Run a program within a budget of local memory.
///
/// The program and every program that it starts keep at most the budget in local memory. Cold pages go to a
/// compressed pool in memory, and from there to memory nodes and to disk if these are given. Exit status,
/// signals, standard streams and environment are the program's own.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  farmem run --local 512M -- redis-server --port 7000\n  farmem run --local 25% --pool 2G \
                  --disk /var/tmp/far:8G --summary -- python3 train.py\n  farmem run --local auto:64M-2G --stall 1% -- java \
                  -jar server.jar\n\nSizes take K, M, G or T (of 1024), or none for \
                  bytes. Percentages are of what this user may use: the machine's memory, or the limit of the control \
                  group where that is smaller."
)]
pub(crate) struct RunArguments {
    #[command(flatten)]
    pub(crate) application: ApplicationArguments,
    /// At exit, print what was used, what paging cost and what would help
    ///
    /// The summary goes to standard error.
    #[arg(long, help_heading = heading::WATCHING)]
    pub(crate) summary: bool,
    /// Show progress on standard error
    ///
    /// Without a value, only on a terminal.
    #[arg(
        long,
        value_name = "WHERE",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "terminal",
        help_heading = heading::WATCHING
    )]
    pub(crate) progress: Option<Progress>,
    /// Write statistics to this file at exit, as JSON
    ///
    /// If the program leaves processes behind, the file is written again when the last of them has ended.
    #[arg(long, value_name = "FILE", help_heading = heading::WATCHING)]
    pub(crate) stats: Option<PathBuf>,
    /// Record page events in this file, for `farmem trace`
    #[arg(long, value_name = "FILE", help_heading = heading::WATCHING)]
    pub(crate) trace: Option<PathBuf>,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    pub(crate) program: Vec<OsString>,
}

/// What an application may use, and where: the same for programs that are started and for those that run
/// already.
#[derive(Args, Debug)]
pub(crate) struct ApplicationArguments {
    /// RAM that the program and its children may use together
    ///
    /// A size, a percentage of what this user may use, or `auto[:MIN-MAX]`: as little as the program can get
    /// by with, between MIN [default: 16M] and MAX; see `--stall`.
    #[arg(long, value_name = "SIZE|N%|auto", value_parser = parse_local, default_value = "50%", help_heading = heading::MEMORY)]
    pub(crate) local: LocalAmount,
    /// With `--local auto`: share of its time that the program may wait
    ///
    /// The budget falls until the program waits for pages for this share of its time.
    #[arg(long, value_name = "N%", value_parser = parse_stall, default_value = "2%", help_heading = heading::MEMORY)]
    pub(crate) stall: f64,
    /// Limit of RAM for compressed pages [default: what can be spared]
    ///
    /// The default is what the machine and its control group can spare; under a broker (`farmem host`) there
    /// is no limit. MIN is what the broker must guarantee [default: 2M].
    #[arg(long, value_name = "[MIN-]SIZE", value_parser = parse_pool, help_heading = heading::MEMORY)]
    pub(crate) pool: Option<PoolAmount>,
    /// File or folder for pages when the pool is full [default: none]
    ///
    /// SIZE limits how much of it is used [default: what is free there].
    #[arg(long, value_name = "PATH[:SIZE]", value_parser = parse_disk, help_heading = heading::MEMORY)]
    pub(crate) disk: Option<DiskAmount>,
    /// Limit of pool, nodes and disk together [default: what they hold]
    #[arg(long, value_name = "SIZE", value_parser = parse_partition, help_heading = heading::MEMORY)]
    pub(crate) partition: Option<ByteCount>,
    /// RAM for pages fetched ahead of need, part of `--local`
    ///
    /// It is never more than a quarter of the local memory. 0 fetches nothing ahead.
    #[arg(long, value_name = "SIZE", value_parser = parse_cache, default_value = "32M", help_heading = heading::MEMORY)]
    pub(crate) cache: ByteCount,
    /// Name in `farmem stat` and `farmem top` [default: the program's]
    #[arg(long, value_name = "NAME", value_parser = parse_name, help_heading = heading::WATCHING)]
    pub(crate) name: Option<String>,
    /// Log events to standard error
    ///
    /// One event a line; `RUST_LOG` chooses which [default: no log].
    #[arg(long, value_name = "FORMAT", value_enum, help_heading = heading::WATCHING)]
    pub(crate) log: Option<Format>,
    /// Address at which this machine serves metrics for Prometheus
    ///
    /// ADDRESS:PORT or unix:PATH. Metrics are at /metrics there until the last process has ended [default:
    /// none].
    #[arg(long, value_name = "ADDRESS", help_heading = heading::WATCHING)]
    pub(crate) metrics: Option<Address>,
    #[command(flatten)]
    pub(crate) metrics_hosts: MetricsHosts,
    /// Broker of this machine, or `none` [default: `farmem host` if it runs]
    ///
    /// SOCKET is where it listens. With `none`, the run has limits of its own.
    #[arg(long, value_name = "SOCKET|none", help_heading = heading::SHARING)]
    pub(crate) host: Option<PathBuf>,
    /// Weight against other applications of the same host
    ///
    /// Weights divide the pool, local memory and links to memory nodes when applications want more than there
    /// is.
    #[arg(long, value_name = "WEIGHT", value_parser = parse_weight, default_value = "1", help_heading = heading::SHARING)]
    pub(crate) weight: u32,
    /// Neither lend unused local memory to others, nor borrow theirs
    #[arg(long, help_heading = heading::SHARING)]
    pub(crate) no_borrow: bool,
    /// Memory nodes to use, or `none` [default: the host's, if any]
    ///
    /// Addresses where `farmem node` runs, such as 10.0.0.7:7431, unix:PATH or shm:PATH. Compressed pages go
    /// there when the pool fills up. If the nodes come from the host's broker, so do its key or certificates,
    /// `--redundancy` and `--transport`, unless they are given here.
    #[arg(
        long,
        value_name = "HOST:PORT[,…]",
        value_delimiter = ',',
        value_parser = parse_node_choice,
        conflicts_with = "cluster",
        help_heading = heading::NODES
    )]
    pub(crate) node: Vec<NodeChoice>,
    /// File, or key in etcd, that lists the memory nodes to use
    ///
    /// FILE, or a URL etcd[s]://HOST:PORT[,…]/KEY. Changes take effect while the program runs: nodes join,
    /// are emptied (`state = "drain"`) and leave.
    #[arg(long, value_name = "FILE|URL", value_parser = parse_cluster, help_heading = heading::NODES)]
    pub(crate) cluster: Option<ClusterSource>,
    /// Copies on nodes: none, mirror, or K+M with parity [default: none]
    ///
    /// `none` is one copy on a node and, with `--disk`, one on disk. `mirror` is two copies on different
    /// nodes. K+M, such as 4+2, is K parts (1, 2, 4 or 8) and M parity parts (1 to 4) on K+M nodes, of which
    /// any M may be lost.
    #[arg(long, value_name = "SCHEME", value_parser = parse_redundancy, help_heading = heading::NODES)]
    pub(crate) redundancy: Option<Redundancy>,
    /// How pages travel to nodes and back
    ///
    /// [default: auto]
    #[arg(long, value_name = "WAY", value_enum, help_heading = heading::NODES)]
    pub(crate) transport: Option<TransportName>,
    /// Most bytes per second read from nodes [default: no limit]
    ///
    /// For all nodes together; 125M is about a gigabit per second.
    #[arg(long, value_name = "SIZE", value_parser = parse_bandwidth, help_heading = heading::NODES)]
    pub(crate) bandwidth_in: Option<ByteCount>,
    /// Most bytes per second written to nodes [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = parse_bandwidth, help_heading = heading::NODES)]
    pub(crate) bandwidth_out: Option<ByteCount>,
    #[command(flatten)]
    pub(crate) node_security: SecurityArguments,
    #[command(flatten)]
    pub(crate) etcd: EtcdArguments,
    /// Policy that decides which pages are fetched before they are needed
    ///
    /// `streams` follows several sequential and strided streams at once. `two-tier` also follows the
    /// program's references where the streams find nothing. `none` fetches nothing ahead. For comparison:
    /// `neighbour` fetches the pages next to each one, `readahead` works as the kernel does, and `leap`
    /// follows the stride of most faults.
    #[arg(
        long,
        value_name = "POLICY",
        value_parser = parse_prefetch(),
        default_value = "two-tier",
        hide_short_help = true,
        help_heading = heading::TUNING
    )]
    pub(crate) prefetch: PrefetchPolicy,
    /// How pages are stored in the pool, on nodes and on disk
    #[arg(
        long,
        value_name = "packed|raw",
        value_enum,
        default_value = "packed",
        hide_short_help = true,
        help_heading = heading::TUNING
    )]
    pub(crate) far: Far,
    /// Whether pages that were fetched keep their entries, for comparison in benchmarks
    #[arg(
        long,
        value_name = "kept|new",
        value_enum,
        default_value = "kept",
        hide = true,
        help_heading = heading::TUNING
    )]
    pub(crate) entries: Entries,
    /// How much is read from a memory node at once [default: adapts to how much of it is used]
    ///
    /// The page and its neighbours: 4K, 8K, 16K, 32K or 64K.
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = parse_node_read,
        hide_short_help = true,
        help_heading = heading::TUNING
    )]
    pub(crate) node_read: Option<ByteCount>,
    /// RAM for the neighbours that come with a page from a node, in addition to `--local` [default: a
    /// sixteenth of the local memory, at most 16M]
    ///
    /// From 1M to 64M, and at least 128K for each processor.
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = parse_read_buffer,
        hide_short_help = true,
        help_heading = heading::TUNING
    )]
    pub(crate) read_buffer: Option<ByteCount>,
    /// Memory that each node grants ahead of need, up to 1G [default: adapts to what leaves during a round
    /// trip]
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = parse_node_reserve,
        hide_short_help = true,
        help_heading = heading::TUNING
    )]
    pub(crate) node_reserve: Option<ByteCount>,
    /// RDMA device, its port, and the index of the port's address [default: the device that has the
    /// connection's address]
    #[arg(long, value_name = "DEVICE[:PORT[:GID]]", hide_short_help = true, help_heading = heading::TUNING)]
    pub(crate) rdma: Option<String>,
    /// Most bytes per second, read and written together, for restoring lost copies and parity and for
    /// emptying nodes
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = parse_size,
        default_value = "64M",
        hide_short_help = true,
        help_heading = heading::TUNING
    )]
    pub(crate) rebuild_rate: ByteCount,
}

/// Manage a process until it ends, as its pager, or memory that processes share.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  farmem pager 4711\n\nSupervisors start it; the environment says for which application."
)]
pub(crate) struct PagerArguments {
    /// The process
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..), required_unless_present = "shared")]
    pub(crate) process: Option<u32>,
    /// Instead of a process, manage the memory that several processes share; their numbers come on standard
    /// input, one a line
    #[arg(long, conflicts_with = "process")]
    pub(crate) shared: bool,
}

/// How pages are stored away from local memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Far {
    /// Compressed, where that makes them smaller
    Packed,
    /// As they are: less work for the processor, and more room and bandwidth if the data would compress
    Raw,
}

/// What becomes of a page's entry in far memory when the page is fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Entries {
    /// The page goes back to the same entry
    Kept,
    /// The page gets a new entry each time that it leaves
    New,
}

/// Where a run shows its progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Progress {
    /// On a terminal, in one line that is refreshed in place
    Terminal,
    /// The same on a terminal; elsewhere, one line each second
    Always,
}
