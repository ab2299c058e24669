//! Finding the program's memory: a walk over its mappings, and the registration of what can be managed.

use core::cell::Cell;

use farmem_page::{PageCount, PageIndex, PageRange, VirtAddr};
use farmem_sys::maps::{Mapping, Maps};
use farmem_sys::memory;
use farmem_sys::pagemap::SCAN_PAGES;
use farmem_sys::process;
use farmem_sys::sparse;
use farmem_sys::uffd::UffdError;
use farmem_telemetry::Counter;

use crate::engine::Engine;
use crate::gate::Change;
use crate::inject::Injection;

/// Mappings smaller than this are left alone: 64 KiB.
const SMALLEST: PageCount = PageCount::new(16);
/// What adjoins a region is left alone below one page for so many mappings.
const MAPPINGS_PER_PAGE: u64 = 16;

/// What became of a mapping that is to come under management.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Registered {
    /// It has been for some time.
    Before,
    Now,
    /// It is changing: the next scan meets what will be there then.
    Later,
    /// The kernel doesn't allow it, or there is no room for another region.
    Refused,
}

/// The scanner.
#[derive(Debug)]
pub(crate) struct Scanner {
    /// The mapping that stays the program's own business: its main stack.
    excluded: PageRange,
    /// How many mappings the last walk over all of them met that can be managed.
    mappings: Cell<u64>,
}

impl Scanner {
    pub(crate) fn new(excluded: PageRange) -> Self {
        Self { excluded, mappings: Cell::new(0) }
    }

    /// Puts every mapping under management that can be and isn't yet.
    pub(crate) fn register_new(&self, engine: &Engine) {
        let mut unmanaged = 0;
        let all = PageRange::new(PageIndex::new(0), PageIndex::new(u64::MAX));
        let mut mappings = 0;
        let least = least_piece(self.mappings.get());
        self.walk(engine, all, least, |range, registered| {
            mappings += 1;
            if registered == Registered::Refused {
                unmanaged += range.count().get();
            }
        });
        self.mappings.set(mappings);
        engine.slot.set(Counter::UnmanagedPages, unmanaged);
        engine.slot.set(Counter::ManagedPages, engine.pages.regions.pages().get());
    }

    /// Puts the mappings that have pages of `range` under management, where they can be. `false` when one of
    /// them is changing.
    pub(crate) fn register_in(&self, engine: &Engine, range: PageRange) -> bool {
        let mut is_settled = true;
        self.walk(engine, range, SMALLEST, |_, registered| is_settled &= registered != Registered::Later);
        is_settled
    }

    /// Registers mappings from the start of `within` to its end, those that adjoin a region only if they have
    /// as many as `least_piece` pages; `visit` hears what became of each.
    fn walk(
        &self,
        engine: &Engine,
        within: PageRange,
        least_piece: PageCount,
        mut visit: impl FnMut(PageRange, Registered),
    ) {
        let mut from = within.start;
        while from < within.end {
            // One mapping at a time, so that nobody waits long; what changes between two is found in the next
            // scan.
            let change = engine.change_as_bookkeeper();
            let Ok(Some(mapping)) = engine.pages.files.maps.next(from.addr()) else { break };
            if mapping.range.start >= within.end {
                break;
            }
            from = mapping.range.end;
            if !self.is_manageable(&mapping) {
                continue;
            }
            if mapping.range.count() < least_piece && is_new_piece(engine, mapping.range) {
                continue;
            }
            let registered = self.register(engine, &change, mapping.range);
            drop(change);
            if registered == Registered::Now {
                engine.protect_zeros(mapping.range);
            }
            visit(mapping.range, registered);
        }
    }

    fn is_manageable(&self, mapping: &Mapping) -> bool {
        mapping.anonymous
            && mapping.writable
            && mapping.range.count() >= SMALLEST
            // A processor with larger addresses gives them to programs that ask for some.
            && mapping.range.end <= sparse::END
            && self.excluded.intersect(mapping.range).is_empty()
            && !memory::is_own(mapping.range)
    }

    fn register(&self, engine: &Engine, _change: &Change<'_>, range: PageRange) -> Registered {
        if engine.pages.regions.holding(range.start).is_some_and(|region| region.end >= range.end) {
            return Registered::Before;
        }
        engine.inject_at(Injection::LateRegistration, 0);
        match engine.pages.uffd.register(range) {
            // What isn't known to be registered is met again by the next scan.
            Ok(()) if !self.is_registered(engine, range) => Registered::Later,
            Ok(()) if engine.pages.regions.insert(range) => Registered::Now,
            // Changed since the kernel was asked: the next scan sees what became of it.
            Err(UffdError::Changing | UffdError::Gone) => Registered::Later,
            Ok(()) | Err(_) => Registered::Refused,
        }
    }

