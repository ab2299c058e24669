//! Questions to supervisors: how one is found, what it can be asked, and who waits for an answer.
//!
//! The answers are made by [`limits`](crate::limits) and [`reporting`](crate::reporting), which know nothing
//! of the asker.

pub(crate) mod directory;
pub(crate) mod query;
pub(crate) mod regions;
pub(crate) mod resizing;
