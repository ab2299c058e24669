//! `farmem run`: what a program is given, and what becomes of it.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use farmem_page::ByteCount;
use farmem_supervisor::{ClusterSource, PrefetchPolicy, Redundancy};
use farmem_web::Address;

use super::{EtcdArguments, MetricsHosts, SecurityArguments, TransportName};
use crate::amount::{
    DiskAmount, LocalAmount, NodeChoice, PoolAmount, parse_bandwidth, parse_cache, parse_cluster, parse_disk,
    parse_local, parse_name, parse_node_choice, parse_node_read, parse_node_reserve, parse_partition,
    parse_pool, parse_prefetch, parse_read_buffer, parse_redundancy, parse_size, parse_stall, parse_weight,
};
use crate::log::Format;

/// Run a program within a budget of local memory.
///
/// The program and every program that it starts keep at most the budget in local memory; what is cold goes to a
/// compressed pool in memory, and from there to disk if one is given. Exit status, signals, standard streams and
/// environment are the program's own.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  farmem run --local 512M -- redis-server --port 7000\n  farmem run --local 25% --pool 2G \
                  --disk /var/tmp/far:8G --summary -- python3 train.py\n  farmem run --local auto:64M-2G --stall 1% -- java \
                  -jar server.jar\n\nSizes take K, M, G or T (of 1024), or none for \
                  bytes. Percentages are of what this user may use: the machine's memory, or the limit of the control \
                  group where that is smaller."
)]
pub(crate) struct RunArguments {
    /// Local memory to keep: a size, a percentage of what this user may use, or `auto` for as little as the program can do
    /// with
    #[arg(long, value_name = "SIZE|PERCENT%|auto[:MIN-MAX]", value_parser = parse_local, default_value = "50%")]
    pub(crate) local: LocalAmount,
    /// With `--local auto`: the part of its time for which the program may wait for pages
    #[arg(long, value_name = "PERCENT%", value_parser = parse_stall, default_value = "2%")]
    pub(crate) stall: f64,
    /// Limit of the compressed pool, and before it what a host's broker must guarantee [default: what machine and control
    /// group can spare; under a broker no limit, and 2M guaranteed]
    #[arg(long, value_name = "[GUARANTEED-]SIZE", value_parser = parse_pool)]
    pub(crate) pool: Option<PoolAmount>,
    /// Where pages go when the pool is full: a file or folder, and a limit [default: nowhere]
    #[arg(long, value_name = "PATH[:SIZE]", value_parser = parse_disk)]
    pub(crate) disk: Option<DiskAmount>,
    /// How pages are kept in the pool, on nodes and on disk: compressed, where that makes them smaller, or as they are, which spares the processor where data
    /// doesn't compress and costs room and bandwidth where it does
    #[arg(long, value_name = "packed|raw", value_enum, default_value = "packed")]
    pub(crate) far: Far,
    /// Whether pages that were fetched keep their entries, for benchmarks that compare
    #[arg(long, value_name = "kept|new", value_enum, default_value = "kept", hide = true)]
    pub(crate) entries: Entries,
    /// What decides which pages are fetched before they are asked for: several sequential and strided streams at once and, where these find
    /// nothing, the references that the program follows; streams alone; nothing; the pages next to the one that was, the kernel's readahead, or the
    /// stride of most faults (Leap)
    #[arg(long, value_name = "POLICY", value_parser = parse_prefetch(), default_value = "two-tier")]
    pub(crate) prefetch: PrefetchPolicy,
    /// Memory nodes to use between pool and disk, where `farmem node` runs, or `none` [default: those that the host's broker names, if any; and with them its key,
    /// certificates, `--redundancy` and `--transport`, where these are not given]
    #[arg(long, value_name = "HOST:PORT[,…]|none", value_delimiter = ',', value_parser = parse_node_choice, conflicts_with = "cluster")]
    pub(crate) node: Vec<NodeChoice>,
    /// Use the memory nodes that this file names, or what is under a key of etcd. It is followed: nodes join, are emptied (`state = "drain"`) and leave while the program runs
    #[arg(long, value_name = "FILE|etcd[s]://HOST:PORT[,…]/KEY", value_parser = parse_cluster)]
    pub(crate) cluster: Option<ClusterSource>,
    #[command(flatten)]
    pub(crate) etcd: EtcdArguments,
    /// How slabs lie on memory nodes: one copy, and with a disk a second one there; two copies on different nodes; or cut into K parts (1, 2, 4 or 8)
    /// with M of parity (1 to 4), on K+M nodes, of which any M may be lost, such as 4+2 [default: none]
    #[arg(long, value_name = "none|mirror|K+M", value_parser = parse_redundancy)]
    pub(crate) redundancy: Option<Redundancy>,
    /// What goes at most in a second, read and written together, to make copies and parity anew that were lost with a node, and to empty nodes
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64M")]
    pub(crate) rebuild_rate: ByteCount,
    /// How pages travel to and from nodes of other machines: by RDMA, which doesn't encrypt them, where both machines have a device, else over the connection (auto); over the connection (tcp); or by RDMA or not at all (rdma). `shm` is for nodes of this machine, which are named shm:PATH [default: auto]
    #[arg(long, value_name = "auto|tcp|shm|rdma", value_enum)]
    pub(crate) transport: Option<TransportName>,
    /// The RDMA device, its port, and which of the port's addresses [default: the one with the address of the connection]
    #[arg(long, value_name = "DEVICE[:PORT[:GID]]")]
    pub(crate) rdma: Option<String>,
    #[command(flatten)]
    pub(crate) node_security: SecurityArguments,
    /// Most bytes per second that are read from memory nodes, all of them together: 125M are a gigabit per second (bytes, not bits) [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = parse_bandwidth)]
    pub(crate) bandwidth_in: Option<ByteCount>,
    /// The same for what is written to them
    #[arg(long, value_name = "SIZE", value_parser = parse_bandwidth)]
    pub(crate) bandwidth_out: Option<ByteCount>,
    /// How much a read from a memory node brings: the page that is wanted and its neighbours, a power of two from 4K to 64K [default: follows what is used of it]
    #[arg(long, value_name = "SIZE", value_parser = parse_node_read)]
    pub(crate) node_read: Option<ByteCount>,
    /// Room for pages that a read from a node brought along, beside the local memory, from 1M to 64M; at least 128K for each processor [default: a sixteenth of the local memory, 16M at most]
    #[arg(long, value_name = "SIZE", value_parser = parse_read_buffer)]
    pub(crate) read_buffer: Option<ByteCount>,
    /// Memory that each node has granted ahead of need, up to 1G [default: follows what leaves during a round trip]
    #[arg(long, value_name = "SIZE", value_parser = parse_node_reserve)]
    pub(crate) node_reserve: Option<ByteCount>,
    /// Limit of far memory: what is in the pool, on nodes and on disk together [default: what they may hold]
    #[arg(long, value_name = "SIZE", value_parser = parse_partition)]
    pub(crate) partition: Option<ByteCount>,
    /// Limit of the swap cache: local memory for what is fetched ahead and not used yet; 0 fetches nothing ahead. At most a quarter of the local memory in any
    /// case
    #[arg(long, value_name = "SIZE", value_parser = parse_cache, default_value = "32M")]
    pub(crate) cache: ByteCount,
    /// Part of the host's pool, local memory and links to memory nodes against other applications, where all want more than there is
    #[arg(long, value_name = "WEIGHT", value_parser = parse_weight, default_value = "1")]
    pub(crate) weight: u32,
    /// Neither lend local memory that is not used to other applications of the same host, nor borrow theirs
    #[arg(long)]
    pub(crate) no_borrow: bool,
    /// Socket of the host's broker, or `none` for limits of its own [default: that of `farmem host`, if it runs]
    #[arg(long, value_name = "SOCKET|none")]
    pub(crate) host: Option<PathBuf>,
    /// Name to show in `farmem stat` [default: the program's]
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    pub(crate) name: Option<String>,
    /// Write statistics to this file at exit, as JSON; anew when all that the program leaves behind has ended
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,
    /// Record what happens to pages in this file, for `farmem trace`
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Log what happens on standard error, one event a line; `RUST_LOG` chooses what [default: no log]
    #[arg(long, value_name = "text|json", value_enum)]
    pub(crate) log: Option<Format>,
    /// Tell Prometheus about this run, at /metrics of this address of this machine, until its last process has ended [default: nowhere]
    #[arg(long, value_name = "ADDRESS:PORT|unix:PATH")]
    pub(crate) metrics: Option<Address>,
    #[command(flatten)]
    pub(crate) metrics_hosts: MetricsHosts,
    /// Show a line on standard error that says how it goes, if that is a terminal, or always
    #[arg(
        long,
        value_name = "terminal|always",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "terminal"
    )]
    pub(crate) progress: Option<Progress>,
    /// Print a summary on standard error at exit: what was asked, what was used, what paging cost, what would help
    #[arg(long)]
    pub(crate) summary: bool,
    /// The program, and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    pub(crate) program: Vec<OsString>,
}

/// How pages are kept away from local memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Far {
    /// Compressed, where that makes them smaller
    Packed,
    /// As they are
    Raw,
}

/// What becomes of a page's entry in far memory when the page is fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Entries {
    /// The page leaves into it again
    Kept,
    /// The page gets another one each time that it leaves
    New,
}

/// Where a run shows how it goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Progress {
    /// On a terminal, in one line that is refreshed in place
    Terminal,
    /// Anywhere; where there is no terminal, a line for each second
    Always,
}
