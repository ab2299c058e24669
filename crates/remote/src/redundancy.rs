//! How a block lies on nodes: cut into spans, to which parity is added, each of these *shards* on a node of
//! its own.
//!
//! ```text
//!  a block of 64 pages, 4+2     0..16   16..32   32..48   48..64   parity   parity
//!  on nodes                       a       b        c        d        e        f
//! ```
//! A page lies whole in one shard, so that in the good case one node is asked for it, and neighbours come
//! along. Any `data` of the shards are enough for all bytes, and a range of one shard can be had from the
//! same range of others: bytes at different places have nothing to do with each other.
//!
//! One copy is `1+0`, two are `1+1`: the parity of a single span is its copy.

use std::fmt;
use std::str::FromStr;

use farmem_transport::Order;

/// Pages of a block, in 4 KiB as they are stored.
pub const BLOCK_PAGES: usize = 1 << Order::SLAB.get();
/// Spans of a block, at most: nodes lend chunks of 2^n frames, so their number is a power of two.
const MOST_DATA: u8 = 8;
/// Shards of parity, at most. For more the powers of two that parity is made with are not known to do.
const MOST_PARITY: u8 = 4;
/// Shards of a block, at most.
pub const MOST_SHARDS: usize = (MOST_DATA + MOST_PARITY) as usize;

/// How many spans a block is cut into, and how many shards of parity it has: so many nodes may be lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Redundancy {
    data: u8,
    parity: u8,
}

/// What is not a redundancy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "write none, mirror, or K+M such as 4+2: pages cut into K = 1, 2, 4 or 8 parts, of which any M = 1 to 4 nodes may be lost"
)]
pub struct NoRedundancy;

/// A range of a block that lies in one shard, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The shard.
    pub shard: usize,
    /// Its first page, counted from the shard's beginning.
    pub first: usize,
    /// How many.
    pub count: usize,
}

impl Redundancy {
    /// One copy.
    pub const NONE: Self = Self { data: 1, parity: 0 };
    /// Two copies.
    pub const MIRROR: Self = Self { data: 1, parity: 1 };

    /// So many spans and parities, if that is possible.
    pub const fn new(data: u8, parity: u8) -> Option<Self> {
        match data {
            1 if parity == 0 => Some(Self::NONE),
            1 | 2 | 4 | MOST_DATA if parity >= 1 && parity <= MOST_PARITY => Some(Self { data, parity }),
            _ => None,
        }
    }

    /// Shards with the block's own bytes. As many of all are enough.
    pub const fn data(self) -> usize {
        self.data as usize
    }

    /// Shards beyond these: so many nodes may be lost.
    pub const fn parity(self) -> usize {
        self.parity as usize
    }

    /// Shards of a block, and nodes that it needs.
    pub const fn shards(self) -> usize {
        self.data() + self.parity()
    }

    /// Pages of a shard.
    pub const fn shard_pages(self) -> usize {
        BLOCK_PAGES / self.data()
    }

    /// The chunk of a node that a shard fills.
    pub const fn order(self) -> Order {
        let order = Order::SLAB.get() - self.data.trailing_zeros() as u8;
        match Order::new(order) {
            Some(order) => order,
            None => Order::SLAB,
        }
    }

    /// Cuts pages of a block where its shards end.
    pub fn pieces(self, first: usize, count: usize) -> impl Iterator<Item = Piece> {
        let pages = self.shard_pages();
        let end = (first + count).min(BLOCK_PAGES);
        let mut at = first;
        std::iter::from_fn(move || {
            (at < end).then(|| {
                let (shard, first) = (at / pages, at % pages);
                let count = (pages - first).min(end - at);
                at += count;
                Piece { shard, first, count }
            })
        })
    }
}

impl Default for Redundancy {
    fn default() -> Self {
        Self::NONE
    }
}

impl FromStr for Redundancy {
    type Err = NoRedundancy;

    fn from_str(text: &str) -> Result<Self, NoRedundancy> {
        match text {
            "none" => return Ok(Self::NONE),
            "mirror" => return Ok(Self::MIRROR),
            _ => {}
        }
        let number = |text: &str| {
            // Not "+1", which a number may be written as.
            text.bytes().all(|letter| letter.is_ascii_digit()).then(|| text.parse().ok()).flatten()
        };
        let (data, parity) = text.split_once('+').ok_or(NoRedundancy)?;
        let (data, parity) = (number(data).ok_or(NoRedundancy)?, number(parity).ok_or(NoRedundancy)?);
        Self::new(data, parity).filter(|redundancy| redundancy.parity > 0).ok_or(NoRedundancy)
    }
}

impl fmt::Display for Redundancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NONE => f.write_str("none"),
            Self::MIRROR => f.write_str("mirror"),
            Self { data, parity } => write!(f, "{data}+{parity}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_is_read_and_written_the_same() {
        for text in ["none", "mirror", "1+2", "2+1", "4+2", "8+4"] {
            assert_eq!(text.parse::<Redundancy>().unwrap().to_string(), text);
        }
        assert_eq!("1+1".parse(), Ok(Redundancy::MIRROR));
    }

    #[test]
    fn what_no_chunk_of_a_node_fits_is_refused() {
        for text in ["", "3+1", "6+2", "4+0", "1+0", "0+1", "4+5", "16+2", "+4+2", "4++2", "4", "four+two"] {
            assert_eq!(text.parse::<Redundancy>(), Err(NoRedundancy), "{text}");
        }
    }

    #[test]
    fn shards_together_are_the_block() {
        for data in [1, 2, 4, 8] {
            let redundancy = Redundancy::new(data, 1).unwrap();
            assert_eq!(redundancy.shard_pages() * redundancy.data(), BLOCK_PAGES);
            assert_eq!(redundancy.order().frames() as usize, redundancy.shard_pages());
        }
    }

    proptest! {
        #[test]
        fn pieces_are_the_range_in_order_and_each_lies_in_its_shard(
            first in 0_usize..64, count in 1_usize..17, power in 0_u32..4,
        ) {
            prop_assume!(first + count <= BLOCK_PAGES);
            let redundancy = Redundancy::new(1 << power, 1).unwrap();
            let mut at = first;
            for piece in redundancy.pieces(first, count) {
                prop_assert_eq!(piece.shard * redundancy.shard_pages() + piece.first, at);
                prop_assert!(piece.count > 0 && piece.first + piece.count <= redundancy.shard_pages());
                at += piece.count;
            }
            prop_assert_eq!(at, first + count);
        }
    }
}
