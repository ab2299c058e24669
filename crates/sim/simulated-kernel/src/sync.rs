//! Where the included sources of `farmem-sys` get their atomics and their sleep from.

pub(crate) use crate::wait;
pub(crate) use core::sync::atomic::{AtomicU32, Ordering};
