//! The outcome in words.

use std::fmt::{self, Display, Formatter};

use crate::outcome::{Fetches, Outcome, Target};

/// A figure with so many digits behind the point; a dash, where there is none.
struct Maybe(Option<f64>, usize);

impl Display for Maybe {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(value) => f.pad(&format!("{value:.*}", self.1)),
            None => f.pad("–"),
        }
    }
}

const MIB_PAGES: u64 = 256;

impl Display for Outcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (causes, losses, repairs) = (&self.causes, &self.losses, &self.repairs);
        writeln!(
            f,
            "{} nodes in {} racks, {} clients, {} hours, redundancy {}, seed {}",
            self.nodes, self.racks, self.clients, self.hours, self.redundancy, self.seed
        )?;
        writeln!(
            f,
            "{} machines died, {} nodes were restarted, {} machines were slow, {} nodes were emptied, {} racks failed",
            causes.deaths, causes.restarts, causes.slowdowns, causes.departures, causes.rack_failures
        )?;
        writeln!(
            f,
            "{} MiB far at the end; {} blocks written, {} of them with fewer shards than asked for; one rack holds too much of {} at the end",
            self.far_pages / MIB_PAGES,
            self.blocks_placed,
            self.blocks_placed_bare,
            self.blocks_exposed
        )?;
        writeln!(
            f,
            "\npages lost        {}\n  although covered {}\n  still there, out of reach {}",
            losses.pages, losses.pages_covered, losses.pages_given_up
        )?;
        writeln!(
            f,
            "full redundancy   after p50 {} s, p99 {} s, max {} s ({} times a client; {} shards rebuilt; {} clients not yet)",
            Maybe(repairs.p50_seconds, 1),
            Maybe(repairs.p99_seconds, 1),
            Maybe(repairs.most_seconds, 1),
            repairs.count,
            repairs.shards,
            repairs.unfinished
        )?;
        writeln!(
            f,
            "\n{:<36} {:>10} {:>9} {:>9} {:>10} {:>11}",
            "FETCHES, µs", "FOLLOWED", "P50", "P99", "P99.9", "MAX"
        )?;
        self.fetches.iter().try_for_each(|fetches| row(f, fetches))?;
        writeln!(
            f,
            "{} times others were asked, since an answer was late; {} came around the node that has the page; {} failed; {} times a client shuns a node that has been well for half a minute",
            self.fetches_late, self.fetches_around, self.fetches_failed, self.shunned
        )?;
        let spread = &self.spread;
        writeln!(
            f,
            "\nnodes are full to {:.2}% on average: least {:.2}%, p50 {:.2}%, p99 {:.2}%, most {:.2}%; granted ahead and empty {:.2}%; {} with nothing left to grant",
            spread.mean_percent,
            spread.least_percent,
            spread.p50_percent,
            spread.p99_percent,
            spread.most_percent,
            spread.reserved_percent,
            spread.exhausted_nodes
        )?;
        let messages = &self.messages;
        writeln!(
            f,
            "control messages in a second, for a node: {:.2} on average, {:.2} for the busiest; signs of life of {} idle links at most {:.0}",
            messages.per_second, messages.most_per_second, messages.links, messages.signs_of_life_per_second
        )?;
        writeln!(f, "\n{:<34} {:>12} {:>12} {:>12}", "DECISION", "COUNT", "MEAN STEPS", "MOST STEPS")?;
        for cost in &self.decisions {
            writeln!(
                f,
                "{:<34} {:>12} {:>12.1} {:>12}",
                cost.decision.words(),
                cost.count,
                cost.mean_steps,
                cost.most_steps
            )?;
        }
        writeln!(f)?;
        self.targets.iter().try_for_each(|target| writeln!(f, "{target}"))
    }
}

fn row(f: &mut Formatter<'_>, fetches: &Fetches) -> fmt::Result {
    writeln!(
        f,
        "{:<36} {:>10} {:>9} {:>9} {:>10} {:>11}",
        fetches.when,
        fetches.count,
        Maybe(fetches.p50_us, 1),
        Maybe(fetches.p99_us, 1),
        Maybe(fetches.p999_us, 1),
        Maybe(fetches.most_us, 1)
    )
}

impl Display for Target {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let verdict = match (self.reached, self.is_met) {
            (None, _) => "nothing to measure",
            (_, true) => "met",
            (_, false) => "missed",
        };
        write!(f, "{}: {}, at most {} wanted: {verdict}", self.wanted, Maybe(self.reached, 2), self.at_most)
    }
}
