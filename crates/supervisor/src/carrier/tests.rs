//! The carrier over nodes that are memory of the test: cut, restarted, stalled, damaged, forgetful.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use farmem_broker::link_schedule::{Direction, Gate, LinkSchedule, Memory, Pass, Shared, Turn, Word, key_of};
use farmem_page::{PAGE_BYTES, PageBytes, Place};
use farmem_policy::links::Class;
use farmem_remote::{Roster, WrittenBy};
use farmem_store::{
    BlockError, BlockFile, Caller, Epoch, LoadError, Mover, OwnerId, Pool, PoolConfig, Reader, StepOutcome,
    Urgency, Writer,
};
use farmem_sys::shared::SharedMemory;
use farmem_transport::memory::MemoryNode;
use farmem_transport::trouble::Troubled;
use farmem_transport::{ClientIdentity, Failure, LinkError, RegionOffset, Request, Security, Travel};

use super::link::NodeLink;
use super::stock::Stock;
use super::*;
use crate::cluster::source::ClusterSource;
use crate::options::Bandwidth;

const OWNER: OwnerId = OwnerId(0);
const FRAMES: usize = 10;
/// Pages that no compressor shortens; the pool holds less than half of them.
const PAGES: usize = 24 * 64;
/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(60);

struct Waiting(Instant);

impl Caller for Waiting {
    fn owner(&self) -> OwnerId {
        OWNER
    }
    fn processor(&self) -> usize {
        0
    }
    fn now_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
    fn is_patient(&self, waited_ns: u64) -> bool {
        waited_ns < PATIENCE.as_nanos() as u64
    }
}

fn content(number: usize) -> PageBytes {
    let mut state = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut page = [0; PAGE_BYTES];
    for word in page.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    page
}

fn address(node: usize) -> NodeAddress {
    format!("unix:{node}").parse().unwrap()
}

/// A disk, or none where there is no room on it.
struct TestDisk(Mutex<Vec<u8>>);

impl TestDisk {
    fn at(bytes: &mut [u8], offset_bytes: u64, length: usize) -> Result<&mut [u8], BlockError> {
        bytes.get_mut(offset_bytes as usize..offset_bytes as usize + length).ok_or(BlockError::Full)
    }
}

impl BlockFile for TestDisk {
    fn read_at(&self, offset_bytes: u64, out: &mut [u8]) -> Result<(), BlockError> {
        let mut bytes = self.0.lock().unwrap();
        out.copy_from_slice(Self::at(&mut bytes, offset_bytes, out.len())?);
        Ok(())
    }
    fn write_at(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), BlockError> {
        let mut all = self.0.lock().unwrap();
        Self::at(&mut all, offset_bytes, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }
}

struct World {
    nodes: Vec<MemoryNode>,
    disk: TestDisk,
    pool: &'static SharedPool,
    carrier: &'static Carrier,
    writer: NodeWriter,
    mover: Mover,
    places: Vec<Place>,
    workers: Vec<Worker>,
}

impl World {
    /// Nodes with so many slabs each, and pages on them.
    fn filled(slabs: &[u32], redundancy: Redundancy) -> Self {
        Self::limited(slabs, redundancy, Bandwidth::default())
    }

    fn limited(slabs: &[u32], redundancy: Redundancy, bandwidth: Bandwidth) -> Self {
        Self::made(slabs, slabs.len(), redundancy, ByteCount::ZERO, bandwidth, None, |_, _| true)
    }

    /// Nodes together with a disk that has room for all.
    fn with_disk(slabs: &[u32]) -> Self {
        let disk = ByteCount::new((PAGES * PAGE_BYTES) as u64 * 2);
        Self::made(slabs, slabs.len(), Redundancy::NONE, disk, Bandwidth::default(), None, |_, _| true)
    }

    /// Of which only the first few take part to begin with.
    fn growing(slabs: &[u32], named: usize, redundancy: Redundancy) -> Self {
        Self::made(slabs, named, redundancy, ByteCount::ZERO, Bandwidth::default(), None, |_, _| true)
    }

    /// With links to nodes, by lanes, that are only made where that is allowed.
    fn guarded(
        slabs: &[u32],
        redundancy: Redundancy,
        allows: impl Fn(usize, u8) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::made(slabs, slabs.len(), redundancy, ByteCount::ZERO, Bandwidth::default(), None, allows)
    }

    /// With links that have trouble of this seed.
    fn troubled(slabs: &[u32], redundancy: Redundancy, seed: u64) -> Self {
        Self::made(
            slabs,
            slabs.len(),
            redundancy,
            ByteCount::ZERO,
            Bandwidth::default(),
            Some(seed),
            |_, _| true,
        )
    }

    fn made(
        slabs: &[u32],
        named: usize,
        redundancy: Redundancy,
        disk: ByteCount,
        bandwidth: Bandwidth,
        trouble: Option<u64>,
        allows: impl Fn(usize, u8) -> bool + Send + Sync + 'static,
    ) -> Self {
        let nodes: Vec<MemoryNode> = slabs.iter().map(|slabs| MemoryNode::new(slabs * 64)).collect();
        let options = NodesOptions {
            nodes: (0..named).map(address).collect(),
            redundancy,
            rebuild_per_second: ByteCount::new(1 << 30),
            security: Security::Plain,
            travel: Travel::Connection,
            device: None,
            named_by: None,
            tuning: NodeTuning::default(),
            // Tests say themselves what is to be.
            membership: Some(MembershipOptions {
                source: ClusterSource::File("/nonexistent".into()),
                unfit: Arc::new(|_| None),
            }),
        };
        let known = nodes.clone();
        let links = AtomicU64::new(0);
        let connector = Box::new(move |node: &NodeAddress, client: ClientIdentity, _| {
            let number: usize = node.to_string().trim_start_matches("unix:").parse().unwrap();
            if !allows(number, client.lane) {
                return Err(LinkError::Closed);
            }
            let link = Box::new(known[number].connect(client)) as Box<dyn Transport>;
            // Each link has trouble of its own.
            let nth = links.fetch_add(1, Ordering::Relaxed);
            Ok(match trouble {
                Some(seed) => Box::new(Troubled::new(link, seed << 32 | nth)) as Box<dyn Transport>,
                None => link,
            })
        });
        let sharing = Sharing::new(&options.nodes, options.joins(), bandwidth).unwrap();
        let reached = Reached::reach(&options, 7, connector).unwrap();
        let limit = ByteCount::new((FRAMES * SLAB_BYTES) as u64);
        let config = PoolConfig {
            limit,
            capacity: limit,
            disk,
            nodes: reached.config(disk > ByteCount::ZERO, ByteCount::new(64 << 20)),
            owners: 1,
            seed: 1,
        };
        let memory = SharedMemory::create(c"farmem-test", config.memory_bytes().unwrap()).unwrap();
        let memory: &'static SharedMemory = Box::leak(Box::new(memory));
        let pool: &'static SharedPool = Box::leak(Box::new(Pool::create(memory, &config).unwrap()));
        let carrier: &'static Carrier = Box::leak(Box::new(Carrier::new(pool, reached, sharing)));
        let mut world = Self {
            nodes,
            disk: TestDisk(Mutex::new(vec![0; disk.get() as usize])),
            pool,
            carrier,
            writer: NodeWriter::new(carrier),
            mover: Mover::new(pool),
            places: Vec::new(),
            workers: carrier.start(),
        };
        let mut writer = Box::new(Writer::new(OWNER));
        let began = Instant::now();
        while world.places.len() < PAGES {
            match writer.store(pool, &content(world.places.len()), Epoch::FIRST) {
                Ok(place) => world.places.push(place),
                // By links with trouble now and then nothing leaves at first.
                Err(_) => {
                    let is_moved = matches!(world.step(), StepOutcome::Moved { .. });
                    assert!(is_moved || trouble.is_some() && began.elapsed() < PATIENCE, "nothing leaves");
                }
            }
        }
        world
    }

