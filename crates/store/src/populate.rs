//! A pool as if much were stored in it, for measurements: to fill a terabyte takes hours.

use crate::claims::Claimable;
use crate::class::SizeClass;
use crate::layout::Header;
use crate::memory::{Atomic, Memory};
use crate::pool::{OwnerId, Pool, claim_of};
use crate::slab::{Gate, Kind, State};
use core::sync::atomic::Ordering::SeqCst;

impl<M: Memory> Pool<M> {
    /// Makes the first `slabs` slabs full ones of `owner`, in memory, in the order of their numbers: nothing
    /// can be read from them. Only while nobody uses the pool, and at most as many as its limit has room for.
    /// How many there are.
    pub fn populate(&self, owner: OwnerId, slabs: usize) -> usize {
        let class = SizeClass::LARGEST;
        let most = slabs.min(self.frame_limit());
        let full = (0..class.slots())
            .fold(Gate::open(owner, class).0, |gate, _| gate + Gate::page(class.slot_bytes()));
        for header in [Header::SlabHigh, Header::FrameHigh, Header::SlabCursor, Header::FrameCursor] {
            if let Ok(word) = self.header(header) {
                word.store(most as u64, SeqCst);
            }
        }
        for slab in 0..most {
            let (Ok(state), Ok(gate), Ok(sequence)) =
                (self.state_word(slab), self.gate(slab), self.sequence(slab))
            else {
                return slab;
            };
            if let Some(claim) = self.claims(Claimable::Frame).get(slab) {
                claim.store(claim_of(slab), SeqCst);
            }
            sequence.store(self.next_sequence(), SeqCst);
            let kind = Kind::Memory;
            state.store(State { kind, class, owner, location: slab, generation: 1 }.encode(), SeqCst);
            gate.store(full, SeqCst);
        }
        most
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{NodesConfig, PoolConfig, SLAB_BYTES};
    use farmem_page::ByteCount;
    use farmem_sys::shared::SharedMemory;

    /// A pool of so many slabs, all of which are full.
    pub(crate) fn full(slabs: usize) -> Pool<SharedMemory> {
        let config = PoolConfig {
            limit: ByteCount::new((slabs * SLAB_BYTES) as u64),
            capacity: ByteCount::ZERO,
            disk: ByteCount::ZERO,
            nodes: NodesConfig::default(),
            owners: 1,
            seed: 1,
        };
        let memory = SharedMemory::create(c"farmem-full", config.memory_bytes().unwrap()).unwrap();
        let pool = Pool::create(memory, &config).unwrap();
        assert_eq!(pool.populate(OwnerId(0), slabs), slabs);
        pool
    }
}
