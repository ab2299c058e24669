//! Whose turn it is. Threads change places only here, by the scheduler's choice; both it and the world draw
//! from the seed.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use farmem_page::PageIndex;
use rand::{Rng, SeedableRng};
use shuttle::scheduler::RandomScheduler;

use crate::thread::Exit;
use crate::world::{self, Plan, World};

/// What a thread sleeps on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// Time alone.
    Nothing,
    /// A word, by its address.
    Word(usize),
    /// Messages of a userfaultfd.
    Messages(usize),
    /// Messages of any process that maps shared memory.
    AnyMessages,
    /// A fault, until it is woken.
    Fault(u64),
    /// An event, until it is read.
    Event(u64),
    /// The lock of an address space.
    Space(usize),
    /// Another thread's end.
    End(u32),
}

/// A thread that sleeps.
#[derive(Clone, Debug)]
pub(crate) struct Sleeper {
    thread: u32,
    keys: Vec<Key>,
    deadline_ns: Option<u64>,
}

/// What became of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What went wrong, if something did.
    pub failure: Option<String>,
    /// Calls of the simulated kernel.
    pub steps: u64,
    /// Simulated time, in nanoseconds.
    pub time_ns: u64,
    /// Pages that threads of programs have waited for.
    pub faults: u64,
    /// Pages that were moved out.
    pub moved: u64,
    /// What was said on standard error.
    pub said: Vec<String>,
    /// The page that held other bytes than were written, or was lost.
    pub wrong: Option<PageIndex>,
    /// What happened to the watched page.
    pub history: Vec<String>,
    /// How often what has happened, by name.
    pub counts: BTreeMap<&'static str, u64>,
}

/// Bytes of a thread's stack.
const STACK_BYTES: usize = 512 << 10;

/// Runs `body` as the first thread of a new world, until every thread has ended.
pub fn run(seed: u64, plan: Plan, body: impl FnOnce() + Send + 'static) -> Outcome {
    let mut config = shuttle::Config::new();
    config.stack_size = STACK_BYTES;
    config.failure_persistence = shuttle::FailurePersistence::None;
    config.max_steps = shuttle::MaxSteps::None;
    config.silence_warnings = true;
    let body = Arc::new(Mutex::new(Some(body)));
    world::begin(World::new(rand::rngs::SmallRng::seed_from_u64(seed), plan));
    shuttle::Runner::new(RandomScheduler::new_from_seed(seed, 1), config).run(move || {
        let body = body.lock().ok().and_then(|mut body| body.take());
        if let Some(body) = body {
            live(0, 0, body);
        }
    });
    let world = world::end();
    // SAFETY: the runner returns when every thread of the run has ended, and what they shared went with the
    // world.
    unsafe { crate::memory::give_all_back() };
    world
}

/// Starts a thread of a space.
pub fn spawn<R>(space: usize, body: impl FnOnce() -> R + Send + 'static) -> u32 {
    let number = world::with(|world| {
        world.alive += 1;
        world.next_thread += 1;
        world.next_thread
    });
    world::with(|world| world.threads.insert(number, (space, None)));
    aside(|| drop(shuttle::thread::spawn(move || live(number, space, body))));
    point();
    number
}

fn live<R>(number: u32, space: usize, body: impl FnOnce() -> R) {
    world::with(|world| {
        world.current = number;
        world.threads.insert(number, (space, Some(shuttle::thread::current())));
    });
    let result = catch_unwind(AssertUnwindSafe(|| {
        point();
        body();
    }));
    if let Err(payload) = result
        && !payload.is::<Exit>()
    {
        let text = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied())
            .unwrap_or("a panic");
        let text = format!("thread {number}: {text}");
        world::with(|world| world.fail(&text));
        wake_all();
    }
    world::with(|world| {
        world.threads.remove(&number);
        world.alive -= 1;
    });
    if world::with(|world| world.is_over) {
        wake_all();
    } else {
        wake(Key::End(number), usize::MAX);
        pass_time();
    }
}

