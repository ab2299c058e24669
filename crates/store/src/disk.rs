//! The file that slabs move to when the pool fills.

use crate::class::SLAB_BYTES;
use farmem_sys::disk::{DiskError, DiskFile};

/// Why a file didn't do what it was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BlockError {
    /// No space is left for it.
    #[error("no space is left on the disk")]
    Full,
    /// The device failed.
    #[error("the disk failed")]
    Failed,
}

/// A file of fixed size, read and written in whole 4 KiB blocks at 4 KiB boundaries, from buffers that are
/// aligned so.
///
/// Content needs to last no longer than the pool, so nothing is ever synchronised.
pub trait BlockFile {
    /// Fills `out` from `offset_bytes` on.
    fn read_at(&self, offset_bytes: u64, out: &mut [u8]) -> Result<(), BlockError>;
    /// Writes `bytes` at `offset_bytes`. After a failure any part of the range may be written.
    fn write_at(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), BlockError>;
}

/// The file of a pool without disk: holds nothing, fails always.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullFile;

impl BlockFile for NullFile {
    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<(), BlockError> {
        Err(BlockError::Failed)
    }
    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), BlockError> {
        Err(BlockError::Full)
    }
}

impl BlockFile for DiskFile {
    fn read_at(&self, offset_bytes: u64, out: &mut [u8]) -> Result<(), BlockError> {
        self.read_at(offset_bytes, out).map_err(BlockError::from)
    }
    fn write_at(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), BlockError> {
        self.write_at(offset_bytes, bytes).map_err(BlockError::from)
    }
}

impl From<DiskError> for BlockError {
    fn from(error: DiskError) -> Self {
        match error {
            DiskError::Full => Self::Full,
            DiskError::Exists | DiskError::Short | DiskError::Kernel(_) => Self::Failed,
        }
    }
}

impl<F: BlockFile> BlockFile for &F {
    fn read_at(&self, offset_bytes: u64, out: &mut [u8]) -> Result<(), BlockError> {
        (**self).read_at(offset_bytes, out)
    }
    fn write_at(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), BlockError> {
        (**self).write_at(offset_bytes, bytes)
    }
}

/// Where a disk block starts in the file.
pub(crate) const fn block_offset_bytes(block: usize) -> u64 {
    block as u64 * SLAB_BYTES as u64
}
