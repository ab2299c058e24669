//! Spaces that share a link, simulated: a queue of transfers under way that the link works off at a rate
//! which changes, and before it the spaces' turns.

use farmem_policy::links::{Rate, Turns, VirtualTime, Window};
use proptest::prelude::*;
use std::collections::VecDeque;

/// A generator of numbers: the same ones for a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

#[derive(Clone, Copy)]
struct Space {
    weight: u32,
    /// It always wants something from this time on, and nothing before.
    from_ns: u64,
    turns: Turns,
    bytes: u64,
    /// Bytes of its next transfer.
    next: u64,
}

impl Space {
    fn new(weight: u32, from_ns: u64) -> Self {
        Self { weight, from_ns, turns: Turns::default(), bytes: 0, next: 4096 }
    }
}

struct Link {
    numbers: Numbers,
    spaces: Vec<Space>,
    under_way: VecDeque<u64>,
    under_way_bytes: u64,
    window_bytes: u64,
    now: VirtualTime,
    now_ns: u64,
    sent: u64,
}

impl Link {
    fn new(spaces: Vec<Space>, window_bytes: u64, seed: u64) -> Self {
        Self {
            numbers: Numbers(seed | 1),
            spaces,
            under_way: VecDeque::new(),
            under_way_bytes: 0,
            window_bytes,
            now: VirtualTime::default(),
            now_ns: 0,
            sent: 0,
        }
    }

    /// Lets go what may, then works off the oldest.
    fn step(&mut self) {
        loop {
            let now = self.now;
            let waiting = self.spaces.iter().enumerate().filter(|(_, space)| space.from_ns <= self.now_ns);
            let Some((nth, start)) =
                waiting.map(|(nth, space)| (nth, space.turns.next(now))).min_by_key(|(_, start)| *start)
            else {
                break;
            };
            let space = &mut self.spaces[nth];
            if self.under_way_bytes > 0 && self.under_way_bytes + space.next > self.window_bytes {
                break;
            }
            space.turns.took(start, space.next, space.weight);
            space.bytes += space.next;
            self.sent += space.next;
            self.under_way.push_back(space.next);
            self.under_way_bytes += space.next;
            self.now = self.now.max(start);
            space.next = 4096 * (1 + self.numbers.below(16));
        }
        match self.under_way.pop_front() {
            Some(bytes) => {
                self.under_way_bytes -= bytes;
                self.now_ns += bytes * (1 + self.numbers.below(20));
            }
            None => self.now_ns += 1000,
        }
    }

    /// The smallest part divided by its weight, of the largest.
    fn ratio(&self, since: &[u64]) -> f64 {
        let parts = self
            .spaces
            .iter()
            .zip(since)
            .map(|(space, since)| (space.bytes - since) as f64 / f64::from(space.weight));
        let (least, most) =
            parts.fold((f64::MAX, 0.0_f64), |(least, most), part| (least.min(part), most.max(part)));
        least / most
    }
}

proptest! {
    #[test]
    fn parts_are_as_weights_say(
        weights in prop::collection::vec(1_u32..=1000, 2..8),
        window in 0_u64..2 << 20,
        seed in any::<u64>(),
    ) {
        let least = u64::from(*weights.iter().min().unwrap());
        let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        let mut link = Link::new(weights.iter().map(|weight| Space::new(*weight, 0)).collect(), window, seed);
        // So long that the lightest has a hundred of its largest transfers.
        while link.sent < 200 * (64 << 10) * sum / least {
            link.step();
        }
        let ratio = link.ratio(&vec![0; weights.len()]);
        prop_assert!(ratio > 0.97, "{ratio}");
    }

    #[test]
    fn who_comes_late_neither_starves_nor_is_starved(
        late_ns in 1_000_000_u64..1_000_000_000,
        seed in any::<u64>(),
    ) {
        let spaces = vec![Space::new(1, 0), Space::new(2, 0), Space::new(4, late_ns)];
        let mut link = Link::new(spaces, 256 << 10, seed);
        while link.now_ns < late_ns {
            link.step();
        }
        let since: Vec<u64> = link.spaces.iter().map(|space| space.bytes).collect();
        prop_assert_eq!(since[2], 0);
        for _ in 0..10_000 {
            link.step();
        }
        let ratio = link.ratio(&since);
        prop_assert!(ratio > 0.97, "{ratio}");
    }

    #[test]
    fn what_one_does_not_want_is_the_others(seed in any::<u64>()) {
        // The heaviest never wants anything: the link is busy all the same.
        let mut link = Link::new(vec![Space::new(1, 0), Space::new(1000, u64::MAX)], 128 << 10, seed);
        for _ in 0..1000 {
            link.step();
            prop_assert!(link.under_way_bytes > 0);
        }
    }

    #[test]
    fn a_limit_is_kept_over_any_time(
        rate in 1_000_000_u64..10_000_000_000,
        pauses in prop::collection::vec(0_u64..50_000_000, 1..300),
    ) {
        let limit = Rate::new(rate).unwrap();
        let (mut due_ns, mut now_ns, mut went) = (0, 1_000_000_000, vec![]);
        for pause_ns in pauses {
            now_ns += pause_ns;
            loop {
                match limit.take(due_ns, now_ns, 64 << 10) {
                    Ok(next_ns) => due_ns = next_ns,
                    Err(early_ns) => {
                        prop_assert!(limit.take(due_ns, now_ns + early_ns, 64 << 10).is_ok());
                        break;
                    }
                }
                went.push(now_ns);
            }
        }
        // Between any two of them: the limit, 2 ms of it at once, and one transfer that was begun.
        for first in (0..went.len()).step_by(7) {
            for last in (first..went.len()).step_by(11) {
                let bytes = (last - first + 1) as u128 * (64 << 10);
                let time_ns = u128::from(went[last] - went[first] + 2_000_000);
                let allowed = u128::from(rate) * time_ns / 1_000_000_000 + 2 * (64 << 10) + (64 << 10) / 8;
                prop_assert!(bytes <= allowed, "{bytes} {allowed}");
            }
        }
    }
}

#[test]
fn three_spaces_of_weights_1_2_4_reach_a_ratio_of_0_97() {
    let spaces = [1, 2, 4].map(|weight| Space::new(weight, 0)).to_vec();
    let mut link = Link::new(spaces, Window::default().bytes(), 0x5eed);
    for _ in 0..20_000 {
        link.step();
    }
    let ratio = link.ratio(&[0; 3]);
    assert!(ratio > 0.99, "{ratio}");
}

#[test]
fn a_damaged_word_of_a_limit_holds_up_nobody_for_long() {
    assert!(Rate::new(0).is_none());
    let limit = Rate::new(1).unwrap();
    assert!(limit.take(u64::MAX, 5, 1 << 40).is_ok());
    assert!(limit.take(u64::MAX, u64::MAX, u64::MAX).is_ok());
}
