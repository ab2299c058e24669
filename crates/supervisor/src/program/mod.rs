//! The program that the supervisor was called for: its start with the runtime in it, its signals, its end,
//! and the background in which the supervisor goes on for what it has left behind.
//!
//! Here is what concerns that one process and the supervisor's own: no ledger, no pool, no other process of
//! the application.

pub(crate) mod background;
pub(crate) mod end;
pub(crate) mod foreground;
pub(crate) mod inherited;
pub(crate) mod launch;
pub(crate) mod life;
pub(crate) mod onlooker;
pub(crate) mod own_limits;
pub(crate) mod signals;
