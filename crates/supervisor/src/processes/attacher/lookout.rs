//! Looks at the application's processes, and has pagers come to them before it passes its budget.

use std::time::{Duration, Instant};

use farmem_machine::process::identity;
use farmem_page::PageCount;
use farmem_sys::subject::cpu_ns_of;
use farmem_sys::thread;

use super::Attacher;
use super::found::Found;
use super::pauses::{
    BRIEFEST, CALM, GLANCE_SHARE, LONGEST, QUIET, QUIET_SHARE, SHORTEST, least_pause, since,
};
use super::seen::{LEAST, is_near_shared};
use crate::processes::newcomers::Newcomers;
use crate::processes::rest::Used;

/// Pages that a thread takes in a second at most, as long as nobody has measured more: 4 GiB. One that takes
/// its memory all at once is seen before it has taken more than it may, where looking is cheap enough.
const FASTEST_PAGES: f64 = 1048576.0;
/// For so long after they have grown, or one of them has begun another program, they are taken to grow.
const GROWING: Duration = Duration::from_secs(1);
/// How long a pager takes to come: what the processes grow by in this time is counted in.
const COMING: Duration = Duration::from_millis(40);
/// From three quarters of the budget on, pagers come.
const NEAR: (u64, u64) = (3, 4);
/// Processes with less than so much of the budget, or than [`LEAST`] if that is less, are left alone.
const LEAST_SHARE: u64 = 16;

/// How fast a sum grows.
struct Growth {
    at: Instant,
    sum: u64,
}

impl Growth {
    /// By how much it has grown, and in what time, now that it is so much.
    fn grown(&mut self, sum: u64) -> (u64, Duration) {
        let passed = self.at.elapsed().max(Duration::from_micros(100));
        let grown = sum.saturating_sub(self.sum);
        *self = Self { at: Instant::now(), sum };
        (grown, passed)
    }
}

/// What whoever looks knows from one look to the next.
pub(super) struct Lookout {
    /// When the family is looked at next.
    due: Instant,
    /// Whether the budget could be reached before a look at the family sees it.
    is_close: bool,
    newcomers: Newcomers,
    /// When those are looked at next.
    glance: Instant,
    /// Until then they are taken to grow.
    grows_until: Instant,
    family: Growth,
    apart: Growth,
    quiet: Option<Quiet>,
}

/// What the latest look at the family has seen, if it left nothing to be done: as long as it stays so another
/// look would see the same.
struct Quiet {
    members: Vec<u32>,
    used: Used,
    news: u64,
    budget: PageCount,
    /// Others may change a process's memory without its doing anything.
    until: Instant,
}

impl Lookout {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        let growth = || Growth { at: now, sum: 0 };
        Self {
            due: now,
            is_close: false,
            newcomers: Newcomers::default(),
            glance: now,
            grows_until: now + GROWING,
            family: growth(),
            apart: growth(),
            quiet: None,
        }
    }
}

