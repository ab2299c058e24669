//! Places in a node's region: frames, chunks of them, bytes; and a place on one of many nodes.

use farmem_page::{PAGE_BYTES, PAGE_SHIFT};

/// Bytes of a frame.
pub const FRAME_BYTES: usize = PAGE_BYTES;
/// The largest order of a chunk: 1024 frames, 4 MiB.
pub const MOST_ORDER: u8 = 10;

/// The number of a frame of 4 KiB in a node's region.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct Frame(u32);

impl Frame {
    /// Wraps a number.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }
    /// The bare number.
    pub const fn get(self) -> u32 {
        self.0
    }
    /// Where its first byte lies.
    pub const fn offset(self) -> RegionOffset {
        RegionOffset((self.0 as u64) << PAGE_SHIFT)
    }
}

/// A byte of a node's region, counted from its start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct RegionOffset(u64);

impl RegionOffset {
    /// The first byte behind the largest region: 2^32 frames.
    pub const END: Self = Self(1 << (32 + PAGE_SHIFT));

    /// Wraps a number of bytes.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }
    /// The bare number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// The byte `bytes` further on; `None` behind the largest region.
    pub const fn checked_add(self, bytes: u64) -> Option<Self> {
        match self.0.checked_add(bytes) {
            Some(sum) if sum <= Self::END.0 => Some(Self(sum)),
            _ => None,
        }
    }
    /// The frames that `length_bytes` bytes from here on lie in, as numbers, the end not included. `None`
    /// when they leave the largest region or there are none.
    pub fn frames(self, length_bytes: usize) -> Option<std::ops::Range<u64>> {
        let end = self.checked_add(length_bytes as u64)?;
        (length_bytes > 0).then(|| self.0 >> PAGE_SHIFT..end.0.div_ceil(FRAME_BYTES as u64))
    }
}

/// The size of a chunk, as the binary logarithm of its frames: 0 to [`MOST_ORDER`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct Order(u8);

impl Order {
    /// The order of a chunk that is as large as a slab of the pool: 64 frames, 256 KiB.
    pub const SLAB: Self = Self(6);
    /// The largest.
    pub const MOST: Self = Self(MOST_ORDER);

    /// `None` above [`MOST_ORDER`].
    pub const fn new(order: u8) -> Option<Self> {
        if order <= MOST_ORDER { Some(Self(order)) } else { None }
    }
    /// The bare number.
    pub const fn get(self) -> u8 {
        self.0
    }
    /// Frames of a chunk.
    pub const fn frames(self) -> u32 {
        1 << self.0
    }
    /// Bytes of a chunk.
    pub const fn bytes(self) -> usize {
        (self.frames() as usize) << PAGE_SHIFT
    }
}

/// 2^order frames side by side, the first at a multiple of their number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Chunk {
    first: Frame,
    order: Order,
}

impl Chunk {
    /// `None` when the first frame is not at a multiple of the chunk's frames.
    pub const fn new(first: Frame, order: Order) -> Option<Self> {
        if first.0.is_multiple_of(order.frames()) { Some(Self { first, order }) } else { None }
    }
    /// Its first frame.
    pub const fn first(self) -> Frame {
        self.first
    }
    /// Its size.
    pub const fn order(self) -> Order {
        self.order
    }
    /// The numbers of its frames, the end not included.
    pub fn frames(self) -> std::ops::Range<u64> {
        let first = u64::from(self.first.0);
        first..first + u64::from(self.order.frames())
    }
}

/// A frame on one of the nodes that a machine knows, in 48 bits. Nodes are numbered by those who use them;
/// the number means nothing to the node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RemoteAddress {
    /// Which node.
    pub node: u16,
    /// Which frame of it.
    pub frame: Frame,
}

impl RemoteAddress {
    /// The address in the low 48 bits of a word: the node above the frame.
    pub const fn bits(self) -> u64 {
        (self.node as u64) << 32 | self.frame.0 as u64
    }
    /// The address in the low 48 bits; the others are not looked at.
    pub const fn from_bits(bits: u64) -> Self {
        Self { node: (bits >> 32) as u16, frame: Frame(bits as u32) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_its_bits() {
        let address = RemoteAddress { node: 0xfffe, frame: Frame::new(0x8000_0001) };
        assert_eq!(RemoteAddress::from_bits(address.bits()), address);
        assert!(address.bits() < 1 << 48);
    }

    #[test]
    fn a_chunk_begins_at_a_multiple_of_its_size() {
        assert!(Chunk::new(Frame::new(128), Order::SLAB).is_some());
        assert!(Chunk::new(Frame::new(96), Order::SLAB).is_none());
        assert!(Order::new(MOST_ORDER + 1).is_none());
    }

    #[test]
    fn bytes_lie_in_the_frames_that_they_touch() {
        assert_eq!(RegionOffset::new(4095).frames(2), Some(0..2));
        assert_eq!(RegionOffset::new(4096).frames(4096), Some(1..2));
        assert_eq!(RegionOffset::new(0).frames(0), None);
        assert_eq!(RegionOffset::new(u64::MAX).frames(2), None);
        assert_eq!(RegionOffset::END.frames(1), None);
    }
}
