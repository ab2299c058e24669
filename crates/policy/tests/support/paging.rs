//! Machines that page: which accesses hit local memory under several ways to choose victims.

use std::collections::VecDeque;

use farmem_page::{PageCount, PageWord};
use farmem_policy::{Verdict, VictimPolicy};

/// A local memory of a fixed number of pages, full of some of the program's pages.
pub trait Machine {
    /// The program uses a page. Whether it was local.
    fn access(&mut self, page: u64) -> bool;
}

/// Share of accesses that hit, from access number `warm_up` on.
pub fn hit_ratio(machine: &mut dyn Machine, trace: &[u64], warm_up: usize) -> f64 {
    let hits =
        trace.iter().enumerate().filter(|&(step, &page)| machine.access(page) && step >= warm_up).count();
    hits as f64 / (trace.len() - warm_up) as f64
}

/// First in, first out.
pub struct Fifo {
    is_local: Vec<bool>,
    order: VecDeque<u64>,
    budget: usize,
}

impl Fifo {
    pub fn new(pages: u64, budget: usize) -> Self {
        Self { is_local: vec![false; pages as usize], order: VecDeque::new(), budget }
    }
}

impl Machine for Fifo {
    fn access(&mut self, page: u64) -> bool {
        if self.is_local[page as usize] {
            return true;
        }
        if self.order.len() == self.budget {
            let victim = self.order.pop_front().expect("the budget is not zero");
            self.is_local[victim as usize] = false;
        }
        self.order.push_back(page);
        self.is_local[page as usize] = true;
        false
    }
}

/// Least recently used, exactly: what a kernel with perfect knowledge of recency would do.
pub struct Lru {
    /// Neighbours in the list of local pages, from the newest; the last element is the list's head.
    newer: Vec<usize>,
    older: Vec<usize>,
    is_local: Vec<bool>,
    local: usize,
    budget: usize,
}

impl Lru {
    pub fn new(pages: u64, budget: usize) -> Self {
        let head = pages as usize;
        Self {
            newer: vec![head; head + 1],
            older: vec![head; head + 1],
            is_local: vec![false; head],
            local: 0,
            budget,
        }
    }

    fn unlink(&mut self, page: usize) {
        let (newer, older) = (self.newer[page], self.older[page]);
        self.older[newer] = older;
        self.newer[older] = newer;
    }
}

impl Machine for Lru {
    fn access(&mut self, page: u64) -> bool {
        let page = page as usize;
        let head = self.is_local.len();
        let is_hit = self.is_local[page];
        if is_hit {
            self.unlink(page);
        } else {
            if self.local == self.budget {
                let victim = self.newer[head];
                self.unlink(victim);
                self.is_local[victim] = false;
                self.local -= 1;
            }
            self.is_local[page] = true;
            self.local += 1;
        }
        let second = self.older[head];
        self.older[head] = page;
        self.newer[page] = head;
        self.older[page] = second;
        self.newer[second] = page;
        is_hit
    }
}

/// CLOCK with the accessed bits that private anonymous memory doesn't have: one more chance for a page that was used
/// since the hand last passed. Pages stand in the order in which they came.
pub struct Clock {
    place_of_page: Vec<usize>,
    places: Vec<(u64, bool)>,
    hand: usize,
    budget: usize,
}

impl Clock {
    pub fn new(pages: u64, budget: usize) -> Self {
        Self { place_of_page: vec![usize::MAX; pages as usize], places: Vec::new(), hand: 0, budget }
    }
}

impl Machine for Clock {
    fn access(&mut self, page: u64) -> bool {
        if let Some((_, is_used)) = self.places.get_mut(self.place_of_page[page as usize]) {
            *is_used = true;
            return true;
        }
        let place = if self.places.len() < self.budget {
            self.places.push((page, false));
            self.places.len() - 1
        } else {
            loop {
                let place = self.hand;
                self.hand = (self.hand + 1) % self.budget;
                let (victim, is_used) = self.places[place];
                if !is_used {
                    self.place_of_page[victim as usize] = usize::MAX;
                    self.places[place] = (page, false);
                    break place;
                }
                self.places[place].1 = false;
            }
        };
        self.place_of_page[page as usize] = place;
        false
    }
}

