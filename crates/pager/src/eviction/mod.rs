//! How pages leave, where they are kept, and how they come back when there is room.

pub(crate) mod evict;
mod hand;
pub(crate) mod packed;
pub(crate) mod release;
pub(crate) mod stranded;
pub(crate) mod swap_in;
pub(crate) mod vault;
