//! How many bytes may be under way on a link. As many as keep it busy, and few more: what waits beyond that waits where it has no tag, and nothing overtakes it there.
//!
//! What was under way when a transfer began, divided by how long that took, is a rate that the link has; the best of late is its rate. The window is what goes at that
//! rate in half a millisecond and half the time of the quickest transfer. Only half: on a busy link all transfers wait for those before them, and a window that
//! counted all of that as distance would grow for ever; so it ends at what goes in a millisecond. Links with a round trip of up to a millisecond are filled.

/// A slice of time; the best of this one and of the one before count.
const SLICE_NS: u64 = 200_000_000;
/// Time that may be under way beyond the quickest transfer.
const SLACK_NS: u64 = 500_000;
/// Time by which what is fetched ahead may hold up what somebody waits for.
const HOLDUP_NS: u64 = 150_000;
/// Bounds. Two reads of 16 pages are the least with which one is on its way while the other is taken in.
const LEAST_BYTES: u64 = 128 << 10;
const MOST_BYTES: u64 = 8 << 20;
const PAGE_BYTES: u64 = 4096;

/// What a slice has shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Best {
    bytes_per_second: u64,
    quickest_ns: u64,
}

impl Best {
    const NOTHING: Self = Self { bytes_per_second: 0, quickest_ns: u64::MAX };

    fn and(self, other: Self) -> Self {
        Self {
            bytes_per_second: self.bytes_per_second.max(other.bytes_per_second),
            quickest_ns: self.quickest_ns.min(other.quickest_ns),
        }
    }
}

/// What is known of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    now: Best,
    before: Best,
    began_ns: u64,
}

impl Default for Window {
    fn default() -> Self {
        Self { now: Best::NOTHING, before: Best::NOTHING, began_ns: 0 }
    }
}

impl Window {
    /// A transfer has come to its end after `took_ns`; with it, `under_way` bytes were under way when it began.
    pub fn note(&mut self, now_ns: u64, under_way: u64, took_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.began_ns);
        if passed_ns >= SLICE_NS {
            // After a long pause the earlier figures are still the best there are.
            self.before = if self.now == Best::NOTHING { self.before } else { self.now };
            (self.now, self.began_ns) = (Best::NOTHING, now_ns);
        }
        let bytes_per_second = u128::from(under_way) * 1_000_000_000 / u128::from(took_ns.max(1));
        let bytes_per_second = u64::try_from(bytes_per_second).unwrap_or(u64::MAX);
        self.now = self.now.and(Best { bytes_per_second, quickest_ns: took_ns });
    }

    /// Bytes that may be under way.
    pub fn bytes(&self) -> u64 {
        let best = self.now.and(self.before);
        if best == Best::NOTHING {
            return LEAST_BYTES;
        }
        at(best.bytes_per_second, SLACK_NS.saturating_add(best.quickest_ns / 2))
            .clamp(LEAST_BYTES, MOST_BYTES)
    }

    /// Of them, those of one space that nobody waits for: a page at least.
    pub fn ahead_bytes(&self) -> u64 {
        let best = self.now.and(self.before);
        at(best.bytes_per_second, HOLDUP_NS).clamp(PAGE_BYTES, self.bytes() / 2)
    }
}

fn at(bytes_per_second: u64, time_ns: u64) -> u64 {
    let bytes = u128::from(bytes_per_second) * u128::from(time_ns) / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_link_has_few_bytes_under_way() {
        let mut window = Window::default();
        // 64 KiB over 1 Gbit/s.
        window.note(0, 64 << 10, 600_000);
        assert_eq!(window.bytes(), LEAST_BYTES);
        assert!((4096..=20_000).contains(&window.ahead_bytes()), "{}", window.ahead_bytes());
    }

    /// The window that a link of 1 GB/s with this round trip comes to.
    fn settled(round_trip_ns: u64) -> u64 {
        let mut window = Window::default();
        for turn in 0..400 {
            let under_way = window.bytes();
            window.note(turn * 20_000_000, under_way, round_trip_ns.max(under_way));
        }
        window.bytes()
    }

    #[test]
    fn a_link_that_is_not_too_long_is_filled_and_no_queue_grows_for_ever() {
        for round_trip_ns in [10_000, 100_000, 500_000, 900_000] {
            let window = settled(round_trip_ns);
            assert!(window >= round_trip_ns && window < 1_100_000, "{round_trip_ns} {window}");
        }
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let mut window = Window::default();
        window.note(0, 1 << 20, 100_000);
        let fast = window.bytes();
        for turn in 1..=5 {
            window.note(turn * SLICE_NS, 64 << 10, 600_000);
        }
        assert!(window.bytes() < fast && window.bytes() == LEAST_BYTES);
    }

    #[test]
    fn figures_of_any_size_stay_within_bounds() {
        for (under_way, took_ns) in [(u64::MAX, 0), (0, u64::MAX), (u64::MAX, u64::MAX), (0, 0)] {
            let mut window = Window::default();
            window.note(u64::MAX, under_way, took_ns);
            assert!((LEAST_BYTES..=MOST_BYTES).contains(&window.bytes()));
            assert!((PAGE_BYTES..=MOST_BYTES / 2).contains(&window.ahead_bytes()));
        }
    }
}