    fn step(&mut self) -> StepOutcome {
        self.mover.step(self.pool, &self.disk, &mut self.writer)
    }

    /// Reads all pages, each of them checked: how many were to be had, and how many are lost.
    fn read_all(&self) -> (usize, usize) {
        self.read_all_for(Urgency::Awaited)
    }

    fn read_all_for(&self, urgency: Urgency) -> (usize, usize) {
        read_pages(self.pool, &self.disk, &self.places, urgency)
    }

    /// Waits until nothing is lacking on nodes. That nodes have been lost must be known.
    fn wait_until_whole(&self) {
        let began = Instant::now();
        while self.carrier.figures().lacking_bytes > 0 {
            assert!(began.elapsed() < PATIENCE, "shards are lacking still");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Stores some pages again, so that slabs leave memory.
    fn store_again(&mut self, pages: std::ops::Range<usize>) {
        let mut writer = Box::new(Writer::new(OWNER));
        for number in pages {
            self.pool.free(self.places[number], OWNER, Epoch::NONE);
            let began = Instant::now();
            self.places[number] = loop {
                match writer.store(self.pool, &content(number), Epoch::FIRST) {
                    Ok(place) => break place,
                    Err(_) => drop(self.step()),
                }
                assert!(began.elapsed() < PATIENCE, "nothing leaves any more");
                self.writer.tidy();
            };
        }
    }

    /// Says which nodes there are, and which of them are to be emptied. What stands against it.
    fn follow(&self, nodes: &[usize], drained: &[usize]) -> Vec<String> {
        let of = |node: &usize| (address(*node), drained.contains(node));
        self.carrier.follow(&Roster::new(nodes.iter().map(of).collect())).into_iter().collect()
    }

    fn wait_until(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let began = Instant::now();
        while !is_so(self) {
            assert!(began.elapsed() < PATIENCE, "still not so: {what}");
            std::thread::sleep(Duration::from_millis(5));
            self.writer.tidy();
        }
    }

    /// Waits until a node holds nothing that counts.
    fn wait_until_empty(&mut self, node: usize) {
        self.wait_until("a node is empty", |world| world.carrier.member(node).1);
    }

    fn wait_until_up(&self) {
        let began = Instant::now();
        while !(0..self.carrier.nodes.len()).all(|node| self.carrier.is_up(node)) {
            assert!(began.elapsed() < PATIENCE, "nodes stay away");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn on_nodes(&self) -> usize {
        self.pool.usage().node_pages.get() as usize
    }
}

/// Reads pages, each of them checked: how many were to be had, and how many were not.
fn read_pages(pool: &SharedPool, disk: &TestDisk, places: &[Place], urgency: Urgency) -> (usize, usize) {
    let mut reader = Box::new(Reader::with_nodes(disk, Waiting(Instant::now())));
    let mut page = [0; PAGE_BYTES];
    let (mut right, mut lost) = (0, 0);
    for (number, place) in places.iter().enumerate() {
        match reader.load_for(pool, *place, &mut page, urgency) {
            Ok(_) => {
                assert!(page == content(number), "page {number} holds something else");
                right += 1;
            }
            Err(error) => {
                let is_expected = match urgency {
                    Urgency::Later | Urgency::Ahead | Urgency::Answered(..) => {
                        matches!(error, LoadError::Later)
                    }
                    Urgency::Awaited => matches!(error, LoadError::Lost | LoadError::Corrupt),
                };
                assert!(is_expected, "{error}");
                lost += 1;
            }
        }
    }
    (right, lost)
}

impl Drop for World {
    fn drop(&mut self) {
        self.workers.drain(..).for_each(Worker::stop);
    }
}

#[test]
fn pages_come_back_from_their_nodes_by_few_reads() {
    let world = World::filled(&[32, 32], Redundancy::NONE);
    assert!(world.on_nodes() > PAGES / 2);
    assert_eq!(world.read_all(), (PAGES, 0));
    assert!(world.pool.usage().fetches < world.on_nodes() as u64 / 4, "neighbours come along");
}

#[test]
fn what_comes_while_every_entry_is_being_filled_is_answered_when_one_is_free() {
    let world = World::filled(&[32], Redundancy::NONE);
    let held = std::iter::from_fn(|| world.pool.begin_fill()).count();
    assert!(held >= 2 * world.pool.lanes(), "each lane has room");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            world.pool.clear_buffer();
        });
        assert_eq!(world.read_all(), (PAGES, 0));
    });
}

#[test]
fn links_that_are_cut_are_made_anew_and_nothing_is_lost() {
    let mut world = World::filled(&[32], Redundancy::NONE);
    world.nodes[0].cut();
    assert_eq!(world.read_all(), (PAGES, 0));
    world.nodes[0].cut();
    world.pool.set_limit(ByteCount::new(6 * SLAB_BYTES as u64)).unwrap();
    let began = Instant::now();
    while !matches!(world.step(), StepOutcome::Moved { .. }) {
        assert!(began.elapsed() < PATIENCE, "nothing leaves any more");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(world.read_all(), (PAGES, 0));
}

#[test]
fn a_node_that_was_given_up_and_comes_back_lends_again_what_it_held() {
    let is_cut_off = Arc::new(AtomicBool::new(false));
    let cut_off = Arc::clone(&is_cut_off);
    let mut world = World::guarded(&[32, 32], Redundancy::NONE, move |node, _| {
        node != 0 || !cut_off.load(Ordering::Relaxed)
    });
    let incarnation = world.carrier.incarnation(0);
    assert!(world.nodes[0].free_frames() < 32 * 64);
    is_cut_off.store(true, Ordering::Relaxed);
    world.nodes[0].cut();
    world.wait_until("it is given up", |world| world.carrier.incarnation(0) != incarnation);
    is_cut_off.store(false, Ordering::Relaxed);
    world.wait_until("it is used again", |world| world.carrier.is_up(0));
    assert_eq!(world.nodes[0].free_frames(), 32 * 64);
    world.store_again(0..PAGES);
    assert_eq!(world.read_all(), (PAGES, 0));
}

#[test]
fn links_that_cannot_be_made_take_no_node_away_by_whose_other_links_all_goes_on() {
    /// Of each thread, and more than make the node monitor believe that a node is away.
    const REFUSALS: u64 = 6;
    let (refused, monitors) = (Arc::new(AtomicU64::new(0)), AtomicU64::new(0));
    let refusals = Arc::clone(&refused);
    let mut world = World::guarded(&[32], Redundancy::NONE, move |_, lane| {
        // The first is closed before the node monitor has its own.
        let is_allowed =
            lane < AHEAD_LANE && (lane != MONITOR_LANE || monitors.fetch_add(1, Ordering::Relaxed) < 2);
        refusals.fetch_add(u64::from(!is_allowed), Ordering::Relaxed);
        is_allowed
    });
    let incarnation = world.carrier.incarnation(0);
    assert_eq!(world.read_all(), (PAGES, 0));
    world.wait_until("links were refused time and again", |world| {
        world.pool.clear_buffer();
        let (right, later) = world.read_all_for(Urgency::Ahead);
        assert_eq!(right + later, PAGES);
        assert!(world.carrier.is_up(0));
        refused.load(Ordering::Relaxed) >= REFUSALS
    });
    assert_eq!(world.carrier.incarnation(0), incarnation);
    world.pool.clear_buffer();
    assert_eq!(world.read_all(), (PAGES, 0));
}

#[test]
fn nodes_that_cannot_be_reached_keep_no_other_from_being_reached() {
    let (is_held, tries) = (Arc::new(AtomicBool::new(false)), Arc::new([const { AtomicU64::new(0) }; 4]));
    let (held, tried) = (Arc::clone(&is_held), Arc::clone(&tries));
    let mut world = World::guarded(&[32; 4], Redundancy::NONE, move |node, lane| {
        tried[node].fetch_add(u64::from(lane == MONITOR_LANE), Ordering::Relaxed);
        let began = Instant::now();
        // Others would wait in the test's own thread.
        if node > 0 && lane != MONITOR_LANE {
            return !held.load(Ordering::Relaxed);
        }
        while node > 0 && held.load(Ordering::Relaxed) && began.elapsed() < 2 * PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    });
    let tries_of = |node: usize| tries[node].load(Ordering::Relaxed);
    let before: Vec<u64> = (0..4).map(tries_of).collect();
    is_held.store(true, Ordering::Relaxed);
    world.nodes[1..].iter().for_each(MemoryNode::cut);
    world.wait_until("the others are tried", |_| (1..4).all(|node| tries_of(node) > before[node]));
    for _ in 0..3 {
        let before = tries_of(0);
        world.nodes[0].cut();
        world.wait_until("it is reached", |world| tries_of(0) > before && world.carrier.is_up(0));
    }
    is_held.store(false, Ordering::Relaxed);
    assert_eq!(world.read_all(), (PAGES, 0));
}

#[test]
fn a_node_that_comes_back_empty_has_lost_what_was_there_alone() {
    let world = World::filled(&[32], Redundancy::NONE);
    let away = world.on_nodes();
    world.nodes[0].restart();
    assert_eq!(world.read_all(), (PAGES - away, away));
}

#[test]
fn with_two_copies_a_node_that_comes_back_empty_is_filled_again() {
    let world = World::filled(&[32, 32, 32], Redundancy::MIRROR);
    world.nodes[1].restart();
    assert_eq!(world.read_all(), (PAGES, 0));
    world.wait_until_whole();
    // Whichever goes now, the other copy is there.
    world.nodes[0].restart();
    assert_eq!(world.read_all(), (PAGES, 0));
}

#[test]
fn who_waits_for_a_node_that_says_nothing_for_a_while_gets_its_page() {
    let world = World::filled(&[32], Redundancy::NONE);
    world.nodes[0].stall(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(1500));
            world.nodes[0].stall(false);
        });
        assert_eq!(world.read_all(), (PAGES, 0));
    });
}

