//! Access traces: page numbers from 0, in the order of use.

use super::random::Random;

/// Pages drawn at random with probability proportional to `1 / rank^theta`, the ranks scattered over the
/// pages.
#[derive(Clone)]
pub struct Zipf {
    /// Cumulative probability by rank.
    cumulative: Vec<f64>,
    page_of_rank: Vec<u64>,
}

impl Zipf {
    pub fn new(pages: u64, theta: f64, random: &mut Random) -> Self {
        let mut sum = 0.0;
        let mut cumulative: Vec<f64> = (1..=pages)
            .map(|rank| {
                sum += (rank as f64).powf(-theta);
                sum
            })
            .collect();
        cumulative.iter_mut().for_each(|value| *value /= sum);
        let mut page_of_rank: Vec<u64> = (0..pages).collect();
        random.shuffle(&mut page_of_rank);
        Self { cumulative, page_of_rank }
    }

    pub fn draw(&self, random: &mut Random) -> u64 {
        let at = random.unit();
        let rank = self.cumulative.partition_point(|&value| value <= at);
        self.page_of_rank[rank.min(self.page_of_rank.len() - 1)]
    }
}

pub fn zipf(pages: u64, theta: f64, length: usize, seed: u64) -> Vec<u64> {
    let mut random = Random::new(seed);
    let zipf = Zipf::new(pages, theta, &mut random);
    (0..length).map(|_| zipf.draw(&mut random)).collect()
}

pub fn uniform(pages: u64, length: usize, seed: u64) -> Vec<u64> {
    let mut random = Random::new(seed);
    (0..length).map(|_| random.below(pages)).collect()
}

/// Page after page, again and again.
pub fn sequential(pages: u64, length: usize) -> Vec<u64> {
    (0..length as u64).map(|step| step % pages).collect()
}

/// Every `stride`th page, then the ones next to them, until all were used; then again.
pub fn strided(pages: u64, stride: u64, length: usize) -> Vec<u64> {
    let rounds = (0..stride).flat_map(|first| (first..pages).step_by(stride as usize));
    rounds.cycle().take(length).collect()
}

/// `hot` of `pages` pages used at random, every `scan_every`th access a step of a scan over all pages.
pub fn hot_and_scan(pages: u64, hot: u64, scan_every: usize, length: usize, seed: u64) -> Vec<u64> {
    let mut random = Random::new(seed);
    let mut order: Vec<u64> = (0..pages).collect();
    random.shuffle(&mut order);
    let mut scan = 0;
    (0..length)
        .map(|step| {
            if step % scan_every == 0 {
                scan = (scan + 1) % pages;
                scan
            } else {
                order[random.below(hot) as usize]
            }
        })
        .collect()
}

/// Zipf whose popular pages are others after every `phase` accesses.
pub fn phases(pages: u64, theta: f64, phase: usize, length: usize, seed: u64) -> Vec<u64> {
    let mut random = Random::new(seed);
    let mut zipf = Zipf::new(pages, theta, &mut random);
    (0..length)
        .map(|step| {
            if step > 0 && step % phase == 0 {
                random.shuffle(&mut zipf.page_of_rank);
            }
            zipf.draw(&mut random)
        })
        .collect()
}

/// The product of two square matrices, each `side` rows of `row` pages: a row of the first, all of the
/// second, one row of the result.
pub fn matmul(side: u64, row: u64) -> Vec<u64> {
    let second = side * row;
    let result = 2 * second;
    let mut trace = Vec::new();
    for i in 0..side {
        for k in 0..side {
            for page in 0..row {
                trace.extend([i * row + page, second + k * row + page, result + i * row + page]);
            }
        }
    }
    trace
}

/// A merge sort of `pages` pages with a second array next to them, from runs of `run` pages up.
pub fn merge_sort(pages: u64, run: u64, seed: u64) -> Vec<u64> {
    let mut random = Random::new(seed);
    let mut trace = Vec::new();
    let (mut from, mut to) = (0, pages);
    let mut width = run;
    while width < pages {
        for start in (0..pages).step_by(2 * width as usize) {
            let middle = (start + width).min(pages);
            let end = (start + 2 * width).min(pages);
            let (mut left, mut right, mut out) = (start, middle, start);
            while left < middle || right < end {
                let is_left = right == end || left < middle && random.below(2) == 0;
                let source = if is_left { &mut left } else { &mut right };
                trace.extend([from + *source, to + out]);
                *source += 1;
                out += 1;
            }
        }
        core::mem::swap(&mut from, &mut to);
        width *= 2;
    }
    trace
}

/// Takes turns among traces, as threads do: a random one makes the next access.
pub fn interleave(traces: &[Vec<u64>], seed: u64) -> Vec<(u32, u64)> {
    let mut random = Random::new(seed);
    let mut at = vec![0; traces.len()];
    let mut live: Vec<usize> = (0..traces.len()).filter(|&index| !traces[index].is_empty()).collect();
    let mut mixed = Vec::new();
    while !live.is_empty() {
        let turn = random.below(live.len() as u64) as usize;
        let index = live[turn];
        mixed.push((index as u32, traces[index][at[index]]));
        at[index] += 1;
        if at[index] == traces[index].len() {
            live.swap_remove(turn);
        }
    }
    mixed
}
