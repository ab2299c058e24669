//! How supervisors are found, and what they can be asked.

pub(crate) mod directory;
pub(crate) mod limits;
pub(crate) mod resizing;
pub(crate) mod size;
