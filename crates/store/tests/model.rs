//! Model checks: the pool's own code over atomics whose interleavings a checker chooses. Every atomic access
//! is a point where another thread may go on; content is copied in two parts with such a point between.
//!
//! The checker explores interleavings at random and by priorities (PCT), which finds any bug that takes few
//! changes of thread to show. Orders weaker than sequential consistency are not explored.

mod support;

use core::ops::Range;
use core::sync::atomic::Ordering;
use farmem_page::{ByteCount, PAGE_BYTES, PageBytes, Place};
use farmem_store::{
    Answer, Atomic, BlockError, BlockFile, Caller, Epoch, FreeOutcome, LoadError, Memory, Mover, NoNodes,
    NodesConfig, NullFile, OwnerId, Pool, PoolConfig, Reader, SLAB_BYTES, StepOutcome, TakenCall, Update,
    Urgency, Writer,
};
use shuttle::sync::Arc;
use shuttle::thread;
use shuttle::{Config, FailurePersistence, Runner, scheduler::PctScheduler, scheduler::RandomScheduler};
use std::sync::Mutex;
use support::nodes::Shelf;

/// Tables end before this offset, content starts there: pools of the sizes below have less than 2 MiB of
/// tables.
const FRAMES_AT: usize = 2 << 20;
const TABLE_WORDS: usize = 32 << 10;
const OWNER: OwnerId = OwnerId(0);
const RANDOM_RUNS: usize = 400;
const PRIORITY_RUNS: usize = 400;

struct ModelWord(shuttle::sync::atomic::AtomicU64);

impl Atomic for ModelWord {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }
    fn compare_exchange(&self, current: u64, new: u64, done: Ordering, failed: Ordering) -> Result<u64, u64> {
        self.0.compare_exchange(current, new, done, failed)
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_add(value, order)
    }
    fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_sub(value, order)
    }
    fn fetch_and(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_and(value, order)
    }
    fn fetch_or(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_or(value, order)
    }
    fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_max(value, order)
    }
}

struct ModelMemory {
    words: Vec<ModelWord>,
    frames: Mutex<Vec<u8>>,
}

impl ModelMemory {
    fn new(config: &PoolConfig) -> Self {
        let word = |_| ModelWord(shuttle::sync::atomic::AtomicU64::new(0));
        let content_bytes = config.memory_bytes().unwrap() - FRAMES_AT;
        Self { words: (0..TABLE_WORDS).map(word).collect(), frames: Mutex::new(vec![0; content_bytes]) }
    }
}

impl Memory for ModelMemory {
    type Word = ModelWord;

    fn length_bytes(&self) -> usize {
        FRAMES_AT + self.frames.lock().unwrap().len()
    }
    fn words(&self, offset_bytes: usize, count: usize) -> Option<&[ModelWord]> {
        self.words.get(offset_bytes / 8..offset_bytes / 8 + count)
    }
    fn copy_out(&self, offset_bytes: usize, out: &mut [u8]) -> bool {
        let middle = out.len() / 2;
        let copy = |part: Range<usize>, out: &mut [u8]| {
            let start = offset_bytes - FRAMES_AT;
            out.copy_from_slice(&self.frames.lock().unwrap()[start + part.start..start + part.end]);
        };
        copy(0..middle, &mut out[..middle]);
        thread::yield_now();
        copy(middle..out.len(), &mut out[middle..]);
        true
    }
    fn copy_in(&self, offset_bytes: usize, bytes: &[u8]) -> bool {
        let (start, middle) = (offset_bytes - FRAMES_AT, bytes.len() / 2);
        let copy = |from: usize, part: &[u8]| {
            self.frames.lock().unwrap()[from..from + part.len()].copy_from_slice(part);
        };
        copy(start, &bytes[..middle]);
        thread::yield_now();
        copy(start + middle, &bytes[middle..]);
        true
    }
    fn wait(&self, _: usize, _: u32, _: u64) {
        thread::yield_now();
    }
    fn release(&self, range_bytes: Range<usize>) {
        thread::yield_now();
        self.frames.lock().unwrap()[range_bytes.start - FRAMES_AT..range_bytes.end - FRAMES_AT].fill(0);
    }
}

