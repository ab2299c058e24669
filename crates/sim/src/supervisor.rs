//! What stands for the supervisor: it answers packets as `farmem-supervisor` does.

use std::sync::Arc;

use farmem_page::{ByteCount, PageCount};
use farmem_simulated_kernel::descriptors::Named;
use farmem_simulated_kernel::link::{Answer, Supervisor};
use farmem_simulated_kernel::shared::SharedMemory;
use farmem_simulated_store::{NodesConfig, Pool, PoolConfig};
use farmem_telemetry::{LEDGER_BYTES, Ledger};
use farmem_wire::{HAS_DISK, Reply, Request};

use crate::case::Case;
use crate::far::{Far, SimulatedPool};

/// The largest pool of a case, in slabs.
pub(crate) const MOST_SLABS: u64 = 16;
/// The largest read buffer of a case.
pub(crate) const MOST_ENTRIES: u16 = 8;
/// Bytes of a slab.
const SLAB_BYTES: u64 = farmem_simulated_store::SLAB_BYTES as u64;

/// The supervisor of a simulated application.
pub(crate) struct Simulated {
    ledger: &'static SharedMemory,
    memory: &'static SharedMemory,
    has_disk: bool,
}

impl Simulated {
    /// A supervisor, and its pool, which is empty. What they need of memory is `memory`'s, which was used by
    /// nobody since it was cleared.
    pub(crate) fn new(case: &Case, memory: &Memory) -> (Self, SimulatedPool) {
        let words = memory.ledger.atomics(0, LEDGER_BYTES / 8).expect("the memory is as long as a ledger");
        let ledger = Ledger::new(words).expect("the memory is as long as a ledger");
        ledger.format();
        ledger.set_budget(PageCount::new(case.budget_pages));
        ledger.set_cache(PageCount::new(case.budget_pages));
        ledger.slot(0).expect("there is a first slot").assign(1);
        let pool = Pool::create(memory.pool, &config(case.slabs, case.far, case.seed));
        let pool = Arc::new(pool.expect("the memory is as long as the pool"));
        let has_disk = case.far.disk_slabs > 0;
        (Self { ledger: memory.ledger, memory: memory.pool, has_disk }, pool)
    }
}

fn config(slabs: u64, far: Far, seed: u64) -> PoolConfig {
    let bytes = |slabs: u64| ByteCount::new(slabs * SLAB_BYTES);
    let nodes = NodesConfig {
        alone: bytes(far.node_slabs),
        lanes: u16::from(far.has_nodes),
        entries: far.entries,
        ..NodesConfig::default()
    };
    PoolConfig {
        limit: bytes(slabs),
        capacity: ByteCount::ZERO,
        disk: bytes(far.disk_slabs),
        nodes: if far.has_nodes { nodes } else { NodesConfig::default() },
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
        let most = Far {
            disk_slabs: MOST_SLABS,
            node_slabs: MOST_SLABS,
            has_nodes: true,
            entries: MOST_ENTRIES,
            ..Far::default()
        };
        let pool_bytes = config(MOST_SLABS, most, 0).memory_bytes().expect("the case is possible");
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
            Request::Hello { .. } => {
                let mut named = vec![Named::Memory(self.ledger), Named::Memory(self.memory)];
                named.extend(self.has_disk.then_some(Named::Disk));
                let flags = if self.has_disk { HAS_DISK } else { 0 };
                answer(
                    Reply::Welcome { slot: 0, pool_bytes: self.memory.length_bytes() as u64, flags },
                    named,
                )
            }
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