    /// Whether all of `range` is registered, of which the kernel has just registered what there was: it
    /// doesn't mind holes, and the program may have mapped something there since.
    ///
    /// It is if it is one mapping now, of which something was there at that time, for the kernel doesn't join
    /// what is registered with what isn't. Whether something else has taken its place would be told by an
    /// event, which waits: no message is read while pages are changed.
    fn is_registered(&self, engine: &Engine, range: PageRange) -> bool {
        let mapping = engine.pages.files.maps.next(range.start.addr());
        let is_one = matches!(mapping, Ok(Some(mapping)) if mapping.range.intersect(range) == range);
        is_one && !engine.pages.uffd.is_changing()
    }

    /// Marks the control blocks of all threads: an ending thread can't wait for its page.
    pub(crate) fn keep_control_blocks(&self, engine: &Engine) {
        let _ = engine.pages.files.threads.each(|thread| {
            engine.keep_control_block_of(thread);
        });
    }
}

impl Engine {
    fn keep_control_block_of(&self, thread: u32) {
        for page in process::control_block(thread).into_iter().flat_map(PageRange::iter) {
            if !self.pages.table.word(page).is_unevictable() {
                self.pages.table.update(page, |word| word.with_unevictable(true));
            }
        }
    }
}

/// Pages that a mapping must have that adjoins a region, where there are so many mappings.
///
/// Memory that grows next to memory that is managed is a mapping of its own. When it is registered, too, the
/// kernel doesn't join both any more: pages of theirs are tied to different anonymous memory. Memory that
/// grows slowly would become a mapping for each 64 KiB, and the program may have some 65,000. As long as the
/// new piece isn't registered it grows with what comes next. So the pieces are the larger the more there are:
/// 16,000 mappings are enough for 32 GiB.
fn least_piece(mappings: u64) -> PageCount {
    PageCount::new(mappings / MAPPINGS_PER_PAGE).max(SMALLEST)
}

/// Whether the range isn't managed, but what comes before it or after it is.
fn is_new_piece(engine: &Engine, range: PageRange) -> bool {
    let is_managed = |page: u64| engine.pages.regions.holding(PageIndex::new(page)).is_some();
    !is_managed(range.start.get())
        && (is_managed(range.start.get().saturating_sub(1)) || is_managed(range.end.get()))
}

/// The parts of a range that one question about the page table describes: they end where a page table of
/// the kernel's does.
pub(crate) fn windows(range: PageRange) -> impl Iterator<Item = PageRange> {
    let mut start = range.start;
    core::iter::from_fn(move || {
        let window_end = (start.get() / SCAN_PAGES as u64 + 1) * SCAN_PAGES as u64;
        let window = PageRange::new(start, PageIndex::new(window_end.min(range.end.get()).max(start.get())));
        start = window.end;
        (!window.is_empty()).then_some(window)
    })
}

/// The mapping that holds `address`, as pages.
pub(crate) fn mapping_at(maps: &Maps, address: usize) -> PageRange {
    let nothing = PageRange::new(PageIndex::new(0), PageIndex::new(0));
    let page = VirtAddr::new(address as u64).page();
    match maps.next(page.addr()) {
        Ok(Some(mapping)) if mapping.range.contains(page) => mapping.range,
        _ => nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_grows_slowly_to_half_a_terabyte_has_fewer_mappings_than_a_program_may_have() {
        let pages_of = |most: u64| (0..most).map(|mappings| least_piece(mappings).get()).sum::<u64>();

        assert_eq!(least_piece(200), SMALLEST);
        assert!(pages_of(16_000) >= (32 << 30) / 4096 / 8 * 7);
        assert!(pages_of(65_000) >= (500 << 30) / 4096);
    }

    #[test]
    fn a_mapping_whose_pages_can_have_no_words_is_left_alone() {
        let nothing = PageRange::new(PageIndex::new(0), PageIndex::new(0));
        let scanner = Scanner::new(nothing);
        let ending_at = |end: PageIndex| Mapping {
            range: PageRange::new(PageIndex::new(end.get() - SMALLEST.get()), end),
            writable: true,
            executable: false,
            anonymous: true,
            shared: false,
        };

        assert!(scanner.is_manageable(&ending_at(sparse::END)));
        assert!(!scanner.is_manageable(&ending_at(PageIndex::new(sparse::END.get() + 1))));
    }
}
