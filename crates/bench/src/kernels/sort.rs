//! Merge sort: runs that fit a cache are sorted by themselves, then merged in pairs, from one array to
//! another and back.

use super::Task;
use super::numbers::mixed;

const RUN: usize = 1 << 13;

pub(super) struct Sort {
    numbers: Vec<u64>,
    merged: Vec<u64>,
    sum: u64,
}

impl Sort {
    pub(super) fn new(bytes: usize) -> Self {
        let count = bytes / (2 * size_of::<u64>());
        let numbers: Vec<u64> = (0..count as u64).map(mixed).collect();
        let sum = sum(&numbers);
        Self { merged: vec![0; count], numbers, sum }
    }
}

fn sum(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |sum, number| sum.wrapping_add(mixed(*number)))
}

fn merge<'a>(mut one: &'a [u64], mut other: &'a [u64], into: &mut [u64]) {
    for to in into {
        let from = match (one.first(), other.first()) {
            (Some(first), Some(second)) if second < first => &mut other,
            (None, _) => &mut other,
            _ => &mut one,
        };
        let Some((least, rest)) = from.split_first() else { return };
        (*to, *from) = (*least, rest);
    }
}

impl Task for Sort {
    fn work(&mut self) {
        self.numbers.chunks_mut(RUN).for_each(<[u64]>::sort_unstable);
        let mut length = RUN;
        while length < self.numbers.len() {
            for (from, into) in self.numbers.chunks(2 * length).zip(self.merged.chunks_mut(2 * length)) {
                let (one, other) = from.split_at(length.min(from.len()));
                merge(one, other, into);
            }
            std::mem::swap(&mut self.numbers, &mut self.merged);
            length *= 2;
        }
    }

    /// In order, and what it was before, by a sum of all numbers mixed.
    fn is_right(&self) -> bool {
        self.numbers.is_sorted() && sum(&self.numbers) == self.sum
    }
}
