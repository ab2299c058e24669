//! How long it will take: what steps took before, and guesses for the others, corrected by what was guessed
//! wrong so far.

use std::collections::BTreeMap;
use std::time::Duration;

use super::plan::Work;

/// What was guessed for the steps that are done, and what they took; those of calls before this one among
/// them.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Estimate {
    guessed: f64,
    took: f64,
    /// What each took the last time, by its name.
    known: BTreeMap<String, Duration>,
}

impl Estimate {
    pub(super) fn learn(&mut self, work: Work, quick: bool, took: Duration) {
        self.guessed += work.guess(quick).as_secs_f64();
        self.took += took.as_secs_f64();
        self.known.insert(work.name(), took);
    }

    /// For these steps.
    pub(super) fn of(&self, works: impl Iterator<Item = Work>, quick: bool) -> Duration {
        let correction = if self.guessed > 0.0 { self.took / self.guessed } else { 1.0 };
        works
            .map(|work| {
                self.known.get(&work.name()).copied().unwrap_or_else(|| work.guess(quick).mul_f64(correction))
            })
            .sum()
    }
}

/// In words, as exact as an estimate is.
pub(super) fn words(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => "less than a minute".to_owned(),
        60..5400 => format!("about {} min", seconds.div_ceil(60)),
        _ => format!("about {:.1} h", seconds as f64 / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::CaseName;

    #[test]
    fn guesses_are_corrected_by_what_steps_took() {
        let mut estimate = Estimate::default();
        let guess = Work::Micro.guess(true);
        assert_eq!(estimate.of([Work::Micro].into_iter(), true), guess);
        let other = Work::Faults(CaseName::Zipf);
        estimate.learn(other, true, other.guess(true) * 2);
        assert_eq!(estimate.of([Work::Micro, Work::Micro].into_iter(), true), guess * 4);
    }

    #[test]
    fn a_step_that_was_done_before_takes_as_long_as_then() {
        let mut estimate = Estimate::default();
        let took = Duration::from_secs(7);
        estimate.learn(Work::Micro, true, took);
        assert_eq!(estimate.of([Work::Micro].into_iter(), true), took);
    }

    #[test]
    fn words_are_as_exact_as_an_estimate() {
        let of = |seconds| words(Duration::from_secs(seconds));
        assert_eq!([of(30), of(61), of(7200)], ["less than a minute", "about 2 min", "about 2.0 h"]);
    }
}
