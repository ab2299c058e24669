//! What people are told about the application: its figures, what they mean, and the forms in which they are
//! shown.
//!
//! It reads the ledger, and gets all else handed in; it changes nothing that the application runs by.

pub(crate) mod explanation;
pub(crate) mod figures;
pub(crate) mod inside;
mod progress;
pub(crate) mod rates;
pub(crate) mod report;
pub(crate) mod returns;
pub(crate) mod sinks;
mod statistics;
mod summary;
pub(crate) mod totals;
pub(crate) mod troubles;
mod waiting;
