//! `farmem node`, its keys and its figures; and what proves who is there, for both ends.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use farmem_page::ByteCount;
use farmem_supervisor::{ClusterSource, Destination};
use farmem_transport::Rack;
use farmem_web::Address;

use super::{EtcdArguments, MetricsHosts, heading};
use crate::amount::{parse_cluster, parse_name, parse_size};
use crate::log::Format;

/// Lend this machine's memory to programs on other machines.
///
/// The node runs until a signal ends it. After that it grants nothing more and waits until clients that still
/// hold memory have left; a second signal ends it at once. When a node ends, the pages on it are lost:
/// clients that need them keep copies or parity elsewhere (`farmem run --redundancy`).
///
/// With `--cluster` and `--name`, the node reads its `size`, `address` and `rack` from the cluster when it
/// starts, so that the same command works on all machines.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  farmem node keygen node.key\n  farmem node --memory 16G --listen 0.0.0.0:7431 --key node.key\n  farmem node \
                  --cluster cluster.toml --name memory-3 --key node.key\n  farmem node stat memory-3:7431 --key node.key --json"
)]
pub(crate) struct NodeArguments {
    #[command(subcommand)]
    pub(crate) command: Option<NodeCommand>,
    /// Memory to lend to all clients together [default: what the cluster says]
    ///
    /// Memory is taken as clients write to it, not before.
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = parse_size,
        required_unless_present = "cluster",
        help_heading = heading::LENDING
    )]
    pub(crate) memory: Option<ByteCount>,
    /// Addresses to listen on [default: what the cluster says, else 127.0.0.1:7431]
    ///
    /// HOST:PORT, unix:PATH or shm:PATH, separated by commas.
    #[arg(long, value_name = "ADDRESS[,…]", value_delimiter = ',', help_heading = heading::LENDING)]
    pub(crate) listen: Vec<Destination>,
    /// The rack that this machine is in, or whatever else fails as a whole [default: what the cluster says]
    ///
    /// Programs spread copies and parity over racks, so that they survive the loss of any of them. A name has
    /// up to 20 letters, digits, or - _ . / :
    #[arg(long, value_name = "NAME", help_heading = heading::LENDING)]
    pub(crate) rack: Option<Rack>,
    /// File, or key in etcd, that says what the node `--name` lends and where it listens
    ///
    /// FILE, or a URL etcd[s]://HOST:PORT[,…]/KEY. `--memory`, `--listen` and `--rack` override it.
    #[arg(
        long,
        value_name = "FILE|URL",
        value_parser = parse_cluster,
        requires = "name",
        help_heading = heading::LENDING
    )]
    pub(crate) cluster: Option<ClusterSource>,
    /// With `--cluster`: this node's name there
    #[arg(long, value_name = "NAME", value_parser = parse_name, requires = "cluster", help_heading = heading::LENDING)]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) security: SecurityArguments,
    #[command(flatten)]
    pub(crate) etcd: EtcdArguments,
    /// Log events to standard error
    ///
    /// One event a line; `RUST_LOG` chooses which [default: no log].
    #[arg(long, value_name = "FORMAT", value_enum, help_heading = heading::WATCHING)]
    pub(crate) log: Option<Format>,
    /// Address at which this machine serves metrics for Prometheus
    ///
    /// ADDRESS:PORT or unix:PATH. The node's metrics are at /metrics there [default: none].
    #[arg(long, value_name = "ADDRESS", help_heading = heading::WATCHING)]
    pub(crate) metrics: Option<Address>,
    #[command(flatten)]
    pub(crate) metrics_hosts: MetricsHosts,
    /// Seconds after which a silent client loses its memory, from 1 to 86400
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 30,
        value_parser = clap::value_parser!(u32).range(1..=86400),
        hide_short_help = true,
        help_heading = heading::TUNING
    )]
    pub(crate) lease: u32,
    /// Longest time in seconds to wait for clients to leave after a signal
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(0..=86400),
        hide_short_help = true,
        help_heading = heading::TUNING
    )]
    pub(crate) drain: u32,
    /// RDMA device by which clients may reach their memory, its port, and the index of the port's address
    ///
    /// `auto` takes the device that has the address to which a client connects, if there is one; `none` turns
    /// RDMA off.
    #[arg(
        long,
        value_name = "auto|none|DEVICE[:PORT[:GID]]",
        default_value = "auto",
        hide_short_help = true,
        help_heading = heading::TUNING
    )]
    pub(crate) rdma: String,
}

/// How pages travel to and from memory nodes.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TransportName {
    /// As the node's address says; to other machines by RDMA, which doesn't encrypt pages, if both machines
    /// have a device
    Auto,
    /// Over the connection, never by RDMA
    Tcp,
    /// Through memory that both ends share, for nodes on this machine, which are named shm:PATH
    Shm,
    /// By RDMA, or not at all
    Rdma,
}

/// How nodes and clients recognise each other.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SecurityArguments {
    /// File with the key that nodes and clients share
    ///
    /// `farmem node keygen` makes one.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["certificate", "plain"],
        help_heading = heading::SECURITY
    )]
    pub(crate) key: Option<PathBuf>,
    /// Certificate chain of this side (PEM), instead of `--key`
    #[arg(
        long,
        value_name = "FILE",
        requires_all = ["certificate_key", "authority"],
        conflicts_with = "plain",
        hide_short_help = true,
        help_heading = heading::SECURITY
    )]
    pub(crate) certificate: Option<PathBuf>,
    /// Private key of the certificate in `--certificate` (PEM)
    #[arg(
        long,
        value_name = "FILE",
        requires = "certificate",
        hide_short_help = true,
        help_heading = heading::SECURITY
    )]
    pub(crate) certificate_key: Option<PathBuf>,
    /// CA certificates (PEM), one of which must have signed the other side's certificate
    #[arg(
        long,
        value_name = "FILE",
        requires = "certificate",
        hide_short_help = true,
        help_heading = heading::SECURITY
    )]
    pub(crate) authority: Option<PathBuf>,
    /// Use no key: others on the network can read and change pages
    ///
    /// Anybody who can reach the address of a node is let in.
    #[arg(long, help_heading = heading::SECURITY)]
    pub(crate) plain: bool,
}

impl SecurityArguments {
    /// Whether none of them is given.
    pub(crate) fn is_silent(&self) -> bool {
        self.key.is_none() && self.certificate.is_none() && !self.plain
    }
}

#[derive(Subcommand, Debug)]
pub(crate) enum NodeCommand {
    /// Make the key or the certificates by which nodes and clients recognise each other
    Keygen(NodeKeygenArguments),
    /// Show how much a node lends and how busy it is
    Stat(NodeStatArguments),
}

/// Make the key or the certificates by which nodes and clients recognise each other.
///
/// A key is one file, the same on all machines. Certificates go to a folder: those of a new authority, of the
/// nodes and of the clients, each with a private key. Existing files are not overwritten.
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

/// Show how much a node lends and how busy it is.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  farmem node stat memory-3:7431 --key node.key --json")]
pub(crate) struct NodeStatArguments {
    /// Address of the node
    #[arg(value_name = "HOST:PORT|unix:PATH|shm:PATH")]
    pub(crate) node: Destination,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) security: SecurityArguments,
}
