//! The one definition of what `farmem` accepts. Help texts, manual pages and completions all come from it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use farmem_bench::faults::{CaseName, PeerName};
use farmem_bench::isolation::{Part as IsolationPart, Peer as IsolationPeer};
use farmem_bench::kernels::Kernel;
use farmem_bench::nodes::Part as NodesPart;
use farmem_bench::prefetch::SubjectName;
use farmem_bench::workload::{Compressibility, Pattern};
use farmem_page::ByteCount;
use farmem_supervisor::{ClusterSource, Destination, PrefetchPolicy, Redundancy};
use farmem_web::Address;

use crate::amount::{
    DiskAmount, LocalAmount, PoolAmount, Setting, parse_bandwidth, parse_cache, parse_cluster, parse_disk,
    parse_interval, parse_latency, parse_local, parse_name, parse_node, parse_node_read, parse_node_reserve,
    parse_partition, parse_pool, parse_prefetch, parse_read_buffer, parse_redundancy, parse_replayed,
    parse_setting, parse_size, parse_size_as_written, parse_stall, parse_weight,
};
use crate::log::Format;

/// More memory than the machine has, for unmodified programs.
#[derive(Parser, Debug)]
#[command(
    name = "farmem",
    version,
    disable_help_subcommand = true,
    after_help = "Example:\n  farmem run --local 25% --summary -- python3 analysis.py\n\nExit status: the program's own \
                  for `run`; else 0 done, 1 failed, 2 cannot start, 126 program not executable, 127 no such program."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run a program within a budget of local memory
    Run(Box<RunArguments>),
    /// Lease one pool, and local memory, to all applications of this machine
    Host(HostArguments),
    /// Lend this machine's memory to programs on other machines
    Node(Box<NodeArguments>),
    /// Show and change which memory nodes a cluster has
    Cluster(Box<ClusterArguments>),
    /// Tell what an application waits for, and what would help
    Explain(ExplainArguments),
    /// Show the applications that run under Farmem now
    Stat(StatArguments),
    /// Watch the applications that run under Farmem, and change their limits
    Top(TopArguments),
    /// Show the applications that run under Farmem in a browser, and to Prometheus
    Web(WebArguments),
    /// Change the limits of an application while it runs
    Set(SetArguments),
    /// Tell what this machine and user can do, and how to mend what is missing
    Doctor(DoctorArguments),
    /// Look at what was recorded of a program's pages, and try policies on it
    Trace(TraceArguments),
    /// Measure Farmem beside the kernel's own swap
    Bench(BenchArguments),
    /// The program that `bench` measures
    #[command(hide = true)]
    Workload(WorkloadArguments),
    /// A program that `bench` measures beside others
    #[command(hide = true)]
    Compression(CompressionArguments),
    /// A numerical kernel, or a problem on graphs, keys or points, that `bench` measures
    #[command(hide = true)]
    Kernel(KernelArguments),
    /// Write the manual pages
    #[command(hide = true)]
    Man(ManArguments),
    /// Write the completions for a shell
    #[command(hide = true)]
    Completions(CompletionsArguments),
}

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
    /// Memory nodes to use between pool and disk, where `farmem node` runs
    #[arg(long, value_name = "HOST:PORT[,…]", value_delimiter = ',', value_parser = parse_node, conflicts_with = "cluster")]
    pub(crate) node: Vec<Destination>,
    /// Use the memory nodes that this file names, or what is under a key of etcd. It is followed: nodes join, are emptied (`state = "drain"`) and leave while the program runs
    #[arg(long, value_name = "FILE|etcd[s]://HOST:PORT[,…]/KEY", value_parser = parse_cluster)]
    pub(crate) cluster: Option<ClusterSource>,
    #[command(flatten)]
    pub(crate) etcd: EtcdArguments,
    /// How slabs lie on memory nodes: one copy, and with a disk a second one there; two copies on different nodes; or cut into K parts (1, 2, 4 or 8)
    /// with M of parity (1 to 4), on K+M nodes, of which any M may be lost, such as 4+2
    #[arg(long, value_name = "none|mirror|K+M", value_parser = parse_redundancy, default_value = "none")]
    pub(crate) redundancy: Redundancy,
    /// What goes at most in a second, read and written together, to make copies and parity anew that were lost with a node, and to empty nodes
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64M")]
    pub(crate) rebuild_rate: ByteCount,
    /// How pages travel to and from nodes of other machines: by RDMA where both machines have a device, else over the connection (auto); over the connection (tcp); or by RDMA or not at all (rdma). `shm` is for nodes of this machine, which are named shm:PATH
    #[arg(long, value_name = "auto|tcp|shm|rdma", value_enum, default_value_t = TransportName::Auto)]
    pub(crate) transport: TransportName,
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
    /// Room for pages that a read from a node brought along, beside the local memory, from 1M to 64M [default: a sixteenth of the local memory, 16M at most]
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
    /// Take what is not given here from this file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// Lend this machine's memory to programs on other machines.
