//! How far apart the faults of each thread are: patterns that are too wide to be told among the faults of
//! all.

use super::record::{Line, STRIDE_LIMIT};

/// Longest distance that counts, in pages: a row of 16 MiB.
pub(super) const FAR_LIMIT: i64 = 4096;
/// Threads that are told apart; others take the place of one of them.
const THREADS: usize = 16;

/// The last faults of a thread.
#[derive(Clone, Copy, Debug)]
struct Pace {
    thread: u32,
    page: u64,
    /// From the fault before to the last one, in pages.
    stride: i64,
    /// Faults that far apart, the last one included.
    length: u32,
}

/// One for each of sixteen threads.
#[derive(Clone, Debug)]
pub(super) struct Paces([Pace; THREADS]);

impl Paces {
    pub(super) const fn new() -> Self {
        Self([Pace { thread: 0, page: 0, stride: 0, length: 0 }; THREADS])
    }

    /// `thread` has faulted on `page`: the line that its last faults make, if they are farther apart than
    /// [`STRIDE_LIMIT`]; three of them at least.
    pub(super) fn line_to(&mut self, thread: u32, page: u64) -> Option<Line> {
        let pace = &mut self.0[thread as usize % THREADS];
        let stride = page.wrapping_sub(pace.page) as i64;
        let is_far = (STRIDE_LIMIT + 1..=FAR_LIMIT).contains(&stride.saturating_abs());
        let length = match pace.thread == thread && is_far {
            true if stride == pace.stride => pace.length.saturating_add(1),
            true => 2,
            false => 1,
        };
        *pace = Pace { thread, page, stride, length };
        (length >= 3).then_some(Line { stride, length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_faults_of_a_thread_that_are_as_far_apart_make_a_line_whatever_others_do() {
        let mut paces = Paces::new();
        let faults = [(1, 1000), (2, 7), (1, 1100), (2, 5000), (1, 1200), (2, 5001), (1, 1300)];
        let lines = faults.map(|(thread, page)| paces.line_to(thread, page));
        assert_eq!(lines[..4], [None; 4]);
        assert_eq!(
            lines[4..],
            [Some(Line { stride: 100, length: 3 }), None, Some(Line { stride: 100, length: 4 })]
        );
    }

    #[test]
    fn neighbours_and_what_is_too_far_make_none() {
        let mut paces = Paces::new();
        for stride in [0, 1, STRIDE_LIMIT as u64, FAR_LIMIT as u64 + 1] {
            assert!((1..6).all(|step| paces.line_to(1, (1 << 20) + step * stride).is_none()), "{stride}");
        }
    }

    #[test]
    fn a_thread_that_takes_anothers_place_begins_anew() {
        let mut paces = Paces::new();
        paces.line_to(1, 1000);
        paces.line_to(1, 1100);
        assert_eq!(paces.line_to(1 + THREADS as u32, 1200), None);
    }
}
