//! What the tests and the examples share: seeded randomness, access traces, and two simulated machines.
#![allow(dead_code, unreachable_pub, reason = "each user needs a part of it")]

pub mod paging;
pub mod prefetch;
pub mod random;
pub mod trace;
