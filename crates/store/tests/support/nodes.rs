//! Memory nodes that are a map, and a carrier that answers calls from it.

use farmem_page::PAGE_BYTES;
use farmem_store::{
    Answer, BlockError, Call, Caller, Memory, NodeBlock, Nodes, OwnerId, Pool, SLAB_BYTES, TakenCall,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// What nodes hold, by block. Clones are the same.
#[derive(Clone, Default)]
pub struct Shelf {
    pub blocks: Arc<Mutex<BTreeMap<usize, Vec<u8>>>>,
    pub capacity: Arc<AtomicUsize>,
    /// Whether what is fetched comes damaged, the first time it is asked for.
    pub is_damaging: Arc<AtomicBool>,
    pub fetched_spans: Arc<AtomicUsize>,
}

impl Shelf {
    pub fn new(capacity: usize) -> Self {
        let shelf = Self::default();
        shelf.capacity.store(capacity, Ordering::SeqCst);
        shelf
    }

    /// Takes away what it holds, and tells the pool.
    pub fn lose<M: Memory>(&self, pool: &Pool<M>) {
        let lost = std::mem::take(&mut *self.blocks.lock().unwrap());
        lost.keys().for_each(|&block| pool.forget_nodes_of(block));
    }

    /// Answers one call as the carrier does.
    pub fn serve<M: Memory>(&self, pool: &Pool<M>, taken: &TakenCall) {
        let call = taken.call;
        if call.is_retry {
            pool.forget_buffered(&call);
        }
        let first = call.first - call.first % 8;
        let pages = Call {
            first,
            count: if call.first + call.count > first + 8 { 9 } else { 8 },
            is_retry: false,
            ..call
        };
        let range = first * PAGE_BYTES..((first + pages.count) * PAGE_BYTES).min(SLAB_BYTES);
        let pages = Call { count: range.len() / PAGE_BYTES, ..pages };
        let content = self.blocks.lock().unwrap().get(&call.block).map(|bytes| bytes[range].to_vec());
        let answer = match (content, pool.begin_fill()) {
            (Some(mut content), Some(filling)) => {
                if self.is_damaging.load(Ordering::SeqCst) && !call.is_retry {
                    content.iter_mut().for_each(|byte| *byte ^= 1);
                }
                self.fetched_spans.fetch_add(1, Ordering::SeqCst);
                pool.fill(filling, &pages, taken.owner(), &content)
            }
            (None, Some(filling)) => pool.fill(filling, &pages, taken.owner(), &[]),
            (_, None) => Answer::Nowhere,
        };
        pool.answer(taken, answer);
    }

    /// Answers calls until told to end.
    pub fn carry<M: Memory>(&self, pool: &Pool<M>, ends: &AtomicBool) {
        while !ends.load(Ordering::SeqCst) {
            let mut is_idle = true;
            for lane in 0..pool.lanes() {
                while let Some(taken) = pool.take_call(lane) {
                    self.serve(pool, &taken);
                    is_idle = false;
                }
            }
            if is_idle {
                pool.wait_for_call(0, 1_000_000);
            }
        }
    }
}

impl Nodes for Shelf {
    fn room(&self) -> usize {
        self.capacity.load(Ordering::SeqCst).saturating_sub(self.blocks.lock().unwrap().len())
    }
    fn write(&mut self, blocks: &[NodeBlock], content: &[u8], kept: &mut [bool]) {
        let mut held = self.blocks.lock().unwrap();
        for ((block, bytes), kept) in blocks.iter().zip(content.chunks_exact(SLAB_BYTES)).zip(kept) {
            held.remove(&block.block);
            *kept = held.len() < self.capacity.load(Ordering::SeqCst);
            if *kept {
                held.insert(block.block, bytes.to_vec());
            }
        }
    }
    fn has(&self, block: usize) -> bool {
        self.blocks.lock().unwrap().contains_key(&block)
    }
    fn read(&mut self, block: usize, out: &mut [u8; SLAB_BYTES]) -> Result<(), BlockError> {
        let held = self.blocks.lock().unwrap();
        out.copy_from_slice(held.get(&block).ok_or(BlockError::Failed)?);
        Ok(())
    }
}

/// A caller that waits for so long.
pub struct Waiting {
    pub owner: OwnerId,
    pub patience_ns: u64,
    pub since: Instant,
}

impl Waiting {
    pub fn new(owner: OwnerId, patience_ns: u64) -> Self {
        Self { owner, patience_ns, since: Instant::now() }
    }
}

impl Caller for Waiting {
    fn owner(&self) -> OwnerId {
        self.owner
    }
    fn processor(&self) -> usize {
        usize::from(self.owner.0)
    }
    fn now_ns(&self) -> u64 {
        self.since.elapsed().as_nanos() as u64
    }
    fn is_patient(&self, waited_ns: u64) -> bool {
        waited_ns < self.patience_ns
    }
}
