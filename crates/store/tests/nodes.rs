//! Slabs on memory nodes: where they go, what is read of them, and what is left when nodes are lost.

mod support;

use farmem_page::{ByteCount, PAGE_BYTES, PageBytes, Place};
use farmem_store::{
    BlockError, BlockFile, Call, Caller, Epoch, LoadError, Mover, NodesConfig, NullFile, Origin, OwnerId,
    Pool, PoolConfig, Reader, SLAB_BYTES, StepOutcome, Update, Urgency, Writer,
};
use farmem_sys::shared::SharedMemory;
use std::sync::atomic::{AtomicBool, Ordering};
use support::nodes::{Shelf, Waiting};
use support::{MemoryFile, config, page};

const ONE: OwnerId = OwnerId(1);
const FRAMES: usize = 10;
const SLABS: usize = 24;
/// Longer than anything takes.
const PATIENT_NS: u64 = 60_000_000_000;

fn pool(disk: usize, alone: usize) -> Pool<SharedMemory> {
    let alone = ByteCount::new((alone * SLAB_BYTES) as u64);
    let config = PoolConfig {
        nodes: NodesConfig { alone, lanes: 2, entries: 4, ..NodesConfig::default() },
        ..config(FRAMES, disk)
    };
    let memory = SharedMemory::create(c"farmem-test-pool", config.memory_bytes().unwrap()).unwrap();
    Pool::create(memory, &config).unwrap()
}

struct World {
    pool: Pool<SharedMemory>,
    file: MemoryFile,
    shelf: Shelf,
    mover: Mover,
    places: Vec<Place>,
}

impl World {
    /// Far more pages than there are frames for, so that most have left memory.
    fn filled(disk: usize, alone: usize, capacity: usize) -> Self {
        let pool = pool(disk, alone);
        let mover = Mover::new(&pool);
        let mut world = Self {
            pool,
            file: MemoryFile::new(disk),
            shelf: Shelf::new(capacity),
            mover,
            places: Vec::new(),
        };
        let mut writer = Box::new(Writer::new(ONE));
        while world.places.len() < SLABS * 64 {
            match writer.store(&world.pool, &content(world.places.len()), Epoch::FIRST) {
                Ok(place) => world.places.push(place),
                Err(_) => assert!(matches!(world.step(), StepOutcome::Moved { .. }), "the pool is full"),
            }
        }
        world
    }
    fn step(&mut self) -> StepOutcome {
        self.mover.step(&self.pool, &self.file, &mut self.shelf)
    }
    /// Reads all pages with a carrier at work; those that could be had, each of them checked, and how the
    /// others failed.
    fn read_all(&self) -> (usize, Vec<LoadError>) {
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (shelf, pool, ends) = (&self.shelf, &self.pool, &ends);
            scope.spawn(move || shelf.carry(pool, ends));
            let mut reader = Box::new(Reader::with_nodes(&self.file, Waiting::new(ONE, PATIENT_NS)));
            let mut page = [0; PAGE_BYTES];
            let (mut right, mut failures) = (0, Vec::new());
            for (number, place) in self.places.iter().enumerate() {
                match reader.load(&self.pool, *place, &mut page) {
                    Ok(_) => {
                        assert!(page == content(number), "page {number} holds something else");
                        right += 1;
                    }
                    Err(error) => failures.push(error),
                }
            }
            ends.store(true, Ordering::SeqCst);
            (right, failures)
        })
    }
}

/// Pages that no compressor shortens, but for some.
fn content(number: usize) -> PageBytes {
    page(number as u64, if number.is_multiple_of(5) { 1000 } else { PAGE_BYTES - 8 })
}

#[test]
fn what_the_pool_cannot_hold_goes_to_nodes_and_is_read_from_there() {
    let world = World::filled(0, SLABS, SLABS);
    let usage = world.pool.usage();
    assert!(
        usage.node_bytes.get() >= 12 * SLAB_BYTES as u64 && usage.disk_bytes == ByteCount::ZERO,
        "{usage:?}"
    );
    let (right, failures) = world.read_all();
    assert_eq!((right, failures), (SLABS * 64, vec![]));
    let usage = world.pool.usage();
    assert!(usage.buffer_hits > usage.fetches * 2, "neighbours are in the buffer: {usage:?}");
    assert_eq!(usage.fetches, world.shelf.fetched_spans.load(Ordering::SeqCst) as u64);
}

