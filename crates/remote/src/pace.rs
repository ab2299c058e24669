//! How fast lost shards are rebuilt: so many bytes a second over links that faults need as well.

use std::time::Duration;

/// What may go at once after a rest, as a part of what goes in a second: a tenth.
const BURST: f64 = 0.1;

/// A bound of bytes per second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pace {
    bytes_per_second: f64,
    /// What may go now; below zero after a piece of work that was larger than what was left.
    allowance: f64,
    at: Duration,
}

impl Pace {
    /// Such a bound. Times count from any one moment.
    pub fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1) as f64, allowance: 0.0, at: Duration::ZERO }
    }

    /// How long to wait before the next piece of work; nothing when it may begin.
    pub fn wait(&mut self, now: Duration) -> Duration {
        let earned = now.saturating_sub(self.at).as_secs_f64() * self.bytes_per_second;
        self.at = self.at.max(now);
        self.allowance = (self.allowance + earned).min(self.bytes_per_second * BURST);
        if self.allowance >= 0.0 {
            Duration::ZERO
        } else {
            Duration::from_secs_f64((-self.allowance / self.bytes_per_second).min(1.0))
        }
    }

    /// So many bytes went.
    pub fn went(&mut self, bytes: u64) {
        self.allowance -= bytes as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_ten_seconds_no_more_goes_than_the_rate_and_one_burst() {
        let mut pace = Pace::new(1_000_000);
        let (mut now, mut went) = (Duration::from_secs(5), 0);
        let end = now + Duration::from_secs(10);
        while now < end {
            match pace.wait(now) {
                Duration::ZERO => {
                    pace.went(320_000);
                    went += 320_000;
                }
                wait => now += wait,
            }
        }
        assert!((9_500_000..=10_500_000).contains(&went), "{went}");
    }
}
