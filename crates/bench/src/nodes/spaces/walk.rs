//! A program that walks through its data, alone and next to one that floods the link with what it fetches
//! ahead.

use std::time::Instant;

use anyhow::{Result, ensure};
use serde::Serialize;
use serde_json::Value;

use super::Spaces;
use super::site::{Classes, Limit, Site};
use super::space::Terms;
use crate::median::median;
use crate::option;
use crate::workload::{Outcome, Pattern};

/// One tier of prefetching follows streams, the other references.
pub(super) const PATTERNS: [Pattern; 2] = [Pattern::Sequential, Pattern::List];
const LINK: Limit = Limit::Link("1gbit");
/// Times that it goes through its pattern. Many, since faults are counted from the program's start, and while
/// it fills its data they are of another kind.
const ROUNDS: u32 = 16;
const ROUNDS_QUICK: u32 = 8;
const TWO_TIER: [&str; 2] = ["--prefetch", "two-tier"];
const WALK: &str = "bench-walk";
const FLOOD: &str = "bench-flood";
/// Processes of the flood: one alone fills the link but for its own pauses.
const FLOOD_PROCESSES: u32 = 2;

/// A program that walks.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WalkFigure {
    /// How it walks.
    pub pattern: String,
    /// The link.
    pub way: String,
    /// With the link to itself.
    pub alone: Walk,
    /// Next to the flood, a program of the same weight.
    pub flooded: Walk,
    /// What the flood got meanwhile, by what it was for.
    pub flood_bytes_per_second: Classes,
}

/// How a walk went, from the program's start to its end.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Walk {
    /// Half of the faults took no longer.
    pub fault_p50_us: f64,
    /// All but a hundredth took no longer.
    pub fault_p99_us: f64,
    /// Time of an access in the middle round.
    pub access_us: f64,
    /// Reads ahead that were not made, because they would have come too late.
    pub ahead_dropped: f64,
    /// Reads ahead that a thread came to wait for.
    pub ahead_awaited: f64,
    /// What came, by what it was for.
    pub class_bytes: Classes,
    /// Of the faults for far pages, those that prefetching saved.
    pub contribution: f64,
    /// Of the pages that were fetched ahead, those that were used.
    pub accuracy: f64,
}

impl Walk {
    fn new(outcome: &Outcome, statistics: &Value) -> Self {
        let number = |value: &Value| value.as_f64().unwrap_or_default();
        let classes = &statistics["link_in_class_bytes"];
        let rounds = outcome.rounds.iter().map(|round| round.nanoseconds_per_access / 1e3).collect();
        Self {
            fault_p50_us: number(&statistics["fault_p50_us"]),
            fault_p99_us: number(&statistics["fault_p99_us"]),
            access_us: median(rounds),
            ahead_dropped: number(&statistics["node_ahead_dropped"]),
            ahead_awaited: number(&statistics["node_ahead_awaited"]),
            class_bytes: Classes {
                demand: number(&classes["demand"]),
                ahead: number(&classes["ahead"]),
                bulk: number(&classes["bulk"]),
            },
            contribution: number(&statistics["contribution"]),
            accuracy: number(&statistics["accuracy"]),
        }
    }

    fn median(samples: &[Self]) -> Self {
        let of = |figure: &dyn Fn(&Self) -> f64| median(samples.iter().map(figure).collect());
        Self {
            fault_p50_us: of(&|walk| walk.fault_p50_us),
            fault_p99_us: of(&|walk| walk.fault_p99_us),
            access_us: of(&|walk| walk.access_us),
            ahead_dropped: of(&|walk| walk.ahead_dropped),
            ahead_awaited: of(&|walk| walk.ahead_awaited),
            class_bytes: Classes::of(samples, |walk| walk.class_bytes, median),
            contribution: of(&|walk| walk.contribution),
            accuracy: of(&|walk| walk.accuracy),
        }
    }
}

impl WalkFigure {
    /// Of the same pattern, measured several times.
    pub(super) fn median(samples: &[Self]) -> Option<Self> {
        let first = samples.first()?;
        let walk = |of: fn(&Self) -> Walk| Walk::median(&samples.iter().map(of).collect::<Vec<_>>());
        Some(Self {
            pattern: first.pattern.clone(),
            way: first.way.clone(),
            alone: walk(|sample| sample.alone),
            flooded: walk(|sample| sample.flooded),
            flood_bytes_per_second: Classes::of(samples, |sample| sample.flood_bytes_per_second, median),
        })
    }
}

impl Spaces<'_> {
    /// Measures one pattern: alone, and then next to the flood.
    pub(super) fn walk(&self, pattern: Pattern) -> Result<WalkFigure> {
        let site = Site::open(self.farmem, LINK, 2, self.data)?;
        let alone = self.walk_through(&site, pattern)?;
        let mut flood = site.start(&Terms {
            name: FLOOD,
            weight: 1,
            data: self.data,
            pattern: Pattern::Sequential,
            processes: FLOOD_PROCESSES,
            threads: 1,
            accesses: None,
            rounds: None,
            options: &TWO_TIER,
        })?;
        self.until("a flood", || flood.is_filled())?;
        let standing = || Ok::<_, anyhow::Error>(site.standings(&[FLOOD])?.remove(0));
        let (before, began) = (standing()?, Instant::now());
        let flooded = self.walk_through(&site, pattern)?;
        let (after, time) = (standing()?, began.elapsed());
        flood.check()?;
        flood.finish();
        self.until("the flood's end", || flood.has_ended_well())?;
        Ok(WalkFigure {
            pattern: option::name(&pattern),
            way: LINK.name(),
            alone,
            flooded,
            flood_bytes_per_second: after.link_in_class_bytes.rate_since(before.link_in_class_bytes, time),
        })
    }

    /// From the program's start to its end.
    fn walk_through(&self, site: &Site, pattern: Pattern) -> Result<Walk> {
        let mut space = site.start(&Terms {
            name: WALK,
            weight: 1,
            data: self.data,
            pattern,
            processes: 1,
            threads: 1,
            accesses: None,
            rounds: Some(if self.quick { ROUNDS_QUICK } else { ROUNDS }),
            options: &TWO_TIER,
        })?;
        self.until("data to walk through", || space.is_filled())?;
        // A pager comes when a program's memory does, or a little later: what it walks through is to be far
        // by then.
        self.until("pages at the node", || Ok(site.standings(&[WALK])?.remove(0).node_bytes > 0))?;
        space.begin_rounds()?;
        self.until("the end of a walk", || space.has_ended_well())?;
        let (outcome, statistics) = space.outcome()?;
        let walk = Walk::new(&outcome, &statistics);
        ensure!(walk.class_bytes.sum() > 0.0, "nothing came from the node");
        Ok(walk)
    }
}
