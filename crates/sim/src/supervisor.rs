//! Who stands for the supervisor: it answers packets as `farmem-supervisor` does.

use farmem_page::{ByteCount, PageCount};
use farmem_simulated_kernel::descriptors::Named;
use farmem_simulated_kernel::link::{Answer, Supervisor};
use farmem_simulated_kernel::shared::SharedMemory;
use farmem_simulated_store::{NodesConfig, Pool, PoolConfig};
use farmem_telemetry::{LEDGER_BYTES, Ledger};
use farmem_wire::{Reply, Request};

use crate::case::Case;

/// The largest pool of a case, in slabs.
pub(crate) const MOST_SLABS: u64 = 16;
/// Bytes of a slab.
const SLAB_BYTES: u64 = farmem_simulated_store::SLAB_BYTES as u64;

/// The supervisor of a simulated application.
pub(crate) struct Simulated {
    ledger: &'static SharedMemory,
    pool: &'static SharedMemory,
}

impl Simulated {
    /// A supervisor with an empty pool. What it needs of memory is `memory`'s, which was used by nobody since it was cleared.
    pub(crate) fn new(case: &Case, memory: &Memory) -> Self {
        let words = memory.ledger.atomics(0, LEDGER_BYTES / 8).expect("the memory is as long as a ledger");
        let ledger = Ledger::new(words).expect("the memory is as long as a ledger");
        ledger.format();
        ledger.set_budget(PageCount::new(case.budget_pages));
        ledger.set_cache(PageCount::new(case.budget_pages));
        ledger.slot(0).expect("there is a first slot").assign(1);
        let _ = Pool::create(memory.pool, &config(case.slabs, case.seed))
            .expect("the memory is as long as the pool");
        Self { ledger: memory.ledger, pool: memory.pool }
    }
}

fn config(slabs: u64, seed: u64) -> PoolConfig {
    PoolConfig {
        limit: ByteCount::new(slabs * SLAB_BYTES),
        capacity: ByteCount::ZERO,
        disk: ByteCount::ZERO,
        nodes: NodesConfig::default(),
        owners: 1,
        seed,
    }
}

/// Memory for one run after the other.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) ledger: &'static SharedMemory,
    pub(crate) pool: &'static SharedMemory,
}

impl Memory {
    /// Memory for any case.
    pub(crate) fn new() -> Self {
        let make = |name, bytes| {
            let memory = farmem_sys::shared::SharedMemory::create(name, bytes).expect("there is memory");
            &*Box::leak(Box::new(SharedMemory::over(Box::leak(Box::new(memory)))))
        };
        let pool_bytes = config(MOST_SLABS, 0).memory_bytes().expect("the case is possible");
        Self { ledger: make(c"sim-ledger", LEDGER_BYTES), pool: make(c"sim-pool", pool_bytes) }
    }

    /// Makes it zeros again.
    pub(crate) fn clear(&self) {
        for memory in [self.ledger, self.pool] {
            memory.release(0..memory.length_bytes()).expect("holes can be punched");
        }
    }
}

impl Supervisor for Simulated {
    fn answer(&mut self, packet: &[u8], _named: &[Named]) -> Option<Answer> {
        let answer =
            |reply: Reply, named: Vec<Named>| Some(Answer { packet: reply.encode().to_vec(), named });
        match Request::decode(packet)? {
            Request::Hello { .. } => answer(
                Reply::Welcome { slot: 0, pool_bytes: self.pool.length_bytes() as u64, flags: 0 },
                vec![Named::Memory(self.ledger), Named::Memory(self.pool)],
            ),
            Request::Register => answer(Reply::Done, Vec::new()),
            Request::Forked { epoch } => {
                let words = self.ledger.atomics(0, LEDGER_BYTES / 8)?;
                let slot = Ledger::new(words)?.slot(0)?;
                // Children are never given up here: what they read stays frozen until the run ends.
                slot.set_frozen_epoch(epoch);
                slot.note_heard_epoch(epoch);
                None
            }
            _ => None,
        }
    }
}
