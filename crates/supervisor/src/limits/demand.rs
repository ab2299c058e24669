//! What a space needs and wants of the host, from how it is: enough slabs to go on while the answer is on its
//! way, no more than it has a use for.

use std::time::{Duration, Instant};

use farmem_broker::LEAST_SLABS;
use farmem_page::PageCount;
use farmem_wire::host::{Holding, Terms};

/// Slabs that a space which swaps wants beyond those in use: 32 MiB, what leaves in 50 ms at the fastest.
/// With half of what it has in use on top, the pool stays below the parts at which reservations are given
/// back (75%) and slabs move to disk (80%).
const AHEAD_SLABS: u64 = 128;
/// Slabs beyond those in use that it can't do without.
const NEXT_SLABS: u64 = 8;
/// The least that a space keeps free of its local memory, in pages: 4 MiB.
const LEAST_MARGIN_PAGES: u64 = 1024;
/// For so long a space is taken to want what it wanted.
const MEMORY: Duration = Duration::from_secs(2);
/// A broker that has more to give has answered within this time: some rounds of both threads.
const ANSWER: Duration = Duration::from_millis(50);

/// How a space is at this moment.
#[derive(Clone, Copy, Default)]
pub(crate) struct Condition {
    /// Slabs in use.
    pub(crate) pool_used: u64,
    /// Slabs that are leased.
    pub(crate) pool_leased: u64,
    /// Slabs that could move to disk.
    pub(crate) pool_movable: u64,
    /// Slabs on disk.
    pub(crate) disk_used: u64,
    pub(crate) resident: PageCount,
    pub(crate) budget: PageCount,
    pub(crate) far: PageCount,
    /// Pages that have moved between local and far memory, and of them those that somebody waited for.
    pub(crate) moved_pages: u64,
    pub(crate) fetched_pages: u64,
}

/// What is remembered from one look to the next.
#[derive(Default)]
pub(crate) struct Demand {
    moved: Changed,
    fetched: Changed,
    resident: Changed,
    tight: Option<Instant>,
}

/// A figure, and when it last changed.
#[derive(Default)]
struct Changed {
    value: u64,
    at: Option<Instant>,
}

impl Changed {
    fn look(&mut self, value: u64, now: Instant) {
        if self.value != value {
            *self = Self { value, at: Some(now) };
        }
    }

    fn is_recent(&self, now: Instant) -> bool {
        is_recent(self.at, now)
    }
}

fn is_recent(at: Option<Instant>, now: Instant) -> bool {
    at.is_some_and(|at| now.duration_since(at) < MEMORY)
}

impl Demand {
    /// Of a space that begins: it wants all that is its own, and then what it turns out to use.
    pub(crate) fn new(now: Instant) -> Self {
        Self { tight: Some(now), ..Self::default() }
    }

    /// Whether the space swaps, or is about to.
    pub(crate) fn is_active(&self, now: Instant) -> bool {
        self.moved.is_recent(now) || is_recent(self.tight, now)
    }

    /// What to report.
    pub(crate) fn look(&mut self, now: Instant, condition: &Condition, terms: &Terms) -> Holding {
        self.moved.look(condition.moved_pages, now);
        self.fetched.look(condition.fetched_pages, now);
        let (local_needed, local_wanted) = self.local(now, condition, terms);
        let used = condition.pool_used;
        let is_active = self.is_active(now);
        // What an active space has on disk for want of room has kept `used` below the part at which slabs
        // move there. It needs a lease in which they would not, or an idle space would keep what this one
        // could use.
        let growth = match (is_active, condition.disk_used) {
            (false, _) => 0,
            (true, 0) => used / 8,
            (true, _) => used / 2,
        };
        let needed = used + growth + NEXT_SLABS;
        // What is on disk comes back when there is room; an idle space misses nothing.
        let content = used + condition.disk_used;
        let wanted = if is_active { content + content / 2 + AHEAD_SLABS } else { needed };
        Holding {
            pool_held: used.max(condition.pool_leased),
            pool_used: used,
            pool_needed: needed.max(LEAST_SLABS),
            pool_wanted: wanted.max(LEAST_SLABS),
            pool_movable: condition.pool_movable,
            local_held: held(condition.resident, condition.budget).get(),
            local_needed,
            local_wanted,
        }
    }