struct ModelFile(Mutex<Vec<u8>>);

impl BlockFile for ModelFile {
    fn read_at(&self, offset_bytes: u64, out: &mut [u8]) -> Result<(), BlockError> {
        thread::yield_now();
        out.copy_from_slice(&self.0.lock().unwrap()[offset_bytes as usize..][..out.len()]);
        Ok(())
    }
    fn write_at(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), BlockError> {
        thread::yield_now();
        self.0.lock().unwrap()[offset_bytes as usize..][..bytes.len()].copy_from_slice(bytes);
        thread::yield_now();
        Ok(())
    }
}

struct World {
    pool: Pool<ModelMemory>,
    file: ModelFile,
}

impl World {
    fn new(frames: usize, blocks: usize) -> Arc<Self> {
        Self::with_capacity(frames, frames, blocks)
    }
    /// One whose limit could be raised to `capacity` frames.
    fn with_capacity(frames: usize, capacity: usize, blocks: usize) -> Arc<Self> {
        Self::with(frames, capacity, blocks, NodesConfig::default())
    }
    fn with(frames: usize, capacity: usize, blocks: usize, nodes: NodesConfig) -> Arc<Self> {
        let config = PoolConfig {
            limit: bytes(frames),
            capacity: bytes(capacity),
            disk: bytes(blocks),
            nodes,
            owners: 3,
            seed: 1,
        };
        let pool = Pool::create(ModelMemory::new(&config), &config).unwrap();
        Arc::new(Self { pool, file: ModelFile(Mutex::new(vec![0; blocks * SLAB_BYTES])) })
    }
    fn store(&self, number: u64) -> Place {
        Writer::new(OWNER).store(&self.pool, &page(number), Epoch::FIRST).unwrap()
    }
    fn check(&self, place: Place, number: u64) {
        let mut out = [0; PAGE_BYTES];
        Reader::new(&self.file).load(&self.pool, place, &mut out).unwrap();
        assert!(out == page(number), "page {number} holds something else");
    }
    fn free(&self, place: Place) {
        assert_eq!(self.pool.free(place, OWNER, Epoch::NONE), FreeOutcome::Freed);
    }
    /// Nothing is left but slabs that are being filled, and those neither once the owner is released.
    fn check_empty(&self) {
        let usage = self.pool.usage();
        assert_eq!((usage.stored_pages.get(), usage.stored_bytes.get(), usage.disk_bytes.get()), (0, 0, 0));
        assert!(usage.slab_bytes_in_memory.get() <= SLAB_BYTES as u64, "an empty slab was not given back");
        self.pool.release_owner(OWNER);
        assert_eq!(self.pool.usage().slab_bytes_in_memory.get(), 0);
    }
}

fn bytes(slabs: usize) -> ByteCount {
    ByteCount::new((slabs * SLAB_BYTES) as u64)
}

/// A page that no compressor shortens, so that a slab holds 64 of them.
fn page(number: u64) -> PageBytes {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut page = [0; PAGE_BYTES];
    for word in page.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    page
}

fn explore(scenario: fn()) {
    explore_changes(3, PRIORITY_RUNS, scenario);
}

/// With so many changes of thread where a schedule by priorities would make none.
fn explore_changes(changes: usize, priority_runs: usize, scenario: fn()) {
    let mut config = Config::new();
    config.stack_size = 256 << 10;
    config.failure_persistence = FailurePersistence::Print;
    Runner::new(RandomScheduler::new(RANDOM_RUNS), config.clone()).run(scenario);
    Runner::new(PctScheduler::new(changes, priority_runs), config).run(scenario);
}

