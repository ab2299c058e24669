//! The order in which pages are visited.

use clap::ValueEnum;
use rand::Rng;
use rand::rngs::SmallRng;
use rand_distr::Zipf;
use serde::{Deserialize, Serialize};

/// Pages from one visit to the next in [`Pattern::Strided`]. Odd, so that all pages of a power of two get
/// visited.
const STRIDE_PAGES: usize = 5;
/// Exponent of [`Pattern::Zipf`], the one that key-value benchmarks use.
const ZIPF_EXPONENT: f64 = 0.99;
/// A prime larger than any number of pages: multiplying by it scatters popular pages.
const SCATTER: u64 = 2_654_435_761;

/// The order of accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Reads pages at random, each as likely as any other.
    RandomRead,
    /// Writes to pages at random.
    RandomWrite,
    /// Reads one page after the other.
    Sequential,
    /// Reads every fifth page, around and around.
    Strided,
    /// Reads pages at random, a few of them often (zipf 0.99), popular pages scattered.
    Zipf,
    /// Reads in each page which one to visit next.
    Chase,
    /// Follows a list of objects of 64 bytes, scattered at random.
    List,
    /// Visits all nodes of a binary tree in depth, scattered as those of the list.
    Tree,
    /// Goes down the same tree again and again, each time by another way.
    Search,
}

impl Pattern {
    /// Accesses of a round unless told otherwise: what makes a round long enough to measure and no longer.
    pub(super) fn accesses(self, pages: usize) -> usize {
        match self {
            Self::Sequential => pages,
            _ => (pages / 2).max(1),
        }
    }

    /// Fills `visits` with the pages that thread `thread` of `threads` visits in a round, in order. `start`
    /// counts the visits of earlier rounds. Not for patterns whose order stands in the pages.
    pub(super) fn plan(self, visits: &mut [u32], share: Share, start: usize, random: &mut SmallRng) {
        let pages = share.pages;
        match self {
            Self::RandomRead | Self::RandomWrite => visits.fill_with(|| random.random_range(0..pages as u32)),
            Self::Sequential => {
                let (first, count) = share.part();
                for (step, visit) in visits.iter_mut().enumerate() {
                    *visit = (first + (start + step) % count) as u32;
                }
            }
            Self::Strided => {
                let (first, count) = share.part();
                for (step, visit) in visits.iter_mut().enumerate() {
                    *visit = (first + (start + step) * STRIDE_PAGES % count) as u32;
                }
            }
            Self::Zipf => {
                let ranks = Zipf::new(pages as f64, ZIPF_EXPONENT).expect("there is at least one page");
                visits.fill_with(|| {
                    let rank = random.sample(ranks) as u64 - 1;
                    (rank * SCATTER % pages as u64) as u32
                });
            }
            Self::Chase | Self::List | Self::Tree | Self::Search => {}
        }
    }
}

/// The part of the data that one thread takes where threads divide it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) pages: usize,
    pub(super) thread: usize,
    pub(super) threads: usize,
}

impl Share {
    /// First page and number of pages; at least one.
    pub(super) fn part(self) -> (usize, usize) {
        let count = (self.pages / self.threads).max(1);
        ((self.thread * count).min(self.pages - 1), count)
    }
}

/// For each page the one to visit next: a single cycle over all pages, at random (Sattolo's algorithm).
pub(super) fn cycle(pages: usize, random: &mut SmallRng) -> Vec<u32> {
    let mut next: Vec<u32> = (0..pages as u32).collect();
    for last in (1..pages).rev() {
        next.swap(last, random.random_range(0..last));
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use std::collections::HashSet;

    const PAGES: usize = 1024;

    fn planned(pattern: Pattern, count: usize) -> Vec<u32> {
        let mut visits = vec![0; count];
        let share = Share { pages: PAGES, thread: 0, threads: 1 };
        pattern.plan(&mut visits, share, 0, &mut SmallRng::seed_from_u64(1));
        visits
    }

    #[test]
    fn every_visit_is_to_a_page_that_exists() {
        for pattern in
            [Pattern::RandomRead, Pattern::RandomWrite, Pattern::Sequential, Pattern::Strided, Pattern::Zipf]
        {
            assert!(planned(pattern, 5 * PAGES).iter().all(|&page| (page as usize) < PAGES), "{pattern:?}");
        }
    }

    #[test]
    fn ordered_patterns_visit_every_page() {
        for pattern in [Pattern::Sequential, Pattern::Strided] {
            let visited: HashSet<u32> = planned(pattern, PAGES).into_iter().collect();
            assert_eq!(visited.len(), PAGES, "{pattern:?}");
        }
    }

    #[test]
    fn zipf_prefers_few_pages() {
        let visits = planned(Pattern::Zipf, 10_000);
        let mut counts = vec![0; PAGES];
        visits.iter().for_each(|&page| counts[page as usize] += 1);
        counts.sort_unstable_by(|left, right| right.cmp(left));

        assert!(counts[..PAGES / 10].iter().sum::<u32>() > 6_000);
    }

    #[test]
    fn a_cycle_returns_to_its_start_after_all_pages() {
        let next = cycle(PAGES, &mut SmallRng::seed_from_u64(1));
        let mut page = 0;
        for step in 1..=PAGES {
            page = next[page] as usize;
            assert_eq!(page == 0, step == PAGES);
        }
    }

    #[test]
    fn threads_divide_the_data() {
        let share = |thread| Share { pages: PAGES, thread, threads: 4 };

        assert_eq!(share(0).part(), (0, PAGES / 4));
        assert_eq!(share(3).part(), (PAGES / 4 * 3, PAGES / 4));
    }
}