    /// Pages of local memory that the space needs, and that it wants.
    fn local(&mut self, now: Instant, condition: &Condition, terms: &Terms) -> (u64, u64) {
        let own = terms.local_own;
        let resident = condition.resident.get();
        let margin = (own / 8).max(LEAST_MARGIN_PAGES);
        // A space that has come near its budget is about to swap; one that stays there, and moves nothing, is
        // not.
        self.resident.look(resident, now);
        let is_changing = self.resident.is_recent(now) || self.moved.is_recent(now);
        if is_changing && resident + margin / 2 > condition.budget.get() {
            self.tight = Some(now);
        }
        if !terms.borrows {
            return (own, own);
        }
        let spare = resident + margin;
        let wanted = if !is_recent(self.tight, now) {
            spare
        } else if self.fetched.is_recent(now) {
            // It misses what is away.
            own.max(spare + condition.far.get())
        } else {
            own.max(spare)
        };
        (spare.min(wanted), wanted)
    }
}

/// Whether a space has to make do with the slabs that it is leased, or may wait for more.
#[derive(Default)]
pub(crate) struct Shortage {
    since: Option<Instant>,
}

impl Shortage {
    /// Whether it is short, of what it reports; `most` is what it takes in any case.
    pub(crate) fn look(&mut self, now: Instant, holding: &Holding, leased: u64, most: u64) -> bool {
        let used = holding.pool_used;
        // Less than is wanted, so that a space which grows steadily is not short between one lease and the
        // next.
        let enough = holding.pool_wanted.min(used + used / 4 + AHEAD_SLABS / 4);
        if used > leased || leased >= most {
            self.since = Some(now);
            return true;
        }
        if leased >= enough {
            self.since = None;
            return false;
        }
        now.duration_since(*self.since.get_or_insert(now)) >= ANSWER
    }
}

