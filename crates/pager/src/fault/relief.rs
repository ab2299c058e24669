//! Handlers for those that wait. A handler that reads from a disk serves nobody meanwhile, and a disk may
//! take milliseconds, or seconds where it pauses. So where all handlers wait, and a message does, another one
//! is armed, and started if there is none left.
//!
//! Where handlers are at work without waiting, more of them would only take turns on the same processors.

/// Rounds in a row that must find one too many before it rests again: disks are read from time and again.
const SPARE_ROUNDS: u32 = 8;

/// How many handlers stand in for those that wait.
#[derive(Debug, Default)]
pub(crate) struct Relief {
    count: u32,
    /// So many can be had.
    most: u32,
    /// Rounds in a row in which fewer were waited for.
    spare_rounds: u32,
}

impl Relief {
    /// From now on so many can be had.
    pub(crate) fn limit(&mut self, most: u32) {
        (self.most, self.count) = (most, self.count.min(most));
    }

    /// One round of the bookkeeper, in which `waiting` handlers wait. `is_short` if these are all, and a
    /// message waits, too. How many stand in from now on.
    pub(crate) fn look(&mut self, is_short: bool, waiting: u32) -> u32 {
        self.spare_rounds = if !is_short && waiting < self.count { self.spare_rounds + 1 } else { 0 };
        if is_short {
            self.count = (self.count + 1).min(self.most);
        } else if self.spare_rounds == SPARE_ROUNDS {
            (self.count, self.spare_rounds) = (self.count - 1, 0);
        }
        self.count
    }

    /// How many stand in.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(most: u32) -> Relief {
        let mut relief = Relief::default();
        relief.limit(most);
        relief
    }

    #[test]
    fn another_one_comes_each_round_in_which_all_wait_and_a_message_does() {
        let mut relief = of(3);
        let counts = (2..7).map(|all| relief.look(true, all)).collect::<std::vec::Vec<_>>();
        assert_eq!(counts, [1, 2, 3, 3, 3]);
        relief.limit(2);
        assert_eq!(relief.look(true, 6), 2);
    }

    #[test]
    fn they_go_one_by_one_when_fewer_wait_for_some_rounds() {
        let mut relief = of(3);
        (2..4).for_each(|all| _ = relief.look(true, all));
        (1..SPARE_ROUNDS).for_each(|_| assert_eq!(relief.look(false, 1), 2));
        assert_eq!(relief.look(false, 2), 2, "both are waited for again");
        (1..SPARE_ROUNDS).for_each(|_| assert_eq!(relief.look(false, 0), 2));
        assert_eq!(relief.look(false, 0), 1);
        assert_eq!(relief.look(false, 0), 1, "the next one stays for as long");
    }
}
