//! How long it will take: guesses, corrected by what was guessed wrong so far.

use std::time::Duration;

/// What was guessed for the steps that are done, and what they took.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Estimate {
    guessed: f64,
    took: f64,
}

impl Estimate {
    pub(super) fn learn(&mut self, guess: Duration, took: Duration) {
        self.guessed += guess.as_secs_f64();
        self.took += took.as_secs_f64();
    }

    /// For steps with these guesses.
    pub(super) fn of(&self, guesses: impl Iterator<Item = Duration>) -> Duration {
        let correction = if self.guessed > 0.0 { self.took / self.guessed } else { 1.0 };
        Duration::from_secs_f64(guesses.map(|guess| guess.as_secs_f64()).sum::<f64>() * correction)
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

    #[test]
    fn guesses_are_corrected_by_what_steps_took() {
        let mut estimate = Estimate::default();
        let guess = Duration::from_secs(10);
        assert_eq!(estimate.of([guess].into_iter()), guess);
        estimate.learn(guess, Duration::from_secs(20));
        assert_eq!(estimate.of([guess, guess].into_iter()), Duration::from_secs(40));
    }

    #[test]
    fn words_are_as_exact_as_an_estimate() {
        let of = |seconds| words(Duration::from_secs(seconds));
        assert_eq!([of(30), of(61), of(7200)], ["less than a minute", "about 2 min", "about 2.0 h"]);
    }
}
