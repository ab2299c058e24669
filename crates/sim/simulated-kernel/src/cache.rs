//! Caches of the processor: there are none.

use farmem_page::PageIndex;

/// Does nothing.
pub fn prefetch_page(_page: PageIndex) {}