///
/// The node runs until a signal ends it; then it grants nothing more, and waits for those who hold something to leave. A second signal ends it at
/// once. What a client wrote is lost when its node ends; that is for the client to provide against.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  farmem node keygen node.key\n  farmem node --memory 16G --listen 0.0.0.0:7431 --key node.key\n  farmem node \
                  stat memory-3:7431 --key node.key --json"
)]
pub(crate) struct NodeArguments {
    #[command(subcommand)]
    pub(crate) command: Option<NodeCommand>,
    /// Memory to lend, to all clients together; it is taken as they write
    #[arg(long, value_name = "SIZE", value_parser = parse_size, required = true)]
    pub(crate) memory: Option<ByteCount>,
    /// Where to listen; several are separated by commas
    #[arg(
        long,
        value_name = "HOST:PORT|unix:PATH|shm:PATH",
        value_delimiter = ',',
        default_value = "127.0.0.1:7431"
    )]
    pub(crate) listen: Vec<Destination>,
    /// What was granted to a client that says nothing for so many seconds goes to others
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=86400))]
    pub(crate) lease: u32,
    /// At a signal, wait at most so many seconds for clients to leave
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=86400))]
    pub(crate) drain: u32,
    /// Whether clients may reach their memory by RDMA: where there is a device with the address that they connect to; not at all; or by this
    /// device, its port, and which of the port's addresses
    #[arg(long, value_name = "auto|none|DEVICE[:PORT[:GID]]", default_value = "auto")]
    pub(crate) rdma: String,
    /// Log what happens on standard error, one event a line; `RUST_LOG` chooses what [default: no log]
    #[arg(long, value_name = "text|json", value_enum)]
    pub(crate) log: Option<Format>,
    /// Tell Prometheus about the node, at /metrics of this address of this machine [default: nowhere]
    #[arg(long, value_name = "ADDRESS:PORT|unix:PATH")]
    pub(crate) metrics: Option<Address>,
    #[command(flatten)]
    pub(crate) security: SecurityArguments,
}

/// How pages travel to and from memory nodes.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TransportName {
    /// As the node is named; to other machines by RDMA where both have a device.
    Auto,
    /// Over the connection.
    Tcp,
    /// By memory that both ends share.
    Shm,
    /// By RDMA, or not at all.
    Rdma,
}

/// How nodes and clients know each other.
#[derive(Args, Debug)]
pub(crate) struct SecurityArguments {
    /// File with the key that nodes and clients share; `farmem node keygen` makes one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["certificate", "plain"])]
    pub(crate) key: Option<PathBuf>,
    /// Certificate of this side, instead of a key: PEM, with what leads from it to an authority
    #[arg(long, value_name = "FILE", requires_all = ["certificate_key", "authority"], conflicts_with = "plain")]
    pub(crate) certificate: Option<PathBuf>,
    /// The certificate's private key, as PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub(crate) certificate_key: Option<PathBuf>,
    /// The certificates of those by whom the other side must have its own, as PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub(crate) authority: Option<PathBuf>,
    /// Without a key: let anybody in who reaches the address, and everybody on the way read and change what is said
    #[arg(long)]
    pub(crate) plain: bool,
}

