//! What decisions cost: in steps, which a seed repeats, and in time, which it doesn't.
//!
//! A step is one thing that a decision looks at: a node, a shard, a block, an application. Where a policy
//! asks back for what is known of a node, each question counts; where it runs through all of something, all
//! of it counts.

use std::time::{Duration, Instant};

use serde::Serialize;

/// What is decided by the product's policies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// Where the shards of a block go.
    Place,
    /// Of which nodes chunks are asked ahead of need.
    Reserve,
    /// Which nodes a page is asked of, and when others are.
    Read,
    /// Which block is made whole, or moved, next, and where to.
    Repair,
    /// What is lost with a node.
    Lose,
    /// What a new list of nodes changes.
    Follow,
    /// How much of a machine's memory each application may hold.
    Lease,
}

impl Decision {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Place, Self::Reserve, Self::Read, Self::Repair, Self::Lose, Self::Follow, Self::Lease];

    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Place => "where a block goes",
            Self::Reserve => "what to ask nodes for ahead",
            Self::Read => "whom to ask for a page",
            Self::Repair => "what to repair next",
            Self::Lose => "what a lost node held",
            Self::Follow => "what a list of nodes changes",
            Self::Lease => "how applications share a machine",
        }
    }
}

/// How long decisions took on the machine that simulated them. Not repeated by a seed.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Timing {
    /// Which.
    pub decision: Decision,
    /// On average, in nanoseconds.
    pub mean_ns: f64,
    /// The longest; what else ran on the machine may be in it.
    pub most_ns: u64,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Cost {
    pub(crate) count: u64,
    pub(crate) steps: u64,
    pub(crate) most_steps: u64,
    took: Duration,
    most: Duration,
}

#[derive(Default)]
pub(crate) struct Costs([Cost; Decision::ALL.len()]);

impl Costs {
    /// Makes a decision, which tells its steps as well.
    pub(crate) fn of<T>(&mut self, decision: Decision, decide: impl FnOnce() -> (T, u64)) -> T {
        let began = Instant::now();
        let (decided, steps) = decide();
        let took = began.elapsed();
        let cost = &mut self.0[decision as usize];
        cost.count += 1;
        cost.steps += steps;
        cost.most_steps = cost.most_steps.max(steps);
        cost.took += took;
        cost.most = cost.most.max(took);
        decided
    }

    pub(crate) fn get(&self, decision: Decision) -> Cost {
        self.0[decision as usize]
    }

    pub(crate) fn timings(&self) -> Vec<Timing> {
        let timing = |decision: &Decision| {
            let cost = self.get(*decision);
            let mean_ns = cost.took.as_nanos() as f64 / cost.count.max(1) as f64;
            Timing { decision: *decision, mean_ns, most_ns: cost.most.as_nanos() as u64 }
        };
        Decision::ALL.iter().map(timing).collect()
    }
}
