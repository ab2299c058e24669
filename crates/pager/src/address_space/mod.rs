//! The program's address space: what of it is managed, what becomes of each page, and what the kernel reports
//! of its changes.

pub(crate) mod events;
pub(crate) mod held;
pub(crate) mod pages;
pub(crate) mod regions;
pub(crate) mod scan;
pub(crate) mod table;
pub(crate) mod zeros;
