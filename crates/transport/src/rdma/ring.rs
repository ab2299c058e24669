//! Places for content in the memory that a device reaches: given out in order, and given back in the same
//! order.
//!
//! Invariants:
//! 1. `freed` ≤ `given` ≤ `freed` + size: both count bytes since the start, those that were left out at the
//!    end included.
//! 2. A place doesn't go across the end.

/// A place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// Where it begins.
    pub(super) at_bytes: usize,
    /// What [`Ring::free`] wants to know.
    end: u64,
}

pub(super) struct Ring {
    size_bytes: u64,
    given: u64,
    freed: u64,
}

impl Ring {
    pub(super) fn new(size_bytes: usize) -> Self {
        Self { size_bytes: size_bytes as u64, given: 0, freed: 0 }
    }

    /// A place of so many bytes; `None` until earlier ones are free.
    pub(super) fn take(&mut self, length_bytes: usize) -> Option<Place> {
        let length = length_bytes as u64;
        let left = self.size_bytes - self.given % self.size_bytes;
        let skipped = if length > left { left } else { 0 };
        let end = self.given + skipped + length;
        if length > self.size_bytes || end - self.freed > self.size_bytes {
            return None;
        }
        self.given = end;
        Some(Place { at_bytes: ((end - length) % self.size_bytes) as usize, end })
    }

    /// Gives back a place, and all that were given before it.
    pub(super) fn free(&mut self, place: Place) {
        self.freed = self.freed.max(place.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_do_not_overlap_and_come_again() {
        let mut ring = Ring::new(100);
        let mut held = std::collections::VecDeque::new();
        for step in 0..1000 {
            let length = 1 + step * 7 % 50;
            while let Some(place) = ring.take(length) {
                assert!(place.at_bytes + length <= 100);
                let is_apart = |(other, other_length): &(Place, usize)| {
                    place.at_bytes >= other.at_bytes + other_length
                        || other.at_bytes >= place.at_bytes + length
                };
                assert!(held.iter().all(is_apart), "{place:?} {held:?}");
                held.push_back((place, length));
            }
            assert!(!held.is_empty());
            for _ in 0..1 + step % 3 {
                if let Some((place, _)) = held.pop_front() {
                    ring.free(place);
                }
            }
        }
    }

    #[test]
    fn what_is_larger_than_the_ring_has_no_place() {
        assert_eq!(Ring::new(100).take(101), None);
        assert!(Ring::new(100).take(100).is_some());
    }
}