#[test]
fn with_a_disk_that_has_room_for_all_every_slab_is_in_both_places_and_survives_the_nodes() {
    let world = World::filled(SLABS, 0, SLABS);
    let usage = world.pool.usage();
    assert_eq!(usage.node_bytes, usage.disk_bytes);
    assert!(usage.node_bytes.get() > 0);
    world.shelf.lose(&world.pool);
    assert_eq!(world.pool.usage().node_bytes, ByteCount::ZERO);
    assert_eq!(world.read_all(), (SLABS * 64, vec![]));
}

#[test]
fn without_a_disk_exactly_the_pages_of_lost_nodes_are_lost() {
    let world = World::filled(0, SLABS, SLABS);
    let away = world.pool.usage().node_pages.get() as usize;
    world.shelf.lose(&world.pool);
    assert_eq!(world.pool.usage().lost_slabs * SLAB_BYTES, world.pool.away_slabs().0 * SLAB_BYTES);
    let (right, failures) = world.read_all();
    assert_eq!((right, failures.len()), (SLABS * 64 - away, away));
    assert!(failures.iter().all(|error| *error == LoadError::Lost));
}

#[test]
fn a_page_that_is_at_hand_is_stored_anew_when_the_nodes_that_had_it_are_lost() {
    let world = World::filled(0, SLABS, SLABS);
    let (pool, place) = (&world.pool, world.places[1]);
    assert!(pool.is_on_nodes_alone(place));
    let mut writer = Box::new(Writer::new(ONE));
    let mut update = || writer.update(pool, place, &content(1), Epoch::FIRST, Epoch::NONE);
    assert_eq!(update(), Ok(Update::Clean));
    world.shelf.lose(pool);
    let Ok(Update::Moved { new }) = update() else { panic!("nobody has the page") };
    let mut page = [0; PAGE_BYTES];
    assert!(Reader::new(NullFile).load(pool, new, &mut page).is_ok() && page == content(1));
    assert!(!pool.is_on_nodes_alone(place) && !pool.is_on_nodes_alone(new));
}

#[test]
fn a_page_that_is_on_disk_too_stays_as_it_is_when_its_nodes_are_lost() {
    let world = World::filled(SLABS, 0, SLABS);
    let (pool, place) = (&world.pool, world.places[1]);
    assert!(!pool.is_on_nodes_alone(place));
    world.shelf.lose(pool);
    let update = Writer::new(ONE).update(pool, place, &content(1), Epoch::FIRST, Epoch::NONE);
    assert_eq!(update, Ok(Update::Clean));
}

#[test]
fn what_nodes_do_not_take_goes_to_disk() {
    let world = World::filled(SLABS, SLABS, 5);
    let usage = world.pool.usage();
    assert_eq!(usage.node_bytes.get(), 5 * SLAB_BYTES as u64);
    assert!(usage.disk_bytes.get() >= 7 * SLAB_BYTES as u64);
    assert_eq!(world.read_all(), (SLABS * 64, vec![]));
}

#[test]
fn nodes_that_are_full_leave_the_pool_as_it_is() {
    let mut world = World::filled(0, SLABS, SLABS);
    world.shelf.capacity.store(0, Ordering::SeqCst);
    let mut writer = Box::new(Writer::new(ONE));
    let mut number = world.places.len();
    while let Ok(place) = writer.store(&world.pool, &content(number), Epoch::FIRST) {
        world.places.push(place);
        number += 1;
    }
    assert_eq!(world.step(), StepOutcome::Full);
    assert_eq!(world.read_all(), (number, vec![]));
}

#[test]
fn a_damaged_copy_is_asked_for_again_from_another_node_or_read_from_disk() {
    let world = World::filled(0, SLABS, SLABS);
    world.shelf.is_damaging.store(true, Ordering::SeqCst);
    assert_eq!(world.read_all(), (SLABS * 64, vec![]));
}

#[test]
fn a_slab_that_is_read_comes_back_from_its_node() {
    let mut world = World::filled(0, SLABS, SLABS);
    world.pool.set_limit(ByteCount::new((FRAMES * SLAB_BYTES) as u64)).unwrap();
    assert_eq!(world.read_all().0, SLABS * 64);
    // Half of what is in memory goes.
    let in_memory: Vec<Place> = world.places.split_off(world.places.len() - 6 * 64);
    for place in in_memory {
        world.pool.free(place, ONE, Epoch::NONE);
    }
    assert!(matches!(
        world.mover.raise(&world.pool, &world.file, &mut world.shelf),
        StepOutcome::Raised { .. }
    ));
    let (right, failures) = world.read_all();
    assert_eq!((right, failures), (world.places.len(), vec![]));
}

