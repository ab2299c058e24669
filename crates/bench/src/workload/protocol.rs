//! What the workload tells who runs it: one JSON object on a line for each event.

use serde::{Deserialize, Serialize};

/// Something that happened in the workload.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// It runs, and has no data yet. It goes on when it is sent a line.
    Started {
        /// Its process number.
        process: u32,
    },
    /// Every page of the data has been written. It goes on when it is sent a line.
    Filled,
    /// The rounds that aren't measured are over. It goes on when it is sent a line.
    Warm,
    /// All is done and checked.
    Done(Outcome),
}

/// What the workload measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Accesses of each round, over all threads.
    pub accesses: u64,
    /// Pages of the data.
    pub pages: u64,
    /// The measured rounds, in order.
    pub rounds: Vec<Round>,
    /// Pages that didn't hold what was written to them. Anything but zero is a failure of the pager.
    pub mismatches: u64,
    /// The kernel's peak of resident memory of every kind.
    pub resident_peak_bytes: u64,
}

impl Outcome {
    /// What the last line of a workload's output tells; `None` if it doesn't.
    pub fn last_of(output: &[u8]) -> Option<Self> {
        let last = output.split(|&byte| byte == b'\n').rfind(|line| !line.is_empty())?;
        match serde_json::from_slice(last).ok()? {
            Event::Done(outcome) => Some(outcome),
            _ => None,
        }
    }
}

/// One measured round.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Round {
    /// Time from the first thread's start to the last one's end, divided by the accesses of all threads.
    pub nanoseconds_per_access: f64,
    /// Faults that needed I/O, as the kernel counts them.
    pub major_faults: u64,
    /// Faults that didn't, as the kernel counts them.
    pub minor_faults: u64,
    /// Processor time of the process, its pager's threads included.
    pub cpu_seconds: f64,
}
