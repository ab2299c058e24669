//! What the lanes of a client share: keys of frames, and which writes have been done. The node's processor
//! sees no write, so it can't remember them.
//!
//! Keys are dropped when frames are given back, and when they are granted again. So a key is stale only where
//! another process of the same client has given frames back, or where a lane was told it at the moment at
//! which another one gave back frames behind the same key. A device that shows such a key loses its
//! connection; the key is dropped, and the next connection asks for another.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, MutexGuard, PoisonError};

use super::Shared;
use crate::{
    Answer, FRAME_BYTES, Failure, Incarnation, MOST_REQUESTS, Refusal, RegionOffset, RemoteKey, Ticket,
};

/// Nodes and their incarnations that are remembered. The oldest without a link is forgotten first.
const MOST_SPACES: usize = 256;

/// What came of a write.
pub(super) type Outcome = Result<Answer, Refusal>;

/// Of all nodes that a client knows.
#[derive(Clone, Default)]
pub struct Spaces(Shared<VecDeque<((u128, Incarnation), Space)>>);

/// Of one node.
#[derive(Clone, Default)]
pub(super) struct Space(Shared<Known>);

#[derive(Default)]
pub(super) struct Known {
    /// By the first frame.
    keys: BTreeMap<u64, RemoteKey>,
    /// By lane: the latest writes, in the order of their tickets.
    done: HashMap<u8, VecDeque<(Ticket, Outcome)>>,
}

impl Spaces {
    /// What is known of an incarnation of a node.
    pub(super) fn of(&self, space: u128, incarnation: Incarnation) -> Space {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, found)) = known.iter().find(|(name, _)| *name == (space, incarnation)) {
            return found.clone();
        }
        if known.len() >= MOST_SPACES {
            let unused = known.iter().position(|(_, space)| Arc::strong_count(&space.0) == 1);
            known.remove(unused.unwrap_or(0));
        }
        let new = Space::default();
        known.push_back(((space, incarnation), new.clone()));
        new
    }
}

impl Space {
    pub(super) fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes that lie behind one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Part {
    pub(super) address: u64,
    pub(super) key: u32,
    pub(super) length_bytes: u32,
}

impl Known {
    /// Takes in what a node has given.
    pub(super) fn learn(&mut self, keys: &[RemoteKey]) {
        for key in keys {
            let first = u64::from(key.first.get());
            self.drop_keys(&(first..first + u64::from(key.frames)));
            self.keys.insert(first, *key);
        }
    }

    /// Forgets the keys of these frames.
    pub(super) fn drop_keys(&mut self, frames: &Range<u64>) {
        let overlaps = |key: &RemoteKey| {
            let first = u64::from(key.first.get());
            first < frames.end && frames.start < first + u64::from(key.frames)
        };
        // Keys don't overlap, so of those that begin before only the last one can reach into the range.
        let before = self.keys.range(..frames.start).next_back().map(|(first, _)| *first);
        let all: Vec<u64> =
            before.into_iter().chain(self.keys.range(frames.clone()).map(|(at, _)| *at)).collect();
        for at in all {
            if self.keys.get(&at).is_some_and(overlaps) {
                self.keys.remove(&at);
            }
        }
    }

    /// Appends the parts that some bytes consist of. False, and nothing appended, when a key is missing.
    pub(super) fn parts(&self, at: RegionOffset, length_bytes: usize, into: &mut Vec<Part>) -> bool {
        let before = into.len();
        let (mut next, end) = (at.get(), at.get() + length_bytes as u64);
        while next < end {
            let frame = next / FRAME_BYTES as u64;
            let found = self.keys.range(..=frame).next_back().map(|(first, key)| {
                let start = first * FRAME_BYTES as u64;
                (key, next - start, start + u64::from(key.frames) * FRAME_BYTES as u64)
            });
            let Some((key, inside, key_end)) = found.filter(|(_, _, key_end)| next < *key_end) else {
                into.truncate(before);
                return false;
            };
            let length = end.min(key_end) - next;
            into.push(Part { address: key.address + inside, key: key.key, length_bytes: length as u32 });
            next += length;
        }
        true
    }

