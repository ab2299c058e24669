//! The supervisor of one application: it makes the ledger and the pool, starts the program, keeps a duplicate
//! of every process's userfaultfd, moves full slabs to memory nodes and to disk, and reports.
//!
//! One thread with one loop ([`supervise`]), and threads that move slabs out of memory, pack pages, and keep
//! to what the host has leased ([`limits::lease_client`]). Nothing of it lies on the path of a fault, unless
//! the page is on a memory node ([`carrier`]): the processes go on without it. When the program has ended, it
//! goes on in the background for processes that the program has left behind ([`program::background`]), until
//! the last of them has gone.
#![forbid(unsafe_code)]
// They panic, which ends the process, when nobody reads there any more.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod application;
mod carrier;
mod cluster;
mod injection;
mod limits;
mod options;
mod processes;
mod program;
mod queries;
mod reporting;
mod say;
mod supervise;
mod threads;
mod watch;

pub use farmem_policy::PrefetchPolicy;

pub use carrier::{MembershipOptions, NodeAddress, NodeTuning, NodesOptions};
pub use cluster::etcd::EtcdFiles;
pub use cluster::source::ClusterSource;
pub use farmem_remote::{
    Cluster, ClusterNode, Edit, Joining, NoRedundancy, NodeState, Redundancy, Role, Roster,
};
pub use farmem_transport::Destination;
pub use limits::lease_client::HostChoice;
pub use limits::sizing::SizingOptions;
pub use options::{Bandwidth, DiskOptions, FarForm, Options};
pub use processes::group::members as group_members;
pub use program::onlooker::Standing;
pub use supervise::{Subject, attach, supervise};
pub use threads::side_service::{Ending, SideService};
