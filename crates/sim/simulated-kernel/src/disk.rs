//! The disk below the pool: bytes in memory, slow as the case says.

use crate::{AsFd, BorrowedFd, Errno, OwnedFd, thread, world};

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
        self.file.as_fd()
    }

    /// Reads.
    ///
    /// # Errors
    /// [`DiskError::Short`] behind its end.
    pub fn read_at(&self, offset_bytes: u64, out: &mut [u8]) -> Result<(), DiskError> {
        thread::sleep_up_to(world::with(|world| world.plan.disk_ns));
        world::with(|world| {
            let start = offset_bytes as usize;
            let content = world.disk.get(start..start + out.len()).ok_or(DiskError::Short)?;
            out.copy_from_slice(content);
            world.count("disk reads");
            Ok(())
        })
    }

    /// Writes.
    ///
    /// # Errors
    /// [`DiskError::Full`] where the case says so.
    pub fn write_at(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), DiskError> {
        thread::sleep_up_to(world::with(|world| world.plan.disk_ns));
        world::with(|world| {
            if world.chance(world.plan.disk_full_one_in) {
                return Err(DiskError::Full);
            }
            let start = offset_bytes as usize;
            if world.disk.len() < start + bytes.len() {
                world.disk.resize(start + bytes.len(), 0);
            }
            world.disk[start..start + bytes.len()].copy_from_slice(bytes);
            Ok(())
        })
    }
}
