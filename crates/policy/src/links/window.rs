//! How many bytes may be under way on a link. As many as keep it busy, and few more: what waits beyond that
//! waits where it has no tag, and nothing overtakes it there.
//!
//! Rate and distance come from transfers that have ended. What was under way when they began, divided by how
//! long they took, summed over a few milliseconds, is the rate of the link (Little's law). A single transfer
//! says little: a link that is limited by a token bucket lets a burst through as fast as the machine, and
//! only then shows its rate. The window is what goes at that rate in half a millisecond and half the time of
//! the quickest transfer. Only half: on a busy link all transfers wait for those before them, and a window
//! that counted all of that as distance would grow for ever; so it ends at what goes in a millisecond. Links
//! with a round trip of up to a millisecond are filled.
//!
//! What nobody waits for must not hold up what somebody waits for. The rate doesn't say how much of it that
//! is: where one page at a time crosses a long link, Little's law gives a rate far below what the link could
//! carry. So transfers that began with much under way are compared with those that began with little. While
//! the quickest of the former are hardly slower than the quickest of the latter, nothing queues, and twice as
//! much may be tried. What was seen expires after a moment. On a link that is always full nothing is left to
//! compare with by then: the window falls to a page, and grows as the empty link shows itself. LEDBAT++ slows
//! down now and then for the same reason (draft-irtf-iccrg-ledbat-plus-plus, periodic slowdowns).

/// A slice of time; the quickest transfer of this one and of the one before counts.
const SLICE_NS: u64 = 200_000_000;
/// A group of transfers lasts for at least so long, and has at least so many; the rate is that of the last
/// two groups.
const GROUP_NS: u64 = 2_000_000;
const GROUP: u32 = 8;
/// Time that may be under way beyond the quickest transfer.
const SLACK_NS: u64 = 500_000;
/// Time by which what is fetched ahead may hold up what somebody waits for.
const HOLDUP_NS: u64 = 50_000;
/// The same as a share of the quickest transfer, for long links: their times vary more.
const HOLDUP_SHARE: u64 = 8;
/// Bounds. Three reads of 16 pages are the least with which one is on its way and one behind it while the
/// next one is asked for.
const LEAST_BYTES: u64 = 192 << 10;
const MOST_BYTES: u64 = 8 << 20;
const PAGE_BYTES: u64 = 4096;
/// Loads that are told apart: each up to twice as heavy as the one before, the lightest up to a page.
const LOADS: usize = (MOST_BYTES / PAGE_BYTES).ilog2() as usize + 1;
/// The heaviest load under which a link counts as empty: four pages.
const NEARLY_EMPTY: usize = 2;

/// Transfers that ended one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Group {
    transfers: u32,
    /// Bytes under way when they began, and how long they took, summed.
    under_way: u64,
    took_ns: u64,
}

impl Group {
    fn note(&mut self, under_way: u64, took_ns: u64) {
        self.transfers = self.transfers.saturating_add(1);
        self.under_way = self.under_way.saturating_add(under_way);
        self.took_ns = self.took_ns.saturating_add(took_ns);
    }
}

/// The quickest transfers of a slice of time, by how much was under way when they began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Quickest([u64; LOADS]);

impl Quickest {
    const NONE: Self = Self([u64::MAX; LOADS]);

    fn note(&mut self, under_way: u64, took_ns: u64) {
        let load = under_way.div_ceil(PAGE_BYTES).max(1).next_power_of_two().ilog2() as usize;
        let quickest_ns = &mut self.0[load.min(LOADS - 1)];
        *quickest_ns = took_ns.min(*quickest_ns);
    }
}

/// What is known of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    now: Group,
    before: Group,
    group_began_ns: u64,
    /// Of this slice, and of the one before.
    quickest: [Quickest; 2],
    slice_began_ns: u64,
}

impl Default for Window {
    fn default() -> Self {
        let nothing = Group::default();
        let quickest = [Quickest::NONE; 2];
        Self { now: nothing, before: nothing, group_began_ns: 0, quickest, slice_began_ns: 0 }
    }
}

impl Window {
    /// A transfer has come to its end after `took_ns`; with it, `under_way` bytes were under way when it
    /// began.
    pub fn note(&mut self, now_ns: u64, under_way: u64, took_ns: u64) {
        let [now, before] = &mut self.quickest;
        if now_ns.saturating_sub(self.slice_began_ns) >= SLICE_NS {
            (*before, *now) = (*now, Quickest::NONE);
            self.slice_began_ns = now_ns;
        }
        now.note(under_way, took_ns);
        if self.now.transfers >= GROUP && now_ns.saturating_sub(self.group_began_ns) >= GROUP_NS {
            (self.before, self.now) = (self.now, Group::default());
            self.group_began_ns = now_ns;
        }
        self.now.note(under_way, took_ns);
    }

    fn bytes_per_second(&self) -> u64 {
        let under_way = u128::from(self.now.under_way) + u128::from(self.before.under_way);
        let took_ns = u128::from(self.now.took_ns) + u128::from(self.before.took_ns);
        u64::try_from(under_way * 1_000_000_000 / took_ns.max(1)).unwrap_or(u64::MAX)
    }

    /// The quickest transfer that began with such a load.
    fn quickest_ns(&self, load: usize) -> u64 {
        self.quickest[0].0[load].min(self.quickest[1].0[load])
    }

