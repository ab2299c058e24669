//! The pager of one process: it serves the program's faults, takes cold pages away, and brings them back.
//!
//! `no_std`, no allocator, no libc: the pager lives inside the program and must not touch what it manages. Everything
//! that the kernel does lies behind `farmem-sys`.
//!
//! Threads: *handlers* ([`mod@handler`]) serve faults; the *bookkeeper* ([`mod@bookkeeper`]) does the rest. The order in which
//! things must be held: the gate (a [`gate::Reading`] or a [`gate::Change`]), then the evictor, then a page.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod asked;
mod bell;
mod bookkeeper;
mod children;
mod engine;
mod events;
mod evict;
mod fork;
mod gate;
mod handler;
mod hint_queue;
mod hints;
mod inject;
mod inspector;
mod keeping;
mod observer;
mod own_memory;
mod packed;
mod ranges;
mod references;
mod regions;
mod release;
mod room;
mod scan;
mod serve;
mod sharing;
mod start;
mod stranded;
mod swap_cache;
mod swap_in;
mod sync;
mod table;
mod trace;
mod vault;
mod waiting;
mod zeros;

pub use engine::Engine;
pub use farmem_policy::references::Compression;
pub use farmem_telemetry::Failure;
pub use hint_queue::Hint;
pub use hints::HintError;
pub use keeping::Keeping;
pub use observer::ObservedFault;
pub use start::{NAME_BYTES, Start, StartError, Started};