#[test]
fn writers_that_fill_a_slab_and_empty_it_at_once_lose_no_page_and_no_slab() {
    explore(|| {
        let world = World::new(3, 0);
        let fill: Vec<Place> = (0..63).map(|number| world.store(number)).collect();
        let (early, late) = fill.split_at(32);
        let (early, late) = (early.to_vec(), late.to_vec());
        let storer = |number: u64| {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let places = [world.store(number), world.store(number + 1)];
                world.check(places[0], number);
                places
            })
        };
        let freer = |places: Vec<Place>| {
            let world = Arc::clone(&world);
            thread::spawn(move || places.into_iter().for_each(|place| world.free(place)))
        };
        let (one, two, three, four) = (storer(100), storer(200), freer(early), freer(late));
        three.join().unwrap();
        four.join().unwrap();
        for (handle, number) in [(one, 100), (two, 200)] {
            let places = handle.join().unwrap();
            world.check(places[0], number);
            world.check(places[1], number + 1);
            places.into_iter().for_each(|place| world.free(place));
        }
        world.check_empty();
    });
}

#[test]
fn a_slab_that_empties_while_another_takes_its_place_is_given_back() {
    explore(|| {
        let world = World::new(2, 0);
        let full: Vec<Place> = (0..64).map(|number| world.store(number)).collect();
        let freer = {
            let world = Arc::clone(&world);
            thread::spawn(move || full.into_iter().for_each(|place| world.free(place)))
        };
        let place = world.store(100);
        freer.join().unwrap();
        world.check(place, 100);
        assert_eq!(world.pool.usage().slab_bytes_in_memory.get(), SLAB_BYTES as u64);
        world.free(place);
        world.check_empty();
    });
}

/// A thread that frees one page and changes another, number 1, to number 501, in place or not. Gives the
/// latter's place.
fn free_and_change(world: &Arc<World>, freed: Place, changed: Place) -> thread::JoinHandle<Place> {
    let world = Arc::clone(world);
    thread::spawn(move || {
        world.free(freed);
        let mut writer = Box::new(Writer::new(OWNER));
        match writer.update(&world.pool, changed, &page(501), Epoch::FIRST, Epoch::NONE) {
            Ok(Update::InPlace(place)) => place,
            Ok(Update::Moved { new }) => {
                world.check(changed, 1);
                world.free(changed);
                new
            }
            other => panic!("{other:?}"),
        }
    })
}

#[test]
fn readers_and_writers_that_a_move_overtakes_find_the_right_bytes() {
    explore(|| {
        let world = World::new(2, 3);
        // Two slabs, so that the pool is past its threshold: one full, one being filled.
        let places: Vec<Place> = (0..66).map(|number| world.store(number)).collect();
        let (first, second, third, last) = (places[0], places[1], places[2], places[65]);
        let reader = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.check(first, 0);
                world.check(last, 65);
            })
        };
        let writer = free_and_change(&world, third, second);
        let mover = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                Mover::new(&world.pool).step(&world.pool, &world.file, &mut NoNodes);
            })
        };
        reader.join().unwrap();
        let second = writer.join().unwrap();
        mover.join().unwrap();
        world.check(second, 501);
        for (number, place) in places.iter().enumerate().filter(|(number, _)| *number != 1 && *number != 2) {
            world.check(*place, number as u64);
            world.free(*place);
        }
        world.free(second);
        world.check_empty();
    });
}

#[test]
fn an_owner_released_while_its_slabs_move_leaves_nothing() {
    explore(|| {
        let world = World::new(2, 2);
        let _: Vec<Place> = (0..66).map(|number| world.store(number)).collect();
        let mover = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                Mover::new(&world.pool).step(&world.pool, &world.file, &mut NoNodes);
            })
        };
        world.pool.release_owner(OWNER);
        mover.join().unwrap();
        world.check_empty();
        world.check(world.store(7), 7);
    });
}

