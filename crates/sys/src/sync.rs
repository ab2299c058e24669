//! Where the fence's own locks get their atomics and their sleep from: one place, so that a model checker can
//! compile the same source file against its own.

pub(crate) use crate::wait;
pub(crate) use core::sync::atomic::{AtomicU32, Ordering};
