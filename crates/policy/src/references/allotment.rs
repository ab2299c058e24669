//! How much time walks may take that are of no use.
//!
//! Whether a walk was worth its time is known afterwards. So it is lent: what there is grows with the time
//! that passes, by one part in [`SHARE`], up to [`MOST_NS`]; a walk spends of it, and gets twice what it took
//! back when the program has come through what it fetched. Where nothing can be predicted none comes back,
//! and the share is the limit. Where half of the walks are of use there is as much as they want.
//!
//! Invariant:
//! 1. In any stretch of time what was spent is at most `MOST_NS`, a part in `SHARE` of the stretch, twice
//!    what was earned in it, and what is spent between two times that it is asked, each step at most
//!    [`LONGEST_NS`].

/// Of the time that passes, one part in so many may be spent on walks without use.
const SHARE: u64 = 400;
/// What can be saved up: enough for some hundreds of faults to be looked at, so that what can be followed is
/// found at once after a long rest.
const MOST_NS: i64 = 1_000_000;
/// No walk takes longer: it comes to less than two hundred addresses, each of which takes two or three
/// microseconds. What a clock shows beyond that is time in which somebody else had the processor.
const LONGEST_NS: u64 = 500_000;

/// The time that is left. A clock that doesn't stand still is all it needs; not synchronised.
#[derive(Clone, Copy, Debug)]
pub struct Allotment {
    left_ns: i64,
    /// When it grew last.
    grown_ns: u64,
}

impl Allotment {
    /// All that can be saved up.
    pub const fn new() -> Self {
        Self { left_ns: MOST_NS, grown_ns: 0 }
    }

    /// Whether a walk may begin at `now_ns`.
    pub fn is_any_left(&mut self, now_ns: u64) -> bool {
        let grown = now_ns.saturating_sub(self.grown_ns) / SHARE;
        if grown > 0 {
            self.add(grown);
            // Not to `now_ns`: what is less than a nanosecond of growth counts the next time.
            self.grown_ns = self.grown_ns.saturating_add(grown * SHARE);
        }
        self.left_ns > 0
    }

    /// A walk has taken so long; what is to be taken off.
    pub fn spend(&mut self, took_ns: u64) -> u64 {
        let took_ns = took_ns.min(LONGEST_NS);
        self.left_ns -= took_ns as i64;
        took_ns
    }

    /// A walk that took so long was of use.
    pub fn earn(&mut self, took_ns: u64) {
        self.add(took_ns.min(LONGEST_NS) * 2);
    }

    fn add(&mut self, ns: u64) {
        self.left_ns = self.left_ns.saturating_add(ns.min(MOST_NS as u64 * 2) as i64).min(MOST_NS);
    }
}

impl Default for Allotment {
    fn default() -> Self {
        Self::new()
    }
}

const _: () = assert!(LONGEST_NS as i64 <= MOST_NS, "what a walk that was of use earns is not cut off");

#[cfg(test)]
mod tests {
    use super::*;

    /// Walks of `took_ns` whenever one may begin, a fault each `fault_ns`, for a second; every `of_use`th is
    /// of use. What was spent.
    fn spent_in_a_second(fault_ns: u64, took_ns: u64, of_use: Option<u64>) -> u64 {
        let mut allotment = Allotment::new();
        let began_ns = 1 << 50;
        let (mut now_ns, mut walks, mut spent) = (began_ns, 0, 0);
        while now_ns < began_ns + 1_000_000_000 {
            if allotment.is_any_left(now_ns) {
                spent += allotment.spend(took_ns);
                now_ns += took_ns;
                walks += 1;
                if of_use.is_some_and(|every| walks % every == 0) {
                    allotment.earn(took_ns);
                }
            }
            now_ns += fault_ns;
        }
        spent
    }

    #[test]
    fn walks_of_no_use_take_no_more_than_their_share() {
        for took_ns in [300, 2_000, 50_000, 900_000] {
            let spent = spent_in_a_second(5_000, took_ns, None);
            let most = MOST_NS as u64 + 1_000_000_000 / SHARE + LONGEST_NS;
            assert!(spent <= most, "{took_ns}: {spent}");
            assert!(spent >= 1_000_000_000 / SHARE, "{took_ns}: {spent}");
        }
    }

    #[test]
    fn walks_of_which_half_are_of_use_are_not_held_up() {
        let held_up = spent_in_a_second(5_000, 50_000, None);
        let useful = spent_in_a_second(5_000, 50_000, Some(2));
        assert!(useful > 900_000_000, "{useful}");
        // One in ten pays for itself and one more.
        let seldom = spent_in_a_second(5_000, 50_000, Some(10));
        assert!(seldom < held_up * 5 / 4 + 1_000_000, "{seldom} beside {held_up}");
    }

    #[test]
    fn time_in_which_somebody_else_had_the_processor_is_not_charged() {
        let mut allotment = Allotment::new();
        assert_eq!(allotment.spend(40 * LONGEST_NS), LONGEST_NS);
        assert!(allotment.is_any_left(0));
    }

    #[test]
    fn a_clock_that_goes_back_earns_nothing() {
        let mut allotment = Allotment::new();
        assert!(allotment.is_any_left(1 << 40));
        (0..3).for_each(|_| _ = allotment.spend(LONGEST_NS));
        assert!(!allotment.is_any_left(1 << 39));
        assert!(allotment.is_any_left((1 << 40) + 2 * LONGEST_NS * SHARE));
    }

    #[test]
    fn many_small_steps_earn_as_much_as_a_large_one() {
        let mut allotment = Allotment::new();
        let began_ns = SHARE << 40;
        allotment.is_any_left(began_ns);
        (0..2).for_each(|_| _ = allotment.spend(LONGEST_NS));
        assert!(!allotment.is_any_left(began_ns));
        for step in 1..SHARE {
            assert!(!allotment.is_any_left(began_ns + step), "{step}");
        }
        assert!(allotment.is_any_left(began_ns + SHARE));
    }
}