#[test]
fn of_two_that_take_the_last_slab_at_the_same_time_none_exceeds_the_limit_or_keeps_what_it_gave_up() {
    explore(|| {
        // The slab in use is above the limit: of those that may be used, so many are free that all could take
        // one.
        let world = World::with_capacity(3, 3, 0);
        let below: Vec<Place> = (0..128).map(|number| world.store(number)).collect();
        world.store(128);
        below.into_iter().for_each(|place| world.free(place));
        world.pool.set_limit(bytes(2)).unwrap();
        let storer = |owner: u16| {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let mut writer = Box::new(Writer::new(OwnerId(owner)));
                writer.store(&world.pool, &page(500), Epoch::FIRST).ok()
            })
        };
        let (one, two) = (storer(1), storer(2));
        let stored = [one.join().unwrap(), two.join().unwrap()];
        assert!(world.pool.usage().slab_bytes_in_memory <= bytes(2), "{stored:?}");
        // What was refused because both tried is to be had for a thread that tries alone.
        let is_any = stored.iter().any(Option::is_some);
        assert!(is_any || Writer::new(OwnerId(1)).store(&world.pool, &page(501), Epoch::FIRST).is_ok());
        stored.into_iter().flatten().for_each(|place| world.check(place, 500));
        [OWNER, OwnerId(1), OwnerId(2)].into_iter().for_each(|owner| world.pool.release_owner(owner));
        assert_eq!(world.pool.usage().slab_bytes_in_memory.get(), 0);
    });
}

#[test]
fn who_took_a_slab_above_a_limit_that_fell_meanwhile_gives_it_back_when_another_has_the_one_below() {
    explore(|| {
        let world = World::with_capacity(2, 2, 0);
        let storer = |owner: u16| {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let mut writer = Box::new(Writer::new(OwnerId(owner)));
                writer.store(&world.pool, &page(500), Epoch::FIRST).is_ok()
            })
        };
        let one = storer(1);
        world.pool.set_limit(bytes(1)).unwrap();
        let two = storer(2);
        let stored = [one.join().unwrap(), two.join().unwrap()].into_iter().filter(|&is| is).count();
        assert_eq!(world.pool.usage().slab_bytes_in_memory, bytes(stored));
        assert!(stored <= 1, "both are above the limit");
    });
}

#[test]
fn a_limit_lowered_while_pages_are_stored_holds_from_the_next_slab_on() {
    explore(|| {
        let world = World::with_capacity(3, 3, 0);
        let _: Vec<Place> = (0..64).map(|number| world.store(number)).collect();
        let storer = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                Writer::new(OwnerId(1)).store(&world.pool, &page(500), Epoch::FIRST).is_ok()
            })
        };
        world.pool.set_limit(bytes(1)).unwrap();
        let is_stored = storer.join().unwrap();
        let slabs = if is_stored { 2 } else { 1 };
        assert_eq!(world.pool.usage().slab_bytes_in_memory, bytes(slabs));
        assert!(Writer::new(OwnerId(0)).store(&world.pool, &page(501), Epoch::FIRST).is_err());
    });
}

/// Two slabs, the first of them on disk and read from, with room for it. Their pages, and the mover.
fn about_to_rise(world: &World) -> (Vec<Place>, Mover) {
    let places: Vec<Place> = (0..66).map(|number| world.store(number)).collect();
    let mut mover = Mover::new(&world.pool);
    assert_eq!(
        mover.step(&world.pool, &world.file, &mut NoNodes),
        StepOutcome::Moved { slabs: 1, written: bytes(1) }
    );
    world.pool.set_limit(bytes(4)).unwrap();
    (0..4).for_each(|number| world.check(places[number], number as u64));
    (places, mover)
}

