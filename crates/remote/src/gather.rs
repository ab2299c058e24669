//! Which shards to ask for a range, and when it is there (Hydra's late binding, where it helps): the shard in
//! which the range lies, alone, while its node answers as others do. Where it is away, slow or late, as many
//! others as there are spans; whatever is there first counts. Now and then a slow node is asked as well: one
//! that is never asked can't show that it is quick again.

use std::time::Duration;

use farmem_transport::RemoteAddress;

use crate::block_table::Shards;
use crate::redundancy::{MOST_SHARDS, Piece, Redundancy};

/// A node that takes so many times as long as the others is gone around.
const SLOW: u32 = 4;
/// But not if the others take no longer than this: on a machine with other work any of them does at times.
const QUICK: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Unasked,
    Asked,
    /// Asked, and nobody counts on it any more; what comes is taken all the same.
    Late,
    Failed,
    /// Its bytes have come, as the nth.
    Come(usize),
}

/// A range of a block on its way.
#[derive(Clone, Debug)]
pub struct Gather {
    redundancy: Redundancy,
    piece: Piece,
    shards: Shards,
    parts: [Part; MOST_SHARDS],
    come: Vec<(usize, Vec<u8>)>,
}

impl Gather {
    /// Nothing was asked yet. `shards` is where the block's shards are.
    pub fn new(redundancy: Redundancy, piece: Piece, shards: Shards) -> Self {
        Self { redundancy, piece, shards, parts: [Part::Unasked; MOST_SHARDS], come: Vec::new() }
    }

    /// The range.
    pub fn piece(&self) -> Piece {
        self.piece
    }

    /// Where a shard is.
    pub fn address(&self, shard: usize) -> Option<RemoteAddress> {
        self.shards.get(shard)
    }

    /// The shards to ask now, so that the range comes: those of nodes for which `answer_time` knows how long
    /// they take, the quickest first. They count as asked. Empty while enough was asked; `None` when not
    /// enough can be.
    pub fn ask(&mut self, answer_time: impl Fn(u16) -> Option<Duration>) -> Option<Vec<usize>> {
        if self.is_there() || self.is_under_way() {
            return Some(Vec::new());
        }
        let time_of = |shard: usize| {
            (self.parts[shard] == Part::Unasked).then(|| answer_time(self.shards.get(shard)?.node)).flatten()
        };
        let mut others: Vec<(Duration, usize)> = (0..self.redundancy.shards())
            .filter(|shard| *shard != self.piece.shard)
            .filter_map(|shard| Some((time_of(shard)?, shard)))
            .collect();
        others.sort_unstable();
        let missing = self.redundancy.data().saturating_sub(self.counted_on());
        let around = others.get(..missing);
        let slowest = around.and_then(|around| around.last()).map(|(time, _)| *time);
        let direct = time_of(self.piece.shard)
            .filter(|time| slowest.is_none_or(|slowest| *time <= (slowest * SLOW).max(QUICK)));
        let chosen: Vec<usize> = match (direct, around) {
            (Some(_), _) => vec![self.piece.shard],
            (None, Some(around)) => around.iter().map(|(_, shard)| *shard).collect(),
            // Slow is better than not at all.
            (None, None) if time_of(self.piece.shard).is_some() => vec![self.piece.shard],
            (None, None) => return None,
        };
        chosen.iter().for_each(|&shard| self.parts[shard] = Part::Asked);
        Some(chosen)
    }

    /// The shard in which the range lies, and its node, while others are asked instead only because they are
    /// quicker.
    pub fn avoided(&self, answer_time: impl Fn(u16) -> Option<Duration>) -> Option<(usize, u16)> {
        let (shard, node) = (self.piece.shard, self.shards.get(self.piece.shard)?.node);
        let is_unasked = self.parts[shard] == Part::Unasked && !self.is_there();
        let is_made_of_others = self.counted_on() >= self.redundancy.data();
        (is_unasked && is_made_of_others && answer_time(node).is_some()).then_some((shard, node))
    }

    /// A shard is asked in addition, and nobody counts on it; what comes is taken all the same.
    pub fn probe(&mut self, shard: usize) {
        if let Some(part) = self.parts.get_mut(shard).filter(|part| **part == Part::Unasked) {
            *part = Part::Late;
        }
    }

    /// Nobody counts any more on what was asked so far: it takes too long. Which shards these are.
    pub fn set_late(&mut self) -> Vec<usize> {
        let late: Vec<usize> = (0..MOST_SHARDS).filter(|&shard| self.parts[shard] == Part::Asked).collect();
        late.iter().for_each(|&shard| self.parts[shard] = Part::Late);
        late
    }

