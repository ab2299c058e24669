//! What it takes to find an entry for a page that leaves, while others do the same (Canvas, Figures 13 and
//! 16): in the pool itself, without a kernel around it.

use std::hint::black_box;
use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::Instant;

use anyhow::{Context, anyhow};
use farmem_page::{ByteCount, PAGE_BYTES, PageBytes, Place};
use farmem_store::{Epoch, NodesConfig, OwnerId, Packing, Pool, PoolConfig, Update, Writer};
use farmem_sys::shared::SharedMemory;
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use serde::Serialize;

use crate::interrupt::Interrupt;
use crate::median::median;

const THREADS: [u16; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Pages of each thread.
const PAGES: usize = 256;
/// How often they leave, all threads together.
const TURNS: usize = 512;
const REPETITIONS: usize = 5;
/// What the pool needs in addition to the pages: slabs that are being filled.
const SPARE_SHARE: usize = 2;

/// Swap-outs of so many threads at once, each for a process of its own. Times are those of a processor: what
/// all processors together spent, idle or not, for each page. Pages are stored as they are, so that packing
/// them hides nothing.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Entries {
    /// How many.
    pub threads: u16,
    /// A page goes back into the entry that it kept while it was local.
    pub reserved_ns: f64,
    /// Its entry was given up when it came in, and it gets another one.
    pub allocated_ns: f64,
}

/// Measures, for each number of threads.
pub(super) fn measure(interrupt: &Interrupt) -> anyhow::Result<Vec<Entries>> {
    let processors = thread::available_parallelism()?.get();
    let mut found = Vec::new();
    for threads in THREADS {
        let (mut reserved, mut allocated) = (Vec::new(), Vec::new());
        for _ in 0..REPETITIONS {
            interrupt.check()?;
            reserved.push(turn(threads, processors, Kept::Yes)?);
            allocated.push(turn(threads, processors, Kept::No)?);
        }
        found.push(Entries { threads, reserved_ns: median(reserved), allocated_ns: median(allocated) });
    }
    Ok(found)
}

/// Whether a page keeps its entry while it is local.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    Yes,
    No,
}

/// Processor time for each swap-out, nanoseconds.
fn turn(threads: u16, processors: usize, kept: Kept) -> anyhow::Result<f64> {
    let bytes = usize::from(threads) * PAGES * PAGE_BYTES * SPARE_SHARE;
    let config = PoolConfig {
        limit: ByteCount::new(bytes as u64 + (64 << 20)),
        capacity: ByteCount::ZERO,
        disk: ByteCount::ZERO,
        nodes: NodesConfig::default(),
        owners: threads,
        seed: 1,
    };
    let memory = SharedMemory::create(c"farmem-bench-pool", config.memory_bytes()?)?;
    let pool = Pool::create(memory, &config)?;
    let barrier = Barrier::new(usize::from(threads));
    let began = OnceLock::new();
    let turns = TURNS.div_ceil(usize::from(threads));
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|owner| {
                let (pool, barrier, began) = (&pool, &barrier, &began);
                scope.spawn(move || {
                    let mut process = Process::new(pool, OwnerId(owner));
                    // The first time there is nothing to keep, and memory is new.
                    let first = process.leave(kept);
                    let second = process.leave(kept);
                    barrier.wait();
                    began.get_or_init(Instant::now);
                    let rest: anyhow::Result<()> = (0..turns).try_for_each(|_| process.leave(kept));
                    first.and(second).and(rest)
                })
            })
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    let took = began.get().context("no thread began")?.elapsed();
    let swap_outs = usize::from(threads) * turns * PAGES;
    Ok(took.as_secs_f64() * 1e9 * processors.min(usize::from(threads)) as f64 / swap_outs as f64)
}

/// A process with pages that leave again and again, changed each time.
struct Process<'a> {
    pool: &'a Pool<SharedMemory>,
    owner: OwnerId,
    writer: Box<Writer>,
    pages: Vec<PageBytes>,
    places: Vec<Option<Place>>,
}

impl<'a> Process<'a> {
    fn new(pool: &'a Pool<SharedMemory>, owner: OwnerId) -> Self {
        let mut writer = Box::new(Writer::new(owner));
        writer.set_packing(Packing::Later);
        let mut random = SmallRng::seed_from_u64(u64::from(owner.0));
        let pages = (0..PAGES)
            .map(|_| {
                let mut page = [0; PAGE_BYTES];
                random.fill_bytes(&mut page);
                page
            })
            .collect();
        Self { pool, owner, writer, pages, places: vec![None; PAGES] }
    }

    /// Each page comes in, is written, and leaves.
    fn leave(&mut self, kept: Kept) -> anyhow::Result<()> {
        for (page, place) in self.pages.iter_mut().zip(&mut self.places) {
            if kept == Kept::No
                && let Some(old) = place.take()
            {
                self.pool.free(old, self.owner, Epoch::NONE);
            }
            page[0] = page[0].wrapping_add(1);
            *place = Some(match *place {
                Some(old) => match self.writer.update(self.pool, old, page, Epoch::FIRST, Epoch::NONE)? {
                    Update::InPlace(same) => same,
                    other => return Err(anyhow!("a page should keep its entry, not be {other:?}")),
                },
                None => self.writer.store(self.pool, page, Epoch::FIRST)?,
            });
        }
        black_box(&self.places);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_keep_their_entries_or_get_others() {
        for kept in [Kept::Yes, Kept::No] {
            assert!(turn(3, 2, kept).unwrap() > 0.0);
        }
    }
}