#[test]
fn readers_and_writers_that_a_return_from_disk_overtakes_find_the_right_bytes() {
    explore(|| {
        let world = World::with_capacity(2, 4, 3);
        let (places, mut mover) = about_to_rise(&world);
        let (first, second, third, last) = (places[0], places[1], places[2], places[63]);
        let reader = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.check(first, 0);
                world.check(last, 63);
            })
        };
        let writer = free_and_change(&world, third, second);
        let raiser = {
            let world = Arc::clone(&world);
            thread::spawn(move || mover.raise(&world.pool, &world.file, &mut NoNodes))
        };
        reader.join().unwrap();
        let second = writer.join().unwrap();
        if let StepOutcome::Raised { .. } = raiser.join().unwrap() {
            assert_eq!(world.pool.usage().disk_bytes.get(), 0);
        }
        world.check(second, 501);
        for (number, place) in places.iter().enumerate().filter(|(number, _)| *number != 1 && *number != 2) {
            world.check(*place, number as u64);
            world.free(*place);
        }
        world.free(second);
        world.check_empty();
    });
}

#[test]
fn an_owner_released_while_its_slabs_come_back_leaves_nothing() {
    explore(|| {
        let world = World::with_capacity(2, 4, 3);
        let (_, mut mover) = about_to_rise(&world);
        let raiser = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                mover.raise(&world.pool, &world.file, &mut NoNodes);
            })
        };
        world.pool.release_owner(OWNER);
        raiser.join().unwrap();
        world.check_empty();
        world.check(world.store(7), 7);
    });
}

/// Another thread, which takes what an owner that ends leaves free: the pages that could be stored.
fn bystander(world: &Arc<World>) -> thread::JoinHandle<Vec<(Place, u64)>> {
    let world = Arc::clone(world);
    thread::spawn(move || {
        let mut writer = Box::new(Writer::new(OwnerId(1)));
        let mut store = |number| Some((writer.store(&world.pool, &page(number), Epoch::FIRST).ok()?, number));
        (500..504).filter_map(&mut store).collect()
    })
}

/// What the bystander stored is there, and nothing else.
fn check_bystander(world: &World, stored: Vec<(Place, u64)>) {
    for (place, number) in stored {
        world.check(place, number);
        assert_eq!(world.pool.free(place, OwnerId(1), Epoch::NONE), FreeOutcome::Freed);
    }
    world.pool.release_owner(OwnerId(1));
    world.check_empty();
}

#[test]
fn what_an_owner_that_ends_while_its_slabs_move_leaves_free_is_somebody_else_s_at_once() {
    explore_changes(6, 10 * PRIORITY_RUNS, || {
        let world = World::new(2, 2);
        let _: Vec<Place> = (0..66).map(|number| world.store(number)).collect();
        let mover = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                Mover::new(&world.pool).step(&world.pool, &world.file, &mut NoNodes);
            })
        };
        let bystander = bystander(&world);
        world.pool.release_owner(OWNER);
        mover.join().unwrap();
        check_bystander(&world, bystander.join().unwrap());
    });
}

#[test]
fn what_an_owner_that_ends_while_its_slabs_come_back_leaves_free_is_somebody_else_s_at_once() {
    explore_changes(6, 10 * PRIORITY_RUNS, || {
        let world = World::with_capacity(2, 4, 3);
        let (_, mut mover) = about_to_rise(&world);
        let raiser = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                mover.raise(&world.pool, &world.file, &mut NoNodes);
            })
        };
        let bystander = bystander(&world);
        world.pool.release_owner(OWNER);
        raiser.join().unwrap();
        check_bystander(&world, bystander.join().unwrap());
    });
}

#[test]
fn what_an_owner_that_ends_while_its_spare_slabs_are_given_back_leaves_free_is_somebody_else_s_at_once() {
    explore(|| {
        let world = World::new(2, 0);
        world.pool.announce_packer();
        let places: Vec<Place> = (0..65).map(|number| world.store(number)).collect();
        places[..64].iter().for_each(|&place| world.free(place));
        let packer = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.pool.give_back_spare())
        };
        let bystander = bystander(&world);
        world.pool.release_owner(OWNER);
        packer.join().unwrap();
        check_bystander(&world, bystander.join().unwrap());
    });
}

/// A caller whose patience is counted in questions.
struct Asking {
    owner: OwnerId,
    patience: std::cell::Cell<u32>,
}

