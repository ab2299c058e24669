//! What more local memory would save, told by how long pages were away.
//!
//! A page that left and came back would have stayed, had there been room for all that left after it and was
//! still away when it came back. So the pages that are away are looked at as a second memory behind the
//! first, in the order in which they left: each eviction pushes them one place further, unless a page that
//! left later has come back meanwhile. Of the pages that left `t` ago the share S(t) is still away; the place
//! of a page that has been away for R evictions is the sum of S(t) for t up to R. That is the kinetics of Hu
//! et al. (AET, USENIX ATC 2016), put to the part of memory that isn't there.
//!
//! Absences are measured on the clock of [`Victims`](crate::Victims), whose step is a part of the budget. So
//! all results are in budgets.

use crate::victims::TICKS_PER_BUDGET;

/// Absences up to so many ticks have a bucket each.
const LINEAR: u64 = 8;
/// Above that, the logarithm of the buckets for each power of two.
const PARTS_BITS: u32 = 2;
/// The logarithm of the longest absence that the clock can tell.
const MOST_BITS: u32 = 10;
/// How many buckets.
pub const BUCKETS: usize = LINEAR as usize + ((MOST_BITS - LINEAR.ilog2()) << PARTS_BITS) as usize;

/// The bucket of an absence of so many ticks.
pub const fn bucket_of(ticks: u64) -> usize {
    if ticks < LINEAR {
        return ticks as usize;
    }
    let octave = ticks.ilog2();
    let part = (ticks >> (octave - PARTS_BITS)) - (1 << PARTS_BITS);
    let bucket = LINEAR as usize + (((octave - LINEAR.ilog2()) << PARTS_BITS) as usize) + part as usize;
    if bucket < BUCKETS { bucket } else { BUCKETS - 1 }
}

/// How many ticks the absences of a bucket span.
const fn width(bucket: usize) -> u64 {
    if bucket < LINEAR as usize {
        return 1;
    }
    let octave = LINEAR.ilog2() + ((bucket - LINEAR as usize) >> PARTS_BITS) as u32;
    1 << (octave - PARTS_BITS)
}

/// Pages that left, and those of them that were wanted again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Absences {
    returned: [u64; BUCKETS],
    left: u64,
}

impl Absences {
    /// `left` pages left; `returned` of them came back, by the bucket of their absence.
    pub const fn new(returned: [u64; BUCKETS], left: u64) -> Self {
        Self { returned, left }
    }

    /// What has happened since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            returned: core::array::from_fn(|bucket| {
                self.returned[bucket].saturating_sub(before.returned[bucket])
            }),
            left: self.left.saturating_sub(before.left),
        }
    }

    /// Pages that came back.
    pub fn returned(&self) -> u64 {
        self.returned.iter().sum()
    }

    /// How much more local memory, in budgets, would have kept the share `share` of the pages that came back
    /// from leaving; `None` when none did. Rather too much than too little: pages that the program has
    /// discarded while they were away count as if they were still.
    pub fn more_for(&self, share: f64) -> Option<f64> {
        let returned = self.returned();
        if returned == 0 {
            return None;
        }
        let wanted = share * returned as f64;
        // More may have come back than have left since the count began.
        let left = self.left.max(returned) as f64;
        let (mut seen, mut away, mut place) = (0.0, 1.0, 0.0);
        for (bucket, &count) in self.returned.iter().enumerate() {
            let (count, width) = (count as f64, width(bucket) as f64);
            let part = if count > 0.0 { ((wanted - seen) / count).clamp(0.0, 1.0) } else { 1.0 };
            place += width * part * (away - count * part / left / 2.0);
            if seen + count >= wanted {
                break;
            }
            seen += count;
            away -= count / left;
        }
        Some(place / TICKS_PER_BUDGET as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buckets_follow_each_other_without_a_gap() {
        let mut ticks = 0;
        for bucket in 0..BUCKETS {
            assert_eq!((bucket_of(ticks), bucket_of(ticks + width(bucket) - 1)), (bucket, bucket));
            ticks += width(bucket);
        }
        assert_eq!(ticks, 1 << MOST_BITS);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_loop_wants_room_for_all_that_is_away() {
        // Half a budget is away, and each page comes back when all others have left once.
        let mut returned = [0; BUCKETS];
        returned[bucket_of(TICKS_PER_BUDGET / 2)] = 1000;
        let more = Absences::new(returned, 1000).more_for(0.9).unwrap();
        assert!((0.5..0.62).contains(&more), "{more}");
    }

    #[test]
    fn without_returns_nothing_is_said() {
        assert_eq!(Absences::new([0; BUCKETS], 1000).more_for(0.5), None);
    }

    #[test]
    fn counts_that_do_not_agree_do_no_harm() {
        let absences = Absences::new([5; BUCKETS], 0);
        let more = absences.more_for(1.0).unwrap();
        assert!(more.is_finite() && more >= 0.0, "{more}");
        assert_eq!(absences.since(&absences).more_for(0.5), None);
    }
}
