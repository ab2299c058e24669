//! The time that a node has been able to listen.

use std::time::{Duration, Instant};

/// A gap between two looks at the clock that only a node that could not run leaves: it looks many times a
/// second.
const STANDSTILL: Duration = Duration::from_secs(1);

/// Stands still while the node does: stopped, frozen with its control group, or in a virtual machine that is.
/// A node can't say which clients were silent in that time, so it counts towards nobody's lease.
#[derive(Debug)]
pub(crate) struct Clock {
    began: Instant,
    looked_at: Duration,
    stood_still: Duration,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { began: Instant::now(), looked_at: Duration::ZERO, stood_still: Duration::ZERO }
    }

    /// Time since the start that the node was there. To be called more often than once in [`STANDSTILL`].
    pub(crate) fn now(&mut self) -> Duration {
        self.advance(self.began.elapsed())
    }

    fn advance(&mut self, elapsed: Duration) -> Duration {
        let gap = elapsed.saturating_sub(self.looked_at);
        if gap > STANDSTILL {
            self.stood_still += gap;
        }
        self.looked_at = elapsed;
        elapsed.saturating_sub(self.stood_still)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standstill_takes_no_time() {
        let mut clock = Clock::start();
        let seconds = [0.5, 1.0, 31.0, 31.5, 99.0].map(|at| clock.advance(Duration::from_secs_f64(at)));
        assert_eq!(seconds, [0.5, 1.0, 1.0, 1.5, 1.5].map(Duration::from_secs_f64));
    }
}
