//! How pages leave, where they are kept, and how they come back when there is room.

pub(crate) mod evict;
mod hand;
pub(crate) mod packed;
mod quiescence;
pub(crate) mod release;
pub(crate) mod residency;
pub(crate) mod stranded;
pub(crate) mod swap_in;
mod unmovable;
pub(crate) mod vault;

use core::sync::atomic::{AtomicBool, Ordering};

use evict::Evictor;
use farmem_page::PageCount;
use farmem_policy::Victims;
use farmem_sys::lock::Lock;
use quiescence::Quiescence;
use unmovable::Unmovable;

/// What evictions of a process share.
#[derive(Debug)]
pub(crate) struct Eviction {
    /// Which pages leave next.
    pub(crate) victims: Victims,
    /// There from when the process begins to be managed.
    pub(crate) evictor: Lock<Option<Evictor>>,
    unmovable: Unmovable,
    /// Of the processors that the program runs on, while its pages are moved.
    pub(crate) quiescence: Quiescence,
    /// Whether moved pages wait to be put back.
    are_stranded: AtomicBool,
    /// Whether the pager leaves the program, which goes on without one.
    is_leaving: AtomicBool,
}

impl Eviction {
    pub(crate) fn new(budget: PageCount) -> Self {
        Self {
            victims: Victims::new(budget),
            evictor: Lock::new(None),
            unmovable: Unmovable::new(),
            quiescence: Quiescence::new(),
            are_stranded: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
        }
    }

    /// Nothing is to leave any more. An eviction that is under way goes on.
    pub(crate) fn end(&self) {
        self.is_leaving.store(true, Ordering::Release);
    }

    /// Whether nothing is to leave any more.
    pub(crate) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Acquire)
    }

    /// Whether there are pages that have to be put back: asked without a lock.
    pub(crate) fn are_stranded(&self) -> bool {
        self.are_stranded.load(Ordering::Acquire)
    }

    /// Whether there are such pages now. By whoever evicts.
    fn note_stranded(&self, are_stranded: bool) {
        self.are_stranded.store(are_stranded, Ordering::Release);
    }

    /// Whether nobody has a page in hand on its way out, neither at this moment nor stranded.
    pub(crate) fn is_over(&self) -> bool {
        self.evictor.is_free() && !self.are_stranded()
    }
}