#[test]
fn what_waits_behind_a_write_that_nobody_answers_is_not_tried_one_after_the_other() {
    // Two writes a second may leave, and four have left when the first of them is late.
    let bandwidth =
        Bandwidth { bytes_out: Some(ByteCount::new(2 * SLAB_BYTES as u64)), ..Bandwidth::default() };
    let world = World::limited(&[32], Redundancy::NONE, bandwidth);
    world.nodes[0].stall(true);
    let write = |nth: u64| Request::Write {
        at: RegionOffset::new(nth * SLAB_BYTES as u64),
        data: vec![7; SLAB_BYTES],
    };
    let outcomes = NodeLink::new(world.carrier, 0, MONITOR_LANE)
        .exchange((0..32).map(write).collect(), Duration::from_millis(250));
    assert!(matches!(outcomes.first(), Some(Some((_, Err(Failure::Late))))), "the first was waited for");
    assert!(matches!(outcomes.last(), Some(None)), "the last was not even sent");
}

#[test]
fn frames_that_went_to_others_with_the_lease_are_lost_and_never_read_as_theirs() {
    let world = World::filled(&[32], Redundancy::NONE);
    let away = world.on_nodes();
    world.nodes[0].end_lease(7);
    assert_eq!(world.read_all(), (PAGES - away, away));
}

