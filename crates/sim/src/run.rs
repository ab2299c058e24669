//! Running a case.

use std::cell::Cell;
use std::sync::{Arc, Mutex};

use farmem_page::{PageCount, PageIndex, PageRange};
use farmem_simulated_kernel::schedule::{self, Outcome};
use farmem_simulated_kernel::uffd::Uffd;
use farmem_simulated_kernel::{program, thread, world};
use farmem_simulated_pager::{NAME_BYTES, Start};
use farmem_telemetry::{Counter, LEDGER_BYTES, Ledger, ProcessSlot};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::case::Case;
use crate::far::{self, Far};
use crate::operations::{Habits, Operation};
use crate::supervisor::{Memory, Simulated};
use crate::values;

thread_local! {
    static MEMORY: Cell<Option<Memory>> = const { Cell::new(None) };
}

/// The name and the token by which a supervisor is reached.
const ADDRESS: &[u8] = b"simulated:0000000000000001";

/// Runs a case. The same case has the same outcome.
pub fn run(case: &Case) -> Outcome {
    let memory = memory();
    memory.clear();
    let case = case.clone();
    let outcome = schedule::run(case.seed, case.plan, move || {
        let (supervisor, pool) = Simulated::new(&case, &memory);
        world::with(|world| world.supervisor = Some(Box::new(supervisor)));
        far::start(&pool, case.far);
        begin();
        let ranges = Arc::new(Mutex::new(Mapped::default()));
        for _ in 0..case.threads.len() + 1 {
            let range = program::map(0, case.first_pages);
            lock(&ranges).ranges.push(range);
            if case.far != Far::default() {
                range.iter().for_each(|page| program::write(0, page, values::page(page.get())));
            }
        }
        let threads: Vec<u32> = case
            .threads
            .iter()
            .map(|operations| {
                let (operations, ranges) = (operations.clone(), Arc::clone(&ranges));
                schedule::spawn(0, move || operations.iter().for_each(|it| act(*it, 0, &ranges)))
            })
            .collect();
        threads.into_iter().for_each(schedule::join);
        let all: Vec<PageRange> = lock(&ranges).ranges.clone();
        all.iter().flat_map(|range| range.iter()).for_each(|page| program::read(0, page));
        schedule::finish();
    });
    finished(outcome)
}

/// What the pager needs of memory, for one run after the other.
pub(crate) fn memory() -> Memory {
    MEMORY.get().unwrap_or_else(|| {
        let memory = Memory::new();
        MEMORY.set(Some(memory));
        memory
    })
}

/// A run's outcome, with what the pager says of a failure.
pub(crate) fn finished(mut outcome: Outcome) -> Outcome {
    if let (Some(failure), Some(why)) = (&mut outcome.failure, slot().and_then(|slot| slot.failure())) {
        *failure = format!("{failure}: {why:?}");
    }
    outcome
}

/// The process's slot in the ledger of the latest run.
fn slot() -> Option<ProcessSlot<'static>> {
    let words = MEMORY.get()?.ledger.atomics(0, LEDGER_BYTES / 8)?;
    Ledger::new(words)?.slot(0)
}

/// What the pager has counted in the latest run of the calling thread.
pub fn counted(counter: Counter) -> u64 {
    slot().map_or(0, |slot| slot.get(counter))
}

/// What a pager is told.
pub(crate) fn start() -> Start {
    let mut name = [0; NAME_BYTES];
    name[..ADDRESS.len()].copy_from_slice(ADDRESS);
    Start { name, name_length: ADDRESS.len(), stack: 0 }
}

/// Starts the pager.
fn begin() {
    let uffd = Uffd::create(None).expect("the simulated kernel refuses none");
    if let Err(error) = start().for_attached(uffd, |_| {}) {
        world::with(|world| world.fail(&format!("the pager doesn't start: {error:?}")));
    }
}

/// The mappings of a process, and where threads discard at this moment: those mappings neither move nor go.
pub(crate) type Ranges = Mutex<Mapped>;

#[derive(Clone, Default)]
pub(crate) struct Mapped {
    pub(crate) ranges: Vec<PageRange>,
    pub(crate) used: Vec<PageIndex>,
}

/// A mapping that stays while this lives.
pub(crate) struct Using<'a> {
    ranges: &'a Ranges,
    page: PageIndex,
}

impl<'a> Using<'a> {
    pub(crate) fn of(ranges: &'a Ranges, range: PageRange) -> Self {
        lock(ranges).used.push(range.start);
        Self { ranges, page: range.start }
    }
}

impl Drop for Using<'_> {
    fn drop(&mut self) {
        let mut mapped = lock(self.ranges);
        if let Some(at) = mapped.used.iter().position(|&page| page == self.page) {
            mapped.used.swap_remove(at);
        }
    }
}

/// The lock is held only while nobody else can have the turn.
pub(crate) fn lock(ranges: &Ranges) -> std::sync::MutexGuard<'_, Mapped> {
    ranges.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A page of those that there are, and what follows it in its mapping.
