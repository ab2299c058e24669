//! The smallest local budget with which a program is hardly ever held up by paging.
//!
//! As Meta's TMO (Weiner et al., ASPLOS 2022) does with the kernel's swap: lower the budget little by little
//! while the program stalls less than it may, for every page that nobody misses is one saved; raise it when
//! it stalls more. Three differences. The steps down grow while nothing at all is missed, so that memory
//! which is not used is found in seconds rather than hours. The way up is as steep as the stall is high,
//! since there a program waits. And where the program has stalled before, the steps are small: what was too
//! little once will be again, until it is long ago.

use farmem_page::PageCount;

/// The smallest and the largest step down, in parts of the budget, and how it grows from one to the next.
const STEP_LEAST: f64 = 0.01;
const STEP_MOST: f64 = 0.08;
const STEP_GROWTH: f64 = 1.4;
/// The budget rises by this part for each multiple of the target that the stall is above it.
const RISE: f64 = 0.04;
/// It rises by no more than this part at once.
const RISE_MOST: f64 = 0.25;
/// Below this part of the target the budget falls.
const LOW: f64 = 0.5;
/// While the stall share falls, it is taken to fall by no more than this from one step to the next: pages
/// that are missed are not missed at once.
const MEMORY: f64 = 0.6;
/// Up to so much above the budget at which the program last stalled, steps are small.
const NEAR: f64 = 1.2;
/// A program whose memory has grown by more than this part since the last step is at work on it: its budget
/// stays.
const GROWING: f64 = 0.02;
/// From one step to the next that budget is taken to be lower, since the program may need less meanwhile.
const FADING: f64 = 0.985;

/// A budget that follows a program.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RightSizing {
    target: f64,
    least: PageCount,
    most: PageCount,
    step: f64,
    /// Share of the time that the program stalled, as remembered.
    stall: f64,
    /// The budget, in pages, at which it last stalled for too long; fading.
    too_little: f64,
    resident: PageCount,
}

impl RightSizing {
    /// For a program that may stall for the share `target` of its time, with `least` to `most` pages of local
    /// memory.
    pub fn new(target: f64, least: PageCount, most: PageCount) -> Self {
        Self {
            target: target.max(f64::MIN_POSITIVE),
            least,
            most: most.max(least),
            step: STEP_LEAST,
            stall: 0.0,
            too_little: 0.0,
            resident: PageCount::ZERO,
        }
    }

    /// The next budget, a while after the last one: `budget` is what it has been, `resident` what the program
    /// has of it, and `stall` the share of that while for which it stalled.
    pub fn next(&mut self, budget: PageCount, resident: PageCount, stall: f64) -> PageCount {
        self.stall = stall.max(self.stall * MEMORY);
        self.too_little *= FADING;
        let pages = |count: f64| PageCount::new(count as u64).max(self.least).min(self.most);
        let now = budget.get() as f64;
        if stall > self.target {
            self.step = STEP_LEAST;
            self.too_little = now;
            return pages(now * (1.0 + (RISE * (stall / self.target - 1.0)).min(RISE_MOST)) + 1.0);
        }
        let is_growing = resident.get() as f64 > self.resident.get() as f64 * (1.0 + GROWING);
        self.resident = resident;
        let ratio = self.stall / self.target;
        if ratio > LOW || is_growing {
            self.step = STEP_LEAST;
            return pages(now);
        }
        // What the program has never had is not a part of what it needs.
        let used = budget.min(resident).get() as f64;
        if used * (1.0 - self.step) < self.too_little * NEAR {
            self.step = STEP_LEAST;
        }
        let next = pages(used * (1.0 - self.step * (1.0 - ratio / LOW)));
        self.step = (self.step * STEP_GROWTH).min(STEP_MOST);
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: f64 = 0.02;
    const LEAST: PageCount = PageCount::new(100);
    const MOST: PageCount = PageCount::new(1_000_000);

    /// Stalls for a share that grows as the budget falls below what is hot.
    fn stall(hot: u64, budget: PageCount) -> f64 {
        let missing = hot.saturating_sub(budget.get()) as f64 / hot as f64;
        0.9 * missing.min(1.0)
    }

    fn run(sizing: &mut RightSizing, mut budget: PageCount, has: u64, hot: u64, rounds: u32) -> PageCount {
        for _ in 0..rounds {
            let resident = budget.min(PageCount::new(has));
            budget = sizing.next(budget, resident, stall(hot, budget));
        }
        budget
    }

    #[test]
    fn what_nobody_uses_goes_and_what_is_hot_stays() {
        let mut sizing = RightSizing::new(TARGET, LEAST, MOST);
        let budget = run(&mut sizing, MOST, 60_000, 20_000, 200).get();
        assert!((19_000..23_000).contains(&budget), "{budget}");
    }

    #[test]
    fn a_new_phase_is_followed_up_and_down() {
        let mut sizing = RightSizing::new(TARGET, LEAST, MOST);
        let budget = run(&mut sizing, MOST, 60_000, 20_000, 100);
        let budget = run(&mut sizing, budget, 60_000, 50_000, 40);
        assert!((47_500..58_000).contains(&budget.get()), "{budget:?}");
        let budget = run(&mut sizing, budget, 60_000, 10_000, 400);
        assert!((9_500..12_500).contains(&budget.get()), "{budget:?}");
    }

    #[test]
    fn an_idle_program_keeps_the_least_and_no_budget_passes_the_most() {
        let mut sizing = RightSizing::new(TARGET, LEAST, MOST);
        assert_eq!(run(&mut sizing, MOST, 60_000, 1, 400), LEAST);
        let mut sizing = RightSizing::new(TARGET, LEAST, PageCount::new(5000));
        assert_eq!(run(&mut sizing, LEAST, 60_000, 20_000, 200), PageCount::new(5000));
    }

    #[test]
    fn the_first_misses_end_the_long_steps() {
        let mut sizing = RightSizing::new(TARGET, LEAST, MOST);
        let budget = run(&mut sizing, PageCount::new(60_000), 60_000, 1, 10);
        let held = sizing.next(budget, budget, TARGET * 0.9);
        assert_eq!(held, budget);
        // What was missed is remembered for a while, and then the steps are short again.
        let after = run(&mut sizing, held, 60_000, 1, 3).get();
        assert!(after > held.get() * 97 / 100, "{after} of {held:?}");
    }
}
