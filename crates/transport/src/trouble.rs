//! A link that has all the trouble a network can make, from a seed, for tests of those who use links:
//! completions that come late, in another order and twice; a link that ends when a request has taken effect
//! and nobody has heard of it; one that is full.
//!
//! What [`Transport`] promises is kept, but for completions that come twice: a node that lies could make
//! them, so whoever hears them must not mind. The same seed makes the same trouble for the same calls.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use crate::{Completion, LinkError, NodeDescription, Request, SubmitError, Ticket, Transport, Unsubmitted};

/// How often something happens: once in so many calls, or completions.
const FULL: u64 = 16;
const END: u64 = 64;
const KEEP_BACK: u64 = 3;
const TWICE: u64 = 8;
/// What was kept back for so many calls is let go.
const PATIENCE: u32 = 4;

/// See the module's text.
pub struct Troubled {
    link: Box<dyn Transport>,
    numbers: Numbers,
    /// Completions that nobody has heard of yet.
    held: Vec<Completion>,
    /// Calls since something was let go.
    kept_back: u32,
    has_ended: bool,
}

/// Xorshift (Marsaglia, 2003).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn is_time(&mut self, once_in: u64) -> bool {
        self.below(once_in) == 0
    }
}

impl Troubled {
    /// A link with trouble of this seed.
    pub fn new(link: Box<dyn Transport>, seed: u64) -> Self {
        // Seeds that are near each other begin far apart.
        let numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        Self { link, numbers, held: Vec::new(), kept_back: 0, has_ended: false }
    }

    /// Lets go of some that are held, in any order, and now and then of one that stays to come again.
    fn let_go(&mut self, into: &mut Vec<Completion>) {
        let before = into.len();
        let is_last = self.kept_back >= PATIENCE;
        for _ in 0..self.held.len() {
            if self.held.is_empty() || (!is_last && self.numbers.is_time(KEEP_BACK)) {
                continue;
            }
            let any = self.numbers.below(self.held.len() as u64) as usize;
            let completion = self.held.swap_remove(any);
            if self.numbers.is_time(TWICE) {
                into.push(completion.clone());
            }
            into.push(completion);
        }
        self.kept_back = if into.len() > before { 0 } else { self.kept_back + 1 };
    }
}

impl Transport for Troubled {
    fn node(&self) -> NodeDescription {
        self.link.node()
    }

    fn submit(&mut self, ticket: Ticket, request: Request, deadline: Instant) -> Result<(), Unsubmitted> {
        if self.pending() > 0 && self.numbers.is_time(FULL) {
            return Err(Unsubmitted { why: SubmitError::Full, request });
        }
        self.link.submit(ticket, request, deadline)
    }

    fn complete(&mut self, into: &mut Vec<Completion>, timeout: Duration) -> Result<(), LinkError> {
        if self.has_ended {
            return Err(LinkError::Closed);
        }
        let timeout = if self.held.is_empty() { timeout } else { Duration::ZERO };
        let heard = self.link.complete(&mut self.held, timeout);
        // What is held has taken effect, and its answers go with the link.
        self.has_ended = heard.is_err() || self.numbers.is_time(END);
        if self.has_ended {
            return Err(heard.err().unwrap_or(LinkError::Closed));
        }
        self.let_go(into);
        Ok(())
    }

    fn take_unanswered(&mut self) -> Vec<(Ticket, Request)> {
        let mut unanswered = self.link.take_unanswered();
        unanswered.extend(self.held.drain(..).map(|completion| (completion.ticket, completion.request)));
        unanswered.sort_by_key(|(ticket, _)| *ticket);
        unanswered
    }

    fn pending(&self) -> usize {
        self.link.pending() + self.held.len()
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        // What is held shows on no descriptor.
        None
    }

    fn waits_to_send(&self) -> bool {
        self.link.waits_to_send()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryNode;
    use crate::{Answer, ClientIdentity, Order};

    const CLIENT: ClientIdentity = ClientIdentity { space: 7, lane: 0 };

    /// Tickets in the order in which they were heard of, until the link ends or nothing is pending.
    fn heard(seed: u64) -> (Vec<u64>, Vec<(Ticket, Request)>) {
        let node = MemoryNode::new(64);
        let mut link = Troubled::new(Box::new(node.connect(CLIENT)), seed);
        let deadline = Instant::now() + Duration::from_secs(60);
        let (mut done, mut tickets) = (Vec::new(), Vec::new());
        let mut next = 1;
        loop {
            while next <= 20 && link.submit(Ticket(next), Request::Renew, deadline).is_ok() {
                next += 1;
            }
            if next > 20 && link.pending() == 0 {
                return (tickets, Vec::new());
            }
            if link.complete(&mut done, Duration::from_millis(1)).is_err() {
                return (tickets, link.take_unanswered());
            }
            tickets.extend(done.drain(..).map(|completion| completion.ticket.0));
        }
    }

    #[test]
    fn a_seed_makes_the_same_trouble_again_and_others_make_other() {
        let runs: Vec<_> = (0..50).map(heard).collect();
        assert!(runs.iter().zip(0..).all(|(run, seed)| *run == heard(seed)));
        assert!(runs.iter().any(|(tickets, _)| !tickets.is_sorted()), "another order");
        assert!(runs.iter().any(|(tickets, _)| tickets.len() > 20), "twice");
        assert!(runs.iter().any(|(_, unanswered)| !unanswered.is_empty()), "an end in the middle");
    }

    #[test]
    fn nothing_is_forgotten() {
        for (mut tickets, unanswered) in (0..50).map(heard) {
            assert!(unanswered.is_sorted_by_key(|(ticket, _)| *ticket));
            let is_whole = unanswered.is_empty();
            tickets.extend(unanswered.into_iter().map(|(ticket, _)| ticket.0));
            tickets.sort_unstable();
            tickets.dedup();
            assert!(tickets.iter().copied().eq(1..=tickets.len() as u64), "{tickets:?}");
            assert!(!is_whole || tickets.len() == 20);
        }
    }

    #[test]
    fn what_took_effect_and_was_not_heard_of_is_repeated_without_effect() {
        for seed in 0..200 {
            let node = MemoryNode::new(64 * 64);
            let deadline = Instant::now() + Duration::from_secs(60);
            let mut link = Troubled::new(Box::new(node.connect(CLIENT)), seed);
            let (mut done, mut granted) = (Vec::new(), 0);
            link.submit(Ticket(1), Request::Grant { order: Order::SLAB, count: 3 }, deadline).unwrap();
            while granted == 0 {
                if link.complete(&mut done, Duration::from_millis(1)).is_err() {
                    let unanswered = link.take_unanswered();
                    link = Troubled::new(Box::new(node.connect(CLIENT)), seed + 1000);
                    for (ticket, request) in unanswered {
                        link.submit(ticket, request, deadline).unwrap();
                    }
                }
                let grants = done.drain(..).filter_map(|completion| completion.result.ok());
                granted = grants.map(|answer| matches!(answer, Answer::Granted(_))).filter(|is| *is).count();
            }
            assert_eq!(node.free_frames(), 64 * 64 - 3 * 64, "seed {seed}");
        }
    }
}
