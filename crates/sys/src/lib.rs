//! The fence: every kernel interface that Farmem needs, safe to call, with errno translated once.
//!
//! `no_std` and free of libc: all calls go straight to the kernel, so that nothing here waits for an
//! allocator or a lock that a stopped thread may hold.
#![no_std]

#[cfg(feature = "signals")]
extern crate std;

pub mod affinity;
mod cache;
pub mod descriptors;
pub mod disk;
pub mod guard;
pub mod link;
mod list;
pub mod lock;
pub mod maps;
pub mod memory;
mod object;
pub mod pagemap;
pub mod process;
pub mod segments;
pub mod shared;
#[cfg(feature = "signals")]
pub mod signals;
pub mod sparse;
pub mod subject;
mod sync;
mod syscall;
pub mod thread;
pub mod uffd;
pub mod wait;

pub use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
pub use rustix::io::Errno;