    /// What came of a write, if this lane has done it or a later one.
    pub(super) fn recall(&self, lane: u8, ticket: Ticket) -> Option<Outcome> {
        let done = self.done.get(&lane)?;
        if ticket > done.back()?.0 {
            return None;
        }
        let known = done.binary_search_by_key(&ticket, |(ticket, _)| *ticket);
        Some(known.map_or(Err(Refusal::Forgotten), |at| done[at].1.clone()))
    }

    /// Keeps what came of a write.
    pub(super) fn remember(&mut self, lane: u8, ticket: Ticket, result: &Result<Answer, Failure>) {
        let outcome = match result {
            Ok(answer) => Ok(answer.clone()),
            Err(Failure::Refused(refusal)) => Err(*refusal),
            Err(Failure::Late) => return,
        };
        let done = self.done.entry(lane).or_default();
        if done.back().is_none_or(|(last, _)| *last < ticket) {
            done.push_back((ticket, outcome));
        }
        if done.len() > MOST_REQUESTS {
            done.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Frame;

    fn key(first: u32, frames: u32) -> RemoteKey {
        RemoteKey { first: Frame::new(first), frames, address: u64::from(first) << 20, key: first }
    }

    #[test]
    fn bytes_across_keys_have_parts_of_both() {
        let mut known = Known::default();
        known.learn(&[key(0, 64), key(64, 64)]);
        let mut parts = Vec::new();
        assert!(known.parts(RegionOffset::new(64 * 4096 - 100), 300, &mut parts));
        assert_eq!(
            parts,
            [
                Part { address: 64 * 4096 - 100, key: 0, length_bytes: 100 },
                Part { address: 64 << 20, key: 64, length_bytes: 200 },
            ]
        );
        assert!(!known.parts(RegionOffset::new(127 * 4096), 4097, &mut parts));
        assert_eq!(parts.len(), 2);
    }

    #[test]
    fn keys_of_frames_that_were_given_back_are_dropped() {
        let mut known = Known::default();
        known.learn(&[key(0, 64), key(64, 64), key(128, 64)]);
        known.drop_keys(&(70..71));
        let has = |frame: u64| known.parts(RegionOffset::new(frame * 4096), 1, &mut Vec::new());
        assert!(has(0) && has(128) && !has(64) && !has(127));
        known.drop_keys(&(0..u64::MAX));
        assert!(![0, 64, 128].into_iter().any(|frame| known.parts(
            RegionOffset::new(frame * 4096),
            1,
            &mut Vec::new()
        )));
    }

    #[test]
    fn a_key_replaces_those_that_it_overlaps() {
        let mut known = Known::default();
        known.learn(&[key(0, 16), key(32, 16)]);
        known.learn(&[RemoteKey { key: 9, ..key(8, 32) }]);
        let mut parts = Vec::new();
        assert!(known.parts(RegionOffset::new(8 * 4096), 32 * 4096, &mut parts));
        assert!(parts.iter().all(|part| part.key == 9));
        assert!(!known.parts(RegionOffset::new(0), 1, &mut parts));
    }

    #[test]
    fn writes_are_remembered_for_the_links_that_follow() {
        let spaces = Spaces::default();
        let done = Ok(Answer::Written);
        spaces.of(1, Incarnation(7)).lock().remember(3, Ticket(5), &done);
        let again = spaces.of(1, Incarnation(7));
        assert_eq!(again.lock().recall(3, Ticket(5)), Some(Ok(Answer::Written)));
        assert_eq!(again.lock().recall(3, Ticket(4)), Some(Err(Refusal::Forgotten)));
        assert_eq!(again.lock().recall(3, Ticket(6)), None);
        assert_eq!(again.lock().recall(2, Ticket(5)), None);
        assert_eq!(spaces.of(1, Incarnation(8)).lock().recall(3, Ticket(5)), None);
    }
}
