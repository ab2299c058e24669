//! A maximal independent set: vertices are visited in an order that looks random, and taken where no
//! neighbour was.

use super::Task;
use super::graph::Graph;
use super::numbers::mixed;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    Open,
    Taken,
    Excluded,
}

pub(super) struct Independent {
    graph: Graph,
    choices: Vec<Choice>,
}

impl Independent {
    pub(super) fn new(bytes: usize) -> Self {
        let graph = Graph::new(bytes / (Graph::BYTES_PER_VERTEX + size_of::<Choice>()));
        Self { choices: vec![Choice::Open; graph.vertices()], graph }
    }
}

impl Task for Independent {
    fn work(&mut self) {
        let count = self.graph.vertices();
        let factor = mixed(99) as usize | 1;
        for nth in 0..count {
            // An odd factor makes a permutation of numbers below a power of two.
            let vertex = nth.wrapping_mul(factor) % count;
            if self.choices[vertex] == Choice::Open {
                self.choices[vertex] = Choice::Taken;
                for neighbour in self.graph.neighbours(vertex).filter(|&neighbour| neighbour != vertex) {
                    self.choices[neighbour] = Choice::Excluded;
                }
            }
        }
    }

    fn is_right(&self) -> bool {
        (0..self.graph.vertices()).all(|vertex| {
            let mut beside = self.graph.neighbours(vertex).filter(|&neighbour| neighbour != vertex);
            let is_beside = beside.any(|neighbour| self.choices[neighbour] == Choice::Taken);
            match self.choices[vertex] {
                Choice::Open => false,
                Choice::Taken => !is_beside,
                Choice::Excluded => is_beside,
            }
        })
    }
}
