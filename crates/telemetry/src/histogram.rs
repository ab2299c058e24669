//! Latencies in buckets whose width is a quarter of their power of two: at most 25% too high.

use core::sync::atomic::{AtomicU64, Ordering};

const SUB_BITS: u32 = 2;
/// The shortest latency that is told apart, as a power of two of nanoseconds (256 ns).
const FLOOR_BITS: u32 = 8;
/// Powers of two that are told apart: up to 256 ns · 2²² ≈ 1.07 s; longer ones share the last bucket.
const SPAN_BITS: u32 = 22;
/// How many buckets.
pub const BUCKETS: usize = ((SPAN_BITS as usize) << SUB_BITS) + 1;

/// The bucket of a latency.
pub const fn bucket_of(latency_ns: u64) -> usize {
    let scaled = latency_ns >> (FLOOR_BITS - SUB_BITS);
    if scaled < 1 << SUB_BITS {
        return 0;
    }
    let power = scaled.ilog2() - SUB_BITS;
    let sub = (scaled >> power) - (1 << SUB_BITS);
    let bucket = ((power as usize) << SUB_BITS) + sub as usize + 1;
    if bucket < BUCKETS { bucket } else { BUCKETS - 1 }
}

/// The longest latency of a bucket, in nanoseconds.
pub const fn bucket_ceiling_ns(bucket: usize) -> u64 {
    if bucket == 0 {
        return (1 << FLOOR_BITS) - 1;
    }
    let power = ((bucket - 1) >> SUB_BITS) as u32;
    let sub = ((bucket - 1) & ((1 << SUB_BITS) - 1)) as u64;
    (((1 << SUB_BITS) + sub + 1) << (power + FLOOR_BITS - SUB_BITS)) - 1
}

/// A view over the buckets of a histogram.
#[derive(Clone, Copy, Debug)]
pub struct Histogram<'a> {
    buckets: &'a [AtomicU64],
}

impl<'a> Histogram<'a> {
    /// A view over [`BUCKETS`] words.
    pub fn new(buckets: &'a [AtomicU64]) -> Self {
        assert_eq!(buckets.len(), BUCKETS, "a histogram is made of BUCKETS words");
        Self { buckets }
    }

    /// Counts a latency.
    pub fn record(&self, latency_ns: u64) {
        self.buckets[bucket_of(latency_ns)].fetch_add(1, Ordering::Relaxed);
    }

    /// Adds what another histogram has counted.
    pub fn add(&self, other: &Histogram<'_>) {
        for (mine, theirs) in self.buckets.iter().zip(other.buckets) {
            mine.fetch_add(theirs.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// The latency below which the share `per_mille` of a thousand lies, in nanoseconds; 0 when nothing was
    /// counted.
    pub fn quantile_ns(&self, per_mille: u64) -> u64 {
        let total: u64 = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum();
        if total == 0 {
            return 0;
        }
        let wanted = (total * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        for (index, bucket) in self.buckets.iter().enumerate() {
            seen += bucket.load(Ordering::Relaxed);
            if seen >= wanted {
                return bucket_ceiling_ns(index);
            }
        }
        bucket_ceiling_ns(BUCKETS - 1)
    }

    /// Forgets everything.
    pub fn clear(&self) {
        for bucket in self.buckets {
            bucket.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_lies_under_the_ceiling_of_its_bucket_and_above_the_one_before() {
        for latency in (0..2_000_000).step_by(37) {
            let bucket = bucket_of(latency);
            assert!(latency <= bucket_ceiling_ns(bucket), "{latency}");
            if bucket > 0 {
                assert!(latency > bucket_ceiling_ns(bucket - 1), "{latency}");
            }
        }
    }

    #[test]
    fn endless_latencies_share_the_last_bucket() {
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_come_from_the_right_bucket() {
        let words: [AtomicU64; BUCKETS] = core::array::from_fn(|_| AtomicU64::new(0));
        let histogram = Histogram::new(&words);
        (0..99).for_each(|_| histogram.record(5_000));
        histogram.record(1_000_000);
        assert_eq!(histogram.quantile_ns(500), bucket_ceiling_ns(bucket_of(5_000)));
        assert_eq!(histogram.quantile_ns(1000), bucket_ceiling_ns(bucket_of(1_000_000)));
    }
}