/// How an etcd that holds a cluster is reached.
#[derive(Args, Debug)]
pub(crate) struct EtcdArguments {
    /// With etcds://: the certificates of those by whom etcd must have its own, as PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster_ca: Option<PathBuf>,
    /// With etcds://: the certificate of this side, where etcd asks for one, as PEM
    #[arg(long, value_name = "FILE", requires_all = ["cluster_key", "cluster_ca"])]
    pub(crate) cluster_cert: Option<PathBuf>,
    /// The certificate's private key, as PEM
    #[arg(long, value_name = "FILE", requires = "cluster_cert")]
    pub(crate) cluster_key: Option<PathBuf>,
    /// File with a line USER:PASSWORD, for an etcd that wants one; readable for its owner only
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster_login: Option<PathBuf>,
}

/// Show and change which memory nodes a cluster has.
///
/// The cluster is a file, or what is under a key of etcd, as for `farmem run --cluster`. Programs that follow it notice a change within a second. Comments and order of what is written
/// there stay, and so does what others change at the same time.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  farmem cluster show cluster.toml --key node.key\n  farmem cluster join cluster.toml memory-3 --address \
                  10.0.0.9:7431 --size 64G\n  farmem cluster drain etcd://10.0.0.2:2379/farmem/cluster memory-1 --wait --key \
                  node.key\n  farmem cluster leave cluster.toml memory-1 --key node.key"
)]
pub(crate) struct ClusterArguments {
    #[command(subcommand)]
    pub(crate) command: ClusterCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum ClusterCommand {
    /// Show its nodes, and what each of them holds
    Show(ClusterShowArguments),
    /// Add a node, or use one again that is to be emptied
    Join(ClusterJoinArguments),
    /// Have a node emptied: it gets nothing new, and what it holds goes to others
    Drain(ClusterDrainArguments),
    /// Take a node out
    Leave(ClusterLeaveArguments),
}

/// Where a cluster is.
#[derive(Args, Debug)]
pub(crate) struct ClusterPlace {
    /// A cluster file, or a key of etcd
    #[arg(value_name = "FILE|etcd[s]://HOST:PORT[,…]/KEY", value_parser = parse_cluster)]
    pub(crate) source: ClusterSource,
    #[command(flatten)]
    pub(crate) etcd: EtcdArguments,
}

/// Show a cluster's nodes, and what each of them holds.
///
/// Nodes are asked, by the key or certificates that they and their clients have. GRANTED is memory that clients hold or have asked for ahead of need.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  farmem cluster show cluster.toml --key node.key --json")]
pub(crate) struct ClusterShowArguments {
    #[command(flatten)]
    pub(crate) place: ClusterPlace,
    /// Print one JSON array
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) security: SecurityArguments,
}

/// Add a node, or use one again that is to be emptied.
///
/// Programs connect to it, and it gets its load slowly. Of a node that is in the cluster nothing but its name needs to be given.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  farmem cluster join cluster.toml memory-3 --address 10.0.0.9:7431 --size 64G"
)]
pub(crate) struct ClusterJoinArguments {
    #[command(flatten)]
    pub(crate) place: ClusterPlace,
    /// The node's name, for people
    #[arg(value_name = "NAME", value_parser = parse_name)]
    pub(crate) name: String,
    /// Where `farmem node` listens there
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_node)]
    pub(crate) address: Option<Destination>,
    /// What the machine is for [default: memory]
    #[arg(long, value_name = "compute|memory|general", value_enum)]
    pub(crate) role: Option<ClusterRole>,
    /// What it lends, for people: the node itself says what it has
    #[arg(long, value_name = "SIZE", value_parser = parse_size_as_written)]
    pub(crate) size: Option<String>,
}

/// What a machine of a cluster is for.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClusterRole {
    /// It runs programs, and lends nothing
    Compute,
    /// It lends its memory
    Memory,
    /// It does both
    General,
}

