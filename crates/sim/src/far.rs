//! What lies below the pool: a disk, and memory nodes behind a carrier, both of them slow and not to be
//! trusted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farmem_page::PAGE_BYTES;
use farmem_simulated_kernel::descriptors::{Named, OwnedFd};
use farmem_simulated_kernel::disk::DiskFile;
use farmem_simulated_kernel::shared::SharedMemory;
use farmem_simulated_kernel::{schedule, thread, world};
use farmem_simulated_store::{
    Answer, BlockError, Call, Mover, NodeBlock, Nodes, Pool, SLAB_BYTES, StepOutcome, TakenCall,
};
use rand::Rng;

/// What there is below the pool, and how it behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Far {
    /// Slabs that fit on disk.
    pub disk_slabs: u64,
    /// Slabs that may lie on nodes without a copy on disk.
    pub node_slabs: u64,
    /// Whether there are nodes at all.
    pub has_nodes: bool,
    /// Entries of the read buffer.
    pub entries: u16,
    /// How long an answer takes at most.
    pub answer_ns: u64,
    /// Answers that take a thousand times as long.
    pub silent_one_in: u32,
    /// Answers that hold other bytes than were stored, the first time they are asked for.
    pub lie_one_in: u32,
    /// Answers that come twice.
    pub twice_one_in: u32,
    /// After how long all nodes are lost; 0 for never. Only where everything is on disk as well.
    pub lost_after_ns: u64,
}

pub(crate) type SimulatedPool = Arc<Pool<&'static SharedMemory>>;

/// What nodes hold, by block.
#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<BTreeMap<usize, Vec<u8>>>>);

impl Shelf {
    /// Held only while nobody else can have the turn.
    fn blocks(&self) -> MutexGuard<'_, BTreeMap<usize, Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The shelf as the mover sees it.
struct Reached {
    shelf: Shelf,
    far: Far,
}

impl Nodes for Reached {
    fn room(&self) -> usize {
        if self.far.has_nodes { 64 } else { 0 }
    }
    fn write(&mut self, blocks: &[NodeBlock], content: &[u8], kept: &mut [bool]) {
        thread::sleep_up_to(self.far.answer_ns);
        for ((block, bytes), kept) in blocks.iter().zip(content.chunks_exact(SLAB_BYTES)).zip(kept) {
            let is_lost = world::with(|world| world.chance(self.far.silent_one_in));
            *kept = self.far.has_nodes && !is_lost;
            let mut held = self.shelf.blocks();
            held.remove(&block.block);
            if *kept {
                held.insert(block.block, bytes.to_vec());
            }
        }
    }
    fn has(&self, block: usize) -> bool {
        self.shelf.blocks().contains_key(&block)
    }
    fn read(&mut self, block: usize, out: &mut [u8; SLAB_BYTES]) -> Result<(), BlockError> {
        thread::sleep_up_to(self.far.answer_ns);
        out.copy_from_slice(self.shelf.blocks().get(&block).ok_or(BlockError::Failed)?);
        Ok(())
    }
}

/// Starts the supervisor's mover, and its carrier where there are nodes.
pub(crate) fn start(pool: &SimulatedPool, far: Far) {
    if far.disk_slabs == 0 && !far.has_nodes {
        return;
    }
    let shelf = Shelf::default();
    let (of_mover, reached) = (Arc::clone(pool), Reached { shelf: shelf.clone(), far });
    schedule::spawn(0, move || move_slabs(&of_mover, reached));
    if far.has_nodes {
        let pool = Arc::clone(pool);
        schedule::spawn(0, move || carry(&pool, &shelf, far));
    }
}

fn move_slabs(pool: &Pool<&'static SharedMemory>, mut nodes: Reached) {
    /// How often it looks.
    const LOOK_NS: u64 = 300_000;
    let mut mover = Mover::new(pool);
    let disk = DiskFile::attach(OwnedFd(Named::Disk));
    loop {
        match mover.step(pool, &disk, &mut nodes) {
            StepOutcome::Moved { .. } => world::with(|world| world.count("moves of slabs")),
            _ => {
                if world::with(|world| world.chance(4)) {
                    let _ = mover.raise(pool, &disk, &mut nodes);
                }
                thread::sleep(LOOK_NS);
            }
        }
    }
}

/// A call that is answered when its time has come.
struct Due {
    at_ns: u64,
    taken: TakenCall,
}

fn carry(pool: &Pool<&'static SharedMemory>, shelf: &Shelf, far: Far) {
    /// How long it sleeps at most.
    const IDLE_NS: u64 = 1_000_000;
    let mut due: Vec<Due> = Vec::new();
    let mut loses_at_ns = (far.lost_after_ns > 0).then(|| thread::now_ns() + far.lost_after_ns);
    loop {
        let now_ns = thread::now_ns();
        if loses_at_ns.take_if(|at_ns| *at_ns <= now_ns).is_some() {
            let lost = std::mem::take(&mut *shelf.blocks());
            world::with(|world| world.count("losses of nodes"));
            lost.keys().for_each(|&block| pool.forget_nodes_of(block));
        }
        for lane in 0..pool.lanes() {
            while let Some(taken) = pool.take_call(lane) {
                let takes_ns = world::with(|world| {
                    let takes_ns = world.random.random_range(0..=far.answer_ns);
                    if world.chance(far.silent_one_in) { takes_ns * 1000 } else { takes_ns }
                });
                due.push(Due { at_ns: now_ns + takes_ns, taken });
            }
        }
        // Whichever was asked for first: answers come in any order.
        while let Some(at) = due.iter().position(|due| due.at_ns <= now_ns) {
            let taken = due.swap_remove(at).taken;
            answer(pool, shelf, far, &taken);
            schedule::point();
        }
        let first_ns = due.iter().map(|due| due.at_ns).min().unwrap_or(u64::MAX);
        pool.wait_for_call(0, first_ns.saturating_sub(now_ns).clamp(1, IDLE_NS));
    }
}

/// Answers a call as the supervisor's carrier does.
fn answer(pool: &Pool<&'static SharedMemory>, shelf: &Shelf, far: Far, taken: &TakenCall) {
    /// Pages that come with the one that is asked for.
    const SPAN: usize = 8;
    let call = taken.call;
    if call.is_retry {
        pool.forget_buffered(&call);
    }
    let first = call.first - call.first % SPAN;
    let end = (call.first + call.count).next_multiple_of(SPAN).min(SLAB_BYTES / PAGE_BYTES);
    let pages = Call { first, count: end - first, is_retry: false, ..call };
    let range = first * PAGE_BYTES..end * PAGE_BYTES;
    let content = shelf.blocks().get(&call.block).map(|bytes| bytes[range].to_vec());
    let answered = match (content, pool.begin_fill()) {
        (Some(mut content), Some(filling)) => {
            if !call.is_retry && world::with(|world| world.chance(far.lie_one_in)) {
                content.iter_mut().for_each(|byte| *byte ^= 1);
            }
            pool.fill(filling, &pages, taken.owner(), &content)
        }
        (None, Some(filling)) => pool.fill(filling, &pages, taken.owner(), &[]),
        (_, None) => Answer::Nowhere,
    };
    world::with(|world| {
        world.count(if answered == Answer::Nowhere { "refused by nodes" } else { "answers of nodes" });
    });
    pool.answer(taken, answered);
    if world::with(|world| world.chance(far.twice_one_in)) {
        pool.answer(taken, Answer::Nowhere);
    }
}
