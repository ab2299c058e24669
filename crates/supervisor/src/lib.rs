//! The supervisor of one application: it makes the ledger and the pool, starts the program, keeps a duplicate of every
//! process's userfaultfd, moves full slabs to disk, and reports.
//!
//! One thread with one loop ([`supervise`]), and the mover's thread. Nothing of it lies on the path of a fault: the
//! processes go on without it.
#![forbid(unsafe_code)]

mod application;
mod directory;
mod injection;
mod launch;
mod lineage;
mod mover;
mod notices;
mod options;
mod processes;
mod report;
mod signals;
mod silent;
mod stall;
mod supervise;
mod watch;

pub use directory::{applications, query};
pub use options::{DiskOptions, Options};
pub use report::Report;
pub use supervise::supervise;
