//! How much is read from nodes at once, kept, and held ahead of need: given, or following what is measured.

use farmem_page::ByteCount;
use farmem_remote::{Reserve, Span};
use farmem_transport::FRAME_BYTES;

use super::SLAB_BYTES;

/// Room in the read buffer: COMEX's 4096 pages, unless that were more than a sixteenth of the local budget.
const ENTRIES_MOST: u64 = 256;
const ENTRIES_LEAST: u64 = 16;
/// Where it is given.
const ENTRIES_GIVEN_MOST: u64 = 1024;
const LOCAL_PART: u64 = 16;

/// What COMEX (§5.1.3) calls P, B and T. Each follows what is measured, or the local budget, unless it is
/// given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeTuning {
    /// How much a read from a node brings: a power of two of pages, 16 at most.
    pub read: Option<ByteCount>,
    /// Room for what was read and not used yet.
    pub read_buffer: Option<ByteCount>,
    /// Memory that each node has granted ahead of need.
    pub reserve: Option<ByteCount>,
}

impl NodeTuning {
    pub(super) fn span(&self) -> Span {
        Span::new(self.read.map(|read| read.pages().get() as usize))
    }

    pub(super) fn reserve(&self) -> Reserve {
        Reserve::new(self.reserve.map(|reserve| reserve.get().div_ceil(SLAB_BYTES as u64) as usize))
    }

    pub(super) fn entries(&self, local: ByteCount) -> u64 {
        let entry_bytes = (farmem_store::ENTRY_PAGES * FRAME_BYTES) as u64;
        match self.read_buffer {
            Some(given) => (given.get() / entry_bytes).clamp(ENTRIES_LEAST, ENTRIES_GIVEN_MOST),
            None => (local.get() / LOCAL_PART / entry_bytes).clamp(ENTRIES_LEAST, ENTRIES_MOST),
        }
    }
}
