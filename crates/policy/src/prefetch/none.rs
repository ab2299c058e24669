//! No prefetching.

use farmem_page::PageRange;

use super::{Advice, Fault, Prefetcher, Run};

/// Fetches nothing but what is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPrefetching;

impl Prefetcher for NoPrefetching {
    fn on_fault(&mut self, _fault: Fault, _bounds: PageRange) -> Advice {
        Advice::default()
    }
    fn forget(&mut self, _range: PageRange) {}
    fn drain(&mut self) -> Option<Run> {
        None
    }
    fn set_cache(&mut self, _pages: u32) {}
    fn shrink(&mut self) -> Option<Run> {
        None
    }
    fn unsettled_pages(&self) -> u32 {
        0
    }
}
