//! Bringing slabs to disk that lie on nodes alone, where these nodes are to be emptied and no other one has
//! room.
//!
//! Such a slab stays away: its content goes from one block to another, or, where its block has a place on
//! disk that was never written, there. A thread that reads it meanwhile by the old block finds the state
//! changed, and looks again.

use crate::claims::{Claimable, Turn};
use crate::class::SLAB_BYTES;
use crate::disk::{BlockFile, block_offset_bytes};
use crate::memory::{Atomic, Memory};
use crate::mover::{BATCH_SLABS, Mover, StepOutcome, let_stay};
use crate::nodes::Nodes;
use crate::pool::Pool;
use crate::raise::hold_away;
use crate::slab::Kind;
use core::sync::atomic::Ordering::Release;
use farmem_page::ByteCount;

enum Lowered {
    Yes,
    Busy,
    NoBlock,
    NodesFailing,
    DiskFailing,
}

impl Mover {
    /// Brings a batch of slabs to disk whose blocks are wanted there, as far as it has room. Doesn't sleep;
    /// waits for nodes and disk only. Nobody waits for these slabs.
    pub fn lower<M: Memory, F: BlockFile, N: Nodes>(
        &mut self,
        pool: &Pool<M>,
        file: &F,
        nodes: &mut N,
        is_wanted: impl Fn(usize) -> bool,
    ) -> StepOutcome {
        let mut slabs = 0;
        let used = pool.slabs_used();
        for slab in Turn::new(0..used, self.lowering, used) {
            if slabs == BATCH_SLABS {
                break;
            }
            self.lowering = slab + 1;
            let is_there = pool.state(slab).is_ok_and(|state| {
                state.kind == Kind::Away
                    && is_wanted(state.location)
                    && pool.copies(state.location).is_ok_and(|copies| copies.on_node && !copies.on_disk)
            });
            if !is_there {
                continue;
            }
            match self.lower_one(pool, file, nodes, slab) {
                Lowered::Yes => slabs += 1,
                // Another one may come from nodes that answer.
                Lowered::Busy | Lowered::NodesFailing => {}
                Lowered::NoBlock if slabs == 0 => return StepOutcome::Full,
                Lowered::NoBlock => break,
                Lowered::DiskFailing => return self.writing.failed(),
            }
        }
        match slabs {
            0 => StepOutcome::Idle,
            _ => StepOutcome::Moved { slabs, written: ByteCount::new((slabs * SLAB_BYTES) as u64) },
        }
    }

    fn lower_one<M: Memory, F: BlockFile, N: Nodes>(
        &mut self,
        pool: &Pool<M>,
        file: &F,
        nodes: &mut N,
        slab: usize,
    ) -> Lowered {
        let Ok(word) = pool.state_word(slab) else { return Lowered::Busy };
        let Some(state) = hold_away(pool, slab) else { return Lowered::Busy };
        let end = |outcome| {
            let_stay(pool, slab);
            outcome
        };
        let before = state.location;
        let has_place = before < pool.layout.disk_blocks;
        let block = match has_place {
            true => before,
            false => match pool.claim_block(slab, false) {
                Some(block) => block,
                None => return end(Lowered::NoBlock),
            },
        };
        let give_up = |outcome| {
            if !has_place {
                pool.unclaim(Claimable::Block, block, slab);
            }
            end(outcome)
        };
        let buffer = &mut self.buffer[self.buffer_start..][..SLAB_BYTES];
        let is_read = <&mut [u8; SLAB_BYTES]>::try_from(&mut *buffer)
            .is_ok_and(|whole| nodes.read(before, whole).is_ok());
        if !is_read {
            return give_up(Lowered::NodesFailing);
        }
        if file.write_at(block_offset_bytes(block), buffer).is_err() {
            return give_up(Lowered::DiskFailing);
        }
        if has_place {
            // Nodes keep theirs until somebody takes it from them.
            pool.note_disk_copy(block);
        } else {
            pool.set_copies(block, true, false);
            word.store(state.at(Kind::Away, block).encode(), Release);
            pool.unclaim(Claimable::Block, before, slab);
        }
        end(Lowered::Yes)
    }
}
