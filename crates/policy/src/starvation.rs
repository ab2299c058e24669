//! Whether a handler of the idle class gets its processor at all.
//!
//! It starves where others want that processor, and the program with it. So it is looked at from time to
//! time: a fault that waits, or work that is in hand, and no step forward for longer than any fault takes.
//! Then the handler is to compete as an ordinary thread for a while; again and again, and each time for
//! longer, while it starves soon after.

/// No fault that is being served takes so long, but for one that reads from a disk.
pub const STARVED_NS: u64 = 3_000_000;
/// How long the handler competes after it has starved once.
const SHORTEST_NS: u64 = 25_000_000;
/// And at most.
const LONGEST_NS: u64 = 400_000_000;

/// What one look shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sight {
    /// Faults served so far.
    pub faults: u64,
    /// The number of the work in hand, 0 for none.
    pub work: u64,
    /// Whether a message waits to be read.
    pub is_waiting: bool,
}

impl Sight {
    /// Whether the handler has something to do and has come no further since `before`.
    fn is_stuck_since(self, before: Sight) -> bool {
        let is_unread = self.is_waiting && before.is_waiting && self.faults == before.faults;
        is_unread || self.work != 0 && self.work == before.work
    }
}

/// Follows one handler.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Starvation {
    last: Sight,
    /// When the handler was last seen to come along, or to have nothing to do.
    moved_ns: u64,
    compete_until_ns: u64,
    compete_ns: u64,
}

impl Starvation {
    /// One look. Whether the handler is to compete with ordinary threads from now on.
    pub fn look(&mut self, sight: Sight, now_ns: u64) -> bool {
        if !sight.is_stuck_since(self.last) {
            self.moved_ns = now_ns;
        }
        self.last = sight;
        if now_ns.saturating_sub(self.moved_ns) >= STARVED_NS {
            self.starved(now_ns);
        }
        now_ns < self.compete_until_ns
    }

    /// Somebody has waited for the handler for [`STARVED_NS`].
    pub fn starved(&mut self, now_ns: u64) {
        if now_ns >= self.compete_until_ns {
            let is_soon = now_ns < self.compete_until_ns.saturating_add(self.compete_ns);
            self.compete_ns = if is_soon { (self.compete_ns * 2).min(LONGEST_NS) } else { SHORTEST_NS };
            self.compete_until_ns = now_ns + self.compete_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    const MS: u64 = 1_000_000;
    const STUCK: Sight = Sight { faults: 7, work: 9, is_waiting: false };

    fn busy(step: u64) -> Sight {
        Sight { faults: step, work: step + 1, is_waiting: true }
    }

    #[test]
    fn who_comes_along_or_has_nothing_to_do_does_not_starve() {
        let mut starvation = Starvation::default();
        assert!((0..1000).all(|step| !starvation.look(busy(step), step * 4 * MS)));
        let idle = Sight { work: 0, is_waiting: false, ..busy(1000) };
        assert!((1001..2000).all(|step| !starvation.look(idle, step * 4 * MS)));
    }

    #[test]
    fn looks_in_quick_succession_prove_nothing() {
        let mut starvation = Starvation::default();
        starvation.look(busy(1), 10 * MS);
        assert!((0..29).all(|step| !starvation.look(STUCK, 10 * MS + step * MS / 10)));
        assert!(starvation.look(STUCK, 14 * MS));
    }

    #[test]
    fn an_unread_message_counts_as_work_in_hand_does() {
        let mut starvation = Starvation::default();
        let unread = Sight { faults: 3, work: 0, is_waiting: true };
        starvation.look(unread, MS);
        assert!(!starvation.look(unread, 3 * MS));
        assert!(starvation.look(unread, 4 * MS));
    }

    #[test]
    fn who_is_waited_for_elsewhere_competes_from_the_next_look_on() {
        let mut starvation = Starvation::default();
        assert!(!starvation.look(busy(1), 10 * MS));
        starvation.starved(14 * MS);
        assert!(starvation.look(busy(2), 15 * MS));
        assert!(!starvation.look(busy(3), 40 * MS));
    }

    #[test]
    fn competes_for_longer_each_time_that_it_starves_soon_again() {
        let mut starvation = Starvation::default();
        let mut now_ns = 0;
        let mut turns = Vec::new();
        let (mut began_ns, mut competes) = (0, false);
        while turns.len() < 6 {
            let now_competes = starvation.look(STUCK, now_ns);
            match (competes, now_competes) {
                (false, true) => began_ns = now_ns,
                (true, false) => turns.push((now_ns - began_ns) / MS),
                _ => {}
            }
            competes = now_competes;
            // Stuck whenever it doesn't compete; comes along while it does.
            if now_competes {
                starvation.look(busy(now_ns), now_ns);
            }
            now_ns += MS;
        }
        assert_eq!(turns, [25, 50, 100, 200, 400, 400]);
        let calm_ns = now_ns + 1_000 * MS;
        starvation.look(busy(1), calm_ns);
        starvation.look(STUCK, calm_ns + MS);
        assert!(starvation.look(STUCK, calm_ns + 5 * MS));
        assert!(!starvation.look(busy(2), calm_ns + 31 * MS));
    }
}
