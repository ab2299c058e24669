//! `farmem node`, its keys and its figures; and what proves who is there, for both ends.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use farmem_page::ByteCount;
use farmem_supervisor::{ClusterSource, Destination};
use farmem_web::Address;

use super::{EtcdArguments, MetricsHosts};
use crate::amount::{parse_cluster, parse_name, parse_size};
use crate::log::Format;

/// Lend this machine's memory to programs on other machines.
///
/// The node runs until a signal ends it; then it grants nothing more, and waits for those who hold something to leave. A second signal ends it at
/// once. What a client wrote is lost when its node ends; that is for the client to provide against.
///
/// With `--cluster` and `--name` the node lends the `size` and listens at the `address` that the cluster has for that name, so that one command does for all machines. It looks there once, when it starts.
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
    /// Memory to lend, to all clients together; it is taken as they write [default: what the cluster says]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, required_unless_present = "cluster")]
    pub(crate) memory: Option<ByteCount>,
    /// Where to listen; several are separated by commas [default: what the cluster says; without one 127.0.0.1:7431]
    #[arg(long, value_name = "HOST:PORT|unix:PATH|shm:PATH", value_delimiter = ',')]
    pub(crate) listen: Vec<Destination>,
    /// Be the node that this file, or what is under a key of etcd, has under the name of `--name`; `--memory` and `--listen` count before it
    #[arg(long, value_name = "FILE|etcd[s]://HOST:PORT[,…]/KEY", value_parser = parse_cluster, requires = "name")]
    pub(crate) cluster: Option<ClusterSource>,
    /// With `--cluster`: this node's name there
    #[arg(long, value_name = "NAME", value_parser = parse_name, requires = "cluster")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) etcd: EtcdArguments,
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
    pub(crate) metrics_hosts: MetricsHosts,
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
#[derive(Args, Clone, Debug, Default)]
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

impl SecurityArguments {
    /// Whether nothing is said of it.
    pub(crate) fn is_silent(&self) -> bool {
        self.key.is_none() && self.certificate.is_none() && !self.plain
    }
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
