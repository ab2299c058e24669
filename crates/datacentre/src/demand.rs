//! How much memory machines have to spare, and how much others lack (COMEX, Figure 1: of 4000 servers of a
//! cluster over five days, 38% use less than 90% of their memory, and these use 79% on average).
//!
//! Nodes are machines of the first kind. Their use is drawn evenly from 68% to 90%, which has that mean, and
//! what they have below 90% is lent. Clients are of the other kind: they have no memory to spare. How far
//! above it they are the figure doesn't tell. What they lack is drawn from an exponential distribution with
//! the mean that is asked for, and goes up and down with the time of day and by chance.

use crate::chance::Chance;
use crate::clock::Time;

/// Use of those below this part.
const FULL: f64 = 0.9;
const LEAST_USE: f64 = 0.68;
/// How far demand swings in the course of a day.
const SWING: f64 = 0.3;
const DAY_NS: f64 = 86_400e9;
/// What is kept of a deviation from one look to the next, and how much is added.
const KEPT: f64 = 0.999;
const ADDED: f64 = 0.004;
/// No client lacks more than so many times the mean.
const MOST_TIMES: f64 = 8.0;

/// What a machine lends, as a part of its memory.
pub(crate) fn lent_part(chance: &mut Chance) -> f64 {
    FULL - chance.between(LEAST_USE, FULL)
}

/// What a client lacks.
pub(crate) struct Demand {
    lacking: f64,
    phase: f64,
    deviation: f64,
    /// The first application's part.
    part: f64,
}

impl Demand {
    pub(crate) fn new(chance: &mut Chance, mean_bytes: f64) -> Self {
        Self {
            lacking: chance.exponential(1.0).min(MOST_TIMES) * mean_bytes,
            phase: chance.between(0.0, std::f64::consts::TAU),
            deviation: 0.0,
            part: chance.between(0.3, 0.7),
        }
    }

    /// What both applications want at this moment, on a machine that has so much: all of it, and what it
    /// lacks.
    pub(crate) fn look(&mut self, chance: &mut Chance, now: Time, has_bytes: f64) -> [f64; 2] {
        self.deviation = self.deviation * KEPT + ADDED * chance.normal();
        let day = (std::f64::consts::TAU * now as f64 / DAY_NS + self.phase).sin();
        let lacking = self.lacking * (1.0 + SWING * day + self.deviation).max(0.0);
        let wanted = has_bytes + lacking;
        [wanted * self.part, wanted * (1.0 - self.part)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_that_lend_use_what_those_of_the_figure_do() {
        let mut chance = Chance::new(1, 1);
        let lent: f64 = (0..10_000).map(|_| lent_part(&mut chance)).sum::<f64>() / 10_000.0;
        assert!((FULL - lent - 0.79).abs() < 0.005, "{lent}");
    }
}