#[test]
fn damaged_bytes_are_read_from_the_other_copy() {
    let world = World::filled(&[32, 32], Redundancy::MIRROR);
    let end = 32 * SLAB_BYTES as u64;
    (0..end).step_by(1024).for_each(|at| world.nodes[0].damage(farmem_transport::RegionOffset::new(at)));
    assert_eq!(world.read_all(), (PAGES, 0));
}

#[test]
fn what_a_node_has_damaged_comes_back_to_memory_from_disk() {
    let mut world = World::with_disk(&[32]);
    let end = 32 * SLAB_BYTES as u64;
    (0..end).step_by(1024).for_each(|at| world.nodes[0].damage(farmem_transport::RegionOffset::new(at)));
    let kept = PAGES - 8 * 64;
    for place in world.places.split_off(kept) {
        world.pool.free(place, OWNER, Epoch::NONE);
    }
    // Each page that a node sent, and that its reader found wrong, came from disk.
    assert_eq!(world.read_all(), (kept, 0));
    let raised = world.mover.raise(world.pool, &world.disk, &mut world.writer);
    assert!(matches!(raised, StepOutcome::Raised { .. }), "{raised:?}");
    assert!(world.carrier.figures().damaged > 0);
    assert_eq!(world.read_all(), (kept, 0));
}

fn coded(data: u8, parity: u8) -> Redundancy {
    Redundancy::new(data, parity).unwrap()
}

/// Restarts a node, empty, and waits until that is known.
fn lose(world: &World, node: usize) {
    let incarnation = world.carrier.incarnation(node);
    world.nodes[node].restart();
    let began = Instant::now();
    while world.carrier.incarnation(node) == incarnation {
        assert!(began.elapsed() < PATIENCE, "nobody sees that node {node} is another one");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn pages_in_shards_come_back_by_few_reads_and_parity_is_not_read() {
    let world = World::filled(&[32; 6], coded(4, 2));
    assert!(world.on_nodes() > PAGES / 2);
    assert_eq!(world.read_all(), (PAGES, 0));
    assert!(world.pool.usage().fetches < world.on_nodes() as u64 / 3, "neighbours come along");
    let figures = world.carrier.figures();
    assert_eq!((figures.lacking_bytes, figures.damaged), (0, 0));
    let slabs = world.pool.usage().node_bytes.get();
    assert!(
        figures.stored_bytes >= slabs * 3 / 2 && figures.stored_bytes <= slabs * 2,
        "{figures:?}, {slabs}"
    );
}

#[test]
fn all_shapes_of_redundancy_bring_back_what_was_stored() {
    for (data, parity) in [(1, 2), (2, 1), (2, 2), (8, 3)] {
        let world = World::filled(&vec![64; usize::from(data + parity)], coded(data, parity));
        assert_eq!(world.read_all(), (PAGES, 0), "{data}+{parity}");
        (0..usize::from(parity)).for_each(|node| lose(&world, node));
        assert_eq!(world.read_all(), (PAGES, 0), "{data}+{parity} without {parity} nodes");
    }
}

#[test]
fn with_two_of_six_nodes_away_every_page_is_made_from_the_others() {
    let world = World::filled(&[32; 6], coded(4, 2));
    world.nodes[1].stall(true);
    world.nodes[4].stall(true);
    assert_eq!(world.read_all(), (PAGES, 0));
    let figures = world.carrier.figures();
    assert!(figures.reads_around > 0 && figures.reads_late > 0, "{figures:?}");
}

#[test]
fn a_node_that_was_slow_is_used_again_when_reads_that_went_around_it_find_it_quick() {
    let mut world = World::filled(&[32; 6], coded(4, 2));
    let slow = Duration::from_millis(80);
    (0..100).for_each(|_| world.carrier.state().health[1].answered(slow));
    assert_eq!(world.read_all(), (PAGES, 0));
    assert!(world.carrier.figures().reads_around > 0);
    world.wait_until("the node is known to be quick", |world| {
        // What has come must be asked for again.
        world.pool.clear_buffer();
        assert_eq!(world.read_all(), (PAGES, 0));
        // Other work of the machine counts for that, too.
        world.carrier.state().health[1].answer_time() < slow / 8
    });
}

#[test]
fn shards_move_to_racks_that_become_known_and_then_one_of_them_may_be_lost() {
    let mut world = World::filled(&[32; 6], coded(2, 1));
    for (node, rack) in world.nodes.iter().zip(["a", "a", "b", "b", "c", "c"]) {
        node.put_in_rack(rack.parse().ok());
        // Whoever makes a link hears of it.
        node.cut();
    }
    world.wait_until("any rack may be lost", |world| {
        let figures = world.carrier.figures();
        figures.racks == 3 && figures.exposed_bytes == 0
    });
    for rack in [[2, 3], [4, 5]] {
        rack.iter().for_each(|&node| lose(&world, node));
        world.wait_until_whole();
        assert_eq!(world.read_all(), (PAGES, 0));
        world.wait_until("any rack may be lost", |world| world.carrier.figures().exposed_bytes == 0);
    }
}

#[test]
fn nodes_that_come_back_empty_get_their_shards_again_and_then_others_may_be_lost() {
    let world = World::filled(&[32; 6], coded(4, 2));
    for pair in [[0, 1], [2, 3], [4, 5], [1, 3]] {
        pair.iter().for_each(|&node| lose(&world, node));
        world.wait_until_whole();
        assert_eq!(world.read_all(), (PAGES, 0));
    }
    assert!(world.carrier.figures().rebuilt_bytes > 0);
}

#[test]
fn the_third_of_six_nodes_takes_along_what_was_there_and_nothing_else_is_ever_read() {
    let world = World::filled(&[32; 6], coded(4, 2));
    let away = world.on_nodes();
    // Nothing is made good meanwhile.
    world.nodes.iter().for_each(|node| node.drain(true));
    (0..3).for_each(|node| world.nodes[node].restart());
    let (right, lost) = world.read_all();
    assert_eq!(right + lost, PAGES);
    assert!(lost > away / 2 && lost <= away, "{lost} of {away} are lost");
}

#[test]
fn a_node_that_lies_is_found_out_and_its_shards_are_made_from_the_others() {
    let world = World::filled(&[32; 6], coded(4, 2));
    let end = 32 * SLAB_BYTES as u64;
    (0..end).step_by(1024).for_each(|at| world.nodes[2].damage(farmem_transport::RegionOffset::new(at)));
    assert_eq!(world.read_all(), (PAGES, 0));
    let figures = world.carrier.figures();
    assert!(figures.damaged > 0, "{figures:?}");
    assert_eq!(world.pool.usage().lost_slabs, 0);
}

#[test]
fn what_a_liar_holds_is_not_used_to_make_others_whole() {
    let world = World::filled(&[32; 7], coded(4, 2));
    let end = 32 * SLAB_BYTES as u64;
    (0..end).step_by(1024).for_each(|at| world.nodes[2].damage(farmem_transport::RegionOffset::new(at)));
    lose(&world, 0);
    world.wait_until_whole();
    lose(&world, 1);
    assert_eq!(world.read_all(), (PAGES, 0));
}

#[test]
fn what_is_freed_goes_back_to_the_node() {
    let mut world = World::filled(&[64], Redundancy::NONE);
    let before = world.nodes[0].free_frames();
    let places = std::mem::take(&mut world.places);
    for place in places {
        world.pool.free(place, OWNER, Epoch::NONE);
    }
    let began = Instant::now();
    // All but what is kept in hand for the next ones.
    while world.nodes[0].free_frames() < before.max(64 * 64 - 40 * 64) {
        assert!(began.elapsed() < PATIENCE, "{} frames are free", world.nodes[0].free_frames());
        std::thread::sleep(Duration::from_millis(10));
        world.writer.tidy();
    }
    world.carrier.leave();
    assert_eq!(world.nodes[0].free_frames(), 64 * 64);
}

/// A schedule that two spaces share, and the gate from one node of the second. The carrier has slot 0, the
/// second space slot 1.
fn beside(world: &World, node: usize) -> (Arc<LinkSchedule>, Arc<Gate>) {
    let schedule = Arc::new(LinkSchedule::new(Shared::create().unwrap()));
    world.carrier.sharing().take_link_slot(&schedule, 0);
    let lines = schedule.link(key_of(&format!("unix:{node}")), Direction::In).unwrap();
    let other = Gate::new(Arc::clone(&schedule), lines, 1, Arc::default(), 1000);
    (schedule, other)
}

/// All that may be under way on a link, and the turn that comes next.
fn take_all(gate: &Arc<Gate>) -> (Vec<Pass>, Turn) {
    let passes = std::iter::from_fn(|| gate.turn(Class::Demand, 1 << 16).take().ok()).collect();
    let mut turn = gate.turn(Class::Demand, 1 << 16);
    assert!(turn.take().is_err());
    (passes, turn)
}

#[test]
fn reads_wait_while_another_space_has_the_link_and_go_when_it_has_done() {
    for (slabs, redundancy) in [(vec![32], Redundancy::NONE), (vec![32; 3], coded(2, 1))] {
        let world = World::filled(&slabs, redundancy);
        let (_schedule, other) = beside(&world, 0);
        let held = take_all(&other);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(50));
                drop(held);
            });
            assert_eq!(world.read_all(), (PAGES, 0));
        });
        assert!(world.carrier.sharing().figures().wait > Duration::ZERO);
        assert!(other.turn(Class::Demand, 1).take().is_ok(), "nothing is under way any more");
    }
}