impl Asking {
    fn new(owner: OwnerId, patience: u32) -> Self {
        Self { owner, patience: std::cell::Cell::new(patience) }
    }
}

impl Caller for Asking {
    fn owner(&self) -> OwnerId {
        self.owner
    }
    fn processor(&self) -> usize {
        0
    }
    fn now_ns(&self) -> u64 {
        0
    }
    fn is_patient(&self, _: u64) -> bool {
        self.patience.set(self.patience.get().saturating_sub(1));
        self.patience.get() > 0
    }
}

/// Two slabs, the first of them on a node; its pages, and what the node holds.
fn on_node(entries: u16) -> (Arc<World>, Vec<Place>, Shelf) {
    on_node_beside(0, entries)
}

/// The same with a disk of so many blocks.
fn on_node_beside(disk: usize, entries: u16) -> (Arc<World>, Vec<Place>, Shelf) {
    let nodes = NodesConfig { alone: bytes(3), lanes: 1, entries, ..NodesConfig::default() };
    let world = World::with(2, 2, disk, nodes);
    let places: Vec<Place> = (0..66).map(|number| world.store(number)).collect();
    let mut shelf = Shelf::new(3);
    let moved = Mover::new(&world.pool).step(&world.pool, &world.file, &mut shelf);
    assert_eq!(moved, StepOutcome::Moved { slabs: 1, written: bytes(1) });
    (world, places, shelf)
}

/// A thread that answers calls.
struct Carrier {
    ends: Arc<shuttle::sync::atomic::AtomicBool>,
    thread: thread::JoinHandle<()>,
}

impl Carrier {
    fn start(world: &Arc<World>, shelf: &Shelf) -> Self {
        Self::start_with(world, shelf, |shelf, pool, taken| shelf.serve(pool, taken))
    }
    /// One that answers in its own way.
    fn start_with(
        world: &Arc<World>,
        shelf: &Shelf,
        serve: fn(&Shelf, &Pool<ModelMemory>, &TakenCall),
    ) -> Self {
        let ends = Arc::new(shuttle::sync::atomic::AtomicBool::new(false));
        let (world, shelf, told) = (Arc::clone(world), shelf.clone(), Arc::clone(&ends));
        let thread = thread::spawn(move || {
            while !told.load(Ordering::SeqCst) {
                match world.pool.take_call(0) {
                    Some(taken) => serve(&shelf, &world.pool, &taken),
                    None => world.pool.wait_for_call(0, 1),
                }
            }
        });
        Self { ends, thread }
    }
    fn end(self) {
        self.ends.store(true, Ordering::SeqCst);
        self.thread.join().unwrap();
    }
}

fn load(world: &World, caller: Asking, place: Place) -> Result<PageBytes, LoadError> {
    let mut out = [0; PAGE_BYTES];
    let mut reader = Box::new(Reader::with_nodes(&world.file, caller));
    reader.load(&world.pool, place, &mut out).map(|_| out)
}

#[test]
fn readers_that_call_at_once_and_displace_each_others_pages_find_the_right_bytes() {
    explore(|| {
        // One entry: a thread that fetches displaces what another is about to copy.
        let (world, places, shelf) = on_node(1);
        let reader = |nth: usize, owner: u16| {
            let (world, place) = (Arc::clone(&world), places[nth]);
            thread::spawn(move || match load(&world, Asking::new(OwnerId(owner), 10_000), place) {
                Ok(found) => assert!(found == page(nth as u64), "page {nth} holds something else"),
                // Displaced until its patience ended: nothing but chance keeps two from taking the only entry
                // from each other for ever.
                Err(error) => assert_eq!(error, LoadError::Io),
            })
        };
        let (one, two) = (reader(3, 1), reader(40, 2));
        let carrier = Carrier::start(&world, &shelf);
        one.join().unwrap();
        two.join().unwrap();
        carrier.end();
    });
}