    /// A shard is not asked any more, and may be asked again.
    pub fn withdraw(&mut self, shard: usize) {
        if let Some(part) = self.parts.get_mut(shard)
            && matches!(part, Part::Asked | Part::Late)
        {
            *part = Part::Unasked;
        }
    }

    /// A shard's range can't be had.
    pub fn fail(&mut self, shard: usize) {
        if let Some(part) = self.parts.get_mut(shard) {
            *part = Part::Failed;
        }
    }

    /// A shard's range has come.
    pub fn take(&mut self, shard: usize, bytes: Vec<u8>) {
        if let Some(part) = self.parts.get_mut(shard)
            && matches!(part, Part::Asked | Part::Late)
        {
            *part = Part::Come(self.come.len());
            self.come.push((shard, bytes));
        }
    }

    /// Whether something may come still, late or not.
    pub fn is_awaited(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Asked | Part::Late))
    }

    /// Whether the range is there.
    pub fn is_there(&self) -> bool {
        matches!(self.parts[self.piece.shard], Part::Come(_)) || self.come.len() >= self.redundancy.data()
    }

    /// Whether it is there without the shard in which it lies.
    pub fn is_made(&self) -> bool {
        !matches!(self.parts[self.piece.shard], Part::Come(_))
    }

    /// Its bytes; `None` before it is there.
    pub fn bytes(&mut self) -> Option<Vec<u8>> {
        if let Part::Come(nth) = self.parts[self.piece.shard] {
            return self.come.get_mut(nth).map(|(_, bytes)| std::mem::take(bytes));
        }
        let known: Vec<(usize, &[u8])> = self
            .come
            .iter()
            .take(self.redundancy.data())
            .map(|(shard, bytes)| (*shard, &bytes[..]))
            .collect();
        self.redundancy.restore(self.piece.shard, &known)
    }

    /// Shards that have come, or that somebody counts on.
    fn counted_on(&self) -> usize {
        self.parts.iter().filter(|part| matches!(part, Part::Asked | Part::Come(_))).count()
    }

    fn is_under_way(&self) -> bool {
        self.parts[self.piece.shard] == Part::Asked || self.counted_on() >= self.redundancy.data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farmem_transport::Frame;
    use proptest::prelude::*;

    const US: Duration = Duration::from_micros(1);
    const FOUR_TWO: Redundancy = match Redundancy::new(4, 2) {
        Some(redundancy) => redundancy,
        None => Redundancy::NONE,
    };

    fn gather(redundancy: Redundancy) -> Gather {
        let shards = (0..redundancy.shards())
            .map(|node| (node, RemoteAddress { node: node as u16, frame: Frame::new(0) }))
            .collect();
        Gather::new(redundancy, Piece { shard: 1.min(redundancy.data() - 1), first: 0, count: 1 }, shards)
    }

    /// The bytes of all shards.
    fn stored(redundancy: Redundancy) -> Vec<Vec<u8>> {
        let content: Vec<u8> = (0..64_u8).map(|at| at.wrapping_mul(91) ^ 3).collect();
        let bytes = content.len() / redundancy.data();
        let parity = redundancy.parity_of(&content);
        content.chunks(bytes).chain(parity.chunks(bytes)).map(<[u8]>::to_vec).collect()
    }

    #[test]
    fn the_node_that_has_it_is_asked_alone() {
        let mut gather = gather(FOUR_TWO);
        assert_eq!(gather.ask(|_| Some(20 * US)), Some(vec![1]));
        assert_eq!(gather.ask(|_| Some(20 * US)), Some(vec![]), "it is under way");
        gather.take(1, vec![7]);
        assert!(gather.is_there() && !gather.is_made());
        assert_eq!(gather.bytes(), Some(vec![7]));
    }

    #[test]
    fn what_is_withdrawn_is_asked_again() {
        for redundancy in [Redundancy::NONE, FOUR_TWO] {
            let mut gather = gather(redundancy);
            let asked = gather.ask(|_| Some(20 * US)).unwrap();
            gather.withdraw(asked[0]);
            assert!(!gather.is_awaited());
            assert_eq!(gather.ask(|_| Some(20 * US)), Some(asked.clone()));
            gather.take(asked[0], vec![7]);
            gather.withdraw(asked[0]);
            assert!(gather.is_there(), "what has come stays");
        }
    }

    #[test]
    fn a_node_that_is_away_is_gone_around_by_the_quickest_others() {
        let mut gather = gather(FOUR_TWO);
        let time = |node: u16| (node != 1).then(|| US * (10 - u32::from(node)));
        assert_eq!(gather.ask(time), Some(vec![5, 4, 3, 2]));
    }

    #[test]
    fn a_node_that_is_slow_is_gone_around_and_better_than_none() {
        let time = |node: u16| Some(if node == 1 { 9_000 * US } else { 20 * US });
        assert_eq!(gather(FOUR_TWO).ask(time).map(|shards| shards.len()), Some(4));
        let only = |node: u16| if node < 3 { time(node) } else { None };
        assert_eq!(gather(FOUR_TWO).ask(only), Some(vec![1]));
    }

    #[test]
    fn a_node_that_is_slow_may_be_asked_as_well_and_nobody_waits_for_it() {
        let time = |node: u16| Some(if node == 1 { 9_000 * US } else { 20 * US });
        let mut gather = gather(FOUR_TWO);
        assert_eq!(gather.avoided(time), None, "nobody was asked yet");
        let asked = gather.ask(time).unwrap();
        assert_eq!(gather.avoided(time), Some((1, 1)));
        assert_eq!(gather.avoided(|node| (node != 1).then_some(US)), None, "it is away");
        gather.probe(1);
        assert_eq!((gather.avoided(time), gather.ask(time)), (None, Some(vec![])));
        assert_eq!(gather.set_late(), asked, "it is not to blame");
        asked.iter().for_each(|&shard| gather.take(shard, vec![0]));
        assert!(gather.is_there() && gather.is_awaited());
    }

    #[test]
    fn a_slow_node_that_was_asked_as_well_counts_if_it_comes_first() {
        for redundancy in [Redundancy::MIRROR, FOUR_TWO] {
            let mut gather = gather(redundancy);
            let direct = gather.piece().shard;
            let time = |node: u16| Some(if usize::from(node) == direct { 9_000 * US } else { 20 * US });
            gather.ask(time);
            assert_eq!(gather.avoided(time).map(|(shard, _)| shard), Some(direct));
            gather.probe(direct);
            gather.take(direct, vec![9]);
            assert_eq!((gather.is_there(), gather.bytes()), (true, Some(vec![9])));
        }
    }

    #[test]
    fn a_node_that_answers_as_others_do_is_not_asked_twice() {
        let mut gather = gather(FOUR_TWO);
        gather.ask(|_| Some(US));
        assert_eq!(gather.avoided(|_| Some(US)), None);
        gather.set_late();
        gather.ask(|_| Some(US));
        assert_eq!(gather.avoided(|_| Some(US)), None, "it is late, and was asked");
    }

    #[test]
    fn what_is_late_counts_if_it_comes_first() {
        let mut gather = gather(FOUR_TWO);
        gather.ask(|_| Some(US));
        assert_eq!(gather.set_late(), [1]);
        assert_eq!(gather.ask(|_| Some(US)).map(|shards| shards.len()), Some(4));
        gather.take(0, vec![1]);
        gather.take(1, vec![9]);
        assert!(gather.is_there());
        assert_eq!(gather.bytes(), Some(vec![9]));
    }

    #[test]
    fn of_two_copies_the_other_one_does() {
        let mut gather = gather(Redundancy::MIRROR);
        assert_eq!(gather.ask(|node| (node == 1).then_some(US)), Some(vec![1]));
        gather.take(1, vec![4, 5]);
        assert_eq!(gather.bytes(), Some(vec![4, 5]));
    }

    #[test]
    fn an_only_copy_that_fails_is_not_to_be_had() {
        let mut gather = gather(Redundancy::NONE);
        assert_eq!(gather.ask(|_| Some(US)), Some(vec![0]));
        gather.fail(0);
        assert_eq!(gather.ask(|_| Some(US)), None);
    }

    proptest! {
        #[test]
        fn with_up_to_two_losses_the_right_bytes_come_whatever_fails_when(
            losses in prop::collection::vec(0_usize..6, 0..3),
            away in prop::collection::vec(any::<bool>(), 3),
            late in prop::collection::vec(any::<bool>(), 20),
        ) {
            let stored = stored(FOUR_TWO);
            let mut gather = gather(FOUR_TWO);
            let is_lost = |shard: usize| losses.contains(&shard);
            // Some losses are known before; the others fail when they are asked.
            let is_away = |node: u16| losses.iter().zip(&away).any(|(&lost, &away)| lost == usize::from(node) && away);
            let mut late = late.into_iter();
            while !gather.is_there() {
                let asked = gather.ask(|node| (!is_away(node)).then_some(US));
                prop_assert!(asked.is_some(), "it can be had");
                let asked = asked.unwrap_or_default();
                prop_assert!(!asked.is_empty());
                if late.next() == Some(true) {
                    gather.set_late();
                }
                for shard in asked {
                    if is_lost(shard) { gather.fail(shard) } else { gather.take(shard, stored[shard].clone()) }
                }
            }
            prop_assert_eq!(gather.bytes(), Some(stored[1].clone()));
        }
    }
}
