//! Where a stored page is: its entry, as a number small enough for a page word.

/// Number of a slab of the pool. At most [`SlabIndex::LIMIT`] slabs exist.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct SlabIndex(u32);

/// Number of a slot in its slab.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct SlotIndex(u16);

/// Number of a repeated 8-byte pattern in the pool's pattern table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct PatternIndex(u16);

/// A slot of a slab.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct SlotPlace {
    /// The slab.
    pub slab: SlabIndex,
    /// The slot in it.
    pub slot: SlotIndex,
}

/// Where the content of a page is kept. Fits in [`Place::BITS`] bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Place {
    /// Nothing but zeros: no slot is needed.
    Zero,
    /// One 8-byte pattern, repeated: no slot is needed.
    Pattern(PatternIndex),
    /// A slot of the pool. Whether the slab is in memory or on disk, the pool knows.
    Slot(SlotPlace),
    /// The content could not be read back; the page is poisoned.
    Lost,
}

impl SlabIndex {
    const BITS: u32 = 24;
    /// One more than the largest slab number.
    pub const LIMIT: u32 = 1 << Self::BITS;
    /// `None` when the number is [`SlabIndex::LIMIT`] or more.
    pub const fn new(index: u32) -> Option<Self> {
        if index < Self::LIMIT { Some(Self(index)) } else { None }
    }
    /// The bare number.
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}

impl SlotIndex {
    const BITS: u32 = 12;
    /// One more than the largest slot number.
    pub const LIMIT: u16 = 1 << Self::BITS;
    /// `None` when the number is [`SlotIndex::LIMIT`] or more.
    pub const fn new(index: u16) -> Option<Self> {
        if index < Self::LIMIT { Some(Self(index)) } else { None }
    }
    /// The bare number.
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}

impl PatternIndex {
    /// Wraps the number of a pattern.
    pub const fn new(index: u16) -> Self {
        Self(index)
    }
    /// The bare number.
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}

impl Place {
    /// Bits that [`Place::encode`] uses.
    pub const BITS: u32 = TAG_BITS + SlabIndex::BITS + SlotIndex::BITS;

    /// The place as a number that is never zero, so that zero can mean "no entry".
    pub const fn encode(self) -> u64 {
        let (tag, rest) = match self {
            Place::Zero => (TAG_ZERO, 0),
            Place::Pattern(pattern) => (TAG_PATTERN, pattern.0 as u64),
            Place::Slot(at) => (TAG_SLOT, (at.slab.0 as u64) << SlotIndex::BITS | at.slot.0 as u64),
            Place::Lost => (TAG_LOST, 0),
        };
        rest << TAG_BITS | tag
    }

    /// The inverse of [`Place::encode`]; `None` for zero and for anything that `encode` doesn't produce.
    pub const fn decode(bits: u64) -> Option<Self> {
        let rest = bits >> TAG_BITS;
        match bits & TAG_MASK {
            TAG_ZERO if rest == 0 => Some(Place::Zero),
            TAG_LOST if rest == 0 => Some(Place::Lost),
            TAG_PATTERN if rest <= u16::MAX as u64 => Some(Place::Pattern(PatternIndex(rest as u16))),
            TAG_SLOT if rest < 1 << (SlabIndex::BITS + SlotIndex::BITS) => Some(Place::Slot(SlotPlace {
                slab: SlabIndex((rest >> SlotIndex::BITS) as u32),
                slot: SlotIndex((rest & (SlotIndex::LIMIT as u64 - 1)) as u16),
            })),
            _ => None,
        }
    }
}

const TAG_BITS: u32 = 3;
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;
const TAG_ZERO: u64 = 1;
const TAG_PATTERN: u64 = 2;
const TAG_SLOT: u64 = 3;
const TAG_LOST: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_survives_its_encoding() {
        let slot = |slab, slot| {
            Place::Slot(SlotPlace {
                slab: SlabIndex::new(slab).unwrap(),
                slot: SlotIndex::new(slot).unwrap(),
            })
        };
        for place in [
            Place::Zero,
            Place::Lost,
            Place::Pattern(PatternIndex::new(u16::MAX)),
            slot(0, 0),
            slot(SlabIndex::LIMIT - 1, SlotIndex::LIMIT - 1),
        ] {
            let bits = place.encode();
            assert_ne!(bits, 0);
            assert!(bits < 1 << Place::BITS);
            assert_eq!(Place::decode(bits), Some(place));
        }
    }

    #[test]
    fn garbage_is_no_place() {
        for bits in [0, 7, 1 << 3 | 1, u64::MAX] {
            assert_eq!(Place::decode(bits), None);
        }
    }
}