#[test]
fn who_gets_no_answer_gives_up_and_leaves_no_call_behind() {
    let world = World::filled(0, SLABS, SLABS);
    let mut reader = Box::new(Reader::with_nodes(&world.file, Waiting::new(ONE, 1)));
    let mut page = [0; PAGE_BYTES];
    for _ in 0..100 {
        assert_eq!(reader.load(&world.pool, world.places[1], &mut page), Err(LoadError::Io));
    }
    assert!((0..world.pool.lanes()).all(|lane| world.pool.take_call(lane).is_none()));
    assert_eq!(world.read_all(), (SLABS * 64, vec![]));
}

#[test]
fn a_process_that_dies_while_it_calls_holds_up_nobody() {
    let world = World::filled(0, SLABS, SLABS);
    // Its calls are asked, taken, and never looked at again.
    let (pool, place) = (&world.pool, world.places[1]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || {
                let dying = Waiting::new(OwnerId(2), 200_000_000);
                let mut reader = Box::new(Reader::with_nodes(NullFile, dying));
                let _ = reader.load(pool, place, &mut [0; PAGE_BYTES]);
            });
        }
        let taken = loop {
            if let Some(taken) = (0..2).find_map(|lane| pool.take_call(lane)) {
                break taken;
            }
        };
        pool.release_owner(OwnerId(2));
        // A late answer finds nobody.
        world.shelf.serve(pool, &taken);
    });
    assert_eq!(world.read_all(), (SLABS * 64, vec![]));
}

/// Answers calls of which the first twenty find their pages displaced.
fn carry_late(shelf: &Shelf, pool: &Pool<SharedMemory>, ends: &AtomicBool) {
    let mut displaced = 0;
    while !ends.load(Ordering::SeqCst) {
        let Some(taken) = (0..pool.lanes()).find_map(|lane| pool.take_call(lane)) else {
            std::thread::yield_now();
            continue;
        };
        if displaced == 20 {
            shelf.serve(pool, &taken);
            continue;
        }
        displaced += 1;
        let content = [0; PAGE_BYTES];
        let fill = |call: &Call| pool.fill(pool.begin_fill().unwrap(), call, ONE, &content);
        let pages = Call { count: 1, ..taken.call };
        let answer = fill(&pages);
        for other in 1..=4 {
            let _displaces = fill(&Call { block: pages.block + other, ..pages });
        }
        pool.answer(&taken, answer);
    }
}

#[test]
fn who_waits_gets_a_page_that_others_displace_time_and_again() {
    let world = World::filled(0, SLABS, SLABS);
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (shelf, pool, ends) = (&world.shelf, &world.pool, &ends);
        scope.spawn(move || carry_late(shelf, pool, ends));
        let mut reader = Box::new(Reader::with_nodes(&world.file, Waiting::new(ONE, PATIENT_NS)));
        let mut page = [0; PAGE_BYTES];
        let ahead = reader.load_for(pool, world.places[1], &mut page, Urgency::Ahead);
        let awaited = reader.load(pool, world.places[1], &mut page);
        ends.store(true, Ordering::SeqCst);
        assert_eq!((ahead, awaited), (Err(LoadError::Later), Ok(Origin::Node)));
        assert!(page == content(1));
    });
}

/// A disk that takes nothing, and while it is asked to, the nodes are lost.
struct Losing<'a>(&'a Pool<SharedMemory>, Shelf);

impl BlockFile for Losing<'_> {
    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<(), BlockError> {
        Err(BlockError::Failed)
    }
    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), BlockError> {
        self.1.lose(self.0);
        Err(BlockError::Failed)
    }
}

#[test]
fn slabs_whose_nodes_are_lost_before_they_have_left_memory_stay_there() {
    let (pool, mut shelf) = (pool(SLABS, 0), Shelf::new(SLABS));
    let mut writer = Box::new(Writer::new(ONE));
    let places: Vec<Place> = (0..FRAMES * 64)
        .map_while(|number| writer.store(&pool, &content(number), Epoch::FIRST).ok())
        .collect();
    let frames = pool.slabs_in_memory();
    let file = Losing(&pool, shelf.clone());
    let outcome = Mover::new(&pool).step(&pool, &file, &mut shelf);
    assert!(matches!(outcome, StepOutcome::DiskFailing { .. }), "{outcome:?}");
    assert_eq!((pool.slabs_in_memory(), pool.away_slabs().0), (frames, 0));
    let mut reader = Reader::new(NullFile);
    let mut page = [0; PAGE_BYTES];
    for (number, place) in places.iter().enumerate() {
        assert!(reader.load(&pool, *place, &mut page).is_ok() && page == content(number));
    }
}

/// A caller whose thread ends where it is, as with its process.
struct Dying(Waiting);

