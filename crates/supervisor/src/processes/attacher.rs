//! Pagers come to processes from outside, each when its application comes near what it may have.
//!
//! Each gets a pager that is a process of its own (`farmem pager`, by
//! `farmem-attach`): a child of the supervisor, which lives as long as its program.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use farmem_machine::process::{self, Identity, figures, identity};
use farmem_page::PageCount;
use farmem_sys::subject::{cpu_ns_of, share_memory};
use farmem_sys::thread;
use farmem_telemetry::ProcessSlot;

use crate::application::Application;
use crate::processes::family::Family;
use crate::processes::newcomers::{Newcomers, anonymous_in, others_in};
use crate::processes::rest::{RestWatch, Used};
use crate::processes::shared::{self, Shared};
use crate::say::say;
use crate::threads::worker::Worker;

/// Between two looks, while memory is far from short, and while it is near.
const LONGEST: Duration = Duration::from_millis(50);
const SHORTEST: Duration = Duration::from_millis(2);
/// The same between two at processes without a pager alone.
const BRIEFEST: Duration = Duration::from_millis(1);
/// Pages that a thread takes in a second at most, as long as nobody has measured more: 4 GiB. One that takes
/// its memory all at once is seen before it has taken more than it may, where looking is cheap enough.
const FASTEST_PAGES: f64 = 1048576.0;
/// Between two looks at least while every process has a pager: what forks of them is served from its first
/// page, and what begins another program is told of.
const CALM: Duration = LONGEST;
/// Between two looks at the whole family at most, however little its processes do.
const QUIET: Duration = Duration::from_secs(1);
/// Between two looks at what processes share.
const SHARED_LOOK: Duration = Duration::from_millis(20);
/// At most one part of the time in so many goes into looking; half as much where that is more than
/// [`LONGEST`] apart, as with hundreds of processes, as long as looks come so often at least.
const LOOK_SHARE: u32 = 100;
const RARE_SHARE: u32 = 200;
const RAREST: Duration = Duration::from_millis(400);
/// The same for looks at processes without a pager: while they grow, which they do only until they have one,
/// and while they don't.
const GLANCE_SHARE: u32 = 20;
const QUIET_SHARE: u32 = 100;
/// For so long after they have grown, or one of them has begun another program, they are taken to grow.
const GROWING: Duration = Duration::from_secs(1);
/// How long a pager takes to come: what the processes grow by in this time is counted in.
const COMING: Duration = Duration::from_millis(40);
/// From three quarters of the budget on, pagers come.
const NEAR: (u64, u64) = (3, 4);
/// The same of what is shared, which is seen later: processes are looked at one by one, and all of those that
/// share come under management at once.
const NEAR_SHARED: (u64, u64) = (1, 2);
/// Processes with less are left alone: 1 MiB, or less where that would be much of the budget.
const LEAST: PageCount = PageCount::new(256);
const LEAST_SHARE: u64 = 16;
/// How long a process that could not be attached to is left alone.
const REST: Duration = Duration::from_millis(50);
/// After so many attempts it is said that it has no pager. What keeps it from being stopped may end all the
/// same, as a debugger's look or a freezer does: it is tried further, with so much time in between.
const MOST_ATTEMPTS: u32 = 40;
const LONG_REST: Duration = Duration::from_secs(2);
/// Stands for attempts where a further one would come to nothing.
const NEVER: u32 = u32::MAX;
/// After so many it is said that a process is traced: debuggers seldom leave before its end.
const TRACED_ATTEMPTS: u32 = 6;
/// As so many attempts counts one whose pager was ended.
const DEATH_ATTEMPTS: u32 = 8;
/// Processes that are remembered as such, before those that have ended are forgotten.
const MOST_REFUSED: usize = 1000;
/// The same where its parent's pager serves it: it may have run another program by then.
const INHERITED: Duration = Duration::from_millis(20);

/// The name of pagers' first threads.
pub(crate) const PAGER_NAME: &str = "farmem-pager";
/// The names of Farmem's own processes, which may run another program's file: pagers and puppets.
pub const OWN_NAMES: [&str; 2] = [PAGER_NAME, "farmem-puppet"];
/// Why a process is given up whose pagers were ended again and again.
const DEATHS: &str = "its pagers end as soon as they begin: somebody kills them, or they meet an internal error (a bug in \
                      Farmem: please report it)";
