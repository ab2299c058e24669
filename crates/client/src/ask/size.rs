//! How large an application is, and is to be.

use serde::{Deserialize, Serialize};

/// How large an application is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Size {
    /// The application's name.
    pub name: String,
    /// The process that it is known by.
    pub process: u32,
    /// What it may have in local memory, at this moment.
    pub budget_bytes: u64,
    /// What it is to have there.
    pub wanted_bytes: u64,
    /// What it had before it was shrunk; 0 when it isn't.
    pub shrunk_from_bytes: u64,
    /// What it has in local memory, with a pager or without.
    pub resident_bytes: u64,
    /// What is far.
    pub far_bytes: u64,
    /// The memory that its pool takes.
    pub pool_bytes: u64,
    /// The memory of its pagers.
    pub own_bytes: u64,
    /// What is on nodes.
    pub node_bytes: u64,
    /// What is on disk.
    pub disk_bytes: u64,
    /// Whether it is as small as it was to be.
    pub is_small: bool,
    /// Why it doesn't become so small.
    pub reason: Option<String>,
}