#[test]
fn a_space_that_was_killed_in_its_transfers_holds_up_nobody_for_long_without_a_broker() {
    let world = World::filled(&[32, 32], Redundancy::NONE);
    let (_schedule, other) = beside(&world, 0);
    std::mem::forget(take_all(&other));
    assert_eq!(world.read_all(), (PAGES, 0));
}

#[test]
fn what_a_space_that_has_gone_held_is_free_as_soon_as_its_link_slot_is_cleared() {
    let world = World::filled(&[32], Redundancy::NONE);
    let (schedule, other) = beside(&world, 0);
    std::mem::forget(take_all(&other));
    schedule.clear(1);
    assert_eq!(world.read_all(), (PAGES, 0));
}

#[test]
fn nonsense_on_the_board_costs_time_and_no_page() {
    let world = World::filled(&[32, 32], Redundancy::NONE);
    let (schedule, _other) = beside(&world, 0);
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut state = 0x1234_5678_9abc_def1_u64;
            for _ in 0..400 {
                for nth in 0..farmem_broker::link_schedule::LINK_SCHEDULE_BYTES / size_of::<u64>() {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    // Keys stay, or the space's lines would be somewhere else; the rest of the head is
                    // nonsense too, but for a limit of next to nothing.
                    let value = if nth < 2 { state | 1 << 20 } else { state };
                    if nth < 8 || (nth - 8) % (8 + 8 * 256) >= 1 {
                        schedule.memory().word(nth).set(value);
                    }
                }
                if has_ended.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        assert_eq!(world.read_all(), (PAGES, 0));
        has_ended.store(true, Ordering::Relaxed);
    });
}

#[test]
fn no_more_goes_over_links_than_the_limits_let_through() {
    const LIMIT: u64 = 8 << 20;
    /// What goes at once after a pause, and what one transfer and its like on every lane may be ahead.
    const AHEAD: u64 = LIMIT / 500 + (64 << 16);
    let limit = Some(ByteCount::new(LIMIT));
    let began = Instant::now();
    let world = World::limited(&[32, 32], Redundancy::NONE, Bandwidth { bytes_in: limit, bytes_out: limit });
    let most = |began: Instant| (began.elapsed().as_secs_f64() * LIMIT as f64) as u64 + AHEAD;
    let written = world.carrier.sharing().figures().out_bytes;
    assert_eq!((written.demand, written.ahead), (0, 0), "slabs alone go to nodes");
    let written = written.sum();
    assert!(written > 0 && written <= most(began), "{written}");
    let began = Instant::now();
    assert_eq!(world.read_all(), (PAGES, 0));
    let read = world.carrier.sharing().figures().in_bytes.sum();
    assert!(read > 0 && read <= most(began), "{read}");
}

/// Seeds to try: a few, or the one that `FARMEM_TEST_SEED` names.
fn seeds() -> Vec<u64> {
    match std::env::var("FARMEM_TEST_SEED") {
        Ok(seed) => vec![seed.parse().expect("FARMEM_TEST_SEED is a number")],
        Err(_) => (1..=8).collect(),
    }
}

