//! What the devices of this process were told to do, and what that took of its processors.

use std::sync::atomic::{AtomicU64, Ordering};

/// Since the process began.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Figures {
    /// Reads that were posted.
    pub reads: u64,
    /// Writes that were posted.
    pub writes: u64,
    /// How often a device was told that there is something to do.
    pub doorbells: u64,
    /// Letters to nodes, of what was moved: each a posted write, a doorbell and a completion that the other
    /// counts leave out.
    pub letters: u64,
    /// Completions that were taken.
    pub completions: u64,
    /// Copies of content between a request's buffer and the memory that devices reach.
    pub copies: u64,
    /// Keys that were asked of nodes.
    pub keys: u64,
    /// Reads and writes that went over the connection instead.
    pub detours: u64,
}

static COUNTS: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];

/// Which count.
#[derive(Clone, Copy)]
pub(super) enum Count {
    Reads,
    Writes,
    Doorbells,
    Letters,
    Completions,
    Copies,
    Keys,
    Detours,
}

pub(super) fn add(count: Count, number: usize) {
    COUNTS[count as usize].fetch_add(number as u64, Ordering::Relaxed);
}

/// All counts.
pub fn figures() -> Figures {
    let get = |count: Count| COUNTS[count as usize].load(Ordering::Relaxed);
    Figures {
        reads: get(Count::Reads),
        writes: get(Count::Writes),
        doorbells: get(Count::Doorbells),
        letters: get(Count::Letters),
        completions: get(Count::Completions),
        copies: get(Count::Copies),
        keys: get(Count::Keys),
        detours: get(Count::Detours),
    }
}
