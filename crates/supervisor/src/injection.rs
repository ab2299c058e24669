//! Failures that tests order with `FARMEM_INJECT`: in the pager, on the disk, in the pool's memory. Only
//! builds with the feature `injection` look at it.

use std::thread;
use std::time::Duration;

use farmem_store::{BlockError, BlockFile, SLAB_BYTES};

use crate::application::Application;

/// Pages stored before the pool's memory is damaged: enough for many of them to be wanted again.
const DAMAGE_AFTER_PAGES: u64 = 1024;
const DAMAGE_LOOK: Duration = Duration::from_millis(5);
/// Slabs that are damaged; the pool fills its memory from the start.
const DAMAGED_SLABS: usize = 64;
/// Slots of any size begin at a multiple of this (`docs/formats/pool.md`).
const SLOT_STEP_BYTES: usize = 256;
/// Words of the pool's header: how many frames there are, how long the whole is; the frames come last.
const HEADER_FRAMES: usize = 2;
const HEADER_LENGTH: usize = 7;

/// What is to go wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Injection {
    /// Something inside the processes, by the pager's number for it; 0 for nothing.
    Pager(u64),
    /// Writes to the disk fail like this.
    Disk(BlockError),
    /// Stored pages are damaged.
    Corruption,
    /// There is no memory for what is far to come back.
    NoMemory,
}

impl Injection {
    /// What the environment orders, in a build for tests.
    pub(crate) fn ordered() -> Self {
        if cfg!(feature = "injection") {
            Self::named(&std::env::var("FARMEM_INJECT").unwrap_or_default())
        } else {
            Self::Pager(0)
        }
    }

    fn named(name: &str) -> Self {
        match name {
            "handler-panic" => Self::Pager(1),
            "bookkeeper-panic" => Self::Pager(2),
            "handler-stall" => Self::Pager(3),
            "disk-read-error" => Self::Pager(4),
            "death-in-fork" => Self::Pager(5),
            "late-registration" => Self::Pager(6),
            "refused-put-back" => Self::Pager(7),
            "death-in-fault" => Self::Pager(8),
            "death-at-start" => Self::Pager(9),
            "disk-write-error" => Self::Disk(BlockError::Failed),
            "disk-full" => Self::Disk(BlockError::Full),
            "corrupt-page" => Self::Corruption,
            "no-memory" => Self::NoMemory,
            _ => Self::Pager(0),
        }
    }

    /// What the pagers are told.
    pub(crate) fn pager_number(self) -> u64 {
        match self {
            Self::Pager(number) => number,
            Self::Disk(_) | Self::Corruption | Self::NoMemory => 0,
        }
    }

    /// How writes to the disk fail, if they do.
    pub(crate) fn write_error(self) -> Option<BlockError> {
        match self {
            Self::Disk(error) => Some(error),
            Self::Pager(_) | Self::Corruption | Self::NoMemory => None,
        }
    }
}

/// A disk whose writes fail if that is ordered.
pub(crate) struct Disk<F> {
    pub(crate) file: F,
    pub(crate) write_error: Option<BlockError>,
}

impl<F: BlockFile> BlockFile for Disk<F> {
    fn read_at(&self, offset_bytes: u64, out: &mut [u8]) -> Result<(), BlockError> {
        self.file.read_at(offset_bytes, out)
    }

    fn write_at(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), BlockError> {
        match self.write_error {
            Some(error) => Err(error),
            None => self.file.write_at(offset_bytes, bytes),
        }
    }
}

/// Damages what is stored, once there is enough of it, if that is ordered.
pub(crate) fn start(application: Application) {
    if application.injection == Injection::Corruption {
        thread::spawn(move || {
            while application.pool.usage().stored_pages.get() < DAMAGE_AFTER_PAGES {
                thread::sleep(DAMAGE_LOOK);
            }
            damage(application);
        });
    }
}

fn damage(application: Application) {
    use std::sync::atomic::Ordering::Relaxed;
    let memory = application.pool_memory;
    let Some(header) = memory.atomics(0, HEADER_LENGTH + 1) else { return };
    let frames = header[HEADER_FRAMES].load(Relaxed) as usize;
    let frames_at = header[HEADER_LENGTH].load(Relaxed) as usize - frames * SLAB_BYTES;
    let damaged_bytes = frames.min(DAMAGED_SLABS) * SLAB_BYTES;
    for offset_bytes in (frames_at..frames_at + damaged_bytes).step_by(SLOT_STEP_BYTES) {
        let mut byte = [0];
        let is_damaged =
            memory.copy_out(offset_bytes, &mut byte) && memory.copy_in(offset_bytes, &[!byte[0]]);
        assert!(is_damaged, "the frames lie in the memory");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farmem_store::NullFile;

    #[test]
    fn an_unknown_order_is_none() {
        assert_eq!(Injection::named(""), Injection::Pager(0));
        assert_eq!(Injection::named("disk"), Injection::Pager(0));
        assert_eq!(Injection::named("disk-full").pager_number(), 0);
    }

    #[test]
    fn an_ordered_write_error_comes_before_the_disks_own() {
        for error in [BlockError::Failed, BlockError::Full] {
            let disk = Disk { file: NullFile, write_error: Some(error) };
            assert_eq!(disk.write_at(0, &[]), Err(error));
        }
        let disk = Disk { file: NullFile, write_error: None };
        assert_eq!(disk.write_at(0, &[]), NullFile.write_at(0, &[]));
    }
}
