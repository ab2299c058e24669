//! Reading a page back.
//!
//! A reader takes no lock and leaves no trace, so the slab may move under it. It copies the slot's bytes, unpacks them and
//! takes the fingerprint: if that is right, the page is, whatever happened meanwhile. If it is wrong and the slab's state
//! has changed since, the reader looks again at the new place; if the state hasn't changed, the bytes are damaged.

use crate::class::SizeClass;
use crate::disk::{BlockFile, block_offset_bytes};
use crate::memory::Memory;
use crate::pool::{Damaged, Pool, Slot};
use crate::slab::{Kind, State};
use core::ops::Range;
use core::sync::atomic::{Ordering::Acquire, fence};
use farmem_codec::{decompress, fill_uniform};
use farmem_page::{PAGE_BYTES, PageBytes, Place, SlotPlace};

/// Why a page can't be read back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LoadError {
    /// What is stored is not what was stored.
    #[error("the stored page is damaged")]
    Corrupt,
    /// The disk failed. Trying again may help.
    #[error("the stored page can't be read from disk")]
    Io,
    /// The place holds no page.
    #[error("no page is stored there")]
    Gone,
}

/// A slot spans two blocks of the disk at most.
const DISK_BUFFER_BYTES: usize = 2 * PAGE_BYTES;

/// A slab moves to disk in two steps, and back in one. Each takes as long as a read or more, and from one move to the opposite one the pool must
/// empty or fill by a tenth: so a reader is overtaken a few times at most, and then something is wrong.
const ATTEMPTS: usize = 8;

#[repr(C, align(4096))]
struct DiskBuffer([u8; DISK_BUFFER_BYTES]);

/// Reads pages back. Owns its buffers, so that nothing is allocated; one per thread.
pub struct Reader<F: BlockFile> {
    disk_buffer: DiskBuffer,
    slot_buffer: [u8; PAGE_BYTES],
    file: F,
}

enum Fetched {
    Page,
    Damaged,
    Io,
    Gone,
}

impl<F: BlockFile> Reader<F> {
    /// A reader of pools whose slabs move to `file`.
    pub const fn new(file: F) -> Self {
        Self { disk_buffer: DiskBuffer([0; DISK_BUFFER_BYTES]), slot_buffer: [0; PAGE_BYTES], file }
    }

    /// Reads the page at `place` into `page`. After an error `page` holds anything.
    pub fn load<M: Memory>(
        &mut self,
        pool: &Pool<M>,
        place: Place,
        page: &mut PageBytes,
    ) -> Result<(), LoadError> {
        match place {
            Place::Zero => page.fill(0),
            Place::Pattern(index) => fill_uniform(page, pool.pattern(index).ok_or(LoadError::Corrupt)?),
            Place::Slot(at) => return self.load_slot(pool, at, page),
            Place::Lost => return Err(LoadError::Gone),
        }
        Ok(())
    }

    fn load_slot<M: Memory>(
        &mut self,
        pool: &Pool<M>,
        at: SlotPlace,
        page: &mut PageBytes,
    ) -> Result<(), LoadError> {
        let (slab, slot) = (at.slab.get(), at.slot.get());
        let mut state = pool.state(slab).map_err(|Damaged| LoadError::Corrupt)?;
        for _ in 0..ATTEMPTS {
            let fetched = self.fetch(pool, slab, slot, state, page).unwrap_or(Fetched::Damaged);
            if let Fetched::Page = fetched {
                return Ok(());
            }
            fence(Acquire);
            let now = pool.state(slab).map_err(|Damaged| LoadError::Corrupt)?;
            if now == state {
                return Err(match fetched {
                    Fetched::Gone => LoadError::Gone,
                    Fetched::Io => LoadError::Io,
                    _ => LoadError::Corrupt,
                });
            }
            state = now;
        }
        Err(LoadError::Gone)
    }

    fn fetch<M: Memory>(
        &mut self,
        pool: &Pool<M>,
        slab: usize,
        slot: usize,
        state: State,
        page: &mut PageBytes,
    ) -> Result<Fetched, Damaged> {
        if matches!(state.kind, Kind::Free | Kind::Leasing | Kind::Releasing) || slot >= state.class.slots() {
            return Ok(Fetched::Gone);
        }
        if !pool.is_taken(slab, state.class, slot)? {
            return Ok(Fetched::Gone);
        }
        let known = pool.slot(slab, state.class, slot)?;
        if known.length_bytes > state.class.slot_bytes() {
            return Err(Damaged);
        }
        let stored = if state.kind == Kind::Disk {
            let range = disk_range(state.class, slot, known);
            let aligned = range.start - range.start % PAGE_BYTES..range.end.next_multiple_of(PAGE_BYTES);
            let buffer = self.disk_buffer.0.get_mut(..aligned.len()).ok_or(Damaged)?;
            if state.location >= pool.layout.blocks {
                return Err(Damaged);
            }
            let offset_bytes = block_offset_bytes(state.location) + aligned.start as u64;
            if self.file.read_at(offset_bytes, buffer).is_err() {
                return Ok(Fetched::Io);
            }
            pool.note_disk_read(slab);
            &buffer[range.start - aligned.start..range.end - aligned.start]
        } else {
            let buffer = &mut self.slot_buffer[..known.length_bytes];
            let at = pool.layout.frame_at(state.location) + slot * state.class.slot_bytes();
            if state.location >= pool.layout.frames || !pool.memory.copy_out(at, buffer) {
                return Err(Damaged);
            }
            &*buffer
        };
        let unpacked = decompress(stored, page).is_ok();
        let is_right = unpacked && pool.fingerprinter.of(page) == known.fingerprint;
        Ok(if is_right { Fetched::Page } else { Fetched::Damaged })
    }
}

/// Where a slot's bytes lie in its slab.
fn disk_range(class: SizeClass, slot: usize, known: Slot) -> Range<usize> {
    let start = slot * class.slot_bytes();
    start..start + known.length_bytes
}
