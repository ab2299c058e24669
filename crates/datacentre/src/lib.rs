//! A datacentre, simulated: what Farmem decides on a thousand machines, under a clock of events.
//!
//! Decisions are the product's own. Placement, health, reading around, redundancy, repair, membership and
//! what is held ahead are `farmem_remote`'s; who of a machine's applications may hold how much is
//! `farmem_broker`'s; who sends when over a link is `farmem_policy`'s. They are called here as the supervisor
//! calls them. What is *modelled* is all around them: machines and their failures, the network, memory
//! demand, and the loops of the supervisor's threads, which own sockets and so can't be called (`client`).
//! Pages have no content: that a shard is there is known, not read.
//!
//! Fetches are sampled: a few of each client's are followed from end to end, and all of them count as load on
//! links and as what nodes are known by.
//!
//! The same options give the same [`Outcome`], byte for byte, but for [`Timing`], which is kept apart.
#![forbid(unsafe_code)]

mod calendar;
mod chance;
mod client;
mod clock;
mod cost;
mod demand;
mod figures;
mod lease_clients;
mod link;
mod machines;
mod network;
mod options;
mod outcome;
mod report;
mod shared;
#[cfg(test)]
mod tests;
mod words;
mod world;

pub use cost::{Decision, Timing};
pub use options::{Options, Unfit};
pub use outcome::{Causes, DecisionCost, Fetches, Losses, Messages, Outcome, Point, Repairs, Spread, Target};
pub use report::page;
pub use world::simulate;
