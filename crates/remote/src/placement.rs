//! Which node gets a process's slabs (COMEX §3.3.4): a hash of the machine and the process names it, and
//! another round of the hash names the next one when that has no room. So a process's pages stay together,
//! and nobody has to be asked.
//!
//! COMEX hashes a process to one node, which spreads load only over many processes. Here the hash takes a
//! *stripe* as well, of 8 slabs that left one after the other, and a node that holds clearly more of a
//! client's blocks than its part is passed over (consistent hashing with bounded loads). So a single process
//! uses all nodes, by their sizes, and what left at once still lies together.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Blocks that follow each other to one node: 2 MiB, as many as the mover writes at once. Stripes of 16 MiB
/// left programs with less than 200 MiB there on few nodes, and took no less time (docs/adr/0027).
pub const STRIPE_BLOCKS: u64 = 8;
/// How much more than its part of a client's blocks a node may hold: a ninth. Load over all nodes then stays
/// within what is asked for, 1.2.
const BOUND_NUMERATOR: u64 = 10;
const BOUND_DENOMINATOR: u64 = 9;

/// The nodes in the order in which they are tried, each once, found as far as somebody asks: a block needs a
/// few, of a thousand perhaps.
///
/// The chance of a node to be the first is its part of all that is lent, and one that comes or goes changes
/// the order of the others in nothing (weighted rendezvous hashing).
#[derive(Clone, Debug)]
pub struct Chain {
    found: Vec<usize>,
    rest: BinaryHeap<Candidate>,
}

/// A node; the one with the lowest score comes first, and of equal ones that with the lowest number.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Candidate {
    score: f64,
    node: usize,
}

impl Eq for Candidate {}
impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        other.score.total_cmp(&self.score).then(other.node.cmp(&self.node))
    }
}

impl Chain {
    /// `sizes` is how much each lends, those of size zero are left out; `identity` tells the client and the
    /// process.
    pub fn new(identity: u64, stripe: u64, sizes: &[u64]) -> Self {
        let hash = mix(identity ^ mix(stripe));
        let rest = sizes.iter().enumerate().filter(|(_, size)| **size > 0).map(|(node, &size)| {
            let hashed = mix(hash ^ mix(node as u64 + 1));
            // In (0, 1): 53 bits are exact, and the half keeps zero out.
            let uniform = ((hashed >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
            Candidate { score: -uniform.ln() / size as f64, node }
        });
        // From a list, which takes a step for each; one by one would take more.
        Self { found: Vec::new(), rest: rest.collect::<Vec<_>>().into() }
    }

    /// The nth, counted from zero.
    pub fn get(&mut self, nth: usize) -> Option<usize> {
        while self.found.len() <= nth {
            self.found.push(self.rest.pop()?.node);
        }
        self.found.get(nth).copied()
    }
}

/// All of a [`Chain`].
pub fn chain(identity: u64, stripe: u64, sizes: &[u64]) -> Vec<usize> {
    let mut chain = Chain::new(identity, stripe, sizes);
    (0..).map_while(|nth| chain.get(nth)).collect()
}

/// What all nodes lend together.
pub fn lent(sizes: &[u64]) -> u128 {
    sizes.iter().map(|&size| u128::from(size)).sum()
}

/// How many of a client's `total` blocks a node of that size may hold before it is passed over, when all lend
/// so much together.
pub fn most_blocks(total: u64, size: u64, lent: u128) -> u64 {
    if lent == 0 {
        return 0;
    }
    let part = u128::from(total + 1) * u128::from(size) * u128::from(BOUND_NUMERATOR);
    let bound = part.div_ceil(lent * u128::from(BOUND_DENOMINATOR));
    // A stripe is never cut by it while there is little.
    u64::try_from(bound).unwrap_or(u64::MAX).max(STRIPE_BLOCKS)
}

/// splitmix64's finish: every bit of the input changes every bit of the output.
const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_that_lends_is_in_the_chain_once() {
        let mut chain = chain(7, 3, &[10, 0, 5, 1]);
        chain.sort_unstable();
        assert_eq!(chain, [0, 2, 3]);
    }

    #[test]
    fn nodes_come_in_the_order_of_their_scores_however_few_are_asked_for() {
        let sizes: Vec<u64> = (1..200).collect();
        let all = chain(3, 4, &sizes);
        let mut some = Chain::new(3, 4, &sizes);
        assert_eq!([some.get(5), some.get(0), some.get(2)], [all[5], all[0], all[2]].map(Some));
        assert_eq!((some.get(198), some.get(199)), (Some(all[198]), None));
    }

    #[test]
    fn a_process_finds_the_same_nodes_again() {
        assert_eq!(chain(1, 2, &[8; 12]), chain(1, 2, &[8; 12]));
        assert_ne!(chain(1, 2, &[8; 12]), chain(2, 2, &[8; 12]));
    }

    #[test]
    fn a_node_that_leaves_changes_nothing_for_the_others() {
        let mut sizes = [8; 12];
        let before = chain(5, 0, &sizes);
        sizes[before[3]] = 0;
        let after = chain(5, 0, &sizes);
        let without: Vec<usize> = before.iter().copied().filter(|node| *node != before[3]).collect();
        assert_eq!(after, without);
    }

    #[test]
    fn larger_nodes_come_first_more_often() {
        let firsts = (0..10_000).filter(|&identity| chain(identity, 0, &[3, 1])[0] == 0).count();
        assert!((7_300..7_700).contains(&firsts), "{firsts}");
    }

    #[test]
    fn ten_clients_load_twelve_nodes_evenly() {
        let sizes = [1 << 20; 12];
        // 24 MiB, 48 MiB and 2 GiB of each.
        for blocks in [96, 192, 8_192] {
            let mut load = [0_u64; 12];
            for client in 0..10 {
                let mut own = [0_u64; 12];
                for block in 0..blocks {
                    let chain = chain(client, block / STRIPE_BLOCKS, &sizes);
                    let node = chain
                        .into_iter()
                        .find(|&node| own[node] < most_blocks(block, sizes[node], lent(&sizes)));
                    own[node.unwrap()] += 1;
                }
                own.iter().zip(&mut load).for_each(|(own, load)| *load += own);
            }
            let mean = load.iter().sum::<u64>() / 12;
            assert!(load.iter().all(|&load| load * 10 <= mean * 12), "{load:?}, {mean} on average");
        }
    }
}
