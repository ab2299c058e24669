//! How slabs become free again: one that is empty, and all of an owner that died.

use crate::claims::Claimable;
use crate::layout::{Cover, Header};
use crate::memory::{Atomic, Memory};
use crate::pool::{OwnerId, Pool};
use crate::slab::{Gate, Kind};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

impl<M: Memory> Pool<M> {
    /// Gives a slab back if it is empty, still belongs to `owner`, and nobody else has the say over it. Only
    /// for threads of the owner: it isn't released while one of them runs. Another owner's slab could be torn
    /// down for its death at the same moment.
    pub(crate) fn give_back_if_empty(&self, slab: usize, owner: OwnerId) {
        self.shut_and_free(slab, |gate| if gate.owner() == owner { gate.shut_if_empty() } else { None });
    }

    /// The same for a thread that is neither the owner nor the mover, whosever the slab is: as long as the
    /// slab isn't free its gate says that somebody has it, so that a release of its owner leaves it alone.
    pub(crate) fn take_back_if_empty(&self, slab: usize) {
        self.shut_and_free(slab, Gate::taken_if_empty);
    }

    fn shut_and_free(&self, slab: usize, shut: impl Fn(Gate) -> Option<Gate>) {
        let Ok(word) = self.gate(slab) else { return };
        let mut now = word.load(SeqCst);
        while let Some(shut) = shut(Gate(now)) {
            match word.compare_exchange(now, shut.0, SeqCst, Relaxed) {
                Ok(_) => return self.tear_down(slab),
                Err(changed) => now = changed,
            }
        }
    }

    /// Ends the mover's say over a slab: its gate becomes what `after` makes of it. That gate; `None` when
    /// the slab is empty, and was given back.
    ///
    /// A thread that looks for what an owner that has ended left half done must not take such a slab for
    /// that: so the mover has the say until the slab is free.
    pub(crate) fn end_move(&self, slab: usize, after: impl Fn(Gate) -> Gate) -> Option<Gate> {
        let word = self.gate(slab).ok()?;
        let mut now = word.load(SeqCst);
        loop {
            let open = after(Gate(now));
            let shut = open.shut_by_mover();
            match word.compare_exchange(now, shut.unwrap_or(open).0, SeqCst, Relaxed) {
                Ok(_) if shut.is_none() => return Some(open),
                Ok(_) => break,
                Err(changed) => now = changed,
            }
        }
        self.tear_down(slab);
        None
    }

    /// Frees all that a slab holds, then the slab. Only for the thread that has the sole say over it
    /// (invariant 4).
    pub(crate) fn tear_down(&self, slab: usize) {
        let (Ok(state), Ok(word)) = (self.state(slab), self.state_word(slab)) else { return };
        word.store(state.at(Kind::Releasing, 0).encode(), Release);
        match state.kind {
            Kind::Memory | Kind::Moving => self.unclaim(Claimable::Frame, state.location, slab),
            Kind::Away => self.unclaim(Claimable::Block, state.location, slab),
            Kind::Free | Kind::Leasing | Kind::Releasing => {}
        }
        for nth in 0..Cover::of(state.class).chunks() {
            if let Ok((what, chunk)) = self.chunk(slab, state.class, nth) {
                self.unclaim(what, chunk, slab);
            }
        }
        self.set_free(slab);
    }

    /// The last step of giving a slab back.
    pub(crate) fn set_free(&self, slab: usize) {
        let (Ok(state), Ok(word)) = (self.state(slab), self.state_word(slab)) else { return };
        word.store(state.at(Kind::Free, 0).encode(), Release);
        if let Ok(cursor) = self.header(Header::SlabCursor)
            && cursor.load(Relaxed) > slab as u64
        {
            cursor.store(slab as u64, Relaxed);
        }
    }

    /// Frees every slab of an owner that is dead, and whatever it was in the middle of. Only the supervisor
    /// calls this, once no living process reads the owner's slots (a forked child may) and before it reuses
    /// the number, and not while a packer is at work for the owner.
    pub fn release_owner(&self, owner: OwnerId) {
        self.clear_queue(owner);
        self.cancel_calls(owner);
        for class in 0..crate::class::CLASS_COUNT {
            if let Some(class) = crate::class::SizeClass::new(class)
                && let Ok(current) = self.current(owner, class)
            {
                current.store(0, SeqCst);
            }
        }
        for slab in 0..self.slabs_used() {
            self.abandon(slab, owner);
        }
        // The gate first: from now on the owner gets no slab, so one of its that the mover hasn't got then
        // isn't the mover's later.
        let is_lost = |slab: usize| {
            self.gate(slab).is_ok_and(|word| !Gate(word.load(Acquire)).is_moving())
                && self.state(slab).is_ok_and(|state| state.owner == owner && state.kind == Kind::Releasing)
        };
        for what in [Claimable::Frame, Claimable::Block, Claimable::Chunk, Claimable::SmallChunk] {
            self.unclaim_where(what, |slab, _| is_lost(slab));
        }
        for slab in 0..self.slabs_used() {
            if is_lost(slab) {
                self.set_free(slab);
            }
        }
    }

    /// Takes the say over a dead owner's slab, unless the mover has it: the mover then finds it empty and
    /// gives it back.
    fn abandon(&self, slab: usize, owner: OwnerId) {
        let (Ok(gate), Ok(word), Ok(state)) = (self.gate(slab), self.state_word(slab), self.state(slab))
        else {
            return;
        };
        if state.owner != owner || state.kind == Kind::Free {
            return;
        }
        if state.kind == Kind::Leasing {
            gate.store(Gate::shut(owner, state.class).0, Release);
        } else {
            let mut now = gate.load(SeqCst);
            // The mover may have given it back meanwhile, and another owner have it.
            while Gate(now).owner() == owner {
                match gate.compare_exchange(now, Gate(now).abandoned().0, AcqRel, SeqCst) {
                    Ok(_) => break,
                    Err(changed) => now = changed,
                }
            }
            if Gate(now).owner() != owner || Gate(now).is_moving() {
                return;
            }
        }
        if let Ok(state) = self.state(slab) {
            word.store(state.at(Kind::Releasing, 0).encode(), Release);
        }
    }
}