#[test]
fn completions_that_are_late_mixed_up_doubled_or_lost_change_no_byte() {
    for seed in seeds() {
        eprintln!("FARMEM_TEST_SEED={seed}");
        let world = World::troubled(&[32], Redundancy::NONE, seed);
        assert_eq!(world.read_all(), (PAGES, 0), "seed {seed}");
    }
}

#[test]
fn with_parity_and_troubled_links_nodes_may_come_back_empty_as_well() {
    for seed in seeds() {
        eprintln!("FARMEM_TEST_SEED={seed}");
        let world = World::troubled(&[32; 6], coded(4, 2), seed);
        let first = seed as usize % 6;
        lose(&world, first);
        assert_eq!(world.read_all(), (PAGES, 0), "seed {seed}");
        world.wait_until_whole();
        lose(&world, (first + 1) % 6);
        lose(&world, (first + 3) % 6);
        assert_eq!(world.read_all(), (PAGES, 0), "seed {seed}");
    }
}

#[test]
fn what_a_drained_node_held_goes_to_the_others_while_it_is_read() {
    for redundancy in [Redundancy::NONE, Redundancy::MIRROR, coded(2, 1)] {
        let count = redundancy.shards() + 1;
        let mut world = World::filled(&vec![64; count], redundancy);
        // The one that surely holds something.
        let node =
            world.carrier.state().block_table.used().enumerate().max_by_key(|(_, used)| *used).unwrap().0;
        let all: Vec<usize> = (0..count).collect();
        assert_eq!(world.follow(&all, &[node]), [""; 0]);
        assert_eq!(world.read_all(), (PAGES, 0), "{redundancy}");
        world.wait_until_empty(node);
        assert_eq!(world.carrier.figures().lacking_bytes, 0);
        world.nodes[node].restart();
        world.store_again(0..PAGES / 2);
        assert_eq!(world.read_all(), (PAGES, 0), "{redundancy}");
        assert!(world.carrier.member(node).1, "it gets nothing new");
        // The same again, and then it takes part again.
        assert_eq!(world.follow(&all, &[node]), [""; 0]);
        assert_eq!(world.follow(&all, &[]), [""; 0]);
        // Which node a stripe goes to is a matter of hashes.
        let began = Instant::now();
        while world.carrier.member(node).1 {
            assert!(began.elapsed() < PATIENCE, "the node is not used again");
            world.store_again(0..PAGES);
        }
        assert_eq!(world.read_all(), (PAGES, 0), "{redundancy}");
    }
}

#[test]
fn a_node_that_is_no_longer_named_gets_all_of_its_memory_back_and_may_come_again() {
    let mut world = World::filled(&[64, 64], Redundancy::NONE);
    for node in [0, 1, 0, 1] {
        let other = 1 - node;
        assert_eq!(world.follow(&[other], &[]), [""; 0]);
        world.wait_until("it has left", |world| world.carrier.member(node).0 == Member::Left);
        world.wait_until("nothing is granted there", |world| world.nodes[node].free_frames() == 64 * 64);
        assert_eq!(world.read_all(), (PAGES, 0));
        world.store_again(0..PAGES / 4);
        assert_eq!(world.nodes[node].free_frames(), 64 * 64, "nobody asks it for anything");
        assert_eq!(world.follow(&[node, other], &[]), [""; 0]);
        assert_eq!(world.carrier.member(node).0, Member::Active);
    }
}

#[test]
fn a_node_that_joins_is_used_and_makes_room_for_what_another_is_to_give_up() {
    let mut world = World::growing(&[20, 64], 1, Redundancy::NONE);
    let before = world.pool.usage().node_limit;
    assert_eq!(world.follow(&[0], &[0]), [""; 0]);
    world.wait_until("it is said that no node has room", |world| {
        let said = world.follow(&[0], &[0]);
        said.iter().any(|trouble| trouble.contains("unix:0 can't be emptied"))
    });
    assert_eq!(world.read_all(), (PAGES, 0));
    assert!(!world.carrier.member(0).1, "what has no other place stays");
    assert_eq!(world.follow(&[1], &[]), world.follow(&[1], &[]));
    world.wait_until("the first has left", |world| world.carrier.member(0).0 == Member::Left);
    assert_eq!(world.follow(&[1], &[]), [""; 0]);
    assert_eq!(world.nodes[0].free_frames(), 20 * 64);
    world.nodes[0].restart();
    assert!(world.pool.usage().node_limit > before);
    world.store_again(0..PAGES);
    assert_eq!(world.read_all(), (PAGES, 0));
}

#[test]
fn blocks_that_lacked_a_place_get_it_on_a_node_that_joins() {
    let world = World::growing(&[64; 4], 3, coded(2, 1));
    assert_eq!(world.follow(&[0, 1], &[]), [""; 0]);
    lose(&world, 2);
    assert!(world.carrier.figures().lacking_bytes > 0);
    assert_eq!(world.read_all(), (PAGES, 0));
    assert_eq!(world.follow(&[0, 1, 3], &[]), [""; 0]);
    world.wait_until_whole();
    world.nodes[0].restart();
    assert_eq!(world.read_all(), (PAGES, 0));
}

#[test]
fn a_node_that_is_killed_while_it_is_emptied_costs_what_was_still_there_alone() {
    for redundancy in [Redundancy::NONE, Redundancy::MIRROR, coded(4, 2)] {
        let count = redundancy.shards() + 1;
        let world = World::filled(&vec![64; count], redundancy);
        let all: Vec<usize> = (0..count).collect();
        let used = world.carrier.state().block_table.used().next().unwrap();
        world.follow(&all, &[0]);
        while world.carrier.state().block_table.used_on(0) > used / 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        world.nodes[0].restart();
        let (right, lost) = world.read_all();
        assert_eq!(right + lost, PAGES);
        assert!(lost == 0 || redundancy == Redundancy::NONE && lost <= used as usize * 64, "{lost} are lost");
        world.wait_until_whole();
    }
}

