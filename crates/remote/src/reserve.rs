//! How many granted chunks are held ahead of need (COMEX §3.3.3): enough for what leaves memory during the
//! round trip in which more are granted. The rate and the round trip are measured as it runs.

use std::time::Duration;

/// Chunks of a slab's size held at least, so that a batch of the mover's never waits: 512 pages.
const LEAST: usize = 8;
/// Held at most: 8192 pages, from where COMEX (Figure 10) sees what is held in vain cost more than it gains.
const MOST: usize = 128;
/// A grant is asked for with a batch of writes and heard of before the next one: what leaves meanwhile must
/// find its chunks.
const MARGIN: f64 = 2.0;
/// What the latest measurement counts for, against all before it: an eighth.
const WEIGHT: f64 = 0.125;

/// What is known of how fast chunks are used and granted, for one node.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Reserve {
    chunks_per_second: f64,
    round_trip: Duration,
    /// The threshold, where it follows nothing.
    fixed: Option<usize>,
}

impl Reserve {
    /// One with this threshold; or with `None` one that follows what is measured.
    pub fn new(fixed: Option<usize>) -> Self {
        Self { fixed, ..Self::default() }
    }

    /// So many chunks were used in that time.
    pub fn used(&mut self, chunks: usize, time: Duration) {
        if !time.is_zero() {
            let rate = chunks as f64 / time.as_secs_f64();
            self.chunks_per_second += (rate - self.chunks_per_second) * WEIGHT;
        }
    }

    /// A request was answered after that time.
    pub fn answered(&mut self, time: Duration) {
        self.round_trip = match self.round_trip {
            Duration::ZERO => time,
            before => before.mul_f64(1.0 - WEIGHT) + time.mul_f64(WEIGHT),
        };
    }

    /// Below so many chunks in hand more are asked for.
    pub fn threshold(&self) -> usize {
        if let Some(fixed) = self.fixed {
            return fixed.max(1);
        }
        let meanwhile = self.chunks_per_second * self.round_trip.as_secs_f64() * MARGIN;
        // Not a number is not to be had: all terms are finite and positive.
        (meanwhile.ceil() as usize).clamp(LEAST, MOST)
    }

    /// How many to ask for with so many in hand and on their way; zero while there are enough.
    pub fn wanted(&self, in_hand: usize) -> usize {
        let threshold = self.threshold();
        if in_hand < threshold { 2 * threshold - in_hand } else { 0 }
    }

    /// How many of those in hand are more than will be needed soon, to be given back.
    pub fn surplus(&self, in_hand: usize) -> usize {
        in_hand.saturating_sub(4 * self.threshold())
    }

    /// The measured round trip.
    pub fn round_trip(&self) -> Duration {
        self.round_trip
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_covers_what_leaves_during_a_round_trip() {
        let mut reserve = Reserve::default();
        for _ in 0..100 {
            reserve.used(1_000, Duration::from_secs(1));
            reserve.answered(Duration::from_millis(20));
        }
        assert!(reserve.threshold() >= 20, "{reserve:?}");
        assert!(reserve.wanted(reserve.threshold()) == 0 && reserve.wanted(0) == 2 * reserve.threshold());
    }

    #[test]
    fn a_reserve_stays_within_its_bounds() {
        let mut reserve = Reserve::default();
        assert_eq!(reserve.threshold(), LEAST);
        (0..100).for_each(|_| reserve.used(1 << 30, Duration::from_millis(1)));
        reserve.answered(Duration::from_secs(10));
        assert_eq!(reserve.threshold(), MOST);
    }

    #[test]
    fn a_threshold_that_is_fixed_follows_nothing() {
        let mut reserve = Reserve::new(Some(3));
        (0..100).for_each(|_| reserve.used(1 << 30, Duration::from_millis(1)));
        reserve.answered(Duration::from_secs(10));
        assert_eq!((reserve.threshold(), reserve.wanted(1), reserve.wanted(3)), (3, 5, 0));
    }

    #[test]
    fn what_is_asked_for_is_no_surplus_when_it_comes() {
        let reserve = Reserve::default();
        assert_eq!(reserve.surplus(reserve.wanted(0)), 0);
        assert!(reserve.surplus(100) > 0);
    }
}
