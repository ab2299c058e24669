//! Questions to the supervisor: where it listens, what it can be asked, and who waits for an answer. How it
//! is asked is in `farmem-client`.
//!
//! The answers are made by [`limits`](crate::limits) and [`reporting`](crate::reporting), which know nothing
//! of the asker.

pub(crate) mod listen;
pub(crate) mod query;
pub(crate) mod regions;