#[test]
fn changes_that_follow_each_other_quickly_end_in_the_last_one() {
    let mut world = World::growing(&[64; 4], 2, Redundancy::MIRROR);
    let mut state = 99_u64;
    for turn in 0..60 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let bits = (state >> 33) as usize;
        // Two take part at any time.
        let stays = |node: usize| (node + turn) % 4 < 2;
        let named: Vec<usize> = (0..4).filter(|&node| stays(node) || bits >> node & 1 == 1).collect();
        let drained: Vec<usize> =
            (0..4).filter(|&node| !stays(node) && bits >> (node + 4) & 3 == 0).collect();
        world.follow(&named, &drained);
        if turn % 4 == 0 {
            world.store_again(turn * 8..turn * 8 + 64);
        }
        if turn % 20 == 19 {
            world.follow(&[0, 1, 2, 3], &[]);
            assert_eq!(world.read_all(), (PAGES, 0));
        }
    }
    // One that was parting at that moment is asked again when it has left.
    world.wait_until("all take part", |world| {
        world.follow(&[0, 1, 2, 3], &[]);
        (0..4).all(|node| world.carrier.member(node).0 == Member::Active)
    });
    world.wait_until_whole();
    world.nodes[1].restart();
    assert_eq!(world.read_all(), (PAGES, 0));
}

/// Whether something was read from a node by links of lanes for what threads wait for, and by those for what
/// nobody waits for.
fn asked(node: &MemoryNode) -> (bool, bool) {
    let lanes = node.readers();
    (lanes.iter().any(|lane| *lane < WRITER_LANE), lanes.iter().any(|lane| *lane >= AHEAD_LANE))
}

#[test]
fn what_nobody_waits_for_comes_by_links_of_its_own() {
    for (slabs, redundancy) in [(vec![32], Redundancy::NONE), (vec![32; 3], coded(2, 1))] {
        let world = World::filled(&slabs, redundancy);
        let (_, away) = world.read_all_for(Urgency::Later);
        assert!(away > PAGES / 4, "{away} pages are on nodes alone");
        assert_eq!(asked(&world.nodes[0]), (false, false), "nobody has been asked");

        assert_eq!(world.read_all_for(Urgency::Ahead), (PAGES, 0));
        assert_eq!(asked(&world.nodes[0]), (false, true));
        assert_eq!(world.read_all(), (PAGES, 0));
        assert_eq!(asked(&world.nodes[0]), (true, true));
    }
}

#[test]
fn what_nobody_waits_for_comes_from_nodes_that_join_and_by_no_link_to_one_that_has_left() {
    let mut world = World::growing(&[64, 64], 1, Redundancy::NONE);
    assert_eq!(world.read_all_for(Urgency::Ahead), (PAGES, 0));
    assert_eq!((asked(&world.nodes[0]), asked(&world.nodes[1])), ((false, true), (false, false)));

    assert_eq!(world.follow(&[1], &[]), [""; 0]);
    world.wait_until("the first has left", |world| world.carrier.member(0).0 == Member::Left);
    world.pool.clear_buffer();
    assert_eq!(world.read_all_for(Urgency::Ahead), (PAGES, 0));
    assert_eq!(asked(&world.nodes[1]), (false, true));
    world.wait_until("its links are closed", |world| world.nodes[0].lanes().is_empty());
}

/// Waits until a node has all links that are made ahead of need.
fn wait_until_linked(world: &mut World, node: usize) {
    let lanes = world.pool.lanes() as u8;
    let held: BTreeSet<u8> = (0..lanes).chain([WRITER_LANE]).chain(AHEAD_LANE..AHEAD_LANE + lanes).collect();
    world.wait_until("all links are made", |world| held.is_subset(&world.nodes[node].lanes()));
}

#[test]
fn links_are_there_before_anything_is_read_and_again_when_a_node_comes_back_or_joins() {
    let mut world = World::growing(&[64, 64], 1, Redundancy::NONE);
    wait_until_linked(&mut world, 0);
    world.nodes[0].cut();
    wait_until_linked(&mut world, 0);
    assert_eq!(world.read_all(), (PAGES, 0));
    lose(&world, 0);
    wait_until_linked(&mut world, 0);
    assert_eq!(world.follow(&[0, 1], &[]), [""; 0]);
    wait_until_linked(&mut world, 1);
    assert_eq!(asked(&world.nodes[1]), (false, false), "nobody has been asked");
}

/// A lane of nobody's.
const SPARE_LANE: u8 = u8::MAX;

/// What a thread that brings blocks out of memory has, with links of its own.
fn stock_of(world: &World) -> (Stock, Links) {
    (Stock::new(world.carrier, WrittenBy::Mover), Links::new(world.carrier, SPARE_LANE))
}

