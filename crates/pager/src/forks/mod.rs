//! Forks: what a child inherits, children without a pager of their own, and pages that several processes
//! share.

pub(crate) mod children;
pub(crate) mod family;
pub(crate) mod fork;
pub(crate) mod sharing;