/// Have a node emptied: it gets nothing new, and what it holds goes to others.
///
/// Each program moves what it has there, at most `--rebuild-rate` bytes a second. With `--wait` the node is asked each second what it has still granted, until that is nothing:
/// then it can be stopped, and taken out of the cluster. It may never be, where no other node and no disk has room: programs say so.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  farmem cluster drain cluster.toml memory-1 --wait --timeout 10m --key node.key"
)]
pub(crate) struct ClusterDrainArguments {
    #[command(flatten)]
    pub(crate) place: ClusterPlace,
    /// The node's name
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Wait until the node holds nothing, and show how far it is
    #[arg(long)]
    pub(crate) wait: bool,
    /// Wait at most so long; exit status 1 when the node still holds something then [default: for ever]
    #[arg(long, value_name = "TIME", value_parser = parse_interval, requires = "wait")]
    pub(crate) timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) security: SecurityArguments,
}

/// Take a node out of a cluster.
///
/// Only one that holds nothing, so that it can be stopped then: `farmem cluster drain --wait` empties it first. Programs empty also a node that is no longer named,
/// and `--now` is for that, or for one that is dead.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  farmem cluster leave cluster.toml memory-1 --key node.key")]
pub(crate) struct ClusterLeaveArguments {
    #[command(flatten)]
    pub(crate) place: ClusterPlace,
    /// The node's name
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Whatever it holds
    #[arg(long)]
    pub(crate) now: bool,
    #[command(flatten)]
    pub(crate) security: SecurityArguments,
}

#[derive(Subcommand, Debug)]
pub(crate) enum NodeCommand {
    /// Make a key, or certificates, by which nodes and clients know each other
    Keygen(NodeKeygenArguments),
    /// Ask a node how it is
    Stat(NodeStatArguments),
}

/// Make a key, or certificates, by which nodes and clients know each other.
///
/// A key is one file, the same on all machines. Certificates go to a folder: those of a new authority, of the nodes and of the clients, each with
/// its private key. What is there already is not overwritten.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  farmem node keygen /etc/farmem/node.key\n  farmem node keygen --certificates /etc/farmem/certificates \
                  memory-1 memory-2 10.0.0.7"
)]
pub(crate) struct NodeKeygenArguments {
    /// The file for the key
    #[arg(value_name = "FILE", required_unless_present = "certificates")]
    pub(crate) key: Option<PathBuf>,
    /// Make certificates in this folder instead
    #[arg(long, value_name = "FOLDER")]
    pub(crate) certificates: Option<PathBuf>,
    /// With `--certificates`: the names and addresses by which clients reach the nodes
    #[arg(value_name = "HOST")]
    pub(crate) hosts: Vec<String>,
}

/// Ask a node how it is.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  farmem node stat memory-3:7431 --key node.key --json")]
pub(crate) struct NodeStatArguments {
    /// The node
    #[arg(value_name = "HOST:PORT|unix:PATH|shm:PATH")]
    pub(crate) node: Destination,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) security: SecurityArguments,
}

