//! When pages were asked for ahead, until it is known whether they were used (Canvas §5.3).
//!
//! A page has a place by its number, which the next one that falls there takes over: what is lost with it is
//! one use of many.

use farmem_page::PageIndex;
use farmem_sys::{Errno, memory};

use crate::sync::{AtomicU64, Ordering};

const PLACES: usize = 4096;
/// Microseconds, four minutes of them; the page is above.
const TIME_BITS: u32 = 28;
const TIME: u64 = (1 << TIME_BITS) - 1;

#[derive(Debug)]
pub(crate) struct Asked {
    places: &'static [AtomicU64],
}

impl Asked {
    /// # Errors
    /// No memory.
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self { places: memory::table(PLACES)? })
    }

    fn place(&self, page: PageIndex) -> &AtomicU64 {
        &self.places[(page.get() % PLACES as u64) as usize]
    }

    /// A page is asked for.
    pub(crate) fn note(&self, page: PageIndex, now_ns: u64) {
        self.place(page).store((page.get() << TIME_BITS) | ((now_ns / 1000) & TIME), Ordering::Relaxed);
    }

    /// Nothing is to be known of a page.
    pub(crate) fn forget(&self, page: PageIndex) {
        let _ = self.take(page);
    }

    /// A page was used: how long before that it had been asked for, if that is known. It is asked once.
    pub(crate) fn used_after_ns(&self, page: PageIndex, now_ns: impl FnOnce() -> u64) -> Option<u64> {
        let asked_us = self.take(page)? & TIME;
        Some((now_ns() / 1000).wrapping_sub(asked_us) & TIME).map(|us| us * 1000)
    }

    fn take(&self, page: PageIndex) -> Option<u64> {
        let place = self.place(page);
        let word = place.load(Ordering::Relaxed);
        let is_it = word != 0 && word >> TIME_BITS == page.get() & (u64::MAX >> TIME_BITS);
        (is_it && place.compare_exchange(word, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok())
            .then_some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_is_counted_once_and_from_when_the_page_was_asked_for() {
        let asked = Asked::new().unwrap();
        let (page, other) = (PageIndex::new(0x7_f123_4567), PageIndex::new(0x7_f123_4567 + PLACES as u64));
        asked.note(page, 5_000_000);
        assert_eq!(asked.used_after_ns(other, || 6_000_000), None);
        assert_eq!(asked.used_after_ns(page, || 5_750_000), Some(750_000));
        assert_eq!(asked.used_after_ns(page, || 5_750_000), None);
        asked.note(page, 5_000_000);
        asked.note(other, 6_000_000);
        assert_eq!(asked.used_after_ns(page, || 7_000_000), None, "another page has its place");
        asked.forget(other);
        assert_eq!(asked.used_after_ns(other, || 7_000_000), None);
    }
}