impl Caller for Dying {
    fn owner(&self) -> OwnerId {
        self.0.owner()
    }
    fn processor(&self) -> usize {
        self.0.processor()
    }
    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }
    fn is_patient(&self, _: u64) -> bool {
        std::panic::resume_unwind(Box::new("as asked"))
    }
}

#[test]
fn calls_of_processes_that_died_are_free_again_though_what_they_stored_is_kept() {
    let world = World::filled(0, SLABS, SLABS);
    let (pool, place) = (&world.pool, world.places[1]);
    let died = OwnerId(2);
    let ask = || {
        let mut reader = Box::new(Reader::with_nodes(NullFile, Dying(Waiting::new(died, 0))));
        reader.load(pool, place, &mut [0; PAGE_BYTES])
    };
    // More than there are calls: those that find none die where they wait for one.
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..40).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().for_each(|thread| assert!(thread.join().is_err()));
    });
    let mut hasty = Box::new(Reader::with_nodes(NullFile, Waiting::new(ONE, 1)));
    assert_eq!(hasty.load(pool, place, &mut [0; PAGE_BYTES]), Err(LoadError::Io));
    assert!((0..2).flat_map(|lane| (0..16).map(move |_| lane)).all(|lane| pool.take_call(lane).is_some()));
    pool.cancel_calls(died);
    assert_eq!(world.read_all(), (SLABS * 64, vec![]));
}

#[test]
fn what_lies_on_nodes_alone_comes_to_disk_and_survives_the_nodes() {
    let mut world = World::filled(SLABS, SLABS, SLABS);
    let usage = world.pool.usage();
    assert!(
        usage.node_bytes.get() > 8 * SLAB_BYTES as u64 && usage.disk_bytes == ByteCount::ZERO,
        "{usage:?}"
    );
    let lower = |world: &mut World, least: usize| {
        world.mover.lower(&world.pool, &world.file, &mut world.shelf, |block| block >= least)
    };
    assert_eq!(lower(&mut world, usize::MAX), StepOutcome::Idle, "none is wanted");
    world.file.fails_in.set(0);
    assert!(matches!(lower(&mut world, 0), StepOutcome::DiskFailing { .. }));
    let now = world.pool.usage();
    assert_eq!((now.node_bytes, now.disk_bytes), (usage.node_bytes, ByteCount::ZERO), "all is as it was");
    world.file.fails_in.set(-1);
    while let StepOutcome::Moved { .. } = lower(&mut world, 0) {}
    let lowered = world.pool.usage();
    assert_eq!((lowered.node_bytes, lowered.disk_bytes), (ByteCount::ZERO, usage.node_bytes));
    world.shelf.lose(&world.pool);
    assert_eq!(world.read_all(), (SLABS * 64, vec![]));
    // Their blocks are free for others, and they come back from disk as any.
    assert_eq!(lower(&mut world, 0), StepOutcome::Idle);
    assert!(world.pool.is_disk_open());
}

#[test]
fn a_disk_that_is_too_small_takes_what_it_can_of_what_lies_on_nodes_alone() {
    let mut world = World::filled(3, SLABS, SLABS);
    let lower = |world: &mut World| world.mover.lower(&world.pool, &world.file, &mut world.shelf, |_| true);
    assert!(matches!(lower(&mut world), StepOutcome::Moved { slabs: 3, .. }));
    assert_eq!(lower(&mut world), StepOutcome::Full);
    assert!(!world.pool.is_disk_open());
    assert_eq!(world.pool.usage().disk_bytes.get(), 3 * SLAB_BYTES as u64);
    assert_eq!(world.read_all(), (SLABS * 64, vec![]));
}

#[test]
fn pages_are_right_while_their_slabs_go_from_nodes_to_disk() {
    let mut world = World::filled(SLABS, SLABS, SLABS);
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let World { pool, file, shelf, places, mover } = &mut world;
        let (pool, file, places, ends) = (&*pool, &*file, &*places, &ends);
        let mut nodes = shelf.clone();
        scope.spawn({
            let shelf = shelf.clone();
            move || shelf.carry(pool, ends)
        });
        let mut reader = Box::new(Reader::with_nodes(file, Waiting::new(ONE, PATIENT_NS)));
        let mut page = [0; PAGE_BYTES];
        for round in 0..3 {
            for (number, place) in places.iter().enumerate() {
                if number % 200 == 0 {
                    mover.lower(pool, file, &mut nodes, |block| block % 3 == round);
                }
                assert!(reader.load(pool, *place, &mut page).is_ok());
                assert!(page == content(number), "page {number} holds something else");
            }
        }
        ends.store(true, Ordering::SeqCst);
    });
    assert_eq!(world.pool.usage().node_bytes, ByteCount::ZERO);
}
