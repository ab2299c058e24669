//! What people are told about the application: its figures, what they mean, and the forms in which they are
//! shown.
//!
//! It reads the ledger, and gets all else handed in; it changes nothing that the application runs by.

pub(crate) mod inside;
mod progress;
pub(crate) mod report;
pub(crate) mod returns;
pub(crate) mod sinks;
mod statistics;
pub(crate) mod totals;
mod waiting;
