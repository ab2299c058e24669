//! How much the application may have: what was agreed with the host, what it needs and wants, and what is
//! changed while it runs.
//!
//! What is decided here comes into force by a word in the ledger or in the pool, where all processes read it.
//! Nothing here talks to a process.

pub(crate) mod controller;
mod demand;
mod descent;
pub(crate) mod lease_client;
mod lease_source;
pub(crate) mod resize;
pub(crate) mod room;
pub(crate) mod set;
pub(crate) mod shrink;
pub(crate) mod sizing;