pub(crate) fn place(ranges: &Ranges, at: u32) -> Option<PageRange> {
    let ranges = &lock(ranges).ranges;
    let pages: u64 = ranges.iter().map(|range| range.count().get()).sum();
    let mut left = u64::from(at).checked_rem(pages)?;
    for range in ranges.iter() {
        if left < range.count().get() {
            return Some(PageRange::new(range.start + PageCount::new(left), range.end));
        }
        left -= range.count().get();
    }
    None
}

/// The first `count` of these pages.
pub(crate) fn first(range: PageRange, count: u32) -> PageRange {
    range.intersect(PageRange::at(range.start, PageCount::new(count.into())))
}

/// Takes a mapping out of the list, so that no other thread touches it meanwhile.
fn claim(ranges: &Ranges, at: u32) -> Option<PageRange> {
    let mut mapped = lock(ranges);
    let Mapped { ranges, used } = &mut *mapped;
    let at = (at as usize).checked_rem(ranges.len())?;
    let is_used = used.iter().any(|&page| ranges[at].contains(page));
    // One stays for the others.
    (ranges.len() > 1 && !is_used).then(|| ranges.swap_remove(at))
}

/// Does what is the same with private and with shared memory; whether the operation was of that kind.
pub(crate) fn act_on_any(operation: Operation, space: usize, ranges: &Ranges) -> bool {
    match operation {
        Operation::Read { at, count } => {
            if let Some(range) = place(ranges, at) {
                touch(ranges, first(range, count), |page, _| program::read(space, page));
            }
        }
        Operation::Write { at, value } => {
            if let Some(range) = place(ranges, at) {
                touch(ranges, first(range, 1), |page, _| {
                    program::write(space, page, values::page(value.into()))
                });
            }
        }
        Operation::Fill { at, count, value } => {
            if let Some(range) = place(ranges, at) {
                touch(ranges, first(range, count), |page, step| {
                    program::write(space, page, values::page(u64::from(value) + step));
                });
            }
        }
        Operation::Unmap { at, count } => {
            if let Some(range) = claim(ranges, at) {
                let left = range.count().get().saturating_sub(count.into());
                let split = range.start + PageCount::new(left);
                program::unmap(space, PageRange::new(split, range.end));
                if left > 0 {
                    lock(ranges).ranges.push(PageRange::new(range.start, split));
                }
            }
        }
        Operation::Rest { time_us } => thread::sleep(u64::from(time_us) * 1000),
        Operation::Map { .. }
        | Operation::Discard { .. }
        | Operation::Guard { .. }
        | Operation::Move { .. }
        | Operation::Fork { .. } => return false,
    }
    true
}

fn act(operation: Operation, space: usize, ranges: &Ranges) {
    if act_on_any(operation, space, ranges) {
        return;
    }
    match operation {
        Operation::Map { count } => {
            let range = program::map(space, count.into());
            lock(ranges).ranges.push(range);
        }
        Operation::Discard { at, count } => {
            // A program that moves other memory to where it discards has nobody but itself to blame: so the
            // mapping stays meanwhile. Others go on touching it.
            if let Some(range) = place(ranges, at) {
                let _using = Using::of(ranges, range);
                program::discard(space, first(range, count));
            }
        }
        Operation::Guard { at, count } => {
            if let Some(range) = place(ranges, at) {
                let _using = Using::of(ranges, range);
                program::guard(space, first(range, count));
            }
        }
        Operation::Move { at } => {
            if let Some(range) = claim(ranges, at) {
                let range = program::remap(space, range);
                lock(ranges).ranges.push(range);
            }
        }
        Operation::Fork { value } => fork(space, value, ranges),
        _ => {}
    }
}

/// Touches pages, as long as they are the program's: another thread may have unmapped or moved them
/// meanwhile.
fn touch(ranges: &Ranges, range: PageRange, touch_page: impl Fn(PageIndex, u64)) {
    for (step, page) in range.iter().enumerate() {
        if lock(ranges).ranges.iter().any(|range| range.contains(page)) {
            touch_page(page, step as u64);
        }
    }
}

/// A child that works for a while on its own copy, next to the parent's threads.
fn fork(space: usize, value: u32, ranges: &Ranges) {
    /// What a child does.
    const OPERATIONS: usize = 12;
    let own = Mapped { ranges: lock(ranges).ranges.clone(), used: Vec::new() };
    let own = Arc::new(Mutex::new(own));
    let child = program::fork(space);
    // What other threads have unmapped or moved since the list was copied isn't there.
    lock(&own).ranges.retain(|range| world::with(|world| world.spaces[child].has(*range)));
    let mut random = SmallRng::seed_from_u64(value.into());
    let operations: Vec<Operation> =
        (0..OPERATIONS).map(|_| Operation::draw(&mut random, Habits::CHILD)).collect();
    let _ = schedule::spawn(child, move || {
        operations.iter().for_each(|operation| act(*operation, child, &own));
        program::end(child);
    });
}
