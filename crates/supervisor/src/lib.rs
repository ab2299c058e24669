//! The supervisor of one application: it makes the ledger and the pool, starts the program, keeps a duplicate of every
//! process's userfaultfd, moves full slabs to memory nodes and to disk, and reports.
//!
//! One thread with one loop ([`supervise`]), and threads that move slabs out of memory, pack pages, and keep to what the host has leased ([`tenancy`]). Nothing of it lies on the path of a
//! fault, unless the page is on a memory node ([`carrier`]): the processes go on without it. When the program has ended, it goes on in the background for processes that the program
//! has left behind ([`mod@background`]), until the last of them has gone.
#![forbid(unsafe_code)]
// They panic, which ends the process, when nobody reads there any more.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod application;
mod background;
mod beside;
mod by_class;
mod carrier;
mod cluster;
mod cluster_file;
mod demand;
mod directory;
mod endings;
mod etcd;
mod explanation;
mod figures;
mod injection;
mod inside;
mod landlord;
mod launch;
mod limits;
mod lineage;
mod mover;
mod notices;
mod options;
mod packer;
mod processes;
mod progress;
mod rates;
mod recorder;
mod report;
mod returns;
mod say;
mod shares;
mod signals;
mod silent;
mod sizing;
mod stall;
mod statistics;
mod summary;
mod supervise;
mod tenancy;
mod troubles;
mod waiting;
mod watch;
mod worker;

pub use farmem_policy::PrefetchPolicy;

pub use beside::{Ending, Guest};
pub use by_class::ByClass;
pub use carrier::{MembershipOptions, NodeAddress, NodeTuning, NodesOptions};
pub use cluster::ClusterSource;
pub use directory::{Own, SetError, applications, find, is_any_running, processes, query, regions, set};
pub use etcd::EtcdFiles;
pub use explanation::{Cause, Explanation, Part};
pub use farmem_remote::{
    Cluster, ClusterNode, Edit, Joining, NoRedundancy, NodeState, Redundancy, Role, Roster,
};
pub use farmem_transport::Destination;
pub use figures::{FIGURES, Figure, FigureUnit, FigureValue};
pub use inside::{ProcessReport, RegionReport, RegionsReport};
pub use limits::{Limits, PoolRange};
pub use options::{Bandwidth, DiskOptions, FarForm, Options};
pub use rates::Rates;
pub use report::Report;
pub use sizing::SizingOptions;
pub use supervise::supervise;
pub use tenancy::HostChoice;
pub use troubles::troubles;
