//! Looks at the applications from time to time, and what was seen of them: a bounded history.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farmem_client::{Rates, Report};

/// From one look to the next.
pub(crate) const PERIOD: Duration = Duration::from_secs(1);
/// What is remembered of an application: ten minutes.
pub(crate) const MOST_SAMPLES: usize = 600;
/// What is remembered: of so many applications.
pub(crate) const MOST_APPLICATIONS: usize = 64;
/// How an application is doing is judged over so many looks.
const JUDGED: usize = 10;

/// What was seen of an application at one look.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Sample {
    /// Number of the look.
    pub(crate) look: u64,
    pub(crate) rates: Rates,
    pub(crate) budget_bytes: u64,
    pub(crate) resident_bytes: u64,
    pub(crate) pool_bytes: u64,
    pub(crate) node_bytes: u64,
    pub(crate) disk_bytes: u64,
}

/// An application.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) now: Report,
    /// As it was some looks ago, the latest last.
    before: VecDeque<Report>,
    pub(crate) history: VecDeque<Sample>,
}

impl Seen {
    fn new(now: Report) -> Self {
        Self { now, before: VecDeque::new(), history: VecDeque::new() }
    }

    /// As it was when judging began.
    pub(crate) fn before(&self) -> &Report {
        self.before.front().unwrap_or(&self.now)
    }

    fn update(&mut self, look: u64, now: Report) {
        let rates = Rates::between(&self.now, &now);
        self.before.push_back(std::mem::replace(&mut self.now, now));
        if self.before.len() > JUDGED {
            self.before.pop_front();
        }
        let now = &self.now;
        self.history.push_back(Sample {
            look,
            rates,
            budget_bytes: now.budget_bytes,
            resident_bytes: now.resident_bytes,
            pool_bytes: now.pool_bytes,
            node_bytes: now.node_bytes,
            disk_bytes: now.disk_bytes,
        });
        if self.history.len() > MOST_SAMPLES {
            self.history.pop_front();
        }
    }
}

/// All that was seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sight {
    /// Looks so far.
    pub(crate) look: u64,
    pub(crate) applications: Vec<Seen>,
    /// Applications that run and of which nothing is kept.
    pub(crate) left_out: usize,
}

impl Sight {
    /// One look. An application that has ended is forgotten.
    pub(crate) fn update(&mut self, mut reports: Vec<Report>) {
        self.look += 1;
        // Those that have run longest stay in sight.
        reports.sort_by(|one, other| other.wall_seconds.total_cmp(&one.wall_seconds));
        self.left_out = reports.len().saturating_sub(MOST_APPLICATIONS);
        reports.truncate(MOST_APPLICATIONS);
        let mut before = std::mem::take(&mut self.applications);
        for report in reports {
            // A process number may be given out again.
            let is_same = |seen: &Seen| {
                seen.now.process == report.process && seen.now.wall_seconds <= report.wall_seconds
            };
            let mut seen = match before.iter().position(is_same) {
                Some(at) => before.swap_remove(at),
                None => Seen::new(report.clone()),
            };
            seen.update(self.look, report);
            self.applications.push(seen);
        }
    }
}

/// What the thread that looks and those that answer share.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    sight: Mutex<Sight>,
}

impl Watch {
    pub(crate) fn sight(&self) -> MutexGuard<'_, Sight> {
        self.sight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks until it is to end, or for as long as the process lives. An application that doesn't answer
    /// holds up the next look, and nothing else.
    pub(crate) fn look_on(&self, look: impl Fn() -> Vec<Report>, is_ending: &AtomicBool) {
        while !is_ending.load(Ordering::Acquire) {
            let reports = look();
            self.sight().update(reports);
            // Whoever ends it wakes it.
            std::thread::park_timeout(PERIOD);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(process: u32, wall_seconds: f64) -> Report {
        Report { process, wall_seconds, ..Report::default() }
    }

    #[test]
    fn the_history_is_bounded() {
        let mut sight = Sight::default();
        for look in 0..MOST_SAMPLES + 50 {
            sight.update(vec![report(1, look as f64)]);
        }
        let seen = &sight.applications[0];
        assert_eq!((seen.history.len(), seen.before.len()), (MOST_SAMPLES, JUDGED));
        assert_eq!(seen.before().wall_seconds, (MOST_SAMPLES + 50 - 1 - JUDGED) as f64);
    }

    #[test]
    fn who_has_ended_is_forgotten_and_a_namesake_begins_anew() {
        let mut sight = Sight::default();
        sight.update(vec![report(1, 5.0), report(2, 5.0)]);
        sight.update(vec![report(2, 1.0)]);
        assert_eq!(sight.applications.len(), 1);
        assert_eq!(sight.applications[0].history.len(), 1);
    }

    #[test]
    fn too_many_applications_are_counted() {
        let mut sight = Sight::default();
        sight.update((0..MOST_APPLICATIONS as u32 + 3).map(|process| report(process, 1.0)).collect());
        assert_eq!((sight.applications.len(), sight.left_out), (MOST_APPLICATIONS, 3));
    }
}
