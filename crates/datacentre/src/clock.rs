//! The clock: what is to happen, in the order in which it does. What happens at the same time happens in the
//! order in which it was noted.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;

/// Nanoseconds since the start.
pub(crate) type Time = u64;

/// A duration as the clock counts.
pub(crate) const fn ns(duration: Duration) -> Time {
    duration.as_nanos() as Time
}

/// Seconds as the clock counts.
pub(crate) fn seconds(seconds: f64) -> Time {
    (seconds * 1e9) as Time
}

struct Entry<E> {
    at: Time,
    number: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl<E> Eq for Entry<E> {}
impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

pub(crate) struct Clock<E> {
    now: Time,
    next: u64,
    entries: BinaryHeap<Reverse<Entry<E>>>,
}

impl<E> Clock<E> {
    pub(crate) fn new() -> Self {
        Self { now: 0, next: 0, entries: BinaryHeap::new() }
    }

    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// The same, as policies take it.
    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.now)
    }

    /// Notes an event; what should have happened already happens next.
    pub(crate) fn at(&mut self, at: Time, event: E) {
        self.next += 1;
        self.entries.push(Reverse(Entry { at: at.max(self.now), number: self.next, event }));
    }

    pub(crate) fn after(&mut self, pause: Time, event: E) {
        self.at(self.now.saturating_add(pause), event);
    }

    /// The next event before the end, whose time it is now.
    pub(crate) fn next(&mut self, end: Time) -> Option<E> {
        if self.entries.peek().is_none_or(|Reverse(entry)| entry.at > end) {
            self.now = end;
            return None;
        }
        let Reverse(entry) = self.entries.pop()?;
        self.now = entry.at;
        Some(entry.event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_those_of_one_time_as_they_were_noted() {
        let mut clock = Clock::new();
        for (at, event) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b'), (9, 'e')] {
            clock.at(at, event);
        }
        let come: String = std::iter::from_fn(|| clock.next(8)).collect();
        assert_eq!((come.as_str(), clock.now()), ("abcd", 8));
    }
}
