//! Whether what is fetched ahead would come in time (Canvas §5.3): from how long pages that were used had
//! been on their way or waiting, and from how long reads take.

/// Buckets of the distribution of times from asking ahead to use: four for each doubling, from 1 µs on.
pub const BUCKETS: usize = 64;
/// Fewer uses than this say nothing.
const ENOUGH: u64 = 64;
/// The part of the uses that is to be served in time, in tenths.
const TENTHS: u64 = 9;
/// One in so many that would be dropped goes all the same: else a distribution that is wrong would never be
/// righted.
pub const PROBE_EVERY: u32 = 16;
/// With each look a distribution loses this part of itself.
const FADE: u64 = 23;

/// The bucket of a time.
pub fn bucket_of(time_ns: u64) -> usize {
    let us = (time_ns / 1000).max(1);
    let octave = us.ilog2();
    let quarter = (us << 2 >> octave) & 3;
    (octave as usize * 4 + quarter as usize).min(BUCKETS - 1)
}

/// The end of a bucket; `None` for the last one, which has none.
fn end_ns(bucket: usize) -> Option<u64> {
    let next = bucket + 1;
    (next < BUCKETS).then(|| ((4 + next as u64 % 4) << (next / 4)) * 1000 / 4)
}

/// What is asked for ahead is of use for so long as a rule: nine tenths of what was used had been asked for
/// no earlier. `None` while too little is known, and where there is no end of it.
pub fn threshold_ns(distribution: &[u64; BUCKETS]) -> Option<u64> {
    let all: u64 = distribution.iter().fold(0, |sum, count| sum.saturating_add(*count));
    if all < ENOUGH {
        return None;
    }
    let mut left = all / 10 * TENTHS + all % 10 * TENTHS / 10;
    let bucket = distribution.iter().position(|count| {
        let is_it = *count >= left;
        left = left.saturating_sub(*count);
        is_it
    })?;
    end_ns(bucket)
}

/// The distribution of lately: what was counted longer ago counts less and less.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recent {
    /// What had been counted in all when somebody last looked.
    counted: [u64; BUCKETS],
    recent: [u64; BUCKETS],
}

impl Default for Recent {
    fn default() -> Self {
        Self { counted: [0; BUCKETS], recent: [0; BUCKETS] }
    }
}

impl Recent {
    /// Looks at counts that only grow. What was seen at one look weighs half as much sixteen looks later.
    pub fn look(&mut self, counted: [u64; BUCKETS]) {
        for ((recent, before), now) in self.recent.iter_mut().zip(&self.counted).zip(&counted) {
            let kept = *recent - recent.div_ceil(FADE);
            *recent = kept.saturating_add(now.saturating_sub(*before));
        }
        self.counted = counted;
    }

    /// See [`threshold_ns`].
    pub fn threshold_ns(&self) -> Option<u64> {
        threshold_ns(&self.recent)
    }
}

/// How long reads of a class take, and how much that varies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Latency {
    mean_ns: u64,
    deviation_ns: u64,
}

impl Latency {
    /// One has taken so long.
    pub fn note(&mut self, took_ns: u64) {
        if self.mean_ns == 0 {
            *self = Self { mean_ns: took_ns, deviation_ns: took_ns / 2 };
            return;
        }
        let off_ns = self.mean_ns.abs_diff(took_ns);
        self.deviation_ns = self.deviation_ns - self.deviation_ns / 4 + off_ns / 4;
        self.mean_ns = self.mean_ns - self.mean_ns / 8 + took_ns / 8;
    }

    /// What the next one takes as a rule.
    pub fn expected_ns(&self) -> u64 {
        self.mean_ns
    }

    /// After this time one is overdue. `None` before there was any.
    pub fn overdue_ns(&self) -> Option<u64> {
        (self.mean_ns > 0).then(|| self.mean_ns.saturating_add(self.deviation_ns.saturating_mul(4)))
    }
}

/// Whether what was asked for ahead `age_ns` ago should not be sent any more, because it would come too late.
pub fn is_too_late(threshold_ns: Option<u64>, age_ns: u64, latency: &Latency) -> bool {
    threshold_ns.is_some_and(|threshold_ns| age_ns.saturating_add(latency.expected_ns()) > threshold_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        let mut last = 0;
        for us in 1..200_000_u64 {
            let bucket = bucket_of(us * 1000);
            assert!(bucket == last || bucket > last && bucket < BUCKETS, "{us}");
            if let Some(end_ns) = end_ns(bucket) {
                assert!(us * 1000 <= end_ns && bucket_of(end_ns + 1000) > bucket, "{us} {end_ns}");
            }
            last = bucket;
        }
        assert_eq!((bucket_of(0), bucket_of(u64::MAX)), (0, BUCKETS - 1));
    }

    #[test]
    fn the_threshold_is_where_nine_tenths_were_used() {
        let mut distribution = [0; BUCKETS];
        distribution[bucket_of(50_000)] = 95;
        distribution[bucket_of(5_000_000)] = 5;
        let threshold = threshold_ns(&distribution).unwrap();
        assert!((50_000..70_000).contains(&threshold), "{threshold}");
        assert!(is_too_late(Some(threshold), 100_000, &Latency::default()));
        assert!(!is_too_late(Some(threshold), 10_000, &Latency::default()));
    }

    #[test]
    fn what_was_long_ago_gives_way_to_what_is_now() {
        let (mut recent, mut counted) = (Recent::default(), [0; BUCKETS]);
        counted[bucket_of(10_000_000)] = 1_000_000;
        recent.look(counted);
        assert!(recent.threshold_ns().unwrap() > 10_000_000);
        for _ in 0..400 {
            counted[bucket_of(50_000)] += 100;
            recent.look(counted);
        }
        assert!(recent.threshold_ns().unwrap() < 70_000);
        (0..400).for_each(|_| recent.look(counted));
        assert_eq!(recent.threshold_ns(), None, "nothing is known any more");
        recent.look([0; BUCKETS]);
        assert_eq!(recent.threshold_ns(), None, "counts that fall are not believed");
    }

    #[test]
    fn too_few_uses_or_uses_without_end_drop_nothing() {
        let mut distribution = [0; BUCKETS];
        distribution[3] = ENOUGH - 1;
        assert_eq!(threshold_ns(&distribution), None);
        distribution[BUCKETS - 1] = 1000;
        assert_eq!(threshold_ns(&distribution), None);
        assert_eq!(threshold_ns(&[u64::MAX; BUCKETS]).map(|_| ()), Some(()));
    }

    #[test]
    fn a_read_is_overdue_after_longer_than_reads_take() {
        let mut latency = Latency::default();
        assert_eq!(latency.overdue_ns(), None);
        for _ in 0..100 {
            latency.note(100_000);
        }
        let overdue = latency.overdue_ns().unwrap();
        assert!((100_000..120_000).contains(&overdue) && latency.expected_ns() > 99_000, "{latency:?}");
        latency.note(u64::MAX);
        assert!(latency.overdue_ns().unwrap() > overdue);
    }
}
