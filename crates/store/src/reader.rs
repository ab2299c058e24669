//! Reading a page back.
//!
//! A reader takes no lock and leaves no trace, so the slab may move under it. It copies the slot's bytes,
//! unpacks them and takes the fingerprint: if that is right, the page is, whatever happened meanwhile. If it
//! is wrong and the slab's state has changed since, the reader looks again at the new place; if the state
//! hasn't changed, the bytes are damaged.
//!
//! Of a slab that is away there may be several copies: the reader takes them in the order of what they cost,
//! and the next one where one is damaged or can't be had.

use crate::calls::{Answer, Call, Caller, Nobody, Urgency};
use crate::class::SizeClass;
use crate::copies::Copies;
use crate::disk::{BlockFile, block_offset_bytes};
use crate::layout::Header;
use crate::memory::Memory;
use crate::pool::{Damaged, Pool, Slot};
use crate::slab::{Kind, State};
use crate::window::{Content, Window};
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
    /// The disk failed, or nobody answered for the nodes. Trying again may help.
    #[error("the stored page can't be read")]
    Io,
    /// The memory nodes that held it are lost.
    #[error("the nodes that held the page are lost")]
    Lost,
    /// It is on memory nodes, and was to be read without asking them; or nobody waited for it, and it would
    /// have come too late.
    #[error("the page is on memory nodes, which nobody waits for")]
    Later,
    /// The place holds no page.
    #[error("no page is stored there")]
    Gone,
}

/// Where a page's content was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// In the pool's memory, or told by the place alone.
    Memory,
    /// On a memory node, or in what an earlier read from one brought along.
    Node,
    /// On disk.
    Disk,
}

/// A slot spans two blocks of 4 KiB at most, on disk and on nodes.
const DISK_BUFFER_BYTES: usize = 2 * PAGE_BYTES;

/// Pages of a read are in the buffer when its answer comes, but others may displace them before they are
/// copied, and where many read at once, time and again. What nobody waits for is given up after so many
/// times; a thread that waits asks again for as long as the caller is patient.
const AHEAD_ATTEMPTS: usize = 4;

/// A slab leaves memory in two steps, and comes back in one. Each takes as long as a read or more, and from
/// one move to the opposite one the pool must empty or fill from one mark to another: so a reader is
/// overtaken a few times at most, and then something is wrong.
const ATTEMPTS: usize = 8;

#[repr(C, align(4096))]
struct DiskBuffer([u8; DISK_BUFFER_BYTES]);

/// Reads pages back. Owns its buffers, so that nothing is allocated; one per thread.
pub struct Reader<F: BlockFile, C: Caller = Nobody> {
    disk_buffer: DiskBuffer,
    slot_buffer: [u8; PAGE_BYTES],
    file: F,
    window: Option<Window>,
    caller: C,
    /// Of the page that is being read.
    urgency: Urgency,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fetched {
    Page(Origin),
    Damaged,
    Io,
    Lost,
    Later,
    Gone,
    /// There are other copies now than those that were looked at.
    Overtaken,
}

/// A copy of a slab that is away.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Copy {
    Node,
    /// Another one than [`Copy::Node`] gave, which was damaged.
    OtherNode,
    Disk,
    /// The same once more, where what was read along with other pages is damaged.
    DiskAnew,
}

impl<F: BlockFile> Reader<F> {
    /// A reader of pools whose slabs move to `file`.
    pub const fn new(file: F) -> Self {
        Self::with_nodes(file, Nobody)
    }
}

impl<F: BlockFile, C: Caller> Reader<F, C> {
    /// A reader of pools whose slabs move to `file` and to nodes, which `caller` asks for.
    pub const fn with_nodes(file: F, caller: C) -> Self {
        Self {
            disk_buffer: DiskBuffer([0; DISK_BUFFER_BYTES]),
            slot_buffer: [0; PAGE_BYTES],
            file,
            window: None,
            caller,
            urgency: Urgency::Awaited,
        }
    }

    /// The same, and what lies side by side on disk is read at once: [`WINDOW_BYTES`] go to `buffer`. Nothing
    /// changes where that is smaller, or not aligned to a page.
    ///
    /// [`WINDOW_BYTES`]: crate::WINDOW_BYTES
    #[must_use]
    pub fn with_window(mut self, buffer: &'static mut [u8]) -> Self {
        self.window = Window::new(buffer);
        self
    }

    /// The part that asks nodes.
    pub const fn caller(&self) -> &C {
        &self.caller
    }

    /// Reads the page at `place` into `page`, and says where it was. After an error `page` holds anything.
    pub fn load<M: Memory>(
        &mut self,
        pool: &Pool<M>,
        place: Place,
        page: &mut PageBytes,
    ) -> Result<Origin, LoadError> {
        self.load_for(pool, place, page, Urgency::Awaited)
    }

