//! `farmem cluster`: which nodes there are.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use farmem_supervisor::{ClusterSource, Destination};
use farmem_transport::Rack;

use super::{SecurityArguments, heading};
use crate::amount::{parse_cluster, parse_interval, parse_name, parse_node, parse_size_as_written};

/// How an etcd that holds a cluster is reached.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct EtcdArguments {
    /// With etcds://: CA certificates (PEM), one of which must have signed etcd's certificate
    #[arg(long, value_name = "FILE", hide_short_help = true, help_heading = heading::ETCD)]
    pub(crate) cluster_ca: Option<PathBuf>,
    /// With etcds://: certificate chain of this side (PEM), if etcd asks for one
    #[arg(
        long,
        value_name = "FILE",
        requires_all = ["cluster_key", "cluster_ca"],
        hide_short_help = true,
        help_heading = heading::ETCD
    )]
    pub(crate) cluster_cert: Option<PathBuf>,
    /// Private key of the certificate in `--cluster-cert` (PEM)
    #[arg(
        long,
        value_name = "FILE",
        requires = "cluster_cert",
        hide_short_help = true,
        help_heading = heading::ETCD
    )]
    pub(crate) cluster_key: Option<PathBuf>,
    /// File with one line USER:PASSWORD, for an etcd that asks for it; nobody but its owner may have access
    /// to it
    #[arg(long, value_name = "FILE", hide_short_help = true, help_heading = heading::ETCD)]
    pub(crate) cluster_login: Option<PathBuf>,
}

/// Show and change the memory nodes of a cluster.
///
/// The cluster is a file, or the value of a key of etcd, as for `farmem run --cluster`. Programs that follow
/// it notice a change within a second. A change keeps comments, the order of nodes, and changes that others
/// make at the same time.
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
    /// Add a node, or use a node again that is being emptied
    Join(ClusterJoinArguments),
    /// Empty a node: it gets nothing new, and its pages go to other nodes
    Drain(ClusterDrainArguments),
    /// Take a node out of the cluster
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
/// Each node is asked, with the key or certificates of its clients. GRANTED is memory that clients use, or
/// that was granted to them ahead of need. If a node lends a different amount than its `size` in the cluster,
/// or says that it is in another `rack`, its line says so.
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

/// Add a node, or use a node again that is being emptied.
///
/// Programs connect to it, and its load grows slowly. For a node that is already in the cluster, its name is
/// enough.
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
    /// Address on which the node listens
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_node)]
    pub(crate) address: Option<Destination>,
    /// What the machine is for; Farmem treats `memory` and `general` alike [default: memory]
    #[arg(long, value_name = "compute|memory|general", value_enum)]
    pub(crate) role: Option<ClusterRole>,
    /// Memory that the node lends when `farmem node --cluster` starts it
    #[arg(long, value_name = "SIZE", value_parser = parse_size_as_written)]
    pub(crate) size: Option<String>,
    /// The rack that the machine is in
    #[arg(long, value_name = "NAME")]
    pub(crate) rack: Option<Rack>,
}

/// What a machine of a cluster is for.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClusterRole {
    /// Runs programs, and lends nothing
    Compute,
    /// Lends its memory
    Memory,
    /// Does both
    General,
}

/// Empty a node: it gets nothing new, and its pages go to other nodes.
///
/// Each program moves its own pages, at most `--rebuild-rate` bytes per second. With `--wait`, the node is
/// asked every second how much it has still granted. Once that is nothing, the node can be stopped and taken
/// out of the cluster. If no other node and no disk has room, that never happens, and the programs say so.
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
    /// Wait until the node holds nothing, and show the progress
    #[arg(long)]
    pub(crate) wait: bool,
    /// Longest time to wait, such as 10m; if the node still holds something then, the exit status is 1
    /// [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = parse_interval, requires = "wait")]
    pub(crate) timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) security: SecurityArguments,
}

/// Take a node out of a cluster.
///
/// Only a node that holds nothing is taken out, so that it can then be stopped: `farmem cluster drain --wait`
/// empties it first. With `--now`, it is taken out at once, which is right for a dead node; programs empty a
/// live node afterwards.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  farmem cluster leave cluster.toml memory-1 --key node.key")]
pub(crate) struct ClusterLeaveArguments {
    #[command(flatten)]
    pub(crate) place: ClusterPlace,
    /// The node's name
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Take it out even if it still holds pages
    #[arg(long)]
    pub(crate) now: bool,
    #[command(flatten)]
    pub(crate) security: SecurityArguments,
}
