//! Whether the program waits for pages for most of its time: what an operator would want to hear once when it
//! begins, and once when it is over.

use std::time::{Duration, Instant};

use farmem_client::Rates;
use farmem_client::Report;

/// Judged over so long.
const SPELL: Duration = Duration::from_secs(10);
/// Begins with this part of a thread's time, and is over below that.
const SLOW: f64 = 0.25;
const FINE: f64 = 0.15;

/// What has changed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Change {
    /// It waits for this part of a thread's time.
    Slow(f64),
    /// No longer.
    Fine(f64),
}

impl Change {
    pub(super) fn tell(self, application: &str) {
        match self {
            Self::Slow(stall) => tracing::warn!(application, stall, "program waits for pages"),
            Self::Fine(stall) => tracing::info!(application, stall, "program no longer waits for pages"),
        }
    }
}

/// What is known.
#[derive(Debug)]
pub(super) struct Waiting {
    before: Option<Report>,
    due: Instant,
    is_slow: bool,
}

impl Waiting {
    pub(super) fn new() -> Self {
        Self { before: None, due: Instant::now() + SPELL, is_slow: false }
    }

    pub(super) fn is_due(&self) -> bool {
        Instant::now() >= self.due
    }

    /// What has changed since the last time.
    pub(super) fn judge(&mut self, now: Report) -> Option<Change> {
        self.due = Instant::now() + SPELL;
        let stall = match &self.before {
            Some(before) => Rates::between(before, &now).stall,
            None => Rates::since_start(&now).stall,
        };
        self.before = Some(now);
        let change = match self.is_slow {
            false if stall > SLOW => Change::Slow(stall),
            true if stall < FINE => Change::Fine(stall),
            _ => return None,
        };
        self.is_slow = !self.is_slow;
        Some(change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(seconds: f64, stalled: f64) -> Report {
        let counters = [("stall_ns".to_owned(), ((stalled * 1e9) as u64).into())].into_iter().collect();
        Report { process: 1, wall_seconds: seconds, counters, ..Report::default() }
    }

    #[test]
    fn it_is_told_once_when_it_begins_and_once_when_it_is_over() {
        let mut waiting = Waiting::new();
        assert_eq!(waiting.judge(report(10.0, 1.0)), None);
        assert_eq!(waiting.judge(report(20.0, 6.0)), Some(Change::Slow(0.5)));
        assert_eq!(waiting.judge(report(30.0, 11.0)), None);
        assert_eq!(waiting.judge(report(40.0, 13.0)), None);
        assert_eq!(waiting.judge(report(50.0, 14.0)), Some(Change::Fine(0.1)));
    }
}
