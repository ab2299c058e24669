//! Victims by how soon a page came back when it last left.
//!
//! Nothing tells when a resident page is used. What can be seen is when a page leaves, and when it is wanted
//! again: the time out, measured in pages evicted meanwhile. A page's *level* is a running estimate of how
//! often it is used: it rises when the page is back soon, falls when it was away long. The hand leaves a page
//! alone until it has been resident for its level's *patience*, which doubles with each level (and which
//! chance makes longer or shorter). Then the page leaves however hot it was: that is how its level is
//! measured again, and why a hot page that turned cold is found out.
//!
//! The patience of level 0 is what regulates the work: it shrinks while the hand finds too few victims, and
//! grows while it finds many.
//!
//! Invariants:
//! 1. The age stamp of an absent page is when it left; of a resident page, when it came.

use core::sync::atomic::{AtomicU64, Ordering};

use farmem_page::{AgeStamp, Level, PageCount, PageWord};

use super::{Verdict, VictimPolicy};

/// Ticks of the clock in which a whole budget of pages leaves.
pub const TICKS_PER_BUDGET: u64 = 64;
/// The clock counts parts of a tick.
const TICK_SHIFT: u32 = 16;

/// The policy's state: a few words, shared by all threads.
#[derive(Debug)]
pub struct Victims {
    /// Parts of a tick so far.
    clock: AtomicU64,
    /// Parts of a tick that pass with each evicted page.
    step: AtomicU64,
    /// Patience of level 0, in parts of a tick.
    patience: AtomicU64,
    /// Visits between two looks at the yield.
    interval: AtomicU64,
    /// Visits since the last look, and evictions among them in the upper half.
    tally: AtomicU64,
}

/// Time out, in ticks, below which the level rises by two.
const SOON: u64 = TICKS_PER_BUDGET / 4;
/// Time out below which it rises by one.
const RISE: u64 = TICKS_PER_BUDGET * 3 / 4;
/// Time out below which it stays as it is. After a longer absence it is halved.
const STAY: u64 = TICKS_PER_BUDGET * 3 / 2;

/// From this level on a page counts as hot: the level of a page that has come back soon once. Waiting for a
/// second time would cost fewer reservations of pages that leave again (an eighth of zipf's) and find hot
/// pages too late for a partition that fills in a minute: each takes its entry at its first leaving, and
/// would leave a second time.
const HOT: Level = Level::new(2);

/// A page that the program has called for counts as having come at the luckiest of so many ticks: chance
/// leaves some pages hardly any time, and the program has yet to come to it.
const HINTED_TICKS: u64 = 8;

const TICK: u64 = 1 << TICK_SHIFT;
/// Longest patience of any level: an age near the stamp's range could no longer be told from a small one.
const PATIENCE_LIMIT: u64 = 14 * TICKS_PER_BUDGET;
/// How long ago a page that the program calls cold is said to have come: longer than any patience, and for as
/// long as half a budget of pages leaves.
const COLD: u64 = (1 << 10) - 1 - TICKS_PER_BUDGET / 2;
const _: () = assert!(COLD > PATIENCE_LIMIT, "a cold page leaves at the hand's next visit");
/// Patience of level 0 at the start, and at most.
const PATIENCE_START: u64 = TICKS_PER_BUDGET / 4 * TICK;
const PATIENCE_MOST: u64 = 4 * TICKS_PER_BUDGET * TICK;
/// What is left of the patience when the hand has gone round in vain.
const WANT_SHARE: u64 = 16;
/// Visits for each victim above which patience shrinks, and below which it grows.
const VISITS_MOST: u64 = 8;
const VISITS_LEAST: u64 = 4;

const _: () = assert!(PATIENCE_LIMIT + TICKS_PER_BUDGET <= 1 << 10, "an age is told before its stamp wraps");

impl Victims {
    /// For `budget` resident pages.
    pub fn new(budget: PageCount) -> Self {
        let victims = Self {
            clock: AtomicU64::new(0),
            step: AtomicU64::new(0),
            patience: AtomicU64::new(PATIENCE_START),
            interval: AtomicU64::new(0),
            tally: AtomicU64::new(0),
        };
        victims.set_budget(budget);
        victims
    }

    fn ticks(&self) -> u64 {
        self.clock.load(Ordering::Relaxed) >> TICK_SHIFT
    }

    fn stamp(&self, word: PageWord) -> PageWord {
        word.with_age(AgeStamp::of(self.ticks()))
    }