    /// Bytes that may be under way.
    pub fn bytes(&self) -> u64 {
        let quickest_ns = (0..LOADS).map(|load| self.quickest_ns(load)).min().unwrap_or(u64::MAX);
        if self.now.transfers == 0 {
            return LEAST_BYTES;
        }
        at(self.bytes_per_second(), SLACK_NS.saturating_add(quickest_ns / 2)).clamp(LEAST_BYTES, MOST_BYTES)
    }

    /// Twice the heaviest load under which nothing queues, unless it is known that something then does. A
    /// page if the link hasn't been seen empty.
    fn unqueued_bytes(&self) -> u64 {
        let is_seen = |load: &usize| self.quickest_ns(*load) < u64::MAX;
        let Some(lightest) = (0..=NEARLY_EMPTY).find(is_seen) else { return PAGE_BYTES };
        let mut empty_ns = self.quickest_ns(lightest);
        let mut heaviest = lightest;
        for load in (lightest + 1..LOADS).filter(is_seen) {
            let took_ns = self.quickest_ns(load);
            empty_ns = took_ns.min(empty_ns);
            if took_ns > empty_ns.saturating_add(HOLDUP_NS.max(empty_ns / HOLDUP_SHARE)) {
                return PAGE_BYTES << heaviest;
            }
            heaviest = load;
        }
        PAGE_BYTES << (heaviest + 1)
    }

    /// Of them, those of one space that nobody waits for: a page at least.
    pub fn ahead_bytes(&self) -> u64 {
        let without_queue = at(self.bytes_per_second(), HOLDUP_NS).max(self.unqueued_bytes());
        without_queue.clamp(PAGE_BYTES, self.bytes() / 2)
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
        assert!((4096..=7_000).contains(&window.ahead_bytes()), "{}", window.ahead_bytes());
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
        for turn in 1..=u64::from(3 * GROUP) {
            window.note(turn * SLICE_NS, 64 << 10, 600_000);
        }
        assert!(window.bytes() < fast && window.bytes() == LEAST_BYTES);
    }

    /// The most and the least that may be fetched ahead in the second half of ten seconds, on a link of that
    /// many bytes per microsecond, when as much always is. Times vary by up to `jitter_ns`.
    fn ahead(bytes_per_us: u64, round_trip_ns: u64, jitter_ns: u64) -> (u64, u64) {
        let mut window = Window::default();
        let (mut now_ns, mut most, mut least) = (0, 0, u64::MAX);
        let mut random = 1_u64;
        let mut transfer = |window: &mut Window, under_way: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let late_ns = (random >> 33) % (jitter_ns + 1);
            let took_ns = round_trip_ns.max(under_way * 1000 / bytes_per_us) + late_ns;
            window.note(now_ns, under_way, took_ns);
            now_ns += took_ns;
            now_ns
        };
        loop {
            let allowed = window.ahead_bytes();
            // A fault, and pages ahead, one more at a time.
            transfer(&mut window, PAGE_BYTES);
            let now_ns = transfer(&mut window, allowed + PAGE_BYTES);
            if now_ns > 10_000_000_000 {
                return (most, least);
            }
            if now_ns > 5_000_000_000 {
                (most, least) = (allowed.max(most), allowed.min(least));
            }
        }
    }

    #[test]
    fn a_long_link_carries_many_pages_ahead() {
        for jitter_ns in [0, 100_000, 1_000_000] {
            let (most, least) = ahead(1000, 2_700_000, jitter_ns);
            assert!(least >= 16 * PAGE_BYTES, "{jitter_ns} {least} to {most}");
        }
    }

    #[test]
    fn what_is_fetched_ahead_does_not_queue_for_long() {
        // 1 GB/s, 200 Mbit/s.
        for (bytes_per_us, round_trip_ns) in [(1000, 20_000), (1000, 400_000), (25, 100_000), (25, 2_000_000)]
        {
            let (most, _) = ahead(bytes_per_us, round_trip_ns, round_trip_ns / 10);
            // Loads are known to a factor of two, and twice as much is tried now and then.
            let fitting = (round_trip_ns + HOLDUP_NS) * bytes_per_us / 1000;
            assert!(most <= (4 * fitting).max(4 * PAGE_BYTES), "{bytes_per_us} {round_trip_ns}: {most}");
        }
    }

    #[test]
    fn a_link_that_is_always_full_shows_nothing() {
        let mut window = Window::default();
        for turn in 0..1000_u64 {
            let pages = 64 + turn % 64;
            window.note(turn * 1_000_000, pages * PAGE_BYTES, pages * 400_000);
        }
        assert_eq!(window.ahead_bytes(), PAGE_BYTES);
    }

    #[test]
    fn a_burst_does_not_make_a_link_fast() {
        let mut window = Window::default();
        // 200 Mbit/s, and two transfers of every sixteen find tokens saved up.
        for turn in 0..160_u64 {
            let took_ns = if turn % 16 < 2 { 60_000 } else { 5_200_000 };
            window.note(turn * 2_600_000, 128 << 10, took_ns);
        }
        assert_eq!(window.bytes(), LEAST_BYTES);
        assert!(window.ahead_bytes() <= 4096, "{}", window.ahead_bytes());
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
