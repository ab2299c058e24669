//! A memory node: lends this machine's memory to programs on other machines.
//!
//! [`Buddy`] divides frames, [`GrantTable`] knows who was granted which of them and until when; both are
//! pure. The region is a memory file; a service does what requests say with both, and [`Server`] is the
//! process around it: listeners, connections, one thread.
//!
//! What a client may rely on, whatever another one does or how the node ends: it reaches the frames that were
//! granted to it and nobody else does; what it finds in them is what it wrote there, or zeros; and a node
//! that has lost that has another incarnation.
#![forbid(unsafe_code)]
// They panic, which ends the process, when nobody reads there any more.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod bits;
mod buddy;
mod clock;
mod connection;
mod fault;
mod grant_table;
mod listener;
mod ranges;
#[cfg(feature = "rdma")]
mod rdma;
#[cfg(not(feature = "rdma"))]
#[path = "no_rdma.rs"]
mod rdma;
mod region;
mod server;
mod service;

pub use buddy::{Buddy, ORDERS, chunks};
pub use grant_table::{Credential, GrantTable, NUMBERS_PER_FRAME, Outcome};
pub use server::{Options, Server, WantedRdma};
