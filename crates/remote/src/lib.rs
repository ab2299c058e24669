//! What the compute side of memory nodes decides: which nodes there are, which of them gets a slab, how a
//! slab is cut and made whole again, how many chunks are held ahead of need, how much is read at once, and
//! when a node counts as lost (COMEX §3.3). Functions of their input: no socket, no clock, no thread.
#![forbid(unsafe_code)]

mod block_table;
mod checks;
mod cluster;
mod edit;
mod field;
mod gather;
mod health;
mod lateness;
mod membership;
mod pace;
mod parity;
mod placement;
mod redundancy;
mod reserve;
mod span;

pub use block_table::{Allotment, BlockTable, Located, LostChunk, Shards, WrittenBy};
pub use checks::{Checker, Checks};
pub use cluster::{Cluster, ClusterError, ClusterNode, NodeState, Role};
pub use edit::{Edit, EditError, Joining};
pub use gather::Gather;
pub use health::{Health, Reunion, Standing};
pub use lateness::Lateness;
pub use membership::{Change, Member, Roster, changes};
pub use pace::Pace;
pub use placement::{Chain, STRIPE_BLOCKS, chain, lent, most_blocks};
pub use redundancy::{BLOCK_PAGES, MOST_SHARDS, NoRedundancy, Piece, Redundancy};
pub use reserve::Reserve;
pub use span::Span;
