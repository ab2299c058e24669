//! What the compute side of memory nodes decides: which nodes there are, which of them gets a slab, how many chunks are held ahead of need, how
//! much is read at once, and when a node counts as lost (COMEX §3.3). Functions of their input: no socket, no clock, no thread.
#![forbid(unsafe_code)]

mod books;
mod cluster;
mod health;
mod placement;
mod reserve;
mod span;

pub use books::{Allotment, Books, Copies, Redundancy};
pub use cluster::{Cluster, ClusterError, ClusterNode, Role};
pub use health::{Health, Reunion, Standing};
pub use placement::{STRIPE_BLOCKS, chain, most_blocks};
pub use reserve::Reserve;
pub use span::Span;
