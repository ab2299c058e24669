//! Seeds, one after the other, on every processor. A failing one is named by a line that repeats it, shrunk,
//! and told with the history of the page that was wrong.
//!
//! `FARMEM_SIMULATE_SEEDS` says how many, `FARMEM_SIMULATE_SEED` which single one; `make simulate` sets them.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use farmem_sim::{Case, Counter, Guard, Outcome, counted, run, run_shared, shrink, shrink_shared};
use libtest_mimic::{Arguments, Failed, Trial};

/// Seeds of an ordinary run.
const SEEDS: u64 = 10_000;
/// Seeds among which one must show that a guard is missing.
const MUTANT_SEEDS: u64 = 16_000;
/// The same of shared memory.
const SHARED_MUTANT_SEEDS: u64 = 2000;
/// Seeds that showed it when they were noted: tried first, because others take minutes to find. A change of
/// the pager may make any of them show nothing; then the one that is found is told.
const NOTED: [(Guard, u64); 10] = [
    (Guard::OneHolder, 273),
    (Guard::SourceAfterTaking, 487),
    (Guard::DiscardedHasNoEntry, 93),
    (Guard::DiscardedStays, 117),
    (Guard::ReadingExcludesChanges, 1366),
    (Guard::UnmappedIsForgotten, 632),
    (Guard::StrandedGoesToChildren, 2409),
    (Guard::MovesWaitForHolders, 117),
    (Guard::HeldIsLookedAt, 126),
    (Guard::VictimsAreManaged, 9419),
];
/// Seeds of crowds, which take as long as a hundred others each.
const CROWDS: u64 = 100;
/// Seeds that are run twice.
const REPEATED_SEEDS: u64 = 20;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    // What a thread of the simulation panics with is told with its seed.
    std::panic::set_hook(Box::new(|_| {}));
    let mut trials = vec![
        Trial::test("a_seed_repeats_its_run", a_seed_repeats_its_run),
        Trial::test("no_seed_shows_a_wrong_byte_or_a_thread_that_waits_for_ever", || {
            PRIVATE.is_right(number("FARMEM_SIMULATE_SEEDS").unwrap_or(SEEDS))
        }),
        Trial::test("no_seed_shows_a_wrong_byte_of_shared_memory_or_a_process_that_waits_for_ever", || {
            SHARED.is_right(number("FARMEM_SIMULATE_SEEDS").unwrap_or(SEEDS))
        }),
        Trial::test("no_seed_shows_a_crowd_of_threads_in_which_one_waits_for_ever", no_crowd_waits_for_ever),
    ];
    trials.extend(Guard::ALL.map(|guard| {
        Trial::test(format!("some_seed_shows_what_happens_without::{guard:?}"), move || is_noticed(guard))
    }));
    trials.extend(Guard::OF_SHARED.map(|guard| {
        Trial::test(format!("some_seed_shows_what_happens_to_shared_memory_without::{guard:?}"), move || {
            is_noticed_of_shared(guard)
        })
    }));
    if let Some(seed) = number("FARMEM_SIMULATE_SEED") {
        trials = vec![
            Trial::test("one_seed", move || PRIVATE.verdict(seed).map(drop)),
            Trial::test("one_seed_of_shared_memory", move || SHARED.verdict(seed).map(drop)),
        ];
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn a_seed_repeats_its_run() -> Result<(), Failed> {
    for seed in 0..REPEATED_SEEDS {
        let [one, other] = [(); 2].map(|()| {
            let outcome = run(&Case::of(seed));
            (outcome.steps, outcome.time_ns, outcome.faults, outcome.moved, counted(Counter::Retries))
        });
        if one != other {
            return Err(format!("seed {seed}: {one:?}, then {other:?}").into());
        }
    }
    Ok(())
}

/// What happens in a hundred runs, at least: a simulator in which nothing happens finds nothing.
const WANTED: [(Counter, u64); 9] = [
    (Counter::Evicted, 3000),
    (Counter::Fetches, 1000),
    (Counter::Prefetched, 500),
    (Counter::DroppedClean, 200),
    (Counter::Events, 400),
    (Counter::Retries, 500),
    (Counter::Refused, 2000),
    (Counter::PoolFull, 100),
    (Counter::FirstTouches, 1000),
];
/// The same of what lies below the pool.
const WANTED_BELOW: [(&str, u64); 5] = [
    ("moves of slabs", 20),
    ("answers of nodes", 50),
    ("disk reads", 30),
    ("losses of nodes", 2),
    ("guards", 20),
];

/// What happens in a hundred runs of shared memory, at least.
const WANTED_SHARED: [(&str, u64); 4] =
    [("moves out", 1000), ("faults", 1000), ("holes", 100), ("fetches", 300)];

/// How often something happens.
type Counts = Vec<(String, u64)>;

/// Runs of one kind.
struct Kind {
    case: fn(u64) -> Case,
    run: fn(&Case) -> Outcome,
    shrink: fn(&Case) -> Case,
    /// What has happened in a run besides what its outcome counts.
    counts: fn(&Outcome) -> Counts,
    /// What happens in a hundred runs, at least.
    wanted: fn() -> Counts,
}

const PRIVATE: Kind = Kind {
    case: Case::of,
    run,
    shrink,
    counts: |_| named(WANTED.map(|(counter, _)| (format!("{counter:?}"), counted(counter)))),
    wanted: || {
        let pager = WANTED.map(|(counter, wanted)| (format!("{counter:?}"), wanted));
        [named(pager), named(WANTED_BELOW)].concat()
    },
};

const SHARED: Kind = Kind {
    case: Case::shared,
    run: run_shared,
    shrink: shrink_shared,
    counts: |outcome| {
        let fetches = counted(Counter::Fetches);
        named([("moves out", outcome.moved), ("faults", outcome.faults), ("fetches", fetches)])
    },
    wanted: || named(WANTED_SHARED),
};

fn named<const COUNT: usize>(counts: [(impl Into<String>, u64); COUNT]) -> Counts {
    counts.into_iter().map(|(what, number)| (what.into(), number)).collect()
}

impl Kind {
    /// Whether so many runs are right, and enough happens in them.
    fn is_right(&self, count: u64) -> Result<(), Failed> {
        let sums: Mutex<BTreeMap<String, u64>> = Mutex::default();
        let failure = Mutex::new(None);
        each(count, |seed| match self.verdict(seed) {
            Err(failed) => {
                *failure.lock().expect("nobody panics with it") = Some(failed);
                true
            }
            Ok(outcome) => {
                let mut sums = sums.lock().expect("nobody panics with it");
                let own = outcome.counts.iter().map(|(what, number)| ((*what).to_owned(), *number));
                own.chain((self.counts)(&outcome))
                    .for_each(|(what, number)| *sums.entry(what).or_default() += number);
                false
            }
        });
        if let Some(failed) = failure.into_inner().expect("nobody panics with it") {
            return Err(failed);
        }
        let sums = sums.into_inner().expect("nobody panics with it");
        for (what, wanted) in (self.wanted)() {
            let found = sums.get(&what).copied().unwrap_or(0);
            // Of a few seeds it may well be none.
            if count >= SEEDS && found < wanted * count / 100 {
                return Err(
                    format!("{what}: {found} in {count} runs, {wanted} in each hundred wanted").into()
                );
            }
        }
        Ok(())
    }

    /// One run's outcome, or what was wrong in it and in a smaller one.
    fn verdict(&self, seed: u64) -> Result<Outcome, Failed> {
        let case = (self.case)(seed);
        let outcome = (self.run)(&case);
        let Some(failure) = outcome.failure else { return Ok(outcome) };
        let mut small = (self.shrink)(&case);
        small.plan.watched = (self.run)(&small).wrong;
        let again = (self.run)(&small);
        Err(format!(
            "{failure}\nagain: make simulate SEED={seed}\nsmaller, of {} operations: {}\n{small}{}",
            small.operations(),
            again.failure.unwrap_or_default(),
            again.history.join("\n"),
        )
        .into())
    }
}

fn no_crowd_waits_for_ever() -> Result<(), Failed> {
    let failure = Mutex::new(None);
    let most_handlers = AtomicU64::new(0);
    each(CROWDS, |seed| {
        let outcome = run(&Case::crowd(seed));
        most_handlers.fetch_max(outcome.counts.get("handlers").copied().unwrap_or(0), Ordering::Relaxed);
        let Some(failed) = outcome.failure else { return false };
        *failure.lock().expect("nobody panics with it") = Some(format!("crowd {seed}: {failed}"));
        true
    });
    if let Some(failed) = failure.into_inner().expect("nobody panics with it") {
        return Err(failed.into());
    }
    let most_handlers = most_handlers.into_inner();
    // As many as there are on a machine of many processors, and some for those that wait for the disk.
    if most_handlers <= 8 {
        return Err(format!("{most_handlers} handlers at most").into());
    }
    Ok(())
}

/// Without that guard something goes wrong, soon.
fn is_noticed(guard: Guard) -> Result<(), Failed> {
    let shows = |seed| {
        let mut case = match seed % 4 {
            0 => Case::of(seed),
            1 => Case::restless_on_nodes(seed),
            _ => Case::restless(seed),
        };
        case.plan.without = Some(guard);
        run(&case).failure.is_some()
    };
    if NOTED.iter().any(|&(noted, seed)| noted == guard && shows(seed)) {
        return Ok(());
    }
    is_shown(guard, MUTANT_SEEDS, shows)
}

/// The same of what keeps shared memory right.
fn is_noticed_of_shared(guard: Guard) -> Result<(), Failed> {
    is_shown(guard, SHARED_MUTANT_SEEDS, |seed| {
        let mut case = Case::shared(seed);
        case.plan.without = Some(guard);
        run_shared(&case).failure.is_some()
    })
}

/// Whether one of so many seeds shows that a guard is missing.
fn is_shown(guard: Guard, count: u64, shows: impl Fn(u64) -> bool + Sync) -> Result<(), Failed> {
    let is_found = each(count, |seed| {
        let is_one = shows(seed);
        if is_one {
            println!("{guard:?}: seed {seed} shows it");
        }
        is_one
    });
    if is_found { Ok(()) } else { Err(format!("none of {count} seeds shows that it is missing").into()) }
}

/// Goes through seeds on all processors, until `is_last` says of one that it was; whether it has.
fn each(count: u64, is_last: impl Fn(u64) -> bool + Sync) -> bool {
    let next = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let workers = std::thread::available_parallelism().map_or(1, |count| count.get());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= count {
                        return;
                    }
                    if is_last(seed) {
                        is_over.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    is_over.into_inner()
}