#[test]
fn a_reader_that_gives_up_while_it_is_served_takes_nobody_elses_answer() {
    explore(|| {
        let (world, places, shelf) = on_node(2);
        let hasty = {
            let (world, place) = (Arc::clone(&world), places[3]);
            thread::spawn(move || match load(&world, Asking::new(OwnerId(1), 3), place) {
                Ok(found) => assert!(found == page(3)),
                Err(error) => assert_eq!(error, LoadError::Io),
            })
        };
        let patient = {
            let (world, place) = (Arc::clone(&world), places[40]);
            thread::spawn(move || {
                assert!(load(&world, Asking::new(OwnerId(2), 100_000), place).unwrap() == page(40));
            })
        };
        let carrier = Carrier::start(&world, &shelf);
        hasty.join().unwrap();
        patient.join().unwrap();
        carrier.end();
        assert!(world.pool.take_call(0).is_none(), "a call was left behind");
    });
}

#[test]
fn a_node_lost_while_it_is_read_gives_the_right_page_or_none() {
    explore(|| {
        let (world, places, shelf) = on_node(2);
        let reader = {
            let (world, place) = (Arc::clone(&world), places[3]);
            thread::spawn(move || match load(&world, Asking::new(OwnerId(1), 100_000), place) {
                Ok(found) => assert!(found == page(3)),
                Err(error) => assert_eq!(error, LoadError::Lost),
            })
        };
        let loser = {
            let (world, shelf) = (Arc::clone(&world), shelf.clone());
            thread::spawn(move || shelf.lose(&world.pool))
        };
        let carrier = Carrier::start(&world, &shelf);
        loser.join().unwrap();
        reader.join().unwrap();
        carrier.end();
    });
}

#[test]
fn readers_that_a_way_from_a_node_to_disk_overtakes_find_the_right_bytes() {
    explore(|| {
        let (world, places, mut shelf) = on_node_beside(1, 2);
        let reader = {
            let (world, place) = (Arc::clone(&world), places[3]);
            thread::spawn(move || {
                assert!(load(&world, Asking::new(OwnerId(1), 100_000), place).unwrap() == page(3));
            })
        };
        let writer = {
            let (world, freed) = (Arc::clone(&world), places[2]);
            thread::spawn(move || world.free(freed))
        };
        let carrier = Carrier::start(&world, &shelf);
        let mut mover = Mover::new(&world.pool);
        // A thread that frees a page at the same moment keeps it from being taken.
        while mover.lower(&world.pool, &world.file, &mut shelf, |_| true) == StepOutcome::Idle {
            thread::yield_now();
        }
        reader.join().unwrap();
        writer.join().unwrap();
        carrier.end();
        // Nothing of it is on nodes any more.
        shelf.lose(&world.pool);
        world.check(places[3], 3);
        assert_eq!(world.pool.usage().node_bytes.get(), 0);
    });
}

#[test]
fn readers_that_a_way_to_the_block_s_own_place_on_disk_overtakes_find_the_right_bytes() {
    explore(|| {
        // Every block has a place on disk, which could not be written when its content went to a node.
        let nodes = NodesConfig { alone: bytes(0), lanes: 1, entries: 2, ..NodesConfig::default() };
        let world = World::with(2, 2, 3, nodes);
        let places: Vec<Place> = (0..66).map(|number| world.store(number)).collect();
        let mut shelf = Shelf::new(3);
        let moved = Mover::new(&world.pool).step(&world.pool, &NullFile, &mut shelf);
        assert!(matches!(moved, StepOutcome::DiskFailing { .. }));
        let reader = {
            let (world, place) = (Arc::clone(&world), places[3]);
            thread::spawn(move || {
                assert!(load(&world, Asking::new(OwnerId(1), 100_000), place).unwrap() == page(3));
            })
        };
        let carrier = Carrier::start(&world, &shelf);
        let lowered = Mover::new(&world.pool).lower(&world.pool, &world.file, &mut shelf, |_| true);
        assert_eq!(lowered, StepOutcome::Moved { slabs: 1, written: bytes(1) });
        shelf.lose(&world.pool);
        reader.join().unwrap();
        carrier.end();
    });
}

