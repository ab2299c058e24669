//! Where a thread of the pager runs that works for a handler.

use core::sync::atomic::Ordering;

use farmem_sys::affinity::{self, Allowed};

use crate::engine::Engine;

/// The processors that a thread may use, and the one that it stays on at this moment.
#[derive(Debug)]
pub(crate) struct Whereabouts {
    allowed: Option<Allowed>,
    /// As the engine's word; 0 while the thread may run anywhere.
    processor: u32,
}

impl Whereabouts {
    pub(crate) fn new(allowed: Option<Allowed>) -> Self {
        Self { allowed, processor: 0 }
    }

    /// Where the thread may run at all; `None` where the kernel doesn't say.
    pub(crate) fn allowed(&self) -> Option<Allowed> {
        self.allowed
    }

    /// Keeps the calling thread, whose whereabouts these are, with the handler that works alone, if that is wanted and one does; else lets it run anywhere. Whether it stays with one.
    pub(crate) fn stay_with_handler(&mut self, engine: &Engine, is_wanted: bool) -> bool {
        let is_alone = engine.armed.load(Ordering::Relaxed) == 1;
        let wanted = if is_wanted && is_alone { engine.processor.load(Ordering::Acquire) } else { 0 };
        if wanted == self.processor {
            return wanted != 0;
        }
        self.processor = wanted;
        match (wanted.checked_sub(1), &self.allowed) {
            (Some(processor), _) => affinity::stay_on(processor),
            (None, Some(allowed)) => allowed.restore(),
            (None, None) => {}
        }
        wanted != 0
    }
}
