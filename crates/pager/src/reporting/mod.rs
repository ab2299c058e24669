//! What is told to people: regions, traces, and what the pager itself takes.

pub(crate) mod inspector;
pub(crate) mod own_memory;
pub(crate) mod trace;