    /// The same, for whom that is.
    pub fn load_for<M: Memory>(
        &mut self,
        pool: &Pool<M>,
        place: Place,
        page: &mut PageBytes,
        urgency: Urgency,
    ) -> Result<Origin, LoadError> {
        self.urgency = urgency;
        match place {
            Place::Zero => page.fill(0),
            Place::Pattern(index) => fill_uniform(page, pool.pattern(index).ok_or(LoadError::Corrupt)?),
            Place::Slot(at) => return self.load_slot(pool, at, page),
            Place::Lost => return Err(LoadError::Gone),
        }
        Ok(Origin::Memory)
    }

    /// Unpacks into `page` what is in memory at `place`, and nothing that would take longer; `false` where
    /// there is nothing. The caller need not have a claim to the place, and nothing is checked: what comes
    /// may be another page's, or a mixture. Good for guesses alone.
    pub fn glance<M: Memory>(&mut self, pool: &Pool<M>, place: Place, page: &mut PageBytes) -> bool {
        let Place::Slot(at) = place else { return false };
        let (slab, slot) = (at.slab.get(), at.slot.get());
        let Ok(state) = pool.state(slab) else { return false };
        if state.kind != Kind::Memory || slot >= state.class.slots() || state.location >= pool.layout.frames {
            return false;
        }
        let Ok(known) = pool.slot(slab, state.class, slot) else { return false };
        let at = pool.layout.frame_at(state.location) + slot * state.class.slot_bytes();
        self.slot_buffer
            .get_mut(..known.length_bytes)
            .is_some_and(|buffer| pool.memory.copy_out(at, buffer) && decompress(buffer, page).is_ok())
    }