/// Hears answers until none is awaited any more.
fn hear_all(stock: &mut Stock, links: &mut Links) {
    let began = Instant::now();
    while links.known().iter().any(NodeLink::is_asked) {
        assert!(began.elapsed() < PATIENCE, "no answer comes");
        stock.hear(links);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_a_stalled_node_is_asked_for_is_asked_once_and_comes_when_it_goes_on() {
    let world = World::filled(&[64, 64], Redundancy::NONE);
    let (mut stock, mut links) = stock_of(&world);
    let in_hand = |node: usize| world.carrier.state().block_table.in_hand(node);
    let (before, free) = ([in_hand(0), in_hand(1)], world.nodes[0].free_frames());
    let wanted = before[0].max(before[1]) + 3;
    world.nodes[0].stall_from(Some(SPARE_LANE));
    for _ in 0..5 {
        stock.replenish(&mut links, wanted);
        assert!(links[0].is_asked(), "nobody has waited for it");
        stock.hear(&mut links);
    }
    assert!(in_hand(0) == before[0] && in_hand(1) >= wanted, "the other one has answered");

    world.nodes[0].stall(false);
    hear_all(&mut stock, &mut links);
    stock.hear(&mut links);
    let granted = in_hand(0) - before[0];
    assert!(in_hand(0) >= wanted);
    assert_eq!(world.nodes[0].free_frames(), free - granted * 64, "once");
}

#[test]
fn a_grant_that_was_not_heard_of_when_its_link_broke_is_not_granted_twice() {
    for seed in seeds() {
        eprintln!("FARMEM_TEST_SEED={seed}");
        let mut world = World::troubled(&[64, 64], Redundancy::NONE, seed);
        let (mut stock, mut links) = stock_of(&world);
        for round in 0..30 {
            let needed = world.carrier.state().block_table.in_hand(round % 2) + 2;
            // A link that has broken makes a node seem away for a moment.
            world.wait_until_up();
            stock.replenish(&mut links, needed);
            hear_all(&mut stock, &mut links);
        }
        // What the mover was still granted when all had left is heard of as well.
        world.wait_until("what is granted is what is known of", |world| {
            let state = world.carrier.state();
            let held = |node: usize| {
                64 * (state.block_table.in_hand(node) + state.block_table.used_on(node) as usize)
            };
            (0..2).all(|node| 64 * 64 - world.nodes[node].free_frames() == held(node))
        });
    }
}

#[test]
fn a_grant_that_comes_when_its_node_was_lost_is_not_counted_on() {
    let world = World::filled(&[64, 64], Redundancy::NONE);
    let (mut stock, mut links) = stock_of(&world);
    world.nodes[0].stall_from(Some(SPARE_LANE));
    stock.replenish(&mut links, 40);
    stock.hear(&mut links);
    assert!(links[0].is_open(), "it has been asked");
    lose(&world, 0);
    world.nodes[0].stall(false);
    hear_all(&mut stock, &mut links);
    let granted = 64 * 64 - world.nodes[0].free_frames();
    assert_eq!((world.carrier.state().block_table.in_hand(0), granted), (0, 0));
}

#[test]
fn a_grant_that_comes_when_its_node_has_left_is_given_back() {
    let mut world = World::filled(&[64, 64], Redundancy::NONE);
    let (mut stock, mut links) = stock_of(&world);
    world.nodes[0].stall_from(Some(SPARE_LANE));
    stock.replenish(&mut links, 40);
    stock.hear(&mut links);
    assert!(links[0].is_open(), "it has been asked");
    assert_eq!(world.follow(&[1], &[]), [""; 0]);
    world.wait_until("it has left", |world| world.carrier.member(0).0 == Member::Left);
    // It does what it was asked all the same: it is told so by another link, and knows no order between them.
    world.nodes[0].stall(false);
    hear_all(&mut stock, &mut links);
    assert_eq!((world.carrier.state().block_table.in_hand(0), world.nodes[0].free_frames()), (0, 64 * 64));
    links.all().iter_mut().for_each(NodeLink::close_if_left);
    assert!(!links[0].is_open());
}

#[test]
fn with_five_of_twelve_nodes_stalled_memory_goes_on_leaving() {
    for redundancy in [Redundancy::NONE, coded(4, 2)] {
        let mut world = World::filled(&[64; 12], redundancy);
        (0..5).for_each(|node| world.nodes[node].stall(true));
        let (mut writer, mut vain) = (Box::new(Writer::new(OWNER)), 0);
        for number in 0..PAGES {
            world.pool.free(world.places[number], OWNER, Epoch::NONE);
            world.places[number] = loop {
                match writer.store(world.pool, &content(number), Epoch::FIRST) {
                    Ok(place) => break place,
                    Err(_) => vain += usize::from(!matches!(world.step(), StepOutcome::Moved { .. })),
                }
                world.writer.tidy();
                // Each of them may have waited for its patience, and four in a row would end a program.
                assert!(vain < 4, "nothing leaves");
            };
        }
        // What the five hold is still theirs, and they take part again.
        (0..5).for_each(|node| world.nodes[node].stall(false));
        assert_eq!(world.read_all(), (PAGES, 0), "{redundancy}");
        world.wait_until("they are counted on again", |world| {
            (0..5).all(|node| !world.carrier.state().block_table.is_silent(node))
        });
    }
}

#[test]
fn what_would_come_too_late_is_dropped_and_comes_when_somebody_waits() {
    let bandwidth = Bandwidth { bytes_in: Some(ByteCount::new(16 << 20)), ..Bandwidth::default() };
    let world = World::limited(&[32], Redundancy::NONE, bandwidth);
    // What was used, was used at once.
    (0..1000).for_each(|_| world.pool.note_use(0));
    let (right, dropped) = world.read_all_for(Urgency::Ahead);
    assert!(dropped > 0 && right + dropped == PAGES);
    assert!(world.carrier.figures().ahead_dropped > 0);
    assert_eq!(world.read_all(), (PAGES, 0));
}

/// Reads all pages ahead time and again. Meanwhile other threads read and wait, until one of them has come
/// for what was read ahead.
fn read_beside_who_reads_ahead(world: &World, turns: Vec<Turn>) {
    let ends = AtomicBool::new(false);
    let (pool, disk, places) = (world.pool, &world.disk, &world.places);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                let (right, left) = read_pages(pool, disk, places, Urgency::Ahead);
                assert_eq!(right + left, PAGES);
            }
        });
        let began = Instant::now();
        while world.carrier.figures().ahead_awaited == 0 {
            assert!(began.elapsed() < PATIENCE, "nobody has come");
            world.pool.clear_buffer();
            assert_eq!(world.read_all(), (PAGES, 0));
        }
        ends.store(true, Ordering::Relaxed);
        // Or the last round of reads ahead would wait for turns that never come.
        drop(turns);
    });
}

#[test]
fn what_a_thread_comes_to_wait_for_does_not_wait_behind_others() {
    for redundancy in [Redundancy::NONE, coded(2, 1)] {
        let world = World::filled(&vec![32; redundancy.shards()], redundancy);
        // They don't go, and all that is read ahead waits behind them.
        let gate = |node| world.carrier.sharing.gate(node, Direction::In);
        let turns: Vec<Turn> =
            (0..redundancy.shards()).map(|node| gate(node).turn(Class::Demand, PAGE_BYTES as u64)).collect();
        read_beside_who_reads_ahead(&world, turns);
    }
}

#[test]
fn what_is_overdue_when_a_thread_comes_is_asked_for_again_and_what_comes_of_the_first_request_is_nobodys() {
    for redundancy in [Redundancy::NONE, coded(2, 1)] {
        let world = World::filled(&vec![32; redundancy.shards()], redundancy);
        assert_eq!(world.read_all(), (PAGES, 0), "it is known how long reads take");
        world.nodes.iter().for_each(|node| node.stall_from(Some(AHEAD_LANE)));
        world.pool.clear_buffer();
        read_beside_who_reads_ahead(&world, Vec::new());
        world.nodes.iter().for_each(|node| node.stall(false));
        world.pool.clear_buffer();
        assert_eq!(world.read_all(), (PAGES, 0));
    }
}
