//! How long the bookkeeper may pause.
//!
//! New mappings are filled by the kernel alone until the bookkeeper has found them, so nothing but its next
//! look bounds how far a program passes its budget: it must come back before the program can have used up
//! what is left. While the program doesn't run it can use up nothing, and while it uses a processor now and
//! then it can use up little.

use farmem_page::PageCount;

/// The fastest that a program on a machine of few processors can take memory: a first touch costs the kernel
/// 250 ns at least.
const FASTEST_PAGES_PER_MS: u64 = 4000;
/// Memory comes under management when the application is this close to its budget: 2 MiB, or a 16th of the
/// budget.
const MARGIN_PAGES: u64 = 512;
const MARGIN_SHARE: u64 = 16;
/// How late the bookkeeper may come on a busy machine.
const LATE_NS: u64 = 20_000_000;
/// The shortest pause while the process keeps to its limit.
pub const SHORTEST_NS: u64 = 1_000_000;
/// The pause while it doesn't: only so that others get at what this thread holds.
const CROWDED_NS: u64 = 100_000;
/// The pause while pages are brought back, 2 ms at a time.
const RETURNING_NS: u64 = 300_000;
/// The longest pause before memory is managed.
pub const LONGEST_NS: u64 = 100_000_000;
/// The longest pause while the program runs.
const RUNNING_NS: u64 = 4_000_000;
/// The pause while it doesn't: it may begin at any time, and map and fill an array at once.
const RESTING_NS: u64 = 8_000_000;
/// The same while somebody else watches all processes that rest, and calls when one of them does something.
const ATTENDED_NS: u64 = 200_000_000;
/// The pause while there is nowhere to put its pages.
const FULL_NS: u64 = 20_000_000;
/// A program rests once it has used no processor for so long: in less it may have waited for one.
const RESTED_NS: u64 = 100_000_000;
/// Less than this part of the time is nothing: the pager's threads run at times.
const NOTHING_SHARE: u64 = 16;
/// How much a process uses the processors is taken over so long at least.
const WINDOW_NS: u64 = 16_000_000;
/// The kernel's figure of what is resident is exact but for so many pages.
const INEXACT_PAGES: u64 = 64;
/// Handlers evict what their faults need. What goes beyond is left to them as long as it is little: 1 MiB.
pub const LEFT_PAGES: i64 = 256;

/// Whether far memory takes pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Far {
    /// It has taken all that there were.
    Open,
    /// It has refused some, and room has been made since.
    Scarce,
    /// It refuses pages.
    Full,
}

/// What one look at a process whose memory is managed has shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outlook {
    /// Pages that the application may still take; below zero what it has too many.
    pub gap: i64,
    /// Pages by which the process is above its limit.
    pub excess: i64,
    /// Whether far memory takes pages.
    pub far: Far,
    /// Whether pages are being brought back because there is room.
    pub is_returning: bool,
    /// Whether pages have come or gone since the look before.
    pub has_moved: bool,
    /// Whether the program has run since the look before, or what serves it needs watching.
    pub is_running: bool,
    /// The shortest pause that is of use while nothing exceeds its limit: [`SHORTEST_NS`], or what
    /// [`Growth::shortest_ns`] says where only growth is to be seen.
    pub shortest_ns: u64,
    /// Whether somebody else looks meanwhile, each [`SHORTEST_NS`], and calls if there is anything to be
    /// done.
    pub is_watched: bool,
}

impl Outlook {
    /// Whether nothing is to be done before the program does something.
    pub fn rests(self) -> bool {
        self.pause_ns() == RESTING_NS
    }

    /// The pause after it, in nanoseconds.
    pub fn pause_ns(self) -> u64 {
        if self.far == Far::Full {
            FULL_NS
        } else if self.far == Far::Scarce {
            SHORTEST_NS
        } else if self.excess > LEFT_PAGES {
            CROWDED_NS
        } else if self.is_returning {
            RETURNING_NS
        } else if self.is_watched {
            RUNNING_NS
        } else if self.has_moved || self.is_running {
            time_to_take(self.gap).clamp(self.shortest_ns.min(RUNNING_NS), RUNNING_NS)
        } else {
            RESTING_NS
        }
    }
}

/// Follows the growth of a process, and whether it runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Growth {
    resident: PageCount,
    now_ns: u64,
    cpu_ns: u64,
    grown: u64,
    passed_ns: u64,
    /// How long the process has used nothing.
    rested_ns: u64,
    /// What it has used in the present window of time, and in the one before.
    window: Use,
    before: Use,
}

/// Processor time that a process has used in some time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Use {
    used_ns: u64,
    passed_ns: u64,
}

