//! A graph whose edges look random, all of them in memory: for each vertex its neighbours, one after the
//! other.
//!
//! Neighbours of a vertex are its images by a few permutations of all vertices, and by their inverses: so
//! each edge is there from both of its ends.

use super::numbers::mixed;

/// Permutations.
const HALF_DEGREE: usize = 8;
/// Neighbours of a vertex.
const DEGREE: usize = 2 * HALF_DEGREE;

pub(super) struct Graph {
    neighbours: Vec<u32>,
}

impl Graph {
    /// What a vertex takes.
    pub(super) const BYTES_PER_VERTEX: usize = DEGREE * size_of::<u32>();

    /// A graph of at most so many vertices: a power of two.
    pub(super) fn new(at_most: usize) -> Self {
        let count = 1_u32 << at_most.ilog2();
        let mask = count - 1;
        let steps: Vec<(u32, u32, u32)> = (0..HALF_DEGREE as u64)
            .map(|nth| {
                // Odd factors have inverses modulo powers of two.
                let factor = mixed(2 * nth) as u32 | 1;
                (factor, inverse(factor), mixed(2 * nth + 1) as u32)
            })
            .collect();
        let mut neighbours = Vec::with_capacity(count as usize * DEGREE);
        for vertex in 0..count {
            for (factor, inverse, shift) in &steps {
                let there = vertex.wrapping_mul(*factor).wrapping_add(*shift);
                let back = vertex.wrapping_sub(*shift).wrapping_mul(*inverse);
                neighbours.extend([there & mask, back & mask]);
            }
        }
        Self { neighbours }
    }

    pub(super) fn vertices(&self) -> usize {
        self.neighbours.len() / DEGREE
    }

    pub(super) fn neighbours(&self, vertex: usize) -> impl Iterator<Item = usize> + Clone {
        self.neighbours[vertex * DEGREE..][..DEGREE].iter().map(|&neighbour| neighbour as usize)
    }
}

/// The number that an odd one has to be multiplied by to get 1, modulo 2³². Each step of Newton's method
/// doubles the bits that are right; of an odd number's square three are.
fn inverse(odd: u32) -> u32 {
    (0..4).fold(odd, |guess, _| guess.wrapping_mul(2_u32.wrapping_sub(odd.wrapping_mul(guess))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_edge_is_there_from_both_ends() {
        let graph = Graph::new(1000);
        assert_eq!(graph.vertices(), 512);
        for vertex in 0..graph.vertices() {
            for neighbour in graph.neighbours(vertex) {
                assert!(graph.neighbours(neighbour).any(|back| back == vertex));
            }
        }
    }
}