    fn tally(&self, is_evicted: bool) {
        let tally = self.tally.fetch_add(1 + ((is_evicted as u64) << 32), Ordering::Relaxed) + 1;
        let visits = tally & u32::MAX as u64;
        if visits < self.interval.load(Ordering::Relaxed) {
            return;
        }
        let evicted = (tally >> 32) + is_evicted as u64;
        self.tally.store(0, Ordering::Relaxed);
        let patience = self.patience.load(Ordering::Relaxed);
        let patience = if evicted * 2 * VISITS_MOST < visits {
            patience * 3 / 4
        } else if evicted * VISITS_MOST < visits {
            patience * 7 / 8
        } else if evicted * VISITS_LEAST > visits {
            patience * 9 / 8 + 1
        } else {
            patience
        };
        self.patience.store(patience.min(PATIENCE_MOST), Ordering::Relaxed);
    }
}

/// What the pages that came at this time make of their level's patience: from 0 up to twice as much, in parts
/// of 2^31. By chance, but the same at every visit. Without it a loop over a little more than fits would lose
/// each page just before its turn; with it some stay long enough. Neighbours that came together also leave
/// together, in one run.
fn share(arrival: AgeStamp) -> u32 {
    let mixed = arrival.since(0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed ^ mixed >> 32).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) as u32
}

impl VictimPolicy for Victims {
    fn on_first_touch(&self, word: PageWord) -> PageWord {
        self.stamp(word.with_level(Level::new(0)))
    }

    fn on_refault(&self, word: PageWord) -> PageWord {
        let out = word.age().since(self.ticks());
        let level = word.level();
        let level = match out {
            0..SOON => level.up().up(),
            SOON..RISE => level.up(),
            RISE..STAY => level,
            _ => Level::new(level.get() / 2),
        };
        self.stamp(word.with_level(level))
    }

    fn on_hinted(&self, word: PageWord) -> PageWord {
        let now = self.ticks();
        let stamps = (0..HINTED_TICKS).map(|ago| AgeStamp::of(now.wrapping_sub(ago)));
        let patient = stamps.max_by_key(|&stamp| share(stamp)).unwrap_or_default();
        self.on_refault(word).with_age(patient)
    }

    fn on_return(&self, word: PageWord) -> PageWord {
        self.stamp(word)
    }

    fn absence(&self, word: PageWord) -> u64 {
        word.age().since(self.ticks())
    }

    fn on_unused(&self, word: PageWord) -> PageWord {
        word.with_level(Level::new(0))
    }

    fn on_cold(&self, word: PageWord) -> PageWord {
        word.with_level(Level::new(0)).with_age(AgeStamp::of(self.ticks().wrapping_sub(COLD)))
    }

    fn visit(&self, word: PageWord) -> Verdict {
        let resident = word.age().since(self.ticks());
        let patience = self.patience.load(Ordering::Relaxed) << word.level().get();
        let patience = ((patience as u128 * share(word.age()) as u128) >> (31 + TICK_SHIFT)) as u64;
        let is_evicted = resident >= patience.min(PATIENCE_LIMIT);
        self.tally(is_evicted);
        if is_evicted { Verdict::Evict } else { Verdict::Keep(word) }
    }

    fn now(&self) -> AgeStamp {
        AgeStamp::of(self.ticks())
    }

    fn is_hot(&self, word: PageWord, since: AgeStamp) -> bool {
        let now = self.ticks();
        word.level() >= HOT && word.age().since(now) > since.since(now)
    }

    fn came_soon(&self, word: PageWord) -> bool {
        word.level() >= HOT
    }

    fn on_evict(&self, word: PageWord) -> PageWord {
        self.stamp(word)
    }

    fn on_want(&self) {
        // Nobody else takes from it meanwhile, but for a look at the yield, which is as good.
        self.patience.store(self.patience.load(Ordering::Relaxed) / WANT_SHARE, Ordering::Relaxed);
    }

    fn on_evicted(&self, count: PageCount) {
        let step = self.step.load(Ordering::Relaxed);
        self.clock.fetch_add(count.get().saturating_mul(step), Ordering::Relaxed);
    }

    fn set_budget(&self, budget: PageCount) {
        let budget = budget.get().max(1);
        self.step.store((TICKS_PER_BUDGET * TICK / budget).max(1), Ordering::Relaxed);
        self.interval.store((budget / 16).clamp(512, 1 << 24), Ordering::Relaxed);
    }
}