/// Resident memory hovers about its limit: a little above counts as the limit.
fn held(resident: PageCount, budget: PageCount) -> PageCount {
    let tolerated = budget.get() + budget.get() / 64 + LEAST_MARGIN_PAGES;
    if resident.get() <= tolerated { budget } else { resident }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms =
        Terms { weight: 1, pool_guaranteed: 0, pool_most: 1 << 20, local_own: 100_000, borrows: true };

    fn condition(resident: u64, moved: u64) -> Condition {
        Condition {
            pool_used: 1000,
            pool_leased: 1500,
            pool_movable: 0,
            disk_used: 0,
            resident: PageCount::new(resident),
            budget: PageCount::new(100_000),
            far: PageCount::new(50_000),
            moved_pages: moved,
            fetched_pages: moved,
        }
    }

    #[test]
    fn a_space_that_swaps_wants_room_ahead_and_an_idle_one_only_what_it_holds() {
        let now = Instant::now();
        let mut demand = Demand::new(now);
        demand.look(now, &condition(10_000, 0), &TERMS);
        let active = demand.look(now, &condition(10_000, 5), &TERMS);
        // Below the 80% at which slabs move to disk.
        assert!(active.pool_wanted * 4 >= active.pool_used * 5 && active.pool_needed < active.pool_wanted);
        let idle = demand.look(now + MEMORY, &condition(10_000, 5), &TERMS);
        assert!(idle.pool_wanted < 1010, "{idle:?}");
    }

    #[test]
    fn what_an_active_space_has_on_disk_is_wanted_in_the_pool_and_lets_it_need_a_larger_one() {
        let now = Instant::now();
        let mut demand = Demand::new(now);
        let condition = Condition { disk_used: 2000, ..condition(10_000, 1) };
        let active = demand.look(now, &condition, &TERMS);
        assert!(active.pool_wanted > 4000 && active.pool_needed < 2000, "{active:?}");
        // Slabs have moved to disk until 70% of the lease were left: more than that lease is needed.
        assert!(active.pool_needed * 7 > active.pool_used * 10, "{active:?}");
        let idle = demand.look(now + MEMORY, &condition, &TERMS);
        assert!(idle.pool_wanted < 2000 && idle.pool_needed < 1010, "{idle:?}");
    }

    #[test]
    fn what_is_not_used_of_the_own_memory_is_offered_and_wanted_back_when_it_gets_tight() {
        let now = Instant::now();
        let mut demand = Demand::new(now);
        let all = demand.look(now, &condition(0, 0), &TERMS);
        assert_eq!(all.local_wanted, 100_000);
        let now = now + MEMORY;
        let spare = demand.look(now, &condition(10_000, 0), &TERMS);
        assert!(spare.local_wanted < 30_000, "{spare:?}");
        // It grows again.
        let mut lent = condition(10_001, 0);
        lent.budget = PageCount::new(12_000);
        let tight = demand.look(now, &lent, &TERMS);
        assert_eq!(tight.local_wanted, 100_000);
    }

    #[test]
    fn a_space_that_stays_at_its_budget_and_moves_nothing_is_idle() {
        let now = Instant::now();
        let mut demand = Demand::new(now);
        demand.look(now, &condition(100_000, 7), &TERMS);
        demand.look(now + MEMORY, &condition(100_000, 7), &TERMS);
        let now = now + 2 * MEMORY;
        demand.look(now, &condition(100_000, 7), &TERMS);
        assert!(!demand.is_active(now));
        demand.look(now, &condition(100_000, 8), &TERMS);
        assert!(demand.is_active(now));
    }

    #[test]
    fn who_misses_pages_wants_them_all_back() {
        let now = Instant::now();
        let mut demand = Demand::new(now);
        let starved = demand.look(now, &condition(99_000, 7), &TERMS);
        assert!(starved.local_wanted >= 149_000, "{starved:?}");
        let alone = Terms { borrows: false, ..TERMS };
        assert_eq!(demand.look(now, &condition(99_000, 8), &alone).local_wanted, 100_000);
    }

    #[test]
    fn a_space_is_short_when_no_more_comes_or_what_it_holds_is_revoked() {
        let now = Instant::now();
        let holding =
            |used| Holding { pool_used: used, pool_wanted: used * 2 + AHEAD_SLABS, ..Holding::default() };
        let mut shortage = Shortage::default();
        assert!(!shortage.look(now, &holding(100), 328, 5000));
        // It has grown, and the answer is on its way.
        assert!(!shortage.look(now, &holding(310), 328, 5000));
        assert!(!shortage.look(now + ANSWER / 2, &holding(310), 748, 5000));
        assert!(!shortage.look(now + ANSWER, &holding(700), 748, 5000));
        assert!(shortage.look(now + ANSWER * 2, &holding(700), 748, 5000));
        assert!(!shortage.look(now + ANSWER * 2, &holding(700), 1500, 5000));
        assert!(shortage.look(now + ANSWER * 2, &holding(700), 699, 5000));
        assert!(Shortage::default().look(now, &holding(700), 5000, 5000));
        // One that is idle wants no more than it has, and stays in memory.
        let idle = Holding { pool_wanted: 708, ..holding(700) };
        assert!(!Shortage::default().look(now + ANSWER, &idle, 708, 5000));
    }

    #[test]
    fn a_little_above_the_budget_counts_as_the_budget() {
        let pages = PageCount::new;
        assert_eq!(held(pages(100_100), pages(100_000)), pages(100_000));
        assert_eq!(held(pages(200_000), pages(100_000)), pages(200_000));
    }
}
