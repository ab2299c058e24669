//! The pager of one process: it serves the program's faults, takes cold pages away, and brings them back.
//!
//! It runs in a process of its own, next to the program. `no_std` and without an allocator: what it needs it
//! has from its start, and waits for nobody's memory while a fault waits for it. Everything that the kernel
//! does lies behind `farmem-sys`.
//!
//! Threads: *handlers* ([`fault::handler`]) serve faults; the *bookkeeper* ([`mod@bookkeeper`]) does the
//! rest. The order in which things must be held: the gate (a [`gate::Reading`] or a [`gate::Holding`]), then
//! the evictor, then a page, then the gate for a [`gate::Change`].
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod address_space;
mod bell;
mod bookkeeper;
mod engine;
mod eviction;
mod fault;
mod forks;
mod gate;
mod hints;
mod inject;
mod reporting;
mod start;
mod sync;
mod whereabouts;
mod withdrawal;

pub use engine::Engine;
pub use farmem_policy::references::Compression;
pub use farmem_telemetry::Failure;
pub use forks::children::{PartedChild, Split};
pub use hints::HintError;
pub use hints::queue::Hint;
pub use start::{NAME_BYTES, Start, StartError, Started};