#[test]
fn an_owner_released_while_its_slabs_go_from_a_node_to_disk_leaves_nothing() {
    explore(|| {
        let (world, _, mut shelf) = on_node_beside(1, 2);
        let lowering = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                Mover::new(&world.pool).lower(&world.pool, &world.file, &mut shelf, |_| true);
            })
        };
        world.pool.release_owner(OWNER);
        lowering.join().unwrap();
        world.check_empty();
    });
}

/// Fetches ahead, and gives that up when another thread has come to wait for it. Much time passes.
struct Holder {
    asking: Asking,
    is_waited: Arc<shuttle::sync::atomic::AtomicBool>,
    now_ns: std::cell::Cell<u64>,
}

impl Caller for Holder {
    fn owner(&self) -> OwnerId {
        self.asking.owner()
    }
    fn processor(&self) -> usize {
        self.asking.processor()
    }
    fn now_ns(&self) -> u64 {
        self.now_ns.set(self.now_ns.get() + 1_000_000);
        self.now_ns.get()
    }
    fn is_patient(&self, waited_ns: u64) -> bool {
        self.asking.is_patient(waited_ns)
    }
    fn is_awaited(&self) -> bool {
        self.is_waited.load(Ordering::SeqCst)
    }
}

/// A page that one thread fetches ahead, and that another comes to wait for at some moment: whatever the
/// carrier does with it, and whatever else is asked for, the page comes.
fn come_to_wait(serve: fn(&Shelf, &Pool<ModelMemory>, &TakenCall)) {
    let (world, places, shelf) = on_node(2);
    let is_waited = Arc::new(shuttle::sync::atomic::AtomicBool::new(false));
    let holder = {
        let (world, place, is_waited) = (Arc::clone(&world), places[3], Arc::clone(&is_waited));
        thread::spawn(move || {
            let mut out = [0; PAGE_BYTES];
            let asking = Asking::new(OwnerId(1), 100_000);
            let holder = Holder { asking, is_waited, now_ns: std::cell::Cell::new(0) };
            let mut reader = Box::new(Reader::with_nodes(&world.file, holder));
            match reader.load_for(&world.pool, place, &mut out, Urgency::Ahead) {
                Ok(_) => assert!(out == page(3)),
                // It lets the page go, and a thread that waits asks for it, in the same call perhaps.
                Err(error) => {
                    assert_eq!(error, LoadError::Later);
                    assert!(load(&world, Asking::new(OwnerId(1), 100_000), place).unwrap() == page(3));
                }
            }
        })
    };
    let other = {
        let (world, place) = (Arc::clone(&world), places[40]);
        thread::spawn(move || {
            assert!(load(&world, Asking::new(OwnerId(2), 100_000), place).unwrap() == page(40));
        })
    };
    let carrier = Carrier::start_with(&world, &shelf, serve);
    is_waited.store(true, Ordering::SeqCst);
    holder.join().unwrap();
    other.join().unwrap();
    carrier.end();
    assert!(world.pool.take_call(0).is_none(), "a call was left behind");
}

#[test]
fn who_comes_to_wait_for_what_is_dropped_at_that_moment_gets_the_page() {
    explore(|| {
        come_to_wait(|shelf, pool, taken| match taken.is_ahead {
            true => pool.answer(taken, Answer::Late),
            false => shelf.serve(pool, taken),
        });
    });
}

#[test]
fn who_comes_to_wait_for_what_is_under_way_at_that_moment_gets_the_page() {
    explore(|| come_to_wait(Shelf::serve));
}

#[test]
fn what_is_slow_while_nobody_waits_is_given_up_when_somebody_does() {
    explore(|| {
        come_to_wait(|shelf, pool, taken| {
            for _ in 0..30 {
                if taken.is_ahead && pool.is_awaited(taken) {
                    pool.wait_for_call(0, 1);
                }
            }
            // It is answered late, and as a rule to nobody.
            shelf.serve(pool, taken);
        });
    });
}
