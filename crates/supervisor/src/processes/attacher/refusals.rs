//! Processes that could not be attached to: when each is tried again, and when that is said.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use farmem_machine::process::Identity;

/// How long a process that could not be attached to is left alone.
const REST: Duration = Duration::from_millis(50);
/// What has been in the way for so long is said. It may end all the same, as a freezer does: the process is
/// tried further, with as much time in between. By time, because on a busy machine few attempts take long.
const LONG: Duration = Duration::from_secs(2);
/// When it is said that a process is traced: debuggers seldom leave before its end.
const TRACED: Duration = Duration::from_millis(300);
/// A process that nobody has tried to attach to for so long, although that was possible, begins from nothing.
const FORGOTTEN: Duration = Duration::from_secs(10);
/// After so many of its pagers were ended a process is given up.
const MOST_DEATHS: u32 = 5;
/// Processes that are remembered, before those that have ended are forgotten.
const MOST: usize = 1000;

/// Why a process has no pager now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Obstacle {
    /// Something that may end.
    Passing,
    /// Somebody traces it.
    Traced,
    /// It looks at its own page table. When it seems to have stopped, it may begin once more, and it would be
    /// wrong for it to find far pages then.
    Looking,
    /// Its pager was ended.
    Death,
    /// Something that does not end.
    Lasting,
}

/// One process that could not be attached to.
struct Refusal {
    since: Instant,
    /// When it may be tried again, if ever.
    again: Option<Instant>,
    deaths: u32,
    has_been_said: bool,
}

/// Processes that could not be attached to.
#[derive(Default)]
pub(super) struct Refusals(HashMap<Identity, Refusal>);

impl Refusals {
    /// Whether a pager may be sent to the process at `now`.
    pub(super) fn permit(&self, of: Identity, now: Instant) -> bool {
        self.0.get(&of).is_none_or(|refusal| refusal.again.is_some_and(|again| now >= again))
    }

    /// The process was not attached to. Whether that is to be said at `now`.
    pub(super) fn add(&mut self, of: Identity, obstacle: Obstacle, now: Instant) -> bool {
        let new = || Refusal { since: now, again: Some(now), deaths: 0, has_been_said: false };
        let refusal = self.0.entry(of).or_insert_with(new);
        if refusal.again.is_some_and(|again| now.saturating_duration_since(again) > FORGOTTEN) {
            *refusal = new();
        }
        let lasts = now - refusal.since;
        refusal.deaths += u32::from(obstacle == Obstacle::Death);
        let (is_worth_saying, rest) = match obstacle {
            Obstacle::Passing => (lasts >= LONG, Some(if lasts >= LONG { LONG } else { REST })),
            Obstacle::Traced => (lasts >= TRACED, Some(if lasts >= LONG { LONG } else { REST })),
            Obstacle::Looking => (lasts >= LONG, (lasts < LONG).then_some(REST)),
            Obstacle::Death => {
                (refusal.deaths >= MOST_DEATHS, (refusal.deaths < MOST_DEATHS).then_some(REST))
            }
            Obstacle::Lasting => (true, None),
        };
        refusal.again = rest.map(|rest| now + rest);
        is_worth_saying && !std::mem::replace(&mut refusal.has_been_said, true)
    }

    /// The process is left alone until then, and begins from nothing.
    pub(super) fn rest(&mut self, of: Identity, now: Instant, until: Instant) {
        self.0.insert(of, Refusal { since: now, again: Some(until), deaths: 0, has_been_said: false });
    }

    /// The process has begun another program: what stood in the way of the one before doesn't stand in its
    /// way.
    pub(super) fn begin(&mut self, number: u32) {
        self.0.retain(|of, _| of.number != number);
    }

    /// Forgets processes that have ended, once there are many.
    pub(super) fn tidy(&mut self, is_living: impl Fn(Identity) -> bool) {
        if self.0.len() > MOST {
            self.0.retain(|&of, _| is_living(of));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF: Identity = Identity { number: 7, began: 3 };

    /// Attempts until the first that is said, and when that is, if each takes so long.
    fn said(obstacle: Obstacle, attempt: Duration) -> (u32, Duration) {
        let began = Instant::now();
        let mut refusals = Refusals::default();
        let mut now = began;
        for count in 1..100 {
            now += attempt;
            if refusals.add(OF, obstacle, now) {
                return (count, now - began);
            }
            while !refusals.permit(OF, now) {
                now += Duration::from_millis(1);
            }
        }
        panic!("it was never said");
    }

    #[test]
    fn what_lasts_is_said_after_the_same_time_however_long_an_attempt_takes() {
        for attempt in [0, 10, 250].map(Duration::from_millis) {
            let most = |patience: Duration| patience + REST + attempt * 2;
            let traced = said(Obstacle::Traced, attempt).1;
            assert!(traced >= TRACED && traced <= most(TRACED), "{traced:?}");
            for obstacle in [Obstacle::Passing, Obstacle::Looking] {
                let passing = said(obstacle, attempt).1;
                assert!(passing >= LONG && passing <= most(LONG), "{passing:?}");
            }
            assert_eq!(said(Obstacle::Death, attempt).0, MOST_DEATHS);
            assert_eq!(said(Obstacle::Lasting, attempt).0, 1);
        }
    }

    #[test]
    fn it_is_said_once_and_tried_further_where_that_may_come_to_something() {
        let now = Instant::now();
        let later = now + LONG;
        for (obstacle, is_tried) in [
            (Obstacle::Passing, true),
            (Obstacle::Traced, true),
            (Obstacle::Looking, false),
            (Obstacle::Lasting, false),
        ] {
            let mut refusals = Refusals::default();
            refusals.add(OF, obstacle, now);
            refusals.add(OF, obstacle, later);
            assert!(!refusals.permit(OF, later + LONG - REST));
            assert_eq!(refusals.permit(OF, later + LONG), is_tried);
            assert!(!refusals.add(OF, obstacle, later + LONG));
        }
    }

    #[test]
    fn another_program_and_a_long_time_begin_from_nothing() {
        let now = Instant::now();
        let mut refusals = Refusals::default();
        refusals.add(OF, Obstacle::Lasting, now);
        refusals.begin(OF.number);
        assert!(refusals.permit(OF, now));
        assert!(!refusals.add(OF, Obstacle::Passing, now));
        assert!(!refusals.add(OF, Obstacle::Passing, now + REST + FORGOTTEN * 2));
        refusals.rest(OF, now, now + REST);
        assert!(!refusals.permit(OF, now) && refusals.permit(OF, now + REST));
    }

    #[test]
    fn ended_processes_are_forgotten_once_there_are_many() {
        let now = Instant::now();
        let mut refusals = Refusals::default();
        for number in 0..=MOST as u32 {
            refusals.add(Identity { number, began: 0 }, Obstacle::Lasting, now);
        }
        refusals.tidy(|of| of.number < 3);
        assert_eq!(refusals.0.len(), 3);
        refusals.tidy(|_| false);
        assert_eq!(refusals.0.len(), 3);
    }
}
