//! `farmem host`: what a machine has for its applications.

use std::path::PathBuf;

use clap::Args;
use farmem_page::ByteCount;
use farmem_supervisor::{ClusterSource, Destination, Redundancy};
use farmem_web::Address;

use super::{EtcdArguments, MetricsHosts, SecurityArguments, TransportName};
use crate::amount::{parse_bandwidth, parse_cluster, parse_node, parse_redundancy, parse_size};
use crate::log::Format;

/// Lease one pool, and local memory, to all applications of this machine.
///
/// Applications that `farmem run` starts from then on share what the broker has: each gets what it was guaranteed whenever it wants it, and
/// beyond that by weight what others don't need; idle ones give back first. The broker runs until a signal ends it. It is on nobody's way: if it
/// ends, applications go on with what they hold, and come to the next one.
///
/// A host may name memory nodes, and how they are reached: programs that name none use them, unless they are started with `--node none`. Of a key and of certificates the broker
/// tells only in which files they are, and `farmem run` opens those with the rights of its user.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  farmem host --pool 8G\n  farmem host --pool 8G --local 4G --socket /run/farmem/batch.socket\n  farmem host --pool 8G \
                  --cluster /etc/farmem/cluster.toml --key /etc/farmem/node.key --redundancy mirror\n\nA configuration file has lines such as `pool = \"8G\"`, `local = \"4G\"`, `socket = \"/run/farmem/host.socket\"`, and below a line \
                  `[nodes]` what it says of memory nodes, such as `cluster = \"/etc/farmem/cluster.toml\"`, `key = \
                  \"/etc/farmem/node.key\"`, `redundancy = \"mirror\"`; what is given on the command line counts before it."
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
    /// Memory nodes that programs use which name none
    #[arg(long, value_name = "HOST:PORT[,…]", value_delimiter = ',', value_parser = parse_node, conflicts_with = "cluster")]
    pub(crate) node: Vec<Destination>,
    /// The same by a cluster: a file, or a key of etcd
    #[arg(long, value_name = "FILE|etcd[s]://HOST:PORT[,…]/KEY", value_parser = parse_cluster)]
    pub(crate) cluster: Option<ClusterSource>,
    #[command(flatten)]
    pub(crate) etcd: EtcdArguments,
    #[command(flatten)]
    pub(crate) node_security: SecurityArguments,
    /// How their slabs lie on these nodes, if they don't say it
    #[arg(long, value_name = "none|mirror|K+M", value_parser = parse_redundancy)]
    pub(crate) redundancy: Option<Redundancy>,
    /// How pages travel to these nodes, if they don't say it; `tcp` keeps them from going by RDMA, which doesn't encrypt them
    #[arg(long, value_name = "auto|tcp|shm|rdma", value_enum)]
    pub(crate) transport: Option<TransportName>,
    /// Socket to listen on [default: /run/farmem/host.socket, for other users than root farmem/host.socket in their runtime directory]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Log what happens on standard error, one event a line; `RUST_LOG` chooses what [default: no log]
    #[arg(long, value_name = "text|json", value_enum)]
    pub(crate) log: Option<Format>,
    /// Tell Prometheus about the broker and all applications, at /metrics of this address of this machine [default: nowhere]
    #[arg(long, value_name = "ADDRESS:PORT|unix:PATH")]
    pub(crate) metrics: Option<Address>,
    #[command(flatten)]
    pub(crate) metrics_hosts: MetricsHosts,
    /// Take what is not given here from this file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}