    fn load_slot<M: Memory>(
        &mut self,
        pool: &Pool<M>,
        at: SlotPlace,
        page: &mut PageBytes,
    ) -> Result<Origin, LoadError> {
        let (slab, slot) = (at.slab.get(), at.slot.get());
        let mut state = pool.state(slab).map_err(|Damaged| LoadError::Corrupt)?;
        for _ in 0..ATTEMPTS {
            let fetched = self.fetch(pool, slab, slot, state, page).unwrap_or(Fetched::Damaged);
            if let Fetched::Page(origin) = fetched {
                return Ok(origin);
            }
            fence(Acquire);
            let now = pool.state(slab).map_err(|Damaged| LoadError::Corrupt)?;
            if now == state && fetched != Fetched::Overtaken {
                return Err(match fetched {
                    Fetched::Gone => LoadError::Gone,
                    Fetched::Io => LoadError::Io,
                    Fetched::Lost => LoadError::Lost,
                    Fetched::Later => LoadError::Later,
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
        if state.kind == Kind::Away {
            return self.fetch_away(pool, slab, slot, state, known, page);
        }
        let buffer = &mut self.slot_buffer[..known.length_bytes];
        let at = pool.layout.frame_at(state.location) + slot * state.class.slot_bytes();
        if state.location >= pool.layout.frames || !pool.memory.copy_out(at, buffer) {
            return Err(Damaged);
        }
        let is_right = is_page(pool, buffer, known, page);
        Ok(if is_right { Fetched::Page(Origin::Memory) } else { Fetched::Damaged })
    }

    fn fetch_away<M: Memory>(
        &mut self,
        pool: &Pool<M>,
        slab: usize,
        slot: usize,
        state: State,
        known: Slot,
        page: &mut PageBytes,
    ) -> Result<Fetched, Damaged> {
        let range = slot_range(state.class, slot, known);
        let aligned = aligned(range.clone());
        let stored = range.start - aligned.start..range.end - aligned.start;
        let copies = pool.copies(state.location)?;
        let mut outcome = Fetched::Lost;
        // Over a good answer another call may have brought a damaged one meanwhile: before a page is given up
        // nodes are asked again.
        for copy in
            [Copy::Node, Copy::OtherNode, Copy::Disk, Copy::DiskAnew, Copy::OtherNode, Copy::OtherNode]
        {
            let is_there = match copy {
                Copy::Node => copies.on_node,
                Copy::OtherNode => copies.on_node && outcome == Fetched::Damaged,
                Copy::Disk => copies.on_disk,
                Copy::DiskAnew => {
                    copies.on_disk
                        && outcome == Fetched::Damaged
                        && self.window.as_mut().is_some_and(Window::forget)
                }
            };
            if !is_there {
                continue;
            }
            match self.read_copy(pool, copy, state.location, copies, &aligned)? {
                Fetched::Page(origin) => {
                    pool.note_away_read(slab);
                    let bytes = self.disk_buffer.0.get(stored.clone()).ok_or(Damaged)?;
                    if is_page(pool, bytes, known, page) {
                        return Ok(Fetched::Page(origin));
                    }
                    outcome = Fetched::Damaged;
                }
                Fetched::Later => return Ok(Fetched::Later),
                failed if outcome == Fetched::Lost => outcome = failed,
                _ => {}
            }
        }
        // What is on a node alone may come to disk in the same block, and leave the node: the state tells
        // nothing of that.
        Ok(if pool.copies(state.location)? == copies { outcome } else { Fetched::Overtaken })
    }

    /// Reads a range of a block, in whole pages, to the start of the buffer.
    fn read_copy<M: Memory>(
        &mut self,
        pool: &Pool<M>,
        copy: Copy,
        block: usize,
        copies: Copies,
        range: &Range<usize>,
    ) -> Result<Fetched, Damaged> {
        let buffer = self.disk_buffer.0.get_mut(..range.len()).ok_or(Damaged)?;
        if matches!(copy, Copy::Disk | Copy::DiskAnew) {
            let content = Content { block, version: copies.version };
            if let Some(window) = &mut self.window
                && window.copy(&self.file, content, range, buffer)
            {
                return Ok(Fetched::Page(Origin::Disk));
            }
            let offset_bytes = block_offset_bytes(block) + range.start as u64;
            let is_read = self.file.read_at(offset_bytes, buffer).is_ok();
            return Ok(if is_read { Fetched::Page(Origin::Disk) } else { Fetched::Io });
        }
        let (first, count) = (range.start / PAGE_BYTES, range.len() / PAGE_BYTES);
        let is_retry = copy == Copy::OtherNode;
        let call = Call { block, version: copies.version, first, count, is_retry };
        if !is_retry && pool.buffered(&call).is_some_and(|entry| pool.copy_buffered(entry, &call, buffer)) {
            pool.count(Header::BufferHits);
            return Ok(Fetched::Page(Origin::Node));
        }
        match self.urgency {
            Urgency::Later => return Ok(Fetched::Later),
            // What was said of another content says nothing. Of a damaged copy another one is waited for:
            // that is rare.
            Urgency::Answered(asked, answer) if !is_retry => {
                let is_nowhere = answer == Answer::Nowhere && asked == call;
                return Ok(if is_nowhere { Fetched::Lost } else { Fetched::Later });
            }
            _ => {}
        }
        let is_ahead = self.urgency == Urgency::Ahead;
        let since = self.caller.now_ns();
        let mut attempts = 0;
        loop {
            match pool.ask(&self.caller, call, is_ahead) {
                Some(Answer::Entry(entry)) if pool.copy_buffered(entry, &call, buffer) => {
                    return Ok(Fetched::Page(Origin::Node));
                }
                Some(Answer::Entry(_)) => {}
                Some(Answer::Nowhere) => return Ok(Fetched::Lost),
                Some(Answer::Late) => return Ok(Fetched::Later),
                None => return Ok(Fetched::Io),
            }
            attempts += 1;
            if is_ahead && attempts == AHEAD_ATTEMPTS {
                return Ok(Fetched::Later);
            }
            if !self.caller.is_patient(self.caller.now_ns().saturating_sub(since)) {
                return Ok(Fetched::Io);
            }
        }
    }
}

impl<M: Memory> Pool<M> {
    /// Whether the page at `place` is on disk or on nodes now, and nowhere else.
    pub fn is_away(&self, place: Place) -> bool {
        let Place::Slot(at) = place else { return false };
        self.state(at.slab.get()).is_ok_and(|state| state.kind == Kind::Away)
    }

    /// What is to be asked of nodes for the page at `place`; `None` where it is not on nodes.
    pub fn call_for(&self, place: Place) -> Option<Call> {
        let Place::Slot(at) = place else { return None };
        let (slab, slot) = (at.slab.get(), at.slot.get());
        let state = self.state(slab).ok().filter(|state| state.kind == Kind::Away)?;
        let known =
            (slot < state.class.slots()).then(|| self.slot(slab, state.class, slot).ok()).flatten()?;
        let copies = self.copies(state.location).ok().filter(|copies| copies.on_node)?;
        let pages = aligned(slot_range(state.class, slot, known));
        let (first, count) = (pages.start / PAGE_BYTES, pages.len() / PAGE_BYTES);
        let is_possible = known.length_bytes <= state.class.slot_bytes() && count > 0;
        is_possible.then_some(Call {
            block: state.location,
            version: copies.version,
            first,
            count,
            is_retry: false,
        })
    }
}

/// The whole pages that hold those bytes of a block.
fn aligned(range: Range<usize>) -> Range<usize> {
    range.start - range.start % PAGE_BYTES..range.end.next_multiple_of(PAGE_BYTES)
}

/// Unpacks what is stored, and tells whether that is the page.
fn is_page<M: Memory>(pool: &Pool<M>, stored: &[u8], known: Slot, page: &mut PageBytes) -> bool {
    decompress(stored, page).is_ok() && pool.fingerprinter.of(page) == known.fingerprint
}

/// Where a slot's bytes lie in its slab.
fn slot_range(class: SizeClass, slot: usize, known: Slot) -> Range<usize> {
    let start = slot * class.slot_bytes();
    start..start + known.length_bytes
}
