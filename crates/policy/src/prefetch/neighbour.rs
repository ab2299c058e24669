//! A page comes with the pages around it: COMEX (§4.3), which reads a page with its neighbours in one
//! request.
//!
//! COMEX's neighbours are those in the remote frames next to a page's own. Pages leave in runs of addresses
//! and are stored in this order, so the neighbours by address are those by place, as long as nothing is
//! stored again; the address is what a policy knows.

use farmem_page::PageRange;

use super::windows::Windows;
use super::{Advice, Fault, Prefetcher, Run};

/// Pages that are read together, the faulted one among them (COMEX §4.3).
const TOGETHER: u32 = 16;

/// Fetches the pages that follow a faulted one, whatever became of those that it fetched before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Neighbour {
    windows: Windows,
}

impl Prefetcher for Neighbour {
    fn on_fault(&mut self, fault: Fault, bounds: PageRange) -> Advice {
        if !bounds.contains(fault.page) {
            return Advice::default();
        }
        let used = self.windows.used(fault.page);
        let fetch = Run::behind(fault.page, 1, TOGETHER - 1, bounds);
        self.windows.advise(used, fetch)
    }

    fn forget(&mut self, range: PageRange) {
        self.windows.forget(range);
    }

    fn drain(&mut self) -> Option<Run> {
        self.windows.drain()
    }

    fn set_cache(&mut self, pages: u32) {
        self.windows.set_cache(pages);
    }

    fn shrink(&mut self) -> Option<Run> {
        self.windows.shrink()
    }

    fn unsettled_pages(&self) -> u32 {
        self.windows.unsettled_pages()
    }
}