impl Growth {
    /// One look: what is resident, the time, and the processor time that the process has used without the
    /// caller's own, which would keep itself busy.
    pub fn look(&mut self, resident: PageCount, now_ns: u64, cpu_ns: u64) {
        self.grown = resident.get().saturating_sub(self.resident.get());
        self.passed_ns = now_ns.saturating_sub(self.now_ns);
        let used_ns = cpu_ns.saturating_sub(self.cpu_ns);
        // Before the first look there was nothing to rest from.
        let is_first = self.now_ns == 0;
        let has_run = is_first || used_ns > self.passed_ns / NOTHING_SHARE;
        self.rested_ns = if has_run { 0 } else { self.rested_ns + self.passed_ns };
        if !is_first {
            self.window.used_ns += used_ns;
            self.window.passed_ns += self.passed_ns;
        }
        if self.window.passed_ns >= WINDOW_NS {
            self.before = core::mem::take(&mut self.window);
        }
        (self.resident, self.now_ns, self.cpu_ns) = (resident, now_ns, cpu_ns);
    }

    /// The shortest pause that is of use for seeing the process grow, in nanoseconds. As long as it goes on
    /// like before it takes no more memory in that pause than one that always runs does in the shortest.
    pub fn shortest_ns(&self) -> u64 {
        let Use { used_ns, passed_ns } = self.before;
        if self.grown > INEXACT_PAGES {
            return SHORTEST_NS;
        }
        (passed_ns.saturating_mul(SHORTEST_NS) / used_ns.max(1)).clamp(SHORTEST_NS, RUNNING_NS)
    }

    /// What was resident at the last look.
    pub const fn resident(&self) -> PageCount {
        self.resident
    }

    /// Whether the process has run lately.
    pub const fn is_running(&self) -> bool {
        self.rested_ns < RESTED_NS
    }

    /// The pause of a process with `left` pages to go before its memory must be managed, in nanoseconds.
    pub fn pause_before_ns(&self, left: i64) -> u64 {
        let usual = time_to_take(left).clamp(SHORTEST_NS, LONGEST_NS);
        if self.is_running() { usual } else { usual.max(RUNNING_NS) }
    }

    /// How close to `budget` the application may come before its memory is managed: further away while it
    /// grows fast, since a busy machine may let the bookkeeper run late.
    pub fn margin(&self, budget: PageCount) -> i64 {
        let usual = usual_margin(budget).get();
        let by_growth = self.grown.saturating_mul(LATE_NS) / self.passed_ns.max(SHORTEST_NS);
        (usual + by_growth.min(budget.get() / 3)) as i64
    }
}

/// The pause of a process that does nothing, in nanoseconds, instead of `usual_ns`: longer where somebody
/// watches it and calls (`is_attended`).
pub fn at_rest_ns(usual_ns: u64, is_attended: bool) -> u64 {
    if is_attended { usual_ns.max(ATTENDED_NS) } else { usual_ns }
}

/// How close to `budget` an application that grows slowly may come before its memory is managed.
pub fn usual_margin(budget: PageCount) -> PageCount {
    PageCount::new((budget.get() / MARGIN_SHARE).max(MARGIN_PAGES))
}

