//! The buddy allocator: chunks of 2^0 to 2^10 frames, each at a multiple of its size; two that make up a
//! larger one become it when both are free.
//!
//! Pure: it knows numbers of frames, and nothing of the memory behind them or of whom they are given to.
//!
//! Invariants:
//! 1. A frame that is free is in exactly one free chunk, as large as it can be: no chunk below the largest
//!    order is free together with its buddy.
//! 2. A frame that is not free is in none.

use farmem_transport::{Chunk, Frame, MOST_ORDER, Order};

use crate::bits::Bits;

/// Orders there are.
pub const ORDERS: usize = MOST_ORDER as usize + 1;

/// Free chunks.
#[derive(Clone, Debug)]
pub struct Buddy {
    frames: u64,
    free_frames: u64,
    /// By order: the free chunks, as the number of their first frame divided by their size.
    free: [Bits; ORDERS],
}

impl Buddy {
    /// `frames` frames, at most 2^32, all free.
    pub fn new(frames: u64) -> Self {
        let frames = frames.min(1 << 32);
        let mut buddy = Self {
            frames,
            free_frames: 0,
            free: std::array::from_fn(|order| Bits::new((frames >> order) as usize)),
        };
        for chunk in chunks(0..frames) {
            buddy.free(chunk);
        }
        buddy
    }

    /// All frames, free or not.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Frames that are free.
    pub fn free_frames(&self) -> u64 {
        self.free_frames
    }

    /// Free chunks of each order.
    pub fn free_chunks(&self) -> [u32; ORDERS] {
        std::array::from_fn(|order| self.free[order].count() as u32)
    }

    /// Takes a chunk; `None` when there is none of that size. Of the smallest free chunks that are large
    /// enough it is cut from the first one: so large ones stay whole, and what is in use gathers at the
    /// beginning.
    pub fn allocate(&mut self, order: Order) -> Option<Chunk> {
        let wanted = usize::from(order.get());
        let (found, mut at) = (wanted..ORDERS).find_map(|order| Some((order, self.free[order].first()?)))?;
        self.free[found].remove(at);
        for order in (wanted..found).rev() {
            at *= 2;
            self.free[order].insert(at + 1);
        }
        self.free_frames -= u64::from(order.frames());
        Chunk::new(Frame::new((at << wanted) as u32), order)
    }

    /// Gives a chunk back: one that was taken, or a part of one, or several together. All of its frames must
    /// be taken.
    ///
    /// # Panics
    /// In debug builds, when some are free already.
    pub fn free(&mut self, chunk: Chunk) {
        debug_assert!(chunk.frames().end <= self.frames, "{chunk:?} is outside");
        let mut order = usize::from(chunk.order().get());
        let mut at = (chunk.first().get() >> order) as usize;
        while order < ORDERS - 1 && self.free[order].remove(at ^ 1) {
            at /= 2;
            order += 1;
        }
        self.free[order].insert(at);
        self.free_frames += u64::from(chunk.order().frames());
    }

    /// Whether a frame is free.
    #[cfg(test)]
    fn is_free(&self, frame: u64) -> bool {
        (0..ORDERS).any(|order| self.free[order].contains((frame >> order) as usize))
    }
}