impl Attacher {
    /// A look at the family, or while memory may soon be short one at those that have no pager; how long to
    /// wait for the next one.
    pub(super) fn step(&self, lookout: &mut Lookout) -> Duration {
        let left = lookout.due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let pause = if self.is_quiet(lookout) { LONGEST } else { self.look(lookout) };
            lookout.due = Instant::now() + pause;
            return if lookout.is_close { Duration::ZERO } else { pause };
        }
        if !lookout.is_close {
            return left;
        }
        let due = lookout.glance.saturating_duration_since(Instant::now());
        let begun = self.family.listen(if lookout.newcomers.is_empty() { left } else { left.min(due) });
        let began_ns = thread::cpu_ns();
        let now = Instant::now();
        for number in begun {
            (lookout.glance, lookout.grows_until) = (now, now + GROWING);
            lookout.newcomers.begins(number);
            self.state().refusals.begin(number);
        }
        // Whoever else forks on this machine has ended the wait as well.
        if now < lookout.glance {
            return Duration::ZERO;
        }
        self.glance(lookout);
        let share = if now < lookout.grows_until { GLANCE_SHARE } else { QUIET_SHARE };
        lookout.glance = Instant::now() + (since(began_ns) * share).clamp(BRIEFEST, LONGEST);
        Duration::ZERO
    }

    /// Whether a look at the family would see nothing new: its processes have done next to nothing since the
    /// latest one.
    fn is_quiet(&self, lookout: &Lookout) -> bool {
        let ledger = self.application.ledger;
        lookout.quiet.as_ref().is_some_and(|quiet| {
            Instant::now() < quiet.until
                && quiet.budget == ledger.budget()
                && !ledger.is_withdrawing()
                && quiet.news == self.family.news()
                && quiet.used.is_idle_until(Used::by(&quiet.members, cpu_ns_of))
        })
    }

    /// One look at the whole family; how long to wait for the next one.
    fn look(&self, lookout: &mut Lookout) -> Duration {
        let began_ns = thread::cpu_ns();
        // Before the look: what happens meanwhile is seen by the next one.
        let (news, budget, began) = (self.family.news(), self.application.ledger.budget(), Instant::now());
        let (found, known) = self.find();
        let members: Vec<u32> = found.iter().map(|process| process.number).collect();
        let used = Used::by(&members, cpu_ns_of);
        self.note_managed(&known);
        lookout.newcomers.replace(
            found.iter().filter(|process| !known.contains(&process.number)).map(|process| process.number),
        );
        let resident: u64 = found.iter().map(|process| process.resident.get()).sum();
        let (grown, passed) = lookout.family.grown(resident);
        // Without what it takes to begin pagers, which isn't done at every look.
        let least_pause = least_pause(since(began_ns));
        let attached = self.attach_if_near(&found, resident, grown, passed);
        let is_settled = attached.iter().all(|number| known.contains(number));
        lookout.quiet = is_settled.then_some(Quiet { members, used, news, budget, until: began + QUIET });
        // What several processes have is perhaps the same.
        let most = found.iter().map(|process| process.others.get()).max().unwrap_or(0);
        let mut state = self.state();
        let is_known = state.shared.has_pager();
        let resident = if is_known { resident } else { resident + most };
        let is_near = is_near_shared(resident, self.application.ledger.budget());
        let is_due = state.shared_due.is_none_or(|due| Instant::now() >= due);
        if !is_known && !is_near {
            state.seen.shared = PageCount::ZERO;
        }
        drop(state);
        if !is_known && is_near && is_due {
            let _ = self.look_at_shared();
        }
        let left = self.application.ledger.budget().get().saturating_sub(resident) as f64;
        let pace = grown as f64 / passed.as_secs_f64();
        let until_full = Duration::try_from_secs_f64(left / pace.max(1.0)).unwrap_or(LONGEST);
        let until_full_at_once = Duration::from_secs_f64(left / FASTEST_PAGES);
        let has_all = lookout.newcomers.is_empty() && self.family.hears();
        let shortest = if has_all { CALM } else { SHORTEST };
        let pause = (until_full / 8).min(until_full_at_once / 2).clamp(shortest, LONGEST).max(least_pause);
        lookout.is_close = until_full_at_once < pause.max(LONGEST);
        if !lookout.is_close {
            // Nobody looks at newcomers meanwhile, so what was said of them would stay.
            self.application.ledger.set_coming(PageCount::ZERO);
        }
        pause
    }

    /// One look at those that have no pager.
    fn glance(&self, lookout: &mut Lookout) {
        let ledger = self.application.ledger;
        let known = self.managed();
        let found: Vec<Found> = lookout
            .newcomers
            .look(|number| known.contains(&number))
            .into_iter()
            .map(|(number, resident)| Found { number, resident, others: PageCount::ZERO })
            .collect();
        let apart = PageCount::new(found.iter().map(|process| process.resident.get()).sum());
        let told = |number| {
            let slots = ledger.slots().filter(|slot| slot.process() == number);
            slots.map(|slot| slot.resident()).max().unwrap_or_default()
        };
        ledger.set_coming(lookout.newcomers.own(told));
        let (grown, passed) = lookout.apart.grown(apart.get());
        if grown > 0 {
            lookout.grows_until = Instant::now() + GROWING;
        }
        if found.is_empty() {
            return;
        }
        self.attach_if_near(&found, ledger.resident().get() + apart.get(), grown, passed);
    }

    /// Pagers come to these processes if the application is near its budget, or will be when they have come.
    /// Those that are to have one.
    fn attach_if_near(&self, found: &[Found], resident: u64, grown: u64, passed: Duration) -> Vec<u32> {
        let budget = self.application.ledger.budget().get();
        // What grows faster hasn't: a fork shows the same pages once more.
        let pace = (grown as f64 / passed.as_secs_f64()).min(FASTEST_PAGES * self.processors);
        let soon = (pace * COMING.as_secs_f64()) as u64;
        if resident * NEAR.1 < budget * NEAR.0 && resident + soon < budget {
            return Vec::new();
        }
        let least = LEAST.get().min(budget / LEAST_SHARE);
        let meant = found.iter().filter(|process| process.resident.get() >= least);
        let numbers: Vec<u32> = meant.map(|process| process.number).collect();
        numbers.iter().filter_map(|&number| identity(number)).for_each(|identity| self.attach(identity));
        numbers
    }
}
