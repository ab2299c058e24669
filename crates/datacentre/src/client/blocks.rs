//! Which blocks of which application are far. A block's number says whose it is; one that was lost has its
//! number for ever.

use crate::chance::Chance;
use crate::lease_clients::SPACES;

const NOWHERE: u32 = u32::MAX;

#[derive(Default)]
struct OfSpace {
    kept: Vec<u32>,
    free: Vec<u32>,
    next: u32,
}

#[derive(Default)]
pub(super) struct Blocks {
    spaces: [OfSpace; SPACES],
    /// Where in its list a block is.
    places: Vec<u32>,
    lost: std::collections::BTreeSet<u32>,
}

/// Whose a block is.
pub(super) const fn space_of(block: u32) -> usize {
    block as usize % SPACES
}

impl Blocks {
    pub(super) fn kept(&self, space: usize) -> usize {
        self.spaces[space].kept.len()
    }

    pub(super) fn all(&self) -> usize {
        self.spaces.iter().map(|of| of.kept.len()).sum()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.spaces.iter().flat_map(|of| of.kept.iter().copied())
    }

    /// A number that no block has.
    pub(super) fn number(&mut self, space: usize) -> u32 {
        let of = &mut self.spaces[space];
        of.free.pop().unwrap_or_else(|| {
            of.next += 1;
            (of.next - 1) * SPACES as u32 + space as u32
        })
    }

    /// A number was not used.
    pub(super) fn give_back(&mut self, block: u32) {
        self.spaces[space_of(block)].free.push(block);
    }

    pub(super) fn keep(&mut self, block: u32) {
        if self.places.len() <= block as usize {
            self.places.resize(block as usize + 1, NOWHERE);
        }
        let kept = &mut self.spaces[space_of(block)].kept;
        self.places[block as usize] = kept.len() as u32;
        kept.push(block);
    }

    /// One of them, if there is any.
    pub(super) fn any(&self, chance: &mut Chance, space: usize) -> Option<u32> {
        let kept = &self.spaces[space].kept;
        if kept.is_empty() { None } else { Some(kept[chance.below(kept.len())]) }
    }

    /// One of them, which is no longer far.
    pub(super) fn take_any(&mut self, chance: &mut Chance, space: usize) -> Option<u32> {
        let block = self.any(chance, space)?;
        self.remove(block);
        self.give_back(block);
        Some(block)
    }

    pub(super) fn lose(&mut self, block: u32) {
        self.remove(block);
        self.lost.insert(block);
    }

    pub(super) fn is_lost(&self, block: u32) -> bool {
        self.lost.contains(&block)
    }

    fn remove(&mut self, block: u32) {
        let Some(place) = self.places.get_mut(block as usize).filter(|place| **place != NOWHERE) else {
            return;
        };
        let place = std::mem::replace(place, NOWHERE);
        let kept = &mut self.spaces[space_of(block)].kept;
        kept.swap_remove(place as usize);
        if let Some(moved) = kept.get(place as usize) {
            self.places[*moved as usize] = place;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_was_lost_is_never_another_one() {
        let mut blocks = Blocks::default();
        let [one, other] = [(); 2].map(|()| blocks.number(1));
        [one, other].into_iter().for_each(|block| blocks.keep(block));
        blocks.lose(one);
        assert_eq!((blocks.kept(1), blocks.is_lost(one)), (1, true));
        assert_eq!(blocks.take_any(&mut Chance::new(1, 1), 1), Some(other));
        assert_eq!(blocks.number(1), other);
        assert!(![one, other].contains(&blocks.number(1)));
    }
}