/// Waits until a thread has ended.
pub fn join(number: u32) {
    while world::with(|world| world.threads.contains_key(&number)) {
        block(Key::End(number), None);
    }
}

/// Ends the run: the other threads end at their next call.
pub fn finish() {
    world::with(|world| world.is_over = true);
    wake_all();
}

/// Does what may give the turn to another thread.
fn aside<R>(body: impl FnOnce() -> R) -> R {
    let own = world::with(|world| world.current);
    let result = body();
    world::with(|world| world.current = own);
    result
}

/// A place where the turn may pass to another thread, and where time passes.
pub fn point() {
    if std::thread::panicking() {
        return;
    }
    let (is_over, is_switching, has_jumped) = world::with(|world| {
        world.steps += 1;
        if world.steps > world.plan.most_steps {
            world.fail("it has no end");
        }
        let mut passed_ns = world.random.random_range(0..2 * world.plan.step_ns);
        let has_jumped = world.chance(world.plan.late_one_in);
        if has_jumped {
            passed_ns = world.random.random_range(0..world.plan.late_ns);
        }
        world.now_ns += passed_ns;
        (world.is_over, world.chance(world.plan.switch_one_in), has_jumped)
    });
    if is_over {
        crate::thread::exit();
    }
    if has_jumped {
        wake_due();
    }
    if is_switching {
        aside(shuttle::thread::yield_now);
        if world::with(|world| world.is_over) {
            crate::thread::exit();
        }
    }
}

/// Sleeps until somebody wakes that key, or until the deadline.
pub fn block(key: Key, deadline_ns: Option<u64>) {
    block_on_any(vec![key], deadline_ns);
}

/// The same of several keys.
pub fn block_on_any(keys: Vec<Key>, deadline_ns: Option<u64>) {
    if std::thread::panicking() {
        return;
    }
    let own = world::with(|world| {
        let thread = world.current;
        world.sleepers.push(Sleeper { thread, keys, deadline_ns });
        thread
    });
    pass_time();
    while world::with(|world| !world.is_over && world.sleepers.iter().any(|it| it.thread == own)) {
        aside(shuttle::thread::park);
    }
    if world::with(|world| world.is_over) {
        crate::thread::exit();
    }
}

/// Wakes up to `most` threads that sleep on a key.
pub fn wake(key: Key, most: usize) {
    let mut left = most;
    wake_those(|sleeper| {
        let is_meant = sleeper.keys.contains(&key) && left > 0;
        left -= usize::from(is_meant);
        is_meant
    });
}

/// Wakes everybody.
pub(crate) fn wake_all() {
    wake_those(|_| true);
}

fn wake_due() {
    let now_ns = world::with(|world| world.now_ns);
    wake_those(|sleeper| sleeper.deadline_ns.is_some_and(|deadline_ns| deadline_ns <= now_ns));
}

fn wake_those(mut is_meant: impl FnMut(&Sleeper) -> bool) {
    let woken: Vec<_> = world::with(|world| {
        let (woken, left) = world.sleepers.drain(..).partition::<Vec<_>, _>(|sleeper| is_meant(sleeper));
        world.sleepers = left;
        woken.iter().filter_map(|it| world.threads.get(&it.thread)?.1.clone()).collect()
    });
    aside(|| woken.iter().for_each(shuttle::thread::Thread::unpark));
}

/// Where every thread sleeps, time passes until the first is to wake.
fn pass_time() {
    let is_stuck = world::with(|world| {
        if world.is_over || world.sleepers.len() < world.alive {
            return false;
        }
        match world.sleepers.iter().filter_map(|it| it.deadline_ns).min() {
            Some(first_ns) => world.now_ns = world.now_ns.max(first_ns),
            None if world.alive > 0 => {
                let who: Vec<_> = world.sleepers.iter().map(|it| (it.thread, &it.keys)).collect();
                world.fail(&format!("every thread waits for another one: {who:?}"));
                return true;
            }
            None => {}
        }
        false
    });
    if is_stuck {
        wake_all();
    } else if world::with(|world| world.sleepers.len() >= world.alive) {
        wake_due();
    }
}
