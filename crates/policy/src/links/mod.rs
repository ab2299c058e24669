//! How spaces share the links to memory nodes, and what of one space goes first (Canvas §5.3, in two
//! dimensions).
//!
//! * Between spaces: weighted fair queueing by start tags ([`Turns`]), within a bounded number of bytes under
//!   way ([`Window`]) and, where somebody has set one, within a [`Rate`].
//! * Within a space: by [`Class`]; and what is fetched ahead is dropped when it would come too late
//!   ([`timeliness`]).

mod rate;
pub mod timeliness;
mod turns;
mod window;

pub use rate::Rate;
pub use timeliness::Latency;
pub use turns::{Turns, VirtualTime};
pub use window::Window;

/// What a transfer is for, most urgent first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(usize)]
pub enum Class {
    /// A thread waits for it.
    Demand,
    /// Nobody waits for it yet: it is fetched ahead.
    Ahead,
    /// Whole slabs on their way out or back.
    Bulk,
}

impl Class {
    /// How many there are.
    pub const COUNT: usize = 3;

    /// Its position among them.
    pub const fn nth(self) -> usize {
        self as usize
    }
}