/// Statuses with which a pager ends that has not managed its program, and for which it is tried again.
const STATUS_LATER: i32 = 3;
const STATUS_TRACED: i32 = 4;
const STATUS_LOOKING: i32 = 5;

struct Pager {
    of: Identity,
    layout: Option<Layout>,
    child: Child,
}

#[derive(Default)]
struct State {
    /// By the pager's number.
    pagers: HashMap<u32, Pager>,
    /// Processes that were not attached to: how often that was tried, and from when on it may be again.
    refused: HashMap<Identity, (u32, Instant)>,
    /// Of the processes that were attached to: their forked children have the same, until they run another
    /// program.
    layouts: HashSet<Layout>,
    has_said: bool,
    seen: Seen,
    /// What processes share, and its pager; and when that is looked for again at the soonest.
    shared: Shared,
    shared_due: Option<Instant>,
    /// When it is asked again at the soonest who was forked by whom.
    distinct_due: Option<Instant>,
}

impl State {
    /// A process was not attached to, which counts as so many attempts: it is tried again a little later.
    /// After [`MOST_ATTEMPTS`] that is said, and there is so much time between two attempts, or no further
    /// one.
    fn put_off(&mut self, of: Identity, count: u32, long_rest: Option<Duration>, reason: &str) -> u32 {
        let before = self.refused.get(&of).map_or(0, |refused| refused.0);
        let attempts = before.saturating_add(count);
        let is_long = attempts >= MOST_ATTEMPTS;
        let counted = if is_long && long_rest.is_none() { NEVER } else { attempts };
        let rest = long_rest.filter(|_| is_long).unwrap_or(REST);
        self.refused.insert(of, (counted, Instant::now() + rest));
        if is_long && before < MOST_ATTEMPTS {
            tell(self, of, reason);
        }
        attempts
    }
}

/// What the latest look has found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) processes: usize,
    /// What processes have of which the ledger knows nothing: no pager is there, or it has only just come.
    apart: PageCount,
    /// Of that, what is there for certain: forked processes may share what they have.
    distinct: PageCount,
    /// What they share of which the ledger knows nothing.
    shared: PageCount,
    /// What they share that has a name or a descriptor.
    named: PageCount,
    /// Why a process has no pager, of the latest that was given up.
    pub(crate) refusal: Option<String>,
}

/// What processes of the application share.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SharedMemory {
    /// The process that manages it, while there is one.
    pub(crate) pager: Option<u32>,
    /// What stays local: it has a name or a descriptor, or no pager has come.
    pub(crate) local: PageCount,
}

/// Where a process's stack, heap and arguments are, which chance decides again for each program.
type Layout = [u64; 3];

/// Which process has which pager.
#[derive(Clone)]
pub(crate) struct Attacher {
    application: Application,
    address: Arc<str>,
    family: Family,
    processors: f64,
    state: Arc<Mutex<State>>,
}

/// A process as the kernel describes it.
#[derive(Clone, Copy, Debug)]
struct Found {
    number: u32,
    resident: PageCount,
    /// Pages besides: of files, or of memory that it may share.
    others: PageCount,
}

/// The processor time that the calling thread has taken since it had taken so much: waiting for a processor
/// costs nobody anything.
fn since(began_ns: u64) -> Duration {
    Duration::from_nanos(thread::cpu_ns().saturating_sub(began_ns))
}

