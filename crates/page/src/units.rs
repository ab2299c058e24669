//! Addresses, page numbers and counts as different types. The only module that converts between them.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// Binary logarithm of the page size.
pub const PAGE_SHIFT: u32 = 12;
/// Bytes of a page.
pub const PAGE_BYTES: usize = 1 << PAGE_SHIFT;

/// A virtual address of the managed program; any alignment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct VirtAddr(u64);

/// The number of a page in a program's address space: its address divided by the page size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct PageIndex(u64);

/// A number of pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct PageCount(u64);

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct ByteCount(u64);

impl VirtAddr {
    /// Wraps an address.
    pub const fn new(address: u64) -> Self {
        Self(address)
    }
    /// The address as the kernel takes it.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// The page that holds this address.
    pub const fn page(self) -> PageIndex {
        PageIndex(self.0 >> PAGE_SHIFT)
    }
    /// The first page that starts at or after this address.
    pub const fn page_up(self) -> PageIndex {
        PageIndex(self.0.div_ceil(PAGE_BYTES as u64))
    }
}

impl PageIndex {
    /// Wraps a page number.
    pub const fn new(index: u64) -> Self {
        Self(index)
    }
    /// The bare number.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// The address of the page's first byte.
    pub const fn addr(self) -> VirtAddr {
        VirtAddr(self.0 << PAGE_SHIFT)
    }
    /// The page `step` pages on (or back); `None` when it would leave the address space.
    pub const fn offset(self, step: i64) -> Option<PageIndex> {
        match self.0.checked_add_signed(step) {
            Some(index) if index < 1 << (64 - PAGE_SHIFT) => Some(PageIndex(index)),
            _ => None,
        }
    }
}

impl PageCount {
    /// No pages.
    pub const ZERO: Self = Self(0);
    /// Wraps a count.
    pub const fn new(count: u64) -> Self {
        Self(count)
    }
    /// The bare number.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// The bytes these pages take.
    pub const fn bytes(self) -> ByteCount {
        ByteCount(self.0 << PAGE_SHIFT)
    }
    /// The difference, or zero when `other` is larger.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl ByteCount {
    /// No bytes.
    pub const ZERO: Self = Self(0);
    /// Wraps a count.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }
    /// The bare number.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// Whole pages in this many bytes, rounded down.
    pub const fn pages(self) -> PageCount {
        PageCount(self.0 >> PAGE_SHIFT)
    }
    /// Pages needed to hold this many bytes.
    pub const fn pages_up(self) -> PageCount {
        PageCount(self.0.div_ceil(PAGE_BYTES as u64))
    }
}

/// Bytes in MiB, as people are told of them.
pub fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// MiB needed to hold so many bytes.
pub const fn mebibytes_up(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

impl Add<PageCount> for PageIndex {
    type Output = PageIndex;
    fn add(self, count: PageCount) -> PageIndex {
        PageIndex(self.0 + count.0)
    }
}

impl Sub<PageIndex> for PageIndex {
    type Output = PageCount;
    /// Pages from `other` up to `self`; `other` must not lie behind `self`.
    fn sub(self, other: PageIndex) -> PageCount {
        PageCount(self.0 - other.0)
    }
}

impl Add for PageCount {
    type Output = PageCount;
    fn add(self, other: PageCount) -> PageCount {
        PageCount(self.0 + other.0)
    }
}

impl AddAssign for PageCount {
    fn add_assign(&mut self, other: PageCount) {
        self.0 += other.0;
    }
}

/// A run of pages, `start` included, `end` not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRange {
    /// First page of the run.
    pub start: PageIndex,
    /// First page after the run.
    pub end: PageIndex,
}

impl PageRange {
    /// The run from `start` up to, not including, `end`; empty when `end` is not behind `start`.
    pub const fn new(start: PageIndex, end: PageIndex) -> Self {
        Self { start, end: if end.0 < start.0 { start } else { end } }
    }
    /// `count` pages from `start`.
    pub const fn at(start: PageIndex, count: PageCount) -> Self {
        Self { start, end: PageIndex(start.0 + count.0) }
    }
    /// How many pages.
    pub const fn count(self) -> PageCount {
        PageCount(self.end.0 - self.start.0)
    }
    /// Whether there is no page in it.
    pub const fn is_empty(self) -> bool {
        self.end.0 == self.start.0
    }
    /// Whether `page` lies in it.
    pub const fn contains(self, page: PageIndex) -> bool {
        self.start.0 <= page.0 && page.0 < self.end.0
    }
    /// The pages that both runs share, possibly none.
    pub fn intersect(self, other: Self) -> Self {
        Self::new(self.start.max(other.start), self.end.min(other.end))
    }
    /// The shortest run that both lie in.
    pub fn hull(self, other: Self) -> Self {
        Self::new(self.start.min(other.start), self.end.max(other.end))
    }
    /// Every page, in order.
    pub fn iter(self) -> impl Iterator<Item = PageIndex> {
        (self.start.0..self.end.0).map(PageIndex)
    }
}

impl fmt::Debug for VirtAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}
impl fmt::Debug for PageIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {:#x}", self.0)
    }
}
impl fmt::Debug for PageCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pages", self.0)
    }
}
impl fmt::Debug for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_rounds_to_the_page_that_holds_it() {
        assert_eq!(VirtAddr::new(0x1fff).page(), PageIndex::new(1));
        assert_eq!(VirtAddr::new(0x1001).page_up(), PageIndex::new(2));
        assert_eq!(VirtAddr::new(0x1000).page_up(), PageIndex::new(1));
    }

    #[test]
    fn an_inverted_range_is_empty() {
        let range = PageRange::new(PageIndex::new(9), PageIndex::new(3));
        assert!(range.is_empty());
    }

    #[test]
    fn an_offset_does_not_leave_the_address_space() {
        assert_eq!(PageIndex::new(3).offset(-4), None);
        assert_eq!(PageIndex::new((1 << 52) - 1).offset(1), None);
    }
}
