//! The disk below the pool. So far there is none.

use crate::{BorrowedFd, Errno, OwnedFd};

/// A disk's file.
#[derive(Debug)]
pub struct DiskFile {
    file: OwnedFd,
}

/// Why a disk's file fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskError {
    /// There is such a file already.
    Exists,
    /// The disk is full.
    Full,
    /// The file is too short.
    Short,
    /// Something else.
    Kernel(Errno),
}

impl DiskFile {
    /// The file behind a descriptor.
    pub fn attach(file: OwnedFd) -> Self {
        Self { file }
    }

    /// Its descriptor.
    pub fn file(&self) -> BorrowedFd<'_> {
        use crate::AsFd;
        self.file.as_fd()
    }

    /// Reads.
    ///
    /// # Errors
    /// Always.
    pub fn read_at(&self, _offset_bytes: u64, _out: &mut [u8]) -> Result<(), DiskError> {
        Err(DiskError::Kernel(Errno::IO))
    }

    /// Writes.
    ///
    /// # Errors
    /// Always.
    pub fn write_at(&self, _offset_bytes: u64, _bytes: &[u8]) -> Result<(), DiskError> {
        Err(DiskError::Full)
    }
}
