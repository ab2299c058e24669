//! What is read of a block on disk beyond what is wanted. One read of 64 KiB takes little longer than one of
//! 4, so that who goes through a block page by page reads 16 of them at once; one that doesn't reads no more
//! than wanted.
//!
//! Invariant: what a window holds was read while the block had one version, and it is used for that version
//! alone. Where the block was written meanwhile that version names nobody's content any more. Fingerprints
//! are checked as for any other source.

use crate::disk::{BlockFile, block_offset_bytes};
use core::ops::Range;
use farmem_page::PAGE_BYTES;

/// Pages that are read at once.
const WINDOW_PAGES: usize = 16;
/// Bytes of a window.
pub const WINDOW_BYTES: usize = WINDOW_PAGES * PAGE_BYTES;
const BLOCK_BYTES: usize = crate::class::SLAB_BYTES;
/// What is wanted goes through a block if it begins no further from the end of what was wanted before: slots
/// that nobody wants any more lie between.
const NEAR_BYTES: usize = 2 * PAGE_BYTES;

/// A content of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Content {
    pub(crate) block: usize,
    pub(crate) version: u32,
}

/// The latest such read.
pub(crate) struct Window {
    buffer: &'static mut [u8],
    /// What it holds, and which part of that.
    held: Option<(Content, Range<usize>)>,
    /// What could not be read so: no more is read of it than wanted, for each try may take long.
    failed: Option<Content>,
    /// What was wanted last.
    last: Option<(Content, Range<usize>)>,
}

impl Window {
    /// An empty one in this memory; `None` when that is too little, or not aligned to a page.
    pub(crate) fn new(buffer: &'static mut [u8]) -> Option<Self> {
        let is_fit = buffer.len() >= WINDOW_BYTES && buffer.as_ptr().addr().is_multiple_of(PAGE_BYTES);
        is_fit.then_some(Self { buffer, held: None, failed: None, last: None })
    }

    /// Copies what is wanted, a range in whole pages, if the window holds it, or reads it along with what
    /// comes next if that is likely to be wanted. False, and nothing copied, where neither is so, or the disk
    /// failed.
    pub(crate) fn copy<F: BlockFile>(
        &mut self,
        file: &F,
        content: Content,
        wanted: &Range<usize>,
        out: &mut [u8],
    ) -> bool {
        let before = self.last.replace((content, wanted.clone()));
        if !self.holds(content, wanted) {
            let goes_on = |(other, _): &(Content, _)| *other == content && self.failed != Some(content);
            let Some((_, before)) = before.filter(goes_on) else { return false };
            let Some(range) = next_window(&before, wanted) else { return false };
            self.held = None;
            let Some(buffer) = self.buffer.get_mut(..range.len()) else { return false };
            if file.read_at(block_offset_bytes(content.block) + range.start as u64, buffer).is_err() {
                self.failed = Some(content);
                return false;
            }
            self.held = Some((content, range));
        }
        let Some((_, held)) = &self.held else { return false };
        let from = wanted.start - held.start;
        match self.buffer.get(from..from + wanted.len()) {
            Some(bytes) if bytes.len() == out.len() => {
                out.copy_from_slice(bytes);
                true
            }
            _ => false,
        }
    }

    fn holds(&self, content: Content, wanted: &Range<usize>) -> bool {
        self.held.as_ref().is_some_and(|(held, range)| {
            *held == content && range.start <= wanted.start && wanted.end <= range.end
        })
    }

    /// Forgets what it holds. Whether that was anything.
    pub(crate) fn forget(&mut self) -> bool {
        self.last = None;
        self.held.take().is_some()
    }
}

/// Which part of a block to read when `wanted` is wanted after `before`: `None` where these are not near each
/// other.
fn next_window(before: &Range<usize>, wanted: &Range<usize>) -> Option<Range<usize>> {
    let is_after = wanted.start >= before.start && wanted.start <= before.end + NEAR_BYTES;
    let is_before = wanted.end <= before.end && wanted.end + NEAR_BYTES >= before.start;
    if is_after {
        Some(wanted.start..(wanted.start + WINDOW_BYTES).min(BLOCK_BYTES))
    } else if is_before {
        Some(wanted.end.saturating_sub(WINDOW_BYTES)..wanted.end)
    } else {
        None
    }
}
