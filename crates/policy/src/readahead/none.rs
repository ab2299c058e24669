//! No readahead.

use farmem_page::PageRange;

use super::{Advice, Fault, Prefetcher, Run};

/// Fetches nothing but what is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoReadahead;

impl Prefetcher for NoReadahead {
    fn on_fault(&mut self, _fault: Fault, _bounds: PageRange) -> Advice {
        Advice::default()
    }
    fn forget(&mut self, _range: PageRange) {}
    fn drain(&mut self) -> Option<Run> {
        None
    }
}
