//! `farmem cluster`: which nodes there are.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use farmem_supervisor::{ClusterSource, Destination};

use super::SecurityArguments;
use crate::amount::{parse_cluster, parse_interval, parse_name, parse_node, parse_size_as_written};

/// How an etcd that holds a cluster is reached.
#[derive(Args, Clone, Debug, Default)]
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
/// Where a node lends another amount than its `size` in the cluster, that is said behind it.
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
    /// What the machine is for: one that is `compute` lends nothing, and the other two are the same to Farmem [default: memory]
    #[arg(long, value_name = "compute|memory|general", value_enum)]
    pub(crate) role: Option<ClusterRole>,
    /// What it lends, if `farmem node --cluster` starts it; `show` says where a node lends another amount
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