fn time_to_take(pages: i64) -> u64 {
    (pages.max(0) as u64).saturating_mul(1_000_000) / FASTEST_PAGES_PER_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Outlook = Outlook {
        gap: 1 << 30,
        excess: -5000,
        far: Far::Open,
        is_returning: false,
        has_moved: false,
        is_running: false,
        shortest_ns: SHORTEST_NS,
        is_watched: false,
    };

    #[test]
    fn rests_while_the_program_rests() {
        assert_eq!(CALM.pause_ns(), RESTING_NS);
        assert_eq!(Outlook { gap: 0, ..CALM }.pause_ns(), RESTING_NS);
        assert!(CALM.rests() && !Outlook { is_running: true, ..CALM }.rests());
        assert_eq!(at_rest_ns(RESTING_NS, false), RESTING_NS);
        assert_eq!(at_rest_ns(RESTING_NS, true), ATTENDED_NS);
    }

    #[test]
    fn what_somebody_else_looks_after_can_wait_for_longer() {
        let watched = Outlook { gap: 0, has_moved: true, is_running: true, is_watched: true, ..CALM };
        assert_eq!(watched.pause_ns(), RUNNING_NS);
        assert_eq!(Outlook { is_watched: false, ..watched }.pause_ns(), SHORTEST_NS);
        // Only what can be seen from there.
        assert_eq!(Outlook { excess: LEFT_PAGES + 1, ..watched }.pause_ns(), CROWDED_NS);
        assert_eq!(Outlook { far: Far::Scarce, ..watched }.pause_ns(), SHORTEST_NS);
    }

    #[test]
    fn a_running_program_cannot_use_up_what_is_left_unseen() {
        for gap in [-7, 0, 100, 4000, 8000, 16_000, i64::MAX] {
            let pause_ns = Outlook { gap, is_running: true, ..CALM }.pause_ns();
            assert!(pause_ns == SHORTEST_NS || pause_ns * FASTEST_PAGES_PER_MS / 1_000_000 <= gap as u64);
            assert!(pause_ns <= RUNNING_NS);
        }
    }

    #[test]
    fn a_process_that_runs_little_is_looked_at_seldom_until_it_runs_more_or_grows() {
        let mut growth = Growth::default();
        let mut now_ns = 1 << 50;
        let mut look = |growth: &mut Growth, resident, used_ns| {
            now_ns += 4_000_000;
            growth.look(PageCount::new(resident), now_ns, growth.cpu_ns + used_ns);
            growth.shortest_ns()
        };
        // It isn't known yet.
        (0..4).for_each(|_| assert_eq!(look(&mut growth, 1000, 400_000), SHORTEST_NS));
        assert_eq!(look(&mut growth, 1000, 400_000), RUNNING_NS);
        assert_eq!(look(&mut growth, 1000 + INEXACT_PAGES + 1, 400_000), SHORTEST_NS);
        assert_eq!(look(&mut growth, 1000, 2_000_000), RUNNING_NS);
        (0..6).for_each(|_| _ = look(&mut growth, 1000, 2_000_000));
        assert_eq!(look(&mut growth, 1000, 2_000_000), 2 * SHORTEST_NS);
        // Of several threads.
        (0..8).for_each(|_| _ = look(&mut growth, 1000, 8_000_000));
        assert_eq!(look(&mut growth, 1000, 8_000_000), SHORTEST_NS);

        let seldom = Outlook { gap: 0, is_running: true, shortest_ns: RUNNING_NS, ..CALM };
        assert_eq!(seldom.pause_ns(), RUNNING_NS);
        assert_eq!(Outlook { excess: LEFT_PAGES + 1, ..seldom }.pause_ns(), CROWDED_NS);
    }

    #[test]
    fn before_memory_is_managed_a_program_that_rests_is_not_watched_closely() {
        let mut growth = Growth::default();
        // However long the machine has been up.
        growth.look(PageCount::ZERO, 1 << 50, 1_000_000);
        assert_eq!(growth.pause_before_ns(100), SHORTEST_NS);
        assert_eq!(growth.pause_before_ns(i64::MAX), LONGEST_NS);
        growth.look(PageCount::ZERO, (1 << 50) + RESTED_NS, 1_000_000);
        assert_eq!(growth.pause_before_ns(100), RUNNING_NS);
        assert_eq!(growth.pause_before_ns(i64::MAX), LONGEST_NS);
    }

    #[test]
    fn comes_back_soon_for_what_is_above_the_limit_unless_nothing_takes_it() {
        let above = Outlook { excess: LEFT_PAGES + 1, ..CALM };
        assert_eq!(above.pause_ns(), CROWDED_NS);
        assert_eq!(Outlook { far: Far::Full, ..above }.pause_ns(), FULL_NS);
    }

    #[test]
    fn fast_growth_widens_the_margin_but_not_past_a_third_more() {
        let budget = PageCount::new(60_000);
        let mut growth = Growth::default();
        growth.look(PageCount::new(1000), 1_000_000_000, 0);
        growth.look(PageCount::new(1000), 1_010_000_000, 0);
        let usual = growth.margin(budget);
        assert_eq!(usual, 60_000 / 16);
        growth.look(PageCount::new(2000), 1_020_000_000, 0);
        assert_eq!(growth.margin(budget), usual + 2000);
        growth.look(PageCount::new(50_000), 1_030_000_000, 0);
        assert_eq!(growth.margin(budget), usual + 20_000);
    }

    #[test]
    fn a_process_rests_after_long_without_a_processor() {
        let mut growth = Growth::default();
        growth.look(PageCount::ZERO, 1_000_000, 500_000);
        for step in 1..=25 {
            assert!(growth.is_running());
            growth.look(PageCount::ZERO, 1_000_000 + step * 4_000_000, 500_000 + step * 3_000);
        }
        assert!(!growth.is_running());
        growth.look(PageCount::ZERO, 140_000_000, 10_000_000);
        assert!(growth.is_running());
    }
}
