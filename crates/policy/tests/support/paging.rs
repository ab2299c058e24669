//! Machines that page: which accesses hit local memory under several ways to choose victims.

use std::collections::VecDeque;

use farmem_page::{ByteCount, PageCount, PageWord, Place, SlabIndex, SlotIndex, SlotPlace};
use farmem_policy::{Partition, Reservations, Verdict, VictimPolicy};

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

/// CLOCK with the accessed bits that private anonymous memory doesn't have: one more chance for a page that
/// was used since the hand last passed. Pages stand in the order in which they came.
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

/// A fixed set of pages that is always local, and one frame for all others. With the most popular pages as
/// the set this is the best that anything can do when accesses are drawn independently.
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

/// The pager's way: words of pages, a hand that walks windows of neighbours, a policy that sees no use of a
/// local page.
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
    pub far: Far,
}

/// Pages that leave together.
const BATCH: usize = 64;
/// Pages that one round of the scan for reservations looks at; a round follows each batch.
const SCANNED: usize = 512;

/// Far memory in which every page takes an entry of one byte.
#[derive(Default)]
pub struct Far {
    /// Entries that there may be.
    limit: u64,
    /// Entries that there are, and the most that there were.
    pub stored: u64,
    pub most_stored: u64,
    reservations: Reservations,
    hand: usize,
    /// Pages stored in a new entry, and in the one that they had kept.
    pub allocated: u64,
    pub kept: u64,
    /// Reservations given back.
    pub released: u64,
    /// Pages that could not leave because there was no entry for them.
    pub refused: u64,
    refused_before: u64,
}

impl Far {
    /// Stores a page; its word afterwards, `None` without room.
    fn store(&mut self, word: PageWord) -> Option<PageWord> {
        if word.place().is_some() {
            self.kept += 1;
        } else if self.stored == self.limit {
            self.refused += 1;
            return None;
        } else {
            self.allocated += 1;
            self.stored += 1;
            self.most_stored = self.most_stored.max(self.stored);
        }
        Some(word.with_place(Some(entry())).with_far(true))
    }

    /// A round of the scan.
    fn release(&mut self, policy: &impl VictimPolicy, words: &mut [PageWord]) {
        let partition = Partition {
            stored: ByteCount::new(self.stored),
            stored_pages: PageCount::new(self.stored),
            limit: ByteCount::new(self.limit),
        };
        let is_refusing = self.refused > self.refused_before;
        self.refused_before = self.refused;
        let pressure = partition.pressure(is_refusing);
        let mut wanted = if is_refusing { BATCH as u64 } else { partition.surplus().get() };
        for _ in 0..SCANNED {
            if wanted == 0 {
                return;
            }
            if self.hand == 0 {
                self.reservations.begin_scan(policy.now());
            }
            let page = self.hand;
            self.hand = (self.hand + 1) % words.len();
            if self.reservations.gives_back(policy, pressure, words[page]) {
                words[page] = words[page].with_place(None);
                self.stored -= 1;
                self.released += 1;
                wanted -= 1;
            }
        }
    }
}

/// Which entry a page has makes no difference here.
fn entry() -> Place {
    let (slab, slot) = (SlabIndex::new(0), SlotIndex::new(0));
    Place::Slot(SlotPlace { slab: slab.expect("0 is a slab"), slot: slot.expect("0 is a slot") })
}

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
            far: Far { limit: u64::MAX, ..Far::default() },
        }
    }

    /// The same with far memory for so many pages only.
    pub fn within(mut self, entries: u64) -> Self {
        self.far.limit = entries;
        self
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
                    let Some(stored) = self.far.store(self.words[page]) else {
                        self.far.release(&self.policy, &mut self.words);
                        continue;
                    };
                    self.words[page] = self.policy.on_evict(stored);
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
        self.far.release(&self.policy, &mut self.words);
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
        let word = self.words[page].with_far(false);
        let is_first = !std::mem::replace(&mut self.was_seen[page], true);
        self.words[page] =
            if is_first { self.policy.on_first_touch(word) } else { self.policy.on_refault(word) };
        self.is_local[page] = true;
        self.local += 1;
        false
    }
}