/// Show the applications that run under Farmem now.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  farmem stat redis --json\n  farmem stat redis --regions")]
pub(crate) struct StatArguments {
    /// Only the applications of this name
    #[arg(value_name = "NAME", value_parser = parse_name)]
    pub(crate) name: Option<String>,
    /// Its processes and their regions: what is local, what is far, how hot, how well packed. Of the one application with this name, or this process number
    #[arg(long, requires = "name")]
    pub(crate) regions: bool,
    /// Print one JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

/// Tell what an application waits for, and what would help.
///
/// The time that its threads waited for pages is divided by cause: pages in the pool, on memory nodes, on disk; unpacking (from a sample); other
/// pages that had to leave first; memory touched for the first time. Waiting for a processor is no part of it: that looks the same with and without
/// paging. How much local memory would help is estimated from how long pages are away before they come back.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  farmem explain redis\n  farmem explain 4711 --over 5s --json")]
pub(crate) struct ExplainArguments {
    /// The application's name, or its program's process number
    #[arg(value_name = "NAME|PID", value_parser = parse_name)]
    pub(crate) name: String,
    /// Look at what happens in so long a time from now on [default: at all since its start]
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    pub(crate) over: Option<Duration>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Watch the applications that run under Farmem, and change their limits.
///
/// FAULT/s are faults served; WAITS is the time that threads waited for pages, summed over them; AHEAD the part of the far pages that were there
/// when they were wanted. Below stands more of the selected application. Keys: arrows or j and k select; l, p and w change local memory, pool
/// and weight, as `farmem set` does; q ends it.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  farmem top\n  farmem top --once --interval 5s")]
pub(crate) struct TopArguments {
    /// Time from one look to the next
    #[arg(long, value_name = "TIME", value_parser = parse_interval, default_value = "1s")]
    pub(crate) interval: Duration,
    /// Print one screen to standard output, with rates over one interval, and end
    #[arg(long)]
    pub(crate) once: bool,
}

/// Show the applications that run under Farmem in a browser, and to Prometheus.
///
/// One page with live charts of the last ten minutes: how each application is doing, why, and what would help. The same figures for Prometheus are at
/// /metrics. Without a token nothing can be changed, and only this machine is let in; with one, who knows it can change limits as `farmem set` does.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  farmem web\n  head -c 24 /dev/urandom | base64 >token; farmem web --listen 0.0.0.0:7430 --token token"
)]
pub(crate) struct WebArguments {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS:PORT|unix:PATH", default_value = "127.0.0.1:7430")]
    pub(crate) listen: Address,
    /// File with the token that allows changes, and requests from other machines
    #[arg(long, value_name = "FILE")]
    pub(crate) token: Option<PathBuf>,
}

