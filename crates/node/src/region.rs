//! The memory that a node lends: a memory file that takes memory only where it was written.

use std::ops::Range;
use std::sync::Arc;

use farmem_sys::shared::{SharedMemory, SharedMemoryError};
use farmem_transport::stream::{Outbox, Stream};
use farmem_transport::{FRAME_BYTES, RegionOffset};

/// Frames, by their numbers.
pub(crate) struct Region(Arc<SharedMemory>);

impl Region {
    /// A region with so many numbers, none of them with memory behind it.
    pub(crate) fn new(numbers: u64) -> Result<Self, SharedMemoryError> {
        let bytes = usize::try_from(numbers).ok().and_then(|numbers| numbers.checked_mul(FRAME_BYTES));
        let memory = SharedMemory::create(c"farmem-node", bytes.ok_or(SharedMemoryError::Unsuitable)?)?;
        Ok(Self(Arc::new(memory)))
    }

    /// The memory itself.
    #[cfg(feature = "rdma")]
    pub(crate) fn memory(&self) -> &Arc<SharedMemory> {
        &self.0
    }

    /// Appends bytes of the region; see [`Outbox::append`]. False, and nothing appended, when they leave it.
    #[must_use]
    pub(crate) fn read(
        &self,
        at: RegionOffset,
        length: usize,
        to: &mut Outbox,
        by: Option<&mut Stream>,
    ) -> bool {
        to.append(&self.0, at.get() as usize, length, by)
    }

    /// Changes bytes of the region. False, and nothing changed, when they leave it.
    #[must_use]
    pub(crate) fn write(&self, at: RegionOffset, data: &[u8]) -> bool {
        self.0.copy_in(at.get() as usize, data)
    }

    /// Makes frames read as zeros, and gives their memory back to the machine; where that fails, overwrites
    /// them.
    pub(crate) fn empty(&self, frames: Range<u64>) {
        let bytes = |frame: u64| frame as usize * FRAME_BYTES;
        if self.0.release(bytes(frames.start)..bytes(frames.end)).is_err() {
            for frame in frames {
                // Inside the region, as all frames that the grant table knows.
                let _ = self.0.copy_in(bytes(frame), &[0; FRAME_BYTES]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emptied_frame_reads_as_zeros() {
        let region = Region::new(8).unwrap();
        assert!(region.write(RegionOffset::new(4000), &[7; 200]));
        region.empty(0..1);

        let mut outbox = Outbox::default();
        outbox.end().push(1);
        assert!(region.read(RegionOffset::new(4095), 2, &mut outbox, None));
        assert_eq!(*outbox.end(), [1, 0, 7]);
    }

    #[test]
    fn nothing_outside_is_reached() {
        let region = Region::new(1).unwrap();
        let mut outbox = Outbox::default();
        outbox.end().push(1);
        assert!(!region.read(RegionOffset::new(4095), 2, &mut outbox, None));
        assert!(!region.write(RegionOffset::new(4095), &[0; 2]));
        assert_eq!(*outbox.end(), [1]);
    }
}
