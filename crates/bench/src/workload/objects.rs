//! Objects that refer to each other by address, scattered over the pages: a list, or a binary tree.
//!
//! Where an object lies and what it refers to can be computed, so nothing but the objects is needed to
//! make, or to check, them.

use farmem_page::PAGE_BYTES;

use super::content::{PAGE_WORDS, identity};
use super::pattern::Pattern;

/// Words of an object: a cache line.
const OBJECT_WORDS: usize = 8;
const OBJECT_BYTES: u64 = (OBJECT_WORDS * size_of::<u64>()) as u64;
/// Words of an object that hold addresses of others, 0 for none.
const REFERENCES: [usize; 2] = [0, 1];
/// Word of an object that holds its identity.
const WORD_IDENTITY: usize = 2;
/// Multiplying by it scatters the nodes of a tree. Odd, so that it can be undone in any power of two.
const SCATTER: u64 = 0x9e37_79b9_7f4a_7c15;
/// A generator with these passes through all numbers of any power of two (Hull and Dobell).
const STEP_FACTOR: u64 = 0x5851_f42d_4c95_7f2d;
const STEP_TERM: u64 = 0x1405_7b7e_f767_814f;

/// How the objects hang together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    List,
    Tree,
}

/// Objects in memory from `base` on; their number is a power of two.
#[derive(Clone, Copy, Debug)]
pub(super) struct Objects {
    form: Form,
    base: u64,
    count: u64,
}

impl Objects {
    /// What `pattern` needs in `pages` pages at address `base`; `None` if that isn't objects.
    pub(super) fn of(pattern: Pattern, base: u64, pages: usize) -> Option<Self> {
        let form = match pattern {
            Pattern::List => Form::List,
            Pattern::Tree | Pattern::Search => Form::Tree,
            _ => return None,
        };
        let most = pages as u64 * (PAGE_BYTES as u64 / OBJECT_BYTES);
        Some(Self { form, base, count: 1 << most.ilog2() })
    }

    /// Puts the objects of page `page` into its `words`.
    pub(super) fn overlay(self, page: usize, words: &mut [u64; PAGE_WORDS]) {
        let first = (page * PAGE_WORDS / OBJECT_WORDS) as u64;
        for (object, words) in (first..self.count).zip(words.chunks_exact_mut(OBJECT_WORDS)) {
            for (at, other) in REFERENCES.into_iter().zip(self.references(object)) {
                words[at] = other.map_or(0, |other| self.address(other));
            }
            words[WORD_IDENTITY] = identity(object as usize);
        }
    }

    /// Where a visit of all begins: the head of the list, or the tree's root.
    pub(super) fn start(self) -> u64 {
        let object = match self.form {
            Form::List => 0,
            Form::Tree => self.place(1),
        };
        self.address(object)
    }

    /// Where in the data, in words, the object at `address` is. A wrong address leads to another object,
    /// never out of the data.
    pub(super) fn position(self, address: u64) -> usize {
        (address.wrapping_sub(self.base) / OBJECT_BYTES % self.count) as usize * OBJECT_WORDS
    }

    /// Whether the object at `address`, whose words these are, is the one that should be there.
    pub(super) fn is_right(self, address: u64, identity_word: u64) -> bool {
        identity_word == identity(self.position(address) / OBJECT_WORDS)
    }

    /// The word of an object that holds its identity, and those that hold the addresses of others.
    pub(super) const fn words() -> (usize, [usize; 2]) {
        (WORD_IDENTITY, REFERENCES)
    }

    fn address(self, object: u64) -> u64 {
        self.base + object * OBJECT_BYTES
    }

    fn references(self, object: u64) -> [Option<u64>; 2] {
        match self.form {
            Form::List => {
                let next = object.wrapping_mul(STEP_FACTOR).wrapping_add(STEP_TERM) % self.count;
                [Some(next), None]
            }
            Form::Tree => {
                let node = self.node(object);
                let child = |node| (1..self.count).contains(&node).then(|| self.place(node));
                if node == 0 { [None, None] } else { [child(2 * node), child(2 * node + 1)] }
            }
        }
    }

    /// The object that is node `node` of the tree: 1 is the root, the children of each are twice its number
    /// and the one after.
    fn place(self, node: u64) -> u64 {
        node.wrapping_mul(SCATTER) % self.count
    }

    /// The inverse of [`Objects::place`].
    fn node(self, object: u64) -> u64 {
        object.wrapping_mul(INVERSE) % self.count
    }
}

/// The inverse of [`SCATTER`]: each step of Newton's method doubles the bits that are right, three at first.
const INVERSE: u64 = {
    let mut inverse = SCATTER;
    let mut bits = 3;
    while bits < u64::BITS {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(SCATTER.wrapping_mul(inverse)));
        bits *= 2;
    }
    inverse
};
const _: () = assert!(SCATTER.wrapping_mul(INVERSE) == 1);
const _: () = assert!(STEP_FACTOR % 4 == 1 && STEP_TERM % 2 == 1, "the list is one cycle");

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const BASE: u64 = 0x7000_0000_0000;
    const PAGES: usize = 5;

    /// All addresses that are reached from the start.
    fn reached(pattern: Pattern) -> (Objects, HashSet<u64>) {
        let objects = Objects::of(pattern, BASE, PAGES).expect("objects");
        let mut data = Vec::new();
        for page in 0..PAGES {
            let mut words = [0; PAGE_WORDS];
            objects.overlay(page, &mut words);
            data.extend(words);
        }
        let (identity_word, references) = Objects::words();
        let mut seen = HashSet::new();
        let mut waiting = vec![objects.start()];
        while let Some(address) = waiting.pop() {
            let at = objects.position(address);
            assert!(objects.is_right(address, data[at + identity_word]));
            if seen.insert(address) {
                waiting.extend(references.map(|word| data[at + word]).into_iter().filter(|&next| next != 0));
            }
        }
        (objects, seen)
    }

    #[test]
    fn a_list_leads_to_all_of_its_objects() {
        let (objects, seen) = reached(Pattern::List);
        assert_eq!((objects.count, seen.len()), (256, 256));
    }

    #[test]
    fn a_tree_leads_to_all_of_its_nodes() {
        assert_eq!(reached(Pattern::Tree).1.len(), 255);
    }

    #[test]
    fn patterns_by_number_have_no_objects() {
        assert!(Objects::of(Pattern::Chase, BASE, PAGES).is_none());
    }
}
