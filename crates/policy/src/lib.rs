//! What to fetch ahead, and what to let go: decisions only.
//!
//! Pure and `no_std`: nothing here allocates, locks, reads a clock or calls the kernel. Every answer is a
//! function of what the policy was told before, so the pager, replays of traces and the tests get the same
//! ones.
//!
//! * [`Prefetcher`]: which pages beyond a faulted one to bring in ([`Streams`], or another
//!   [`PrefetchPolicy`]).
//! * [`references`]: which pages a thread will want because words refer to them.
//! * [`VictimPolicy`]: which resident pages the eviction hand takes ([`Victims`], or [`Sweep`]).
//! * [`Reservations`]: which resident pages give their entries back while far memory is short.
//! * [`pacing`]: how long the bookkeeper may pause.
//! * [`RightSizing`]: the smallest budget with which a program is hardly ever held up.
//! * [`absence`]: what more local memory would save, by how long pages were away.
//! * [`Starvation`]: whether a handler of the idle class gets its processor.
//! * [`hints`]: how much of its local memory a program may decide about by itself.
//! * [`leases`]: how much of what spaces share each of them may hold.
//! * [`links`]: who may send when over a link to a memory node, and what comes too late.
//! * [`swap_in`]: which absent pages come back when there is room again.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod absence;
pub mod hints;
pub mod leases;
pub mod links;
pub mod pacing;
mod prefetch;
pub mod references;
mod reservations;
mod right_sizing;
mod starvation;
pub mod swap_in;
mod victims;

pub use prefetch::{
    Advice, ChosenPrefetcher, Fault, Found, Leap, MOST_WINDOWS, Neighbour, NoPrefetching, PrefetchPolicy,
    Prefetcher, Probes, Readahead, Run, Streams,
};
pub use reservations::{Partition, Pressure, RESERVED_PERCENT, Reservations};
pub use right_sizing::RightSizing;
pub use starvation::{STARVED_NS, Sight, Starvation};
pub use victims::{Sweep, TICKS_PER_BUDGET, Verdict, VictimPolicy, Victims};