/// The fewest chunks that make up a range of frames, from its start to its end.
pub fn chunks(frames: std::ops::Range<u64>) -> impl Iterator<Item = Chunk> {
    let mut next = frames.start;
    std::iter::from_fn(move || {
        let left = frames.end.checked_sub(next).filter(|left| *left > 0)?;
        let order = next.trailing_zeros().min(left.ilog2()).min(MOST_ORDER.into());
        let chunk = Chunk::new(Frame::new(u32::try_from(next).ok()?), Order::new(order as u8)?)?;
        next += 1 << order;
        Some(chunk)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn order(order: u8) -> Order {
        Order::new(order).unwrap()
    }

    #[test]
    fn frames_that_make_up_no_power_of_two_are_all_there() {
        let mut buddy = Buddy::new(1024 + 64 + 3);
        assert_eq!(buddy.free_frames(), 1091);
        assert_eq!(buddy.free_chunks(), [1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 1]);
        let taken = std::iter::from_fn(|| buddy.allocate(order(0))).count();
        assert_eq!(taken, 1091);
    }

    #[test]
    fn without_a_chunk_of_the_size_the_answer_is_no() {
        let mut buddy = Buddy::new(1023);
        assert_eq!(buddy.allocate(Order::MOST), None);
        assert_eq!(buddy.free_frames(), 1023);
    }

    #[test]
    fn halves_become_whole_again() {
        let mut buddy = Buddy::new(1024);
        let whole = buddy.allocate(Order::MOST).unwrap();
        for chunk in chunks(0..512).chain(chunks(512..1024)) {
            buddy.free(chunk);
        }
        assert_eq!(buddy.allocate(Order::MOST), Some(whole));
    }

    #[test]
    fn what_is_taken_gathers_at_the_beginning() {
        let mut buddy = Buddy::new(4096);
        let taken: Vec<u32> =
            std::iter::repeat_with(|| buddy.allocate(Order::SLAB).unwrap().first().get()).take(4).collect();
        assert_eq!(taken, [0, 64, 128, 192]);
    }

    proptest! {
        /// Against a table of frames: nothing is given twice, everything comes back, and free chunks are as
        /// large as can be.
        #[test]
        fn invariants_hold(
            frames in 1u64..5000,
            steps in prop::collection::vec((0u8..=MOST_ORDER, any::<bool>(), any::<prop::sample::Index>()), 0..400),
        ) {
            let mut buddy = Buddy::new(frames);
            let mut taken = vec![false; frames as usize];
            let mut held: Vec<Chunk> = Vec::new();
            for (size, is_allocation, which) in steps {
                if is_allocation || held.is_empty() {
                    match buddy.allocate(order(size)) {
                        Some(chunk) => {
                            for frame in chunk.frames() {
                                prop_assert!(!std::mem::replace(&mut taken[frame as usize], true));
                            }
                            held.push(chunk);
                        }
                        None => {
                            let largest = buddy.free_chunks().iter().rposition(|count| *count > 0);
                            prop_assert!(largest.is_none_or(|largest| largest < usize::from(size)));
                        }
                    }
                } else {
                    let chunk = held.swap_remove(which.index(held.len()));
                    // Half of it, and the rest again: parts come back by themselves.
                    for part in chunks(chunk.frames()) {
                        buddy.free(part);
                    }
                    chunk.frames().for_each(|frame| taken[frame as usize] = false);
                }
                let free = taken.iter().filter(|taken| !**taken).count() as u64;
                prop_assert_eq!(buddy.free_frames(), free);
                let counted: u64 = buddy.free_chunks().iter().zip(0..).map(|(count, order)| u64::from(*count) << order).sum();
                prop_assert_eq!(counted, free);
            }
            for frame in 0..frames {
                prop_assert_eq!(buddy.is_free(frame), !taken[frame as usize]);
            }
            for order in 0..ORDERS - 1 {
                for at in 0..(frames >> order) as usize {
                    prop_assert!(!(buddy.free[order].contains(at) && buddy.free[order].contains(at ^ 1)));
                }
            }
            held.into_iter().for_each(|chunk| buddy.free(chunk));
            prop_assert_eq!(buddy.free_chunks(), Buddy::new(frames).free_chunks());
        }

        #[test]
        fn chunks_make_up_their_range(start in 0u64..3000, length in 0u64..3000) {
            let mut next = start;
            for chunk in chunks(start..start + length) {
                prop_assert_eq!(chunk.frames().start, next);
                next = chunk.frames().end;
            }
            prop_assert_eq!(next, start + length);
        }
    }
}
