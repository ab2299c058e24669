//! Words that every other crate speaks: addresses, page numbers, counts, places of stored pages, and the
//! state word that the pager keeps for each page.
//!
//! Pure and `no_std`: nothing here allocates, locks or calls the kernel.
#![no_std]
#![forbid(unsafe_code)]

mod place;
mod units;
mod word;

pub use place::{PatternIndex, Place, SlabIndex, SlotIndex, SlotPlace};
pub use units::{
    ByteCount, PAGE_BYTES, PAGE_SHIFT, PageCount, PageIndex, PageRange, VirtAddr, mebibytes, mebibytes_up,
};
pub use word::{AgeStamp, Level, PageWord, Transition};

/// The bytes of one page.
pub type PageBytes = [u8; PAGE_BYTES];
