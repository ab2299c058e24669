//! Size classes: how finely the pool cuts its slabs (FastSwap §III; why these, in
//! `docs/adr/0005-size-classes.md`).

use farmem_codec::PACKED_LIMIT_BYTES;
use farmem_page::PAGE_BYTES;

/// Bytes of a slab: what an application leases, what moves to disk, what is given back.
pub const SLAB_BYTES: usize = 256 << 10;

/// How many classes there are.
pub const CLASS_COUNT: usize = PAGE_BYTES / STEP_BYTES;

const STEP_BYTES: usize = 256;
const _: () = assert!(PACKED_LIMIT_BYTES == PAGE_BYTES - STEP_BYTES, "packing must win at least one class");

/// The size of a slab's slots, as the number of its class: class 0 has the smallest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SizeClass(u8);

impl SizeClass {
    /// Slots of the class that has most of them.
    pub const SLOTS_MAX: usize = SLAB_BYTES / STEP_BYTES;

    /// The class whose slots hold a whole page.
    pub const LARGEST: Self = Self(CLASS_COUNT as u8 - 1);

    /// The class with this number; `None` when there is none.
    pub const fn new(number: usize) -> Option<Self> {
        if number < CLASS_COUNT { Some(Self(number as u8)) } else { None }
    }
    /// The class whose slots fit `bytes` best; `None` when no slot is large enough. Zero bytes take the
    /// smallest.
    pub const fn fitting(bytes: usize) -> Option<Self> {
        Self::new(bytes.saturating_sub(1) / STEP_BYTES)
    }
    /// Its number.
    pub const fn number(self) -> usize {
        self.0 as usize
    }
    /// Bytes of a slot.
    pub const fn slot_bytes(self) -> usize {
        (self.number() + 1) * STEP_BYTES
    }
    /// Slots of a slab.
    pub const fn slots(self) -> usize {
        SLAB_BYTES / self.slot_bytes()
    }
    /// This class and all with larger slots, in order.
    pub fn and_larger(self) -> impl Iterator<Item = Self> {
        (self.0..CLASS_COUNT as u8).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_up_to_a_page_gets_the_smallest_slot_that_holds_it() {
        for bytes in 1..=PAGE_BYTES {
            let class = SizeClass::fitting(bytes).unwrap();
            assert!(class.slot_bytes() >= bytes);
            assert!(class.number() == 0 || SizeClass::new(class.number() - 1).unwrap().slot_bytes() < bytes);
        }
    }

    #[test]
    fn nothing_larger_than_a_page_has_a_class() {
        assert_eq!(SizeClass::fitting(PAGE_BYTES + 1), None);
        assert_eq!(SizeClass::new(CLASS_COUNT), None);
    }
}