/// Between two looks, by what one costs.
fn least_pause(cost: Duration) -> Duration {
    let pause = cost * LOOK_SHARE;
    if pause <= LONGEST { pause } else { (cost * RARE_SHARE).min(RAREST) }
}

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
struct Lookout {
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
    fn new() -> Self {
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

impl Seen {
    /// What processes have, or share, of which the ledger knows nothing.
    pub(crate) fn unknown(&self) -> PageCount {
        self.apart + self.shared
    }

    /// What is certainly local in processes of which the ledger knows nothing, without what they share.
    pub(crate) fn distinct(&self) -> PageCount {
        // A pager may have come since that was asked.
        self.distinct.min(self.apart)
    }
}

impl Attacher {
    pub(crate) fn new(application: Application, address: &str, family: Family) -> Self {
        let processors = std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
        Self { application, address: address.into(), family, processors, state: Arc::default() }
    }

    /// The processes of the application, with a pager or without.
    pub(crate) fn living(&self) -> Vec<u32> {
        // While this is held no pager is started, and one that has no name yet is known by its number.
        let state = self.state();
        let is_pager = |number| state.pagers.contains_key(&number) || state.shared.is_pager(number);
        self.family.living(|number| is_pager(number) || is_ours(number))
    }

    /// Starts to look at processes, and at what they share.
    pub(crate) fn start(&self) -> [Worker; 3] {
        let (attacher, of_shared, of_rest) = (self.clone(), self.clone(), self.clone());
        let mut rest = RestWatch::new(self.application.ledger);
        let attend = move || {
            // What shared memory has is used by others than its pager.
            let shared_pager = of_rest.state().shared.number();
            rest.step(|number| shared_pager == Some(number), cpu_ns_of)
        };
        let mut lookout = Lookout::new();
        let follow = move || {
            // Until there is a pager whoever looks at processes looks at what they share, too.
            if of_shared.state().shared.has_pager() { of_shared.look_at_shared() } else { LONGEST }
        };
        [Worker::start(move || attacher.step(&mut lookout)), Worker::start(follow), Worker::start(attend)]
    }

    /// A look at the family, or while memory may soon be short one at those that have no pager; how long to
    /// wait for the next one.
    fn step(&self, lookout: &mut Lookout) -> Duration {
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
            // What stood in the way of the program before doesn't stand in its way.
            self.state().refused.retain(|identity, _| identity.number != number);
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
        let found = self.find();
        let members: Vec<u32> = found.iter().map(|process| process.number).collect();
        let used = Used::by(&members, cpu_ns_of);
        let known = self.managed();
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
        ledger.set_coming(lookout.newcomers.own());
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

    /// The processes of which the ledger tells.
    fn managed(&self) -> HashSet<u32> {
        let told = |slot: &ProcessSlot<'_>| slot.resident() > PageCount::ZERO;
        self.application.ledger.slots().filter(told).map(|slot| slot.process()).collect()
    }

    /// The processes as they are now.
    fn find(&self) -> Vec<Found> {
        let found: Vec<Found> = self
            .living()
            .into_iter()
            .filter_map(|number| {
                let (resident, others) = resident(number)?;
                Some(Found { number, resident, others })
            })
            .collect();
        let known = self.managed();
        let apart: Vec<Found> =
            found.iter().filter(|process| !known.contains(&process.number)).copied().collect();
        let is_due = self.state().distinct_due.is_none_or(|due| Instant::now() >= due);
        let began_ns = thread::cpu_ns();
        let distinct = is_due.then(|| distinct(&apart, layout));
        let mut state = self.state();
        state.seen.processes = found.len();
        state.seen.apart = PageCount::new(apart.iter().map(|process| process.resident.get()).sum());
        if let Some(distinct) = distinct {
            state.seen.distinct = distinct;
            state.distinct_due = Some(Instant::now() + since(began_ns) * LOOK_SHARE);
            if known.is_empty() {
                self.application.ledger.note_resident_peak(distinct);
            }
        }
        found
    }

    /// What the latest look has found.
    pub(crate) fn seen(&self) -> Seen {
        self.state().seen.clone()
    }

    /// The same after one that attaches to nobody.
    pub(crate) fn see(&self) -> Seen {
        let _ = self.find();
        let _ = self.look_at_shared();
        self.seen()
    }

    /// What processes share, by a look that is no older than it need be.
    pub(crate) fn shared(&self) -> SharedMemory {
        let is_due = self.state().shared_due.is_none_or(|due| Instant::now() >= due);
        if is_due {
            let _ = self.look_at_shared();
        }
        let state = self.state();
        SharedMemory { pager: state.shared.number(), local: state.seen.shared + state.seen.named }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No further pager comes, and those that there are leave.
    pub(crate) fn withdraw(&self) {
        // Held, so that none is about to come that nobody knows of.
        let _state = self.state();
        self.application.ledger.withdraw();
    }

    /// Whether a pager that was started here is still there.
    pub(crate) fn has_pagers(&self) -> bool {
        let state = self.state();
        !state.pagers.is_empty() || state.shared.has_pager()
    }

    /// Looks at what the processes share; how long to wait for the next look.
    pub(crate) fn look_at_shared(&self) -> Duration {
        let began_ns = thread::cpu_ns();
        let numbers = self.living();
        // Those that haven't touched it map it all the same.
        let has_pager = self.state().shared.has_pager();
        let found = shared::find(&numbers, has_pager);
        let ledger = self.application.ledger;
        let mut state = self.state();
        let is_known = |slot: &ProcessSlot<'_>| state.shared.is_pager(slot.process());
        let known = ledger.slots().find(is_known).map_or(PageCount::ZERO, |slot| slot.resident());
        state.seen.shared = found.resident.saturating_sub(known);
        state.seen.named = found.named;
        let is_near = is_near_shared((ledger.resident() + state.seen.unknown()).get(), ledger.budget());
        if found.resident >= LEAST
            && is_near
            && !ledger.is_withdrawing()
            && let Err(error) = state.shared.begin(&self.address)
            && !std::mem::replace(&mut state.has_said, true)
        {
            say(&format!("no pager could be started for shared memory: {error}"));
        }
        state.shared.tell(&found.processes);
        let pause = since(began_ns) * LOOK_SHARE;
        state.shared_due = Some(Instant::now() + pause);
        pause.clamp(SHARED_LOOK, RAREST)
    }

    fn attach(&self, identity: Identity) {
        let mut state = self.state();
        if self.application.ledger.is_withdrawing() {
            return;
        }
        if state.refused.len() > MOST_REFUSED {
            // Most have ended by now.
            state.refused.retain(|&of, _| process::identity(of.number) == Some(of));
        }
        if state.pagers.values().any(|pager| pager.of == identity) {
            return;
        }
        if state
            .refused
            .get(&identity)
            .is_some_and(|&(attempts, until)| attempts == NEVER || Instant::now() < until)
        {
            return;
        }
        let layout = layout(identity.number);
        // Two processes that share their memory have one pager.
        let shares = |pager: &Pager| {
            pager.layout == layout && share_memory(pager.of.number, identity.number) == Some(true)
        };
        if state.pagers.values().any(shares) {
            return;
        }
        if layout.is_some_and(|layout| state.layouts.contains(&layout)) && is_registered(identity.number) {
            // The pager of the process that has forked it serves it, and gives it one of its own.
            state.refused.insert(identity, (0, Instant::now() + INHERITED));
            return;
        }
        let began = pager_command(&self.address)
            .arg(identity.number.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        match began {
            Ok(child) => {
                state.layouts.extend(layout);
                state.pagers.insert(child.id(), Pager { of: identity, layout, child });
            }
            Err(error) => {
                if !std::mem::replace(&mut state.has_said, true) {
                    say(&format!("no pager could be started: {error}"));
                }
                state.refused.insert(identity, (NEVER, Instant::now()));
            }
        }
    }

    /// A child of the supervisor has ended, with that status if it has ended by itself. It may have been a
    /// pager, and have managed something.
    pub(crate) fn ended(&self, number: u32, status: Option<i32>, had_managed: bool) {
        let mut state = self.state();
        if state.shared.ended(number, status) {
            return;
        }
        let Some(pager) = state.pagers.remove(&number) else { return };
        let reason =
            pager.child.stdout.and_then(|output| std::io::read_to_string(output).ok()).unwrap_or_default();
        match status {
            Some(0) => {}
            Some(status @ (STATUS_LATER | STATUS_TRACED | STATUS_LOOKING)) => {
                // It would be wrong for the program to find far pages there the next time.
                let rest = if status == STATUS_LOOKING { None } else { Some(LONG_REST) };
                let attempts = state.put_off(pager.of, 1, rest, &reason);
                if status == STATUS_TRACED && attempts == TRACED_ATTEMPTS {
                    tell(&mut state, pager.of, &reason);
                }
            }
            Some(_) => {
                state.refused.insert(pager.of, (NEVER, Instant::now()));
                tell(&mut state, pager.of, &reason);
            }
            // It was ended; what its program has far, nobody can give it any more.
            None if had_managed => {
                drop(state);
                self.end_children_of(pager.of, pager.layout);
            }
            None => {
                state.put_off(pager.of, DEATH_ATTEMPTS, None, DEATHS);
            }
        }
    }

    /// Ends what was forked by a process whose pager was ended, and has none of its own: that pager has
    /// served it, and now it would find zeros. A process that began before was forked by another one, and
    /// goes on. Of younger ones nobody says by whom they were forked: rather one too many ends than that one
    /// finds zeros.
    fn end_children_of(&self, parent: Identity, layout: Option<Layout>) {
        if layout.is_none() {
            return;
        }
        let managed = self.managed();
        let is_orphan = |number: &u32| {
            *number != parent.number
                && !managed.contains(number)
                && identity(*number).is_some_and(|identity| identity.began >= parent.began)
                && self::layout(*number) == layout
        };
        for number in self.living().into_iter().filter(is_orphan) {
            if let Some(process) = rustix::process::Pid::from_raw(number as i32) {
                let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
            }
            say(&format!("process {number} was ended: its memory was served by a pager that has ended"));
        }
    }
}

/// The command that starts a pager, but for what it is to manage, of the application that has its supervisor
/// at that address.
pub(super) fn pager_command(address: &str) -> Command {
    // Another version may have been installed meanwhile, so no path of this program's file is good.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("farmem").arg("pager").env("FARMEM_SUPERVISOR", address);
    command
}

fn tell(state: &mut State, of: Identity, reason: &str) {
    let has_ended = identity(of.number) != Some(of);
    if !has_ended {
        state.seen.refusal = Some(format!("process {}: {}", of.number, reason.trim()));
    }
    if !has_ended && !std::mem::replace(&mut state.has_said, true) {
        say(&format!("process {} runs without Farmem: {}", of.number, reason.trim()));
    }
}

/// Whether it is a pager or a puppet, by its name. A program that calls itself so is left alone. A puppet
/// that has no name yet shares its program's memory, and so gets no pager.
fn is_ours(number: u32) -> bool {
    process::short(&format!("/proc/{number}/comm")).is_some_and(|name| OWN_NAMES.contains(&name.trim_end()))
}

/// Whether memory of it is registered with somebody's userfaultfd.
fn is_registered(number: u32) -> bool {
    process::text(format!("/proc/{number}/smaps"))
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.strip_prefix("VmFlags:"))
        .any(|flags| flags.split(' ').any(|flag| flag == "um"))
}

/// What processes have for certain: those that one has forked have the same layout, and may share all that
/// they have, so that the largest of them counts.
fn distinct(found: &[Found], layout: impl Fn(u32) -> Option<Layout>) -> PageCount {
    if let [process] = found {
        return process.resident;
    }
    let mut largest: HashMap<Option<Layout>, PageCount> = HashMap::new();
    for process in found {
        let entry = largest.entry(layout(process.number)).or_default();
        *entry = process.resident.max(*entry);
    }
    PageCount::new(largest.values().map(|pages| pages.get()).sum())
}

fn layout(number: u32) -> Option<Layout> {
    figures(number, [28, 47, 48])
}

/// Whether a pager for shared memory is to come.
fn is_near_shared(resident: u64, budget: PageCount) -> bool {
    resident * NEAR_SHARED.1 >= budget.get() * NEAR_SHARED.0
}

/// Resident pages that belong to no file, and the others. Of a process whose first thread has ended the
/// others tell.
fn resident(number: u32) -> Option<(PageCount, PageCount)> {
    let own = resident_by(&format!("/proc/{number}/statm"))?;
    if own.0 > PageCount::ZERO {
        return Some(own);
    }
    let threads = fs::read_dir(format!("/proc/{number}/task")).ok()?;
    threads.flatten().filter_map(|thread| resident_by(&thread.path().join("statm").to_string_lossy())).max()
}

fn resident_by(file: &str) -> Option<(PageCount, PageCount)> {
    let text = process::short(file)?;
    Some((anonymous_in(&text)?, others_in(&text)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_forked_processes_may_share_counts_once() {
        let found =
            |number, pages| Found { number, resident: PageCount::new(pages), others: PageCount::ZERO };
        let layout = |number: u32| Some([number as u64 / 10, 0, 0]);
        assert_eq!(distinct(&[], layout), PageCount::ZERO);
        assert_eq!(distinct(&[found(10, 7)], layout), PageCount::new(7));
        let family = [found(10, 7), found(11, 9), found(20, 5)];
        assert_eq!(distinct(&family, layout), PageCount::new(14));
        assert_eq!(distinct(&family, |_| None), PageCount::new(9));
    }

    #[test]
    fn looks_are_rarer_the_more_they_cost_and_come_all_the_same() {
        let micros = Duration::from_micros;
        assert_eq!(least_pause(micros(100)), micros(10_000));
        assert_eq!(least_pause(micros(500)), LONGEST);
        assert_eq!(least_pause(micros(1500)), micros(300_000));
        assert_eq!(least_pause(micros(50_000)), RAREST);
    }
}