/// A fixed set of pages that is always local, and one frame for all others. With the most popular pages as the set this is
/// the best that anything can do when accesses are drawn independently.
pub struct Fixed {
    is_local: Vec<bool>,
    guest: u64,
}

impl Fixed {
    /// Keeps the pages that `trace` uses most.
    pub fn most_popular(pages: u64, budget: usize, trace: &[u64]) -> Self {
        let mut uses = vec![0_u64; pages as usize];
        trace.iter().for_each(|&page| uses[page as usize] += 1);
        let mut order: Vec<usize> = (0..pages as usize).collect();
        order.sort_by_key(|&page| std::cmp::Reverse(uses[page]));
        let mut is_local = vec![false; pages as usize];
        order.iter().take(budget - 1).for_each(|&page| is_local[page] = true);
        Self { is_local, guest: u64::MAX }
    }
}

impl Machine for Fixed {
    fn access(&mut self, page: u64) -> bool {
        let is_hit = self.is_local[page as usize] || self.guest == page;
        if !is_hit {
            self.guest = page;
        }
        is_hit
    }
}

/// The pager's way: words of pages, a hand that walks windows of neighbours, a policy that sees no use of a local page.
pub struct Pager<P> {
    pub policy: P,
    words: Vec<PageWord>,
    is_local: Vec<bool>,
    was_seen: Vec<bool>,
    local: usize,
    budget: usize,
    hand: usize,
    /// Resident pages that the hand looked at.
    pub visits: u64,
    /// Pages that left.
    pub evictions: u64,
    /// Runs of neighbours that left together: each costs one flush of the other processors' TLBs.
    pub runs: u64,
    /// Most visits that it took to find one batch.
    pub most_visits: u64,
}

/// Pages that leave together.
const BATCH: usize = 64;

impl<P: VictimPolicy> Pager<P> {
    pub fn new(policy: P, pages: u64, budget: usize) -> Self {
        let pages = pages as usize;
        Self {
            policy,
            words: vec![PageWord::default(); pages],
            is_local: vec![false; pages],
            was_seen: vec![false; pages],
            local: 0,
            budget,
            hand: 0,
            visits: 0,
            evictions: 0,
            runs: 0,
            most_visits: 0,
        }
    }

    pub fn visits_per_eviction(&self) -> f64 {
        self.visits as f64 / self.evictions.max(1) as f64
    }

    /// Lets a batch of pages go.
    fn reclaim(&mut self) {
        let before = (self.visits, self.evictions);
        let mut last = usize::MAX - 1;
        while self.evictions - before.1 < BATCH as u64 {
            let page = self.hand;
            self.hand = (self.hand + 1) % self.words.len();
            if !self.is_local[page] {
                continue;
            }
            self.visits += 1;
            match self.policy.visit(self.words[page]) {
                Verdict::Keep(word) => self.words[page] = word,
                Verdict::Evict => {
                    self.words[page] = self.policy.on_evict(self.words[page]);
                    self.is_local[page] = false;
                    self.local -= 1;
                    self.evictions += 1;
                    self.policy.on_evicted(PageCount::new(1));
                    self.runs += (page != last.wrapping_add(1)) as u64;
                    last = page;
                }
            }
        }
        self.most_visits = self.most_visits.max(self.visits - before.0);
    }
}

impl<P: VictimPolicy> Machine for Pager<P> {
    fn access(&mut self, page: u64) -> bool {
        let page = page as usize;
        if self.is_local[page] {
            return true;
        }
        if self.local == self.budget {
            self.reclaim();
        }
        let word = self.words[page];
        let is_first = !std::mem::replace(&mut self.was_seen[page], true);
        self.words[page] =
            if is_first { self.policy.on_first_touch(word) } else { self.policy.on_refault(word) };
        self.is_local[page] = true;
        self.local += 1;
        false
    }
}
