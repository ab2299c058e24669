//! The broker of a machine: leases slabs of the pool and local memory to spaces (one space for each
//! application), and takes back what is idle.
//!
//! Every space has its pool in a memory file of its own, which the kernel empties when the space ends, and
//! which no other space can reach. What is shared is only the amount: a lease says how much of its file a
//! space may fill. So the broker is on no fault's path, moves no byte and holds no content; when it dies,
//! spaces go on with what they hold.
//!
//! Links to memory nodes are shared by a [`link_schedule`] in shared memory, in which spaces take turns by
//! themselves. Which nodes there are a host may say, too: the broker hands that on.
//!
//! [`LeaseTable`] decides, and [`Server`] carries it out over a Unix socket. `farmem run` without a broker
//! has a lease table of its own.
#![forbid(unsafe_code)]
// They panic, which ends the process, when nobody reads there any more.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod lease_table;
pub mod link_schedule;
mod nodes;
mod server;

pub use farmem_wire::host::MOST_WEIGHT;
pub use lease_table::{Amounts, LEAST_POOL, LEAST_SLABS, Lease, LeaseTable, Refusal, SpaceId, Violation};
pub use nodes::{NO_ANSWER, named_nodes, nobody_listens};
pub use server::{Figures, Options, Server, is_listening};
