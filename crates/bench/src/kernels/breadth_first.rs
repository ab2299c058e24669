//! Breadth-first search: vertices by their distance from the first one.

use std::mem;

use super::Task;
use super::graph::Graph;

const UNKNOWN: u32 = u32::MAX;

pub(super) struct BreadthFirst {
    graph: Graph,
    distances: Vec<u32>,
}

impl BreadthFirst {
    pub(super) fn new(bytes: usize) -> Self {
        // In addition to its edges, a vertex has its distance, and may be in two lists.
        let graph = Graph::new(bytes / (Graph::BYTES_PER_VERTEX + 3 * size_of::<u32>()));
        Self { distances: vec![UNKNOWN; graph.vertices()], graph }
    }
}

impl Task for BreadthFirst {
    fn work(&mut self) {
        self.distances[0] = 0;
        let (mut now, mut next, mut distance) = (vec![0_u32], Vec::new(), 0);
        while !now.is_empty() {
            distance += 1;
            for vertex in now.drain(..) {
                for neighbour in self.graph.neighbours(vertex as usize) {
                    if self.distances[neighbour] == UNKNOWN {
                        self.distances[neighbour] = distance;
                        next.push(neighbour as u32);
                    }
                }
            }
            mem::swap(&mut now, &mut next);
        }
    }

    /// A neighbour is at most one step nearer or farther, and all but the first vertex have one that is
    /// nearer. All vertices are reached: with this many permutations the graph is connected.
    fn is_right(&self) -> bool {
        let is_right = |vertex: usize| {
            let distance = self.distances[vertex];
            let mut neighbours = self.graph.neighbours(vertex).map(|neighbour| self.distances[neighbour]);
            let is_near = neighbours.clone().all(|beside| beside.abs_diff(distance) <= 1);
            distance != UNKNOWN
                && is_near
                && (distance == 0 || neighbours.any(|beside| beside + 1 == distance))
        };
        self.distances[0] == 0 && (0..self.graph.vertices()).all(is_right)
    }
}
