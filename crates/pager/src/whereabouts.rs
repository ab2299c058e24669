//! Where a thread of the pager runs that works for a handler.

use farmem_sys::affinity::{self, Allowed};

use crate::fault::handlers::Handlers;

/// The processors that a thread may use, and the one that it stays on at this moment.
#[derive(Debug)]
pub(crate) struct Whereabouts {
    allowed: Option<Allowed>,
    /// `None` while the thread may run anywhere.
    processor: Option<u32>,
}

impl Whereabouts {
    pub(crate) fn new(allowed: Option<Allowed>) -> Self {
        Self { allowed, processor: None }
    }

    /// Where the thread may run at all; `None` where the kernel doesn't say.
    pub(crate) fn allowed(&self) -> Option<Allowed> {
        self.allowed
    }

    /// Keeps the calling thread, whose whereabouts these are, with the handler that works alone, if that is
    /// wanted and one does; else lets it run anywhere. Whether it stays with one.
    pub(crate) fn stay_with_handler(&mut self, handlers: &Handlers, is_wanted: bool) -> bool {
        let wanted = if is_wanted { handlers.processor_of_one_alone() } else { None };
        if wanted == self.processor {
            return wanted.is_some();
        }
        self.processor = wanted;
        match (wanted, &self.allowed) {
            (Some(processor), _) => affinity::stay_on(processor),
            (None, Some(allowed)) => allowed.restore(),
            (None, None) => {}
        }
        wanted.is_some()
    }
}