/// Change the limits of an application while it runs.
///
/// Either all of them change or none. With more local memory, pages come back by themselves, the most recently stored ones
/// first. Only the user who runs the application, and root, may change its limits.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  farmem set redis local=512M\n  farmem set 4711 local=25% pool=2G weight=2\n\nLimits:\n  \
                  local=SIZE|PERCENT%       local memory to keep, as --local\n  pool=[GUARANTEED-]SIZE    limit of \
                  the compressed pool, as --pool\n  partition=SIZE            limit of far memory, as --partition\n  cache=SIZE                limit of the swap cache, as \
                  --cache\n  weight=WEIGHT             part against others, as --weight"
)]
pub(crate) struct SetArguments {
    /// The application's name, or its program's process number
    #[arg(value_name = "NAME|PID", value_parser = parse_name)]
    pub(crate) name: String,
    /// The new limits
    #[arg(value_name = "LIMIT=VALUE", required = true, value_parser = parse_setting)]
    pub(crate) settings: Vec<Setting>,
    /// Print how the application is afterwards, as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Tell what this machine and user can do, and how to mend what is missing.
///
/// Exit status 0 when `farmem run` can work here, else 1.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  farmem doctor")]
pub(crate) struct DoctorArguments {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Measure Farmem beside the kernel's own swap.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  farmem bench faults --quick")]
pub(crate) struct BenchArguments {
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum BenchCommand {
    /// All benchmarks one after the other: a line of JSON for each measurement, and one report as HTML
    All(AllArguments),
    /// Access patterns over data four times the local memory: native, Farmem and each kind of kernel swap
    Faults(FaultsArguments),
    /// Applications beside each other: Farmem and each kind of kernel swap
    Isolation(IsolationArguments),
    /// Programs and patterns of access, or a program of one's own, under each policy of prefetching
    Prefetch(PrefetchArguments),
    /// Memory nodes beside bare connections, and programs whose far memory is there, in the pool or on disk
    Nodes(NodesArguments),
    /// What changed between two results of `bench all`, beyond chance
    Compare(CompareArguments),
    /// The access patterns of results of `bench all` as a table in Markdown, as in the README
    Table(TableArguments),
    /// Which figures and tables of the papers are measured, and by what, as a table in Markdown
    Papers(PapersArguments),
    /// What system calls, page faults, moves of pages and wake-ups cost on this machine
    Micro(MicroArguments),
    /// Undo what a benchmark left behind when it was killed: swap, devices, mounts, control groups
    Cleanup(CleanupArguments),
}

/// All benchmarks one after the other: a line of JSON for each measurement, and one report as HTML.
///
/// The folder gets records.jsonl, report.html and progress.json, after each step. What was interrupted goes on where it stopped when it is called again
/// with the same folder. What this machine can't run is left out and named, with the reason. All of it takes hours, with --quick some twenty minutes; kernel swap and links between
/// namespaces need root.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  sudo farmem bench all --out results --quick\n  sudo farmem bench all --out results --only micro,faults/random-read"
)]
pub(crate) struct AllArguments {
    /// Folder for the results, made if it isn't there
    #[arg(long, value_name = "FOLDER")]
    pub(crate) out: PathBuf,
    /// Less data, shorter measurements and fewer repetitions: rougher figures, sooner
    #[arg(long)]
    pub(crate) quick: bool,
    /// Repetitions of everything; a comparison needs at least 4 to tell differences from chance [default: 5, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) repeat: Option<u32>,
    /// Data of each program that is measured [default: 256M, with --quick 32M to 64M]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) data: Option<ByteCount>,
    /// Only these benchmarks, such as `faults`, or parts of them, such as `faults/zipf`
    #[arg(long, value_name = "BENCH[/PART]", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Only these peers for the access patterns
    #[arg(long, value_name = "PEER", value_delimiter = ',', value_enum)]
    pub(crate) peer: Vec<PeerName>,
    /// A Python with XGBoost, for programs beside each other
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    pub(crate) python: PathBuf,
    /// Where swap files are made; must be on a disk
    #[arg(long, value_name = "FOLDER", default_value = "/var/tmp")]
    pub(crate) swap_folder: PathBuf,
}

/// How to measure beside the kernel's swap.
#[derive(Args, Debug)]
pub(crate) struct MeasureArguments {
    /// Print one JSON object instead of the table
    #[arg(long)]
    pub(crate) json: bool,
    /// Less data, shorter measurements and fewer repetitions: rougher figures, sooner
    #[arg(long)]
    pub(crate) quick: bool,
    /// Data of each program that is measured; a quarter of it is kept local [default: 256M, with --quick 64M]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) data: Option<ByteCount>,
    /// Repetitions, interleaved between the peers [default: 3, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) repeat: Option<u32>,
    /// Where swap files are made; must be on a disk
    #[arg(long, value_name = "FOLDER", default_value = "/var/tmp")]
    pub(crate) swap_folder: PathBuf,
}

/// Access patterns over data four times the local memory: native, Farmem and each kind of kernel swap.
///
/// Kernel swap needs root; a peer that this machine can't offer is left out and named. Swap is on only while its
/// peer runs. The table goes to standard output, progress to standard error.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  sudo farmem bench faults\n  sudo farmem bench faults --quick --only random-read,sequential \
                  --peer native,farmem,zram-lz4 --json"
)]
pub(crate) struct FaultsArguments {
    #[command(flatten)]
    pub(crate) measure: MeasureArguments,
    /// Only these cases
    #[arg(long, value_name = "CASE", value_delimiter = ',', value_enum)]
    pub(crate) only: Vec<CaseName>,
    /// Only these peers
    #[arg(long, value_name = "PEER", value_delimiter = ',', value_enum)]
    pub(crate) peer: Vec<PeerName>,
}

