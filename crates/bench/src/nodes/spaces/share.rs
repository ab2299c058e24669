//! How three programs that want all of a link divide it.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::Serialize;

use super::Spaces;
use super::site::{Classes, Limit, Site};
use super::space::{Space, Terms};
use crate::median::median;
use crate::nodes::shared::{PARTS, WEIGHTS, weighted_ratio};
use crate::target::Target;
use crate::workload::Pattern;

/// For how long the programs are watched.
const WINDOW: Duration = Duration::from_secs(10);
const WINDOW_QUICK: Duration = Duration::from_secs(3);
/// How long they have had all of their data by then.
const SETTLED: Duration = Duration::from_secs(1);
/// Threads of a program that fault at random, over all of its processes.
const THREADS: u32 = 8;
/// Accesses of a round of one process: few, since what goes on and on looks for its end after each.
const ACCESSES: u64 = 64;
/// A page that is waited for brings its neighbours, of which hardly any is used: that way few faults are
/// enough for a link, and processors don't limit it.
const READ: [&str; 2] = ["--node-read", "64K"];

/// Three programs at one link.
pub(super) struct Case {
    limit: Limit,
    /// Of each program.
    processes: u32,
}

/// Parts are by weight where each always has a read that waits for its turn. A process has one under way or
/// waiting that threads wait for, as a rule, however many threads it has: no more than the window of a link
/// lets go at once. So there are several processes, more than are enough as long as nobody else wants the
/// processors, and one case without. With the lower limit of the broker a read is paid for in 6 ms, longer
/// than a space that hesitates is waited for.
pub(super) const CASES: [Case; 4] = [
    Case { limit: Limit::Link("1gbit"), processes: 6 },
    Case { limit: Limit::Link("1gbit"), processes: 1 },
    Case { limit: Limit::Host("40M"), processes: 6 },
    Case { limit: Limit::Host("10M"), processes: 6 },
];

impl Case {
    pub(super) fn name(&self) -> String {
        let Self { limit, processes } = self;
        let processes =
            if *processes == 1 { "one process".to_owned() } else { format!("{processes} processes") };
        format!("{}, {processes} each", limit.name())
    }
}

/// Three programs of weights 1, 2 and 4 at one link.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SpacesFigure {
    /// Which, and of how many processes.
    pub way: String,
    /// Of each program.
    pub processes: u32,
    /// Each program.
    pub parts: Vec<PartFigure>,
    /// What all of them got together.
    pub bytes_per_second: f64,
    /// The smallest part divided by its weight, of the largest.
    pub ratio: f64,
}

/// What one of them got.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct PartFigure {
    /// Its weight.
    pub weight: u32,
    /// From the node.
    pub bytes_per_second: f64,
    /// The same by what it was for.
    pub class_bytes_per_second: Classes,
    /// Of what threads waited for, reads that waited for their turn at a moment, on average. Below one, the
    /// program didn't always want more than it got.
    pub reads_waiting: f64,
}

impl SpacesFigure {
    /// Of the same case, measured several times.
    pub(super) fn median(samples: &[Self]) -> Option<Self> {
        let first = samples.first()?;
        let of = |figure: &dyn Fn(&Self) -> f64| median(samples.iter().map(figure).collect());
        let part = |nth: usize| PartFigure {
            weight: first.parts[nth].weight,
            bytes_per_second: of(&|sample| sample.parts[nth].bytes_per_second),
            class_bytes_per_second: Classes::of(
                samples,
                |sample| sample.parts[nth].class_bytes_per_second,
                median,
            ),
            reads_waiting: of(&|sample| sample.parts[nth].reads_waiting),
        };
        Some(Self {
            way: first.way.clone(),
            processes: first.processes,
            parts: (0..first.parts.len()).map(part).collect(),
            bytes_per_second: of(&|sample| sample.bytes_per_second),
            ratio: of(&|sample| sample.ratio),
        })
    }

    /// Where a program is one process, which doesn't always want more than it gets, none.
    pub(in crate::nodes) fn target(&self) -> Option<Target> {
        let name = format!("three programs, {}: largest part by weight, of the smallest", self.way);
        (self.processes > 1).then(|| Target::new(name, PARTS, Some(1.0 / self.ratio)))
    }
}

impl Spaces<'_> {
    /// Measures one case. At its end each program goes through all of its data, and finds what it wrote.
    pub(super) fn share(&self, case: &Case) -> Result<SpacesFigure> {
        let site = Site::open(self.farmem, case.limit, WEIGHTS.len(), self.data)?;
        let names = WEIGHTS.map(|weight| format!("bench-weight-{weight}"));
        let names = names.each_ref().map(String::as_str);
        let start = |(name, weight): (&str, u32)| {
            site.start(&Terms {
                name,
                weight,
                data: self.data,
                pattern: Pattern::RandomRead,
                processes: case.processes,
                threads: THREADS / case.processes,
                accesses: Some(ACCESSES),
                rounds: None,
                options: &READ,
            })
        };
        let mut spaces = names.into_iter().zip(WEIGHTS).map(start).collect::<Result<Vec<Space>>>()?;
        for space in &mut spaces {
            self.until("a program with all its data", || space.is_filled())?;
        }
        self.pause(SETTLED)?;

        let before = site.standings(&names)?;
        let began = Instant::now();
        self.pause(if self.quick { WINDOW_QUICK } else { WINDOW })?;
        let after = site.standings(&names)?;
        let time = began.elapsed();

        spaces.iter_mut().try_for_each(Space::check)?;
        let has_some = after.iter().all(|standing| standing.node_bytes > 0);
        ensure!(has_some, "nothing of a program lies on the node");
        spaces.iter_mut().for_each(Space::finish);
        for space in &mut spaces {
            self.until("a program's end", || space.has_ended_well())?;
        }

        let parts: Vec<PartFigure> = before
            .iter()
            .zip(&after)
            .zip(WEIGHTS)
            .map(|((before, after), weight)| PartFigure {
                weight,
                bytes_per_second: (after.link_in_bytes - before.link_in_bytes) / time.as_secs_f64(),
                class_bytes_per_second: after
                    .link_in_class_bytes
                    .rate_since(before.link_in_class_bytes, time),
                reads_waiting: (after.link_wait_seconds - before.link_wait_seconds) / time.as_secs_f64(),
            })
            .collect();
        Ok(SpacesFigure {
            way: case.name(),
            processes: case.processes,
            bytes_per_second: parts.iter().map(|part| part.bytes_per_second).sum(),
            ratio: weighted_ratio(parts.iter().map(|part| (part.bytes_per_second, part.weight))),
            parts,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_several_is_one_for_each_part() {
        let sample = |rate: f64| {
            let classes = Classes { demand: rate, ..Classes::default() };
            let part = |weight: u32| PartFigure {
                weight,
                bytes_per_second: rate * f64::from(weight),
                class_bytes_per_second: classes,
                reads_waiting: 1.0,
            };
            let parts = WEIGHTS.map(part).to_vec();
            SpacesFigure { way: String::new(), processes: 1, parts, bytes_per_second: rate, ratio: 1.0 }
        };
        assert_eq!(SpacesFigure::median(&[sample(3.0), sample(1.0), sample(2.0)]), Some(sample(2.0)));
        assert_eq!(SpacesFigure::median(&[]), None);
    }
}
