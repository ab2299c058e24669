//! What this machine has, and what this user may take of it: memory, control groups, processors, kernel; and
//! what the kernel says about its processes.
//!
//! Reads `/proc` and `/sys` only; nothing here changes the machine. Every function may be called from any
//! thread.
#![forbid(unsafe_code)]

pub mod control_group;
mod description;
mod memory;
mod privilege;
pub mod process;

pub use description::Description;
pub use memory::{Memory, MemoryError};
pub use privilege::{is_in_user_namespace, may_trace};
