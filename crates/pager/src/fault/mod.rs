//! Serving faults: from the message to the page that is there again.

pub(crate) mod asked;
pub(crate) mod batch;
pub(crate) mod flights;
pub(crate) mod foresight;
pub(crate) mod handler;
pub(crate) mod handlers;
pub(crate) mod lost;
pub(crate) mod pace;
pub(crate) mod references;
pub(crate) mod relief;
pub(crate) mod room;
pub(crate) mod serve;
pub(crate) mod swap_cache;
pub(crate) mod waiting;