/// A server beside a program that swaps as fast as it can, and programs of several kinds beside each other: Farmem and each kind of kernel swap.
///
/// memcached holds data four times its local memory and is asked at a fixed rate, alone and while another program
/// writes at random to four times its own. Each has a processor of its own; what they still share is the paging. Then Snappy, memcached, XGBoost and a
/// Java program run alone and all at once, each with the same part of a processor. Kernel swap and parts of processors need root.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  sudo farmem bench isolation\n  sudo farmem bench isolation --quick --only co-runs --peer farmem,zram --json"
)]
pub(crate) struct IsolationArguments {
    #[command(flatten)]
    pub(crate) measure: MeasureArguments,
    /// Only these parts
    #[arg(long, value_name = "PART", value_delimiter = ',', value_enum)]
    pub(crate) only: Vec<IsolationPart>,
    /// A Python with XGBoost, for the co-runs
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    pub(crate) python: PathBuf,
    /// Only these peers
    #[arg(long, value_name = "PEER", value_delimiter = ',', value_enum)]
    pub(crate) peer: Vec<IsolationPeer>,
}

/// Programs and patterns of access, or a program of one's own, under each policy of prefetching.
///
/// All of them take some hours, with --quick some ten minutes; what isn't installed here is left out and named. Each runs with a quarter of the memory that it has resident when nothing limits it, and must write the same to standard output every
/// time. The table goes to standard output, progress to standard error.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  farmem bench prefetch --quick --only xgboost,c-hash-join\n  farmem bench prefetch --policy none,streams --local 256M -- python3 train.py"
)]
pub(crate) struct PrefetchArguments {
    /// Print one JSON object instead of the table
    #[arg(long)]
    pub(crate) json: bool,
    /// Less data and one repetition: rougher figures, sooner
    #[arg(long)]
    pub(crate) quick: bool,
    /// Data of each program [default: 256M, with --quick 64M]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "program")]
    pub(crate) data: Option<ByteCount>,
    /// Local memory [default: a quarter of what the program has resident when nothing limits it]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) local: Option<ByteCount>,
    /// Repetitions, interleaved between the policies [default: 3, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) repeat: Option<u32>,
    /// Only these policies
    #[arg(long, value_name = "POLICY", value_delimiter = ',', value_parser = parse_prefetch())]
    pub(crate) policy: Vec<PrefetchPolicy>,
    /// Only these programs and patterns
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_enum, conflicts_with = "program")]
    pub(crate) only: Vec<SubjectName>,
    /// A Python with numpy and XGBoost
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    pub(crate) python: PathBuf,
    /// A program of one's own, and its arguments [default: some twenty programs and patterns]
    #[arg(value_name = "PROGRAM", trailing_var_arg = true)]
    pub(crate) program: Vec<OsString>,
}

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

/// Memory nodes beside bare connections, programs whose far memory is there, in the pool or on disk, and what the loss of a node costs.
///
/// Nodes are reached by loopback, plain and with TLS, by a Unix socket and by shared memory; and, as root, by links between network namespaces, which
/// go with the benchmark, however it ends. The loss is that of one node of six while Redis runs, with parity (4+2) and with two copies. The tables go to standard
/// output, progress to standard error. Kernels in the manner of COMEX's evaluation run with a half, a quarter and a tenth of their data local, and as root also over swap to a file.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  sudo farmem bench nodes\n  farmem bench nodes --quick --json\n  farmem bench nodes --only loss"
)]
pub(crate) struct NodesArguments {
    /// Print one JSON object instead of the tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Less data, fewer requests and one repetition: rougher figures, sooner
    #[arg(long)]
    pub(crate) quick: bool,
    /// Data of the programs; a quarter of it is kept local [default: 256M, with --quick 32M]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) data: Option<ByteCount>,
    /// Repetitions, interleaved between the ways to a node [default: 3, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) repeat: Option<u32>,
    /// Where swap files are made, to compare with; must be on a disk
    #[arg(long, value_name = "FOLDER", default_value = "/var/tmp")]
    pub(crate) swap_folder: PathBuf,
    /// Only these parts
    #[arg(long, value_name = "PART", value_delimiter = ',', value_enum)]
    pub(crate) only: Vec<NodesPart>,
}

