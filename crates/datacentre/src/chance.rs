//! Chance, from a seed: each who needs some has a stream of their own, so that nobody's draws depend on how
//! many another one has made.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Exp1, Poisson, StandardNormal};

pub(crate) struct Chance(SmallRng);

impl Chance {
    /// The stream of this number.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut seeds = SmallRng::seed_from_u64(seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self(SmallRng::seed_from_u64(seeds.random::<u64>() ^ stream))
    }

    /// In [0, 1).
    pub(crate) fn part(&mut self) -> f64 {
        self.0.random::<f64>()
    }

    pub(crate) fn between(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * self.part()
    }

    /// Below that number, which is not zero.
    pub(crate) fn below(&mut self, number: usize) -> usize {
        self.0.random_range(0..number)
    }

    pub(crate) fn happens(&mut self, probability: f64) -> bool {
        self.part() < probability
    }

    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        let drawn: f64 = Exp1.sample(&mut self.0);
        mean * drawn
    }

    /// Normal, with mean 0 and deviation 1.
    pub(crate) fn normal(&mut self) -> f64 {
        StandardNormal.sample(&mut self.0)
    }

    /// Log-normal with median 1.
    pub(crate) fn about_one(&mut self, spread: f64) -> f64 {
        (spread * self.normal()).exp()
    }

    /// How many of what happens so often on average.
    pub(crate) fn count(&mut self, mean: f64) -> u64 {
        Poisson::new(mean).map_or(0, |poisson| poisson.sample(&mut self.0) as u64)
    }
}
