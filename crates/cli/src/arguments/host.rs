//! `farmem host`: what a machine has for its applications.

use std::path::PathBuf;

use clap::Args;
use farmem_page::ByteCount;
use farmem_supervisor::{ClusterSource, Destination, Redundancy};
use farmem_web::Address;

use super::{EtcdArguments, MetricsHosts, SecurityArguments, TransportName, heading};
use crate::amount::{parse_bandwidth, parse_cluster, parse_node, parse_redundancy, parse_size};
use crate::log::Format;

/// Share one pool and local memory among all applications of this machine.
///
/// Applications that `farmem run` starts from then on share this memory. Each gets its guarantee whenever it
/// needs it. Beyond that, what the others don't need is divided by weight; idle applications give back first.
/// The broker runs until a signal ends it. If it ends, applications go on with what they hold and connect to
/// the next broker.
///
/// A host may name memory nodes and how they are reached. Programs that name none themselves use these,
/// unless they are started with `--node none`. The broker tells them only the names of the files with keys
/// and certificates; `farmem run` opens these files with the rights of its user.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  farmem host --pool 8G\n  farmem host --pool 8G --local 4G --socket /run/farmem/batch.socket\n  farmem host --pool 8G \
                  --cluster /etc/farmem/cluster.toml --key /etc/farmem/node.key --redundancy mirror\n  farmem host --pool 8G --manage /etc/farmem/rules.toml\n\nA configuration file has lines such as `pool = \"8G\"`, `local = \"4G\"`, `socket = \"/run/farmem/host.socket\"`, and below a line \
                  `[nodes]` the options for memory nodes, such as `cluster = \"/etc/farmem/cluster.toml\"`, `key = \
                  \"/etc/farmem/node.key\"`, `redundancy = \"mirror\"`; options on the command line override the file.\n\nA \
                  file of rules has for each rule a line `[[rule]]`, and below it `name = \"web\"`; what to look for, one of `cgroup = \
                  \"/system.slice/web*.service\"`, `unit = \"postgresql.service\"`, `command = \"redis-server\"`, `container-label = \
                  \"tier=cold\"`; and options of `farmem attach`, such as `local = \"256M\"`, `pool = \"1G\"`."
)]
pub(crate) struct HostArguments {
    /// Memory for the pools of all applications together [default: half of what is free]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = heading::MEMORY)]
    pub(crate) pool: Option<ByteCount>,
    /// Local memory of all applications together [default: the sum of their budgets]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = heading::MEMORY)]
    pub(crate) local: Option<ByteCount>,
    /// Memory nodes for programs that name none
    #[arg(
        long,
        value_name = "HOST:PORT[,…]",
        value_delimiter = ',',
        value_parser = parse_node,
        conflicts_with = "cluster",
        help_heading = heading::NODES
    )]
    pub(crate) node: Vec<Destination>,
    /// File, or key in etcd, that lists memory nodes for programs that name none
    ///
    /// FILE, or a URL etcd[s]://HOST:PORT[,…]/KEY.
    #[arg(long, value_name = "FILE|URL", value_parser = parse_cluster, help_heading = heading::NODES)]
    pub(crate) cluster: Option<ClusterSource>,
    /// Copies on these nodes for programs that don't choose: none, mirror or K+M
    ///
    /// As for `farmem run`.
    #[arg(long, value_name = "SCHEME", value_parser = parse_redundancy, help_heading = heading::NODES)]
    pub(crate) redundancy: Option<Redundancy>,
    /// How pages travel to and from these nodes for programs that don't choose
    #[arg(long, value_name = "WAY", value_enum, help_heading = heading::NODES)]
    pub(crate) transport: Option<TransportName>,
    /// Most bytes per second that all applications read from nodes [default: no limit]
    ///
    /// 125M is about a gigabit per second.
    #[arg(long, value_name = "SIZE", value_parser = parse_bandwidth, help_heading = heading::NODES)]
    pub(crate) bandwidth_in: Option<ByteCount>,
    /// Most bytes per second that all applications write to nodes [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = parse_bandwidth, help_heading = heading::NODES)]
    pub(crate) bandwidth_out: Option<ByteCount>,
    #[command(flatten)]
    pub(crate) node_security: SecurityArguments,
    #[command(flatten)]
    pub(crate) etcd: EtcdArguments,
    /// Log events to standard error
    ///
    /// One event a line; `RUST_LOG` chooses which [default: no log].
    #[arg(long, value_name = "FORMAT", value_enum, help_heading = heading::WATCHING)]
    pub(crate) log: Option<Format>,
    /// Address at which this machine serves metrics for Prometheus
    ///
    /// ADDRESS:PORT or unix:PATH. Metrics of the broker and of all applications are at /metrics there
    /// [default: none].
    #[arg(long, value_name = "ADDRESS", help_heading = heading::WATCHING)]
    pub(crate) metrics: Option<Address>,
    #[command(flatten)]
    pub(crate) metrics_hosts: MetricsHosts,
    /// Socket to listen on
    ///
    /// [default: /run/farmem/host.socket for root, farmem/host.socket in the runtime directory for other
    /// users]
    #[arg(long, value_name = "PATH", help_heading = heading::BROKER)]
    pub(crate) socket: Option<PathBuf>,
    /// File of rules that say which running programs to manage and within which budgets
    ///
    /// Programs, units and containers that fit a rule are managed as by `farmem attach`, and so are those
    /// that start later. They stay managed when this host ends. The file is read again when it has changed
    /// and on SIGHUP.
    #[arg(long, value_name = "FILE", help_heading = heading::BROKER)]
    pub(crate) manage: Option<PathBuf>,
    /// Configuration file, for options that are not given here
    #[arg(long, value_name = "FILE", help_heading = heading::BROKER)]
    pub(crate) config: Option<PathBuf>,
}