/// What changed between two results of `bench all`, beyond chance.
///
/// Compares the medians of all figures that both have, and names those that differ by more than chance (Mann-Whitney U test, 5%). Exit status 0 whatever
/// changed; with --json each figure has its verdict.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  farmem bench compare results-before results-after")]
pub(crate) struct CompareArguments {
    /// The first results: a folder of `bench all`, or a file of records
    #[arg(value_name = "FIRST")]
    pub(crate) first: PathBuf,
    /// The second ones
    #[arg(value_name = "SECOND")]
    pub(crate) second: PathBuf,
    /// Print one JSON object with all figures
    #[arg(long)]
    pub(crate) json: bool,
}

/// The access patterns of results of `bench all` as a table in Markdown, as in the README.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  farmem bench table results")]
pub(crate) struct TableArguments {
    /// A folder of `bench all`, or a file of records
    #[arg(value_name = "RESULTS")]
    pub(crate) results: PathBuf,
}

/// Which figures and tables of the papers are measured, and by what, as a table in Markdown.
///
/// What answers a figure is named as in `farmem bench all --only`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  farmem bench papers")]
pub(crate) struct PapersArguments {}

/// What system calls, page faults, moves of pages and wake-ups cost on this machine.
///
/// The last lines are the floor: a fault that a handler in user space answers with a page that is at hand. No pager that serves faults from a thread of its
/// own is faster here, whatever else it does.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  farmem bench micro")]
pub(crate) struct MicroArguments {
    /// Print one JSON object instead of the table
    #[arg(long)]
    pub(crate) json: bool,
    /// Fewer calls and turns: rougher figures, sooner
    #[arg(long)]
    pub(crate) quick: bool,
    /// Turns of each primitive [default: 5, with --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) repeat: Option<u32>,
}

/// Undo what a benchmark left behind when it was killed: swap, devices, mounts, control groups.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  sudo farmem bench cleanup")]
pub(crate) struct CleanupArguments {
    /// Wait until standard input closes, then undo what this process left if it has ended
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) after: Option<u32>,
}

/// The program that `bench` measures: fills memory, reads and writes it in a pattern, checks every byte.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  farmem workload --data 64M --pattern random-read --threads 2")]
pub(crate) struct WorkloadArguments {
    /// How much memory to fill
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64M")]
    pub(crate) data: ByteCount,
    /// The order of accesses
    #[arg(long, value_enum, default_value_t = Pattern::RandomRead)]
    pub(crate) pattern: Pattern,
    /// Threads that access the data
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) threads: u32,
    /// How well pages compress
    #[arg(long, value_enum, default_value_t = Compressibility::Half)]
    pub(crate) compressibility: Compressibility,
    /// Accesses of each round, over all threads [default: half the pages; all of them in order for sequential]
    #[arg(long, value_name = "N")]
    pub(crate) accesses: Option<u64>,
    /// Rounds before the measured ones
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(..=1000))]
    pub(crate) warm_up: u32,
    /// Measured rounds
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Keep one more thread busy that touches no data
    #[arg(long)]
    pub(crate) sibling: bool,
    /// Wait for a line on standard input before the warm-up and before the measured rounds
    #[arg(long)]
    pub(crate) paced: bool,
}

/// A program that `bench` measures beside others: compresses text, unpacks it, checks every byte.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  farmem compression --data 64M --rounds 3")]
pub(crate) struct CompressionArguments {
    /// What text and compressed text take
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64M")]
    pub(crate) data: ByteCount,
    /// How often
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
}

/// A numerical kernel, or a problem on graphs, keys or points, that `bench` measures: works on its data, and checks the result.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  farmem kernel sort --data 64M")]
pub(crate) struct KernelArguments {
    /// Which
    #[arg(value_enum, value_name = "KERNEL")]
    pub(crate) kernel: Kernel,
    /// How much data it works on, from 1M
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64M")]
    pub(crate) data: ByteCount,
}

/// Write the manual pages.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  farmem man target/man")]
pub(crate) struct ManArguments {
    /// Folder for the pages, made if it isn't there
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
}

/// Write the completions for a shell to standard output.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  farmem completions bash > /usr/share/bash-completion/completions/farmem")]
pub(crate) struct CompletionsArguments {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}
