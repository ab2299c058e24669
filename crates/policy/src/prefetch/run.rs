//! Evenly spaced pages.

use farmem_page::{PageIndex, PageRange};

/// Pages that addresses of 64 bits can name.
const ADDRESS_SPACE_PAGES: u64 = 1 << 52;

/// `count` pages, `stride` pages apart. Never empty, and inside the address space from end to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The page that comes first.
    pub start: PageIndex,
    /// Pages from one to the next; negative for a run that goes down, never 0.
    pub stride: i64,
    /// How many pages, at least 1.
    pub count: u32,
}

impl Run {
    /// Up to `wanted` pages behind `page`, `stride` apart, as far as `bounds` hold them; `None` if there is
    /// none. A stride of 0 leads nowhere.
    pub fn behind(page: PageIndex, stride: i64, wanted: u32, bounds: PageRange) -> Option<Self> {
        let room = if stride < 0 {
            page.get().saturating_sub(bounds.start.get())
        } else {
            bounds.end.get().min(ADDRESS_SPACE_PAGES).saturating_sub(1).saturating_sub(page.get())
        };
        let count = room.checked_div(stride.unsigned_abs())?.min(u64::from(wanted)) as u32;
        let start = page.offset(stride)?;
        (count > 0).then_some(Self { start, stride, count })
    }

    /// The page at `position`, counted from 0; `None` past the end.
    pub const fn page(self, position: u32) -> Option<PageIndex> {
        if position < self.count {
            self.start.offset(self.stride.wrapping_mul(position as i64))
        } else {
            None
        }
    }

    /// Every page, in the order of the run.
    pub fn pages(self) -> impl Iterator<Item = PageIndex> {
        (0..self.count).filter_map(move |position| self.page(position))
    }

    /// Whether `page` is one of them.
    pub const fn contains(self, page: PageIndex) -> bool {
        let distance = page.get().wrapping_sub(self.start.get()) as i64;
        let position = distance / self.stride;
        distance % self.stride == 0 && position >= 0 && position < self.count as i64
    }

    /// The shortest range that holds all pages of the run.
    pub const fn span(self) -> PageRange {
        let reach = self.stride.wrapping_mul(self.count.saturating_sub(1) as i64);
        let first = self.start.get();
        let last = first.wrapping_add_signed(reach);
        let (low, high) = if reach < 0 { (last, first) } else { (first, last) };
        PageRange::new(PageIndex::new(low), PageIndex::new(high.saturating_add(1)))
    }
}
