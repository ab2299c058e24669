//! What the program is told and what it tells: one JSON object on a line for each.

use serde::{Deserialize, Serialize};

/// What the program is to do next. With the end of its standard input it checks all of its memory, and ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum Order {
    /// Let threads read pages at random. [`Event::Read`] answers.
    Read {
        /// How many.
        threads: u32,
        /// For how long.
        milliseconds: u64,
    },
    /// Bring those pages of the bystander that lie on nodes back, so that all of them are local or in the
    /// pool. [`Event::Settled`] answers.
    Settle,
    /// Let threads read as above, and the bystander take its steps meanwhile. [`Event::Stood`] answers when
    /// the steps are over, and [`Event::Read`] when the threads have ended as well.
    Stand {
        /// How many threads read.
        threads: u32,
        /// For how long the bystander takes steps.
        milliseconds: u64,
    },
}

/// Something that happened in the program.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Every page has been written.
    Filled,
    /// The bystander's pages were brought back.
    Settled {
        /// How many it has.
        pages: u64,
        /// How many of them the last of several passes found local or in the pool. It reads these from
        /// now on.
        home: u64,
    },
    /// Threads have read.
    Read(Pace),
    /// The bystander has taken its steps.
    Stood(Steps),
    /// All is done and checked.
    Done {
        /// Pages that didn't hold what was written to them.
        mismatches: u64,
    },
}

/// What threads read.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Pace {
    /// How many threads there were.
    pub threads: u32,
    /// From the first one's start to the last one's end.
    pub seconds: f64,
    /// Pages that they read.
    pub accesses: u64,
    /// Of these, pages that took as long as only those of a memory node take.
    pub awaited: u64,
}

/// What the bystander did.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Steps {
    /// Steps that it took.
    pub steps: u64,
    /// The longest of them.
    pub longest_ms: f64,
    /// Faults of its reads: pages of its own that were far.
    pub faults: u64,
}
