//! Programs that share memory: several processes that map one object, and the pager that manages it.

use std::sync::{Arc, Mutex};

use farmem_page::{PageCount, PageRange};
use farmem_simulated_kernel::schedule::{self, Outcome};
use farmem_simulated_kernel::subject::objects::{self, Objects};
use farmem_simulated_kernel::uffd::Uffd;
use farmem_simulated_kernel::{object, program, thread, world};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::case::Case;
use crate::far;
use crate::operations::{Habits, Operation};
use crate::run::{Mapped, Ranges, Using, act_on_any, finished, first, lock, memory, place, start};
use crate::supervisor::Simulated;

/// Pages of the object.
const PAGES: u64 = 40;
/// How often it is looked which processes have ended.
const SWEEP_NS: u64 = 2_000_000;

/// Runs a case in which each of the program's threads is a process, and all of them map one object.
pub fn run_shared(case: &Case) -> Outcome {
    let memory = memory();
    memory.clear();
    let case = case.clone();
    let outcome = schedule::run(case.seed, case.plan, move || {
        let (supervisor, pool) = Simulated::new(&case, &memory);
        world::with(|world| world.supervisor = Some(Box::new(supervisor)));
        far::start(&pool, case.far);
        let Ok(objects) = objects::begin(|_| {}) else { return };
        let Ok(messages) = objects.messages() else { return };
        if let Err(error) = start().for_shared(messages, |_| {}) {
            world::with(|world| world.fail(&format!("the pager doesn't start: {error:?}")));
            return;
        }
        let processes = share(objects, case.threads.len());
        schedule::spawn(0, move || {
            loop {
                thread::sleep(SWEEP_NS);
                objects.sweep();
            }
        });
        let threads: Vec<u32> = (case.threads.iter().zip(&processes))
            .map(|(operations, (space, range))| {
                let ranges = Arc::new(Mutex::new(Mapped { ranges: vec![*range], used: Vec::new() }));
                let (operations, space) = (operations.clone(), *space);
                schedule::spawn(space, move || operations.iter().for_each(|it| act(*it, space, &ranges)))
            })
            .collect();
        threads.into_iter().for_each(schedule::join);
        // The first process has changed nothing of its mapping's place: the last one sees all of it.
        if let Some((space, range)) = processes.last() {
            range.iter().for_each(|page| program::read(*space, page));
        }
        schedule::finish();
    });
    finished(outcome)
}

/// Processes that map one object, known to the pager. The last one does nothing.
fn share(objects: &'static Objects, count: usize) -> Vec<(usize, PageRange)> {
    let file = object::create(PAGES);
    let number = object::number(&file);
    let processes: Vec<_> = (0..=count).map(|_| program::begin(number)).collect();
    let refused = |reason: &str| world::with(|world| world.fail(&format!("not taken on: {reason}")));
    let Some(pages) = objects.add_object(file, PageCount::new(PAGES)) else {
        refused("an object");
        return processes;
    };
    let taken = processes.iter().try_for_each(|&(space, range)| {
        let process = objects.add_process(Uffd::of_space(space))?;
        objects.add_mapping(process, range, pages.start)
    });
    match taken {
        Ok(()) => objects.open(pages),
        Err(errno) => refused(&format!("a process ({errno})")),
    }
    processes
}

/// What of private memory changes the address space changes the object, or the view of it.
fn act(operation: Operation, space: usize, ranges: &Ranges) {
    if act_on_any(operation, space, ranges) {
        return;
    }
    match operation {
        Operation::Map { count } | Operation::Guard { at: count, .. } => {
            if let Some(range) = place(ranges, count) {
                let _using = Using::of(ranges, range);
                program::look_away(space, first(range, count % 24));
            }
        }
        Operation::Discard { at, count } => {
            if let Some(range) = place(ranges, at) {
                let _using = Using::of(ranges, range);
                program::punch(space, first(range, count));
            }
        }
        Operation::Move { at } => {
            let taken = lock(ranges).ranges.pop();
            if let Some(range) = taken {
                // Every other time only the end of it goes.
                let split = if at % 2 == 0 {
                    range.start
                } else {
                    range.start + PageCount::new(range.count().get() / 2)
                };
                let to = program::remap(space, PageRange::new(split, range.end));
                let kept = PageRange::new(range.start, split);
                lock(ranges).ranges.extend([kept, to].into_iter().filter(|range| !range.is_empty()));
            }
        }
        Operation::Fork { value } => fork(space, value, ranges),
        _ => {}
    }
}

/// A child that maps what its parent maps, works for a while, and ends.
fn fork(space: usize, value: u32, ranges: &Ranges) {
    /// What a child does.
    const OPERATIONS: usize = 12;
    let own = Arc::new(Mutex::new(Mapped { ranges: lock(ranges).ranges.clone(), used: Vec::new() }));
    let child = program::fork(space);
    let mut random = SmallRng::seed_from_u64(value.into());
    let habits = Habits { hot: 0, changes: random.random_range(5..60), forks: false };
    let operations: Vec<Operation> = (0..OPERATIONS).map(|_| Operation::draw(&mut random, habits)).collect();
    let _ = schedule::spawn(child, move || {
        operations.iter().for_each(|operation| act(*operation, child, &own));
        program::end(child);
    });
}
