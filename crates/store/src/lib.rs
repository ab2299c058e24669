//! The compressed pool: where the pages of one application go first when they leave local memory.
//!
//! All processes of the application share one pool in one piece of shared memory (FastSwap §III: one
//! compressed store, several granularities). Each leases slabs from it and then reads and writes them by
//! itself, without a lock and without asking anybody. When the pool fills, one thread moves whole slabs,
//! still compressed, to the memory of other machines (COMEX) or to disk (FastSwap §IV), and back when there
//! is room (§V).
//!
//! Any process may be killed between any two instructions. Nothing here waits for another process, so nobody
//! hangs; what the dead process held is found by its owner number and freed by [`Pool::release_owner`].
//!
//! `docs/formats/pool.md` draws the shared memory byte by byte.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod alarm;
mod calls;
mod candidates;
mod claims;
mod class;
mod copies;
mod disk;
mod layout;
mod lease;
mod lower;
mod marks;
mod memory;
mod mover;
mod nodes;
mod packing;
mod pattern;
mod pool;
mod populate;
mod raise;
mod read_buffer;
mod reader;
mod release;
mod slab;
mod slots;
mod usage;
mod window;
mod writer;

pub use calls::{Answer, Call, Caller, Nobody, Posted, Standing, TakenCall, Urgency};
pub use class::{CLASS_COUNT, SLAB_BYTES, SizeClass};
pub use disk::{BlockError, BlockFile, NullFile};
pub use layout::{NodesConfig, PoolConfig, PoolConfigError, USE_BUCKETS};
pub use memory::{Atomic, Memory};
pub use mover::{Mover, StepOutcome};
pub use nodes::{NoNodes, NodeBlock, Nodes};
pub use packing::{Packed, Packer, Packing};
pub use pattern::PATTERN_LIMIT;
pub use pool::{AttachError, Epoch, FreeOutcome, LimitError, OwnerId, Pool};
pub use read_buffer::{Displaced, ENTRY_PAGES, Filling};
pub use reader::{LoadError, Origin, Reader};
pub use usage::PoolUsage;
pub use window::WINDOW_BYTES;
pub use writer::{StoreError, Update, Writer};
