//! A kernel in memory, with the interface of `farmem-sys`: the pager's and the store's own sources are
//! compiled against it (`farmem-simulated-pager`, `farmem-simulated-store`), so what is simulated is what is
//! released.
//!
//! Threads are coroutines of one thread of the machine. They change places only in calls of this crate, by
//! the choice of a scheduler that a seed drives, so that a seed repeats a run exactly. Time is simulated too:
//! it passes with each call, and jumps where every thread sleeps.
//!
//! The interface of programs and of whoever stands for the supervisor is in [`program`] and [`mod@world`].
//! What a program has written is kept apart from what the pager does with it, and compared at every read: see
//! [`world::Space`].

pub mod affinity;
pub mod descriptors;
pub mod disk;
mod expected;
pub mod guard;
pub mod link;
#[path = "../../../sys/src/list.rs"]
mod list;
#[path = "../../../sys/src/lock.rs"]
pub mod lock;
pub mod maps;
pub mod memory;
pub mod object;
pub mod pagemap;
pub mod process;
pub mod program;
pub mod schedule;
pub mod segments;
pub mod shared;
#[path = "../../../sys/src/sparse.rs"]
pub mod sparse;
pub mod subject;
mod sync;
pub mod thread;
pub mod uffd;
pub mod wait;
pub mod world;

pub use descriptors::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
pub use farmem_sys::Errno;
