//! A set of frames, kept as the ranges that it consists of.

use std::collections::BTreeMap;
use std::ops::Range;

/// Frames. Ranges that touch are one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges {
    /// Start to end.
    ranges: BTreeMap<u64, u64>,
    count: u64,
}

impl Ranges {
    /// How many frames.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Whether all of these are there.
    pub(crate) fn contains(&self, frames: &Range<u64>) -> bool {
        self.around(frames.start).is_some_and(|found| frames.end <= found.end)
    }

    /// Adds frames of which none is there.
    pub(crate) fn insert(&mut self, frames: Range<u64>) {
        debug_assert!(!frames.is_empty(), "nothing to add");
        self.count += frames.end - frames.start;
        let before = frames.start.checked_sub(1).and_then(|last| self.around(last));
        let start = before.map_or(frames.start, |before| before.start);
        let end = self.ranges.remove(&frames.end).unwrap_or(frames.end);
        self.ranges.insert(start, end);
    }

    /// Takes frames out, if all of them are there.
    pub(crate) fn remove(&mut self, frames: &Range<u64>) -> bool {
        let Some(found) = self.around(frames.start).filter(|found| frames.end <= found.end) else {
            return false;
        };
        self.count -= frames.end - frames.start;
        self.ranges.remove(&found.start);
        if found.start < frames.start {
            self.ranges.insert(found.start, frames.start);
        }
        if frames.end < found.end {
            self.ranges.insert(frames.end, found.end);
        }
        true
    }

    /// The first frames that lie side by side, at most `most`.
    pub(crate) fn first(&self, most: u64) -> Option<Range<u64>> {
        let (start, end) = self.ranges.first_key_value()?;
        Some(*start..(*end).min(start.saturating_add(most)))
    }

    /// All of them, in order.
    pub(crate) fn into_iter(self) -> impl Iterator<Item = Range<u64>> {
        self.ranges.into_iter().map(|(start, end)| start..end)
    }

    /// The range that a frame is in.
    fn around(&self, frame: u64) -> Option<Range<u64>> {
        let (start, end) = self.ranges.range(..=frame).next_back()?;
        (frame < *end).then_some(*start..*end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn they_are_a_set_of_frames(steps in prop::collection::vec((0u64..60, 1u64..12, any::<bool>()), 0..120)) {
            let (mut ranges, mut model) = (Ranges::default(), BTreeSet::new());
            for (start, length, is_insertion) in steps {
                let frames = start..start + length;
                let is_there = frames.clone().all(|frame| model.contains(&frame));
                prop_assert_eq!(ranges.contains(&frames), is_there);
                if is_insertion && frames.clone().all(|frame| !model.contains(&frame)) {
                    ranges.insert(frames.clone());
                    model.extend(frames);
                } else if !is_insertion {
                    prop_assert_eq!(ranges.remove(&frames), is_there);
                    if is_there {
                        frames.for_each(|frame| { model.remove(&frame); });
                    }
                }
                prop_assert_eq!(ranges.count(), model.len() as u64);
            }
            let all: Vec<u64> = ranges.clone().into_iter().flatten().collect();
            prop_assert_eq!(all, model.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(ranges.first(3).map(|first| first.start), model.first().copied());
        }
    }
}
