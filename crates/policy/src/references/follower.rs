//! What is known of one thread: when to learn, when and how far to walk, and whether it was of any use.
//!
//! A walk ends at a page that it would have fetched next. If that is where the thread faults next, the program came through all that was fetched,
//! and the next walk may be twice as long; if it faults elsewhere, nothing of it counts as used, and the next one is half as long. A walk
//! that ends where the references do (the end of a chain) can't be judged so. After a few of these the next one is *dry*: it
//! fetches nothing, and is judged by the first page that it would have fetched.
//!
//! An object may reach over the edge of its page, or be larger than one. A fault on the page right behind one that the walk came through is such a rest: it says nothing of
//! where the program goes next, and the judgement waits for the fault after it.
//!
//! Pages are paid from an *allowance*, as trials of [`Streams`](crate::Streams) are: pages that were of no use use it up, those that were used
//! replenish it, and while there is none the thread costs nothing but a page in [`FAULTS_PER_PAGE`] faults. A thread whose faults no word
//! explains rests, so that programs without references cost next to nothing.

use farmem_page::{PAGE_BYTES, PageBytes, PageIndex, VirtAddr};

use super::links::{Compression, Links, Surroundings, Way};
use super::sweep::{Explained, Pages, Sweep};
use super::walk::{Branches, MOST_PAGES, Walk, Walked};

/// Faults in a row at which tier 1 has fetched nothing ahead before this tier begins (Canvas §5.2).
const SILENT_FAULTS: u32 = 3;
/// Addresses whose surroundings are remembered. The reference to a second child of a tree's node was not seen at the last fault but the one before.
const HISTORY: usize = 2;
/// Pages of a first walk.
const FIRST_PAGES: u32 = 2;
/// The allowance grows by a page in so many faults, up to what it was at the start, and with what was used up to its limit.
const FAULTS_PER_PAGE: i32 = 256;
const ALLOWANCE_START: i32 = 32 * FAULTS_PER_PAGE;
const ALLOWANCE_LIMIT: i32 = 128 * FAULTS_PER_PAGE;
/// Walks in a row that nothing was known of before one is dry.
const UNJUDGED_WALKS: u32 = 7;
/// Faults in a row that nothing explains before the thread rests, and for how many.
const FRUITLESS_FAULTS: u32 = 32;
const REST_FAULTS: u32 = 512;
/// After so many of them a fault at the very beginning of a page ends a rest, for so many faults: an array's next page may have come, whose words explain what follows. The part of
/// faults that is looked at stays the same, whatever the addresses are.
const REST_LEAST_FAULTS: u32 = 128;
const GLANCE_FAULTS: u32 = 8;
/// Faults that go by unseen when there is no time for looking at them.
const PAUSE_FAULTS: u32 = 64;
/// Who reads on over the edge of a page touches one of these first.
const EDGE_BYTES: u64 = 64;

/// Pages that came ahead, and whether they have been used as far as known.
#[derive(Clone, Copy, Debug)]
pub struct Settled {
    pages: [PageIndex; MOST_PAGES],
    count: usize,
    /// Whether the program has used them.
    pub is_used: bool,
    /// What it took to find and fetch them, as [`Follower::took`] was told.
    pub took_ns: u64,
}

impl Settled {
    /// The pages.
    pub fn pages(&self) -> &[PageIndex] {
        &self.pages[..self.count]
    }
}

/// Follows the references that one thread follows. Some two kilobytes beside what it is given, no allocation. Not synchronised.
#[derive(Debug)]
pub struct Follower {
    thread: u32,
    links: Links,
    sweep: Sweep,
    /// Whether a word of an array explains the fault.
    swept: Explained,
    history: [Option<Surroundings>; HISTORY],
    /// Faults in a row without a word of tier 1, up to [`SILENT_FAULTS`].
    silent: u32,
    /// Faults in a row that nothing explained.
    fruitless: u32,
    /// Faults left to rest for.
    rest: u32,
    /// Pages of the next walk.
    pages: u32,
    /// In parts of a page, [`FAULTS_PER_PAGE`] of them.
    allowance: i32,
    past: Option<Past>,
    branches: Branches,
    /// Walks in a row that nothing is known of, and what they fetched.
    unjudged: u32,
    unjudged_pages: u32,
    /// Whether the last walk that could be judged had led where the program went.
    is_proven: bool,
    /// How the thread came to where it has faulted.
    way: Way,
    /// The last fault was on the rest of an object.
    is_rest: bool,
    /// Faults left until there may be time for walks again.
    pause: u32,
}

/// The last walk.
#[derive(Clone, Copy, Debug)]
struct Past {
    settled: Settled,
    taken: super::links::Taken,
    is_run: bool,
    expected: Option<(PageIndex, Way)>,
    is_dry: bool,
    /// The page that it began at.
    start: PageIndex,
    /// Rests of objects that may still turn up before it is judged.
    rests_left: u32,
}

impl Past {
    /// Whether `address` is in the rest of an object on the way, but not through an array, which goes on there: on the page right behind one that was fetched, or, as the walk may have come over local ones, at the
    /// very beginning of any.
    fn is_rest(&self, address: VirtAddr) -> bool {
        let page = address.page();
        let is_expected = self.expected.is_some_and(|(expected, _)| expected == page);
        let mut way = [self.start].into_iter().chain(self.settled.pages().iter().copied());
        let is_behind = way.any(|before| before.get() + 1 == page.get())
            || address.get() % (PAGE_BYTES as u64) < EDGE_BYTES;
        !is_expected && self.rests_left > 0 && is_behind && !self.is_run
    }
}

impl Follower {
    /// Knows nothing yet. `pages` is memory to keep what pages hold.
    pub fn new(pages: &'static mut Pages) -> Self {
        Self {
            thread: 0,
            links: Links::new(),
            sweep: Sweep::new(pages),
            swept: Explained::Not,
            history: [None; HISTORY],
            silent: 0,
            fruitless: 0,
            rest: 0,
            pages: FIRST_PAGES,
            allowance: ALLOWANCE_START,
            past: None,
            branches: Branches::new(),
            unjudged: 0,
            unjudged_pages: 0,
            is_proven: false,
            way: Way::UNKNOWN,
            is_rest: false,
            pause: 0,
        }
    }

    /// From now on of `thread`. What another one has taught it may do for this one: threads of a process run the same code.
    pub fn attend(&mut self, thread: u32) {
        if self.thread != thread {
            self.thread = thread;
            self.lose_track();
            self.sweep.lose_track();
            self.silent = 0;
        }
    }

    /// From now on references of four bytes are understood so.
    pub fn understand(&mut self, compression: Option<Compression>) {
        self.links.understand(compression);
    }

    /// Whether it would look for what explains a fault at `address`. Else that takes next to no time.
    pub fn is_awake(&self, address: VirtAddr) -> bool {
        let rest = self.rest.saturating_sub(1);
        let is_listening = self.silent + 1 >= SILENT_FAULTS && self.pause <= 1;
        is_listening && (rest == 0 || ends_rest(address, rest)) && self.allowance >= FAULTS_PER_PAGE - 1
    }

    /// There is no time: the next faults are used for judging the last walk, and for nothing else.
    pub fn pause(&mut self) {
        self.pause = PAUSE_FAULTS;
    }

    /// What the last walk took, if one has begun, the look at its fault included.
    pub fn took(&mut self, took_ns: u64) {
        if let Some(past) = &mut self.past {
            past.settled.took_ns = took_ns;
        }
    }

    /// The thread has faulted on `page`, and tier 1 knows what comes next.
    pub fn on_stream(&mut self, page: PageIndex) {
        self.silent = 0;
        self.lose_track();
        self.sweep.reads_on(page);
        // What is read in order may be references, which explain the faults to come.
        (self.rest, self.fruitless) = (0, 0);
    }

    /// The thread has faulted at `address`, a page that is stored, and tier 1 has fetched nothing ahead: learns from it. What is known now of
    /// pages that came ahead.
    pub fn on_fault(&mut self, address: VirtAddr) -> Option<Settled> {
        self.silent = (self.silent + 1).min(SILENT_FAULTS);
        if self.allowance < ALLOWANCE_START {
            self.allowance += 1;
        }
        self.pause = self.pause.saturating_sub(1);
        self.rest = self.rest.saturating_sub(1);
        if ends_rest(address, self.rest) {
            self.rest = 0;
            self.fruitless = FRUITLESS_FAULTS - GLANCE_FAULTS;
        }
        self.is_rest = self.past.is_some_and(|past| past.is_rest(address));
        if self.is_rest {
            self.past = self.past.map(|past| Past { rests_left: past.rests_left - 1, ..past });
            return None;
        }
        let is_learning = self.is_learning();
        let past = self.past.take();
        let expected = past.and_then(|past| past.expected);
        let is_met = expected.filter(|&(page, _)| page == address.page());
        let compression = self.links.compression();
        self.swept = if is_learning { self.sweep.learn(address, compression) } else { Explained::Not };
        self.way = match is_met {
            Some((_, way)) => way,
            // An element of an array is no link: the next one lies elsewhere.
            None if self.swept == Explained::Onward => Way::UNKNOWN,
            None if is_learning => self.links.learn(self.history.iter().flatten(), address),
            None => Way::UNKNOWN,
        };
        if self.way != Way::UNKNOWN || self.swept != Explained::Not || past.is_some() {
            self.fruitless = 0;
        } else if is_learning {
            self.fruitless += 1;
            if self.fruitless >= FRUITLESS_FAULTS {
                self.fruitless = 0;
                self.rest = REST_FAULTS;
                self.history = [None; HISTORY];
            }
        }
        if is_met.is_none() {
            self.branches = Branches::new();
        }
        self.judge(past?, expected.map(|_| is_met.is_some()))
    }

    /// `has_led`: whether the walk led where the program went, if that can be told.
    fn judge(&mut self, past: Past, has_led: Option<bool>) -> Option<Settled> {
        // Beside an array a program reads other things.
        let has_led = has_led.filter(|&has_led| has_led || !past.is_run);
        let fetched = past.settled.count as i32 * FAULTS_PER_PAGE;
        let owed = self.unjudged_pages as i32 * FAULTS_PER_PAGE;
        let is_used = match has_led {
            None => {
                self.unjudged += 1;
                self.unjudged_pages += past.settled.count as u32;
                self.is_proven.then_some(true)
            }
            Some(true) => {
                let earned = if past.is_dry { owed.max(FAULTS_PER_PAGE) } else { fetched };
                self.allowance = (self.allowance + earned).min(ALLOWANCE_LIMIT);
                if !past.is_dry {
                    self.pages = (self.pages * 2).min(MOST_PAGES as u32);
                }
                Some(true)
            }
            Some(false) => {
                self.allowance = (self.allowance - if past.is_dry { owed } else { fetched }).max(0);
                self.pages = (self.pages / 2).max(1);
                Some(false)
            }
        };
        if let Some(has_led) = has_led {
            (self.unjudged, self.unjudged_pages) = (0, 0);
            self.is_proven = has_led;
            self.links.settle(past.taken, has_led);
            if past.is_run {
                self.sweep.settle(has_led);
            }
        }
        let mut settled = past.settled;
        settled.is_used = is_used?;
        (settled.count > 0).then_some(settled)
    }

    fn is_learning(&self) -> bool {
        self.pause == 0 && self.silent == SILENT_FAULTS && self.rest == 0 && self.allowance >= FAULTS_PER_PAGE
    }

    fn is_dry(&self) -> bool {
        self.unjudged >= UNJUDGED_WALKS
    }

    /// Pages that a walk from where the thread has faulted may fetch, at most. `None` for no walk: then nothing is to be told of the page either.
    pub fn reach(&self) -> Option<u32> {
        if !self.is_learning() || self.is_rest {
            return None;
        }
        let affordable = (self.allowance / FAULTS_PER_PAGE) as u32;
        let is_known = self.links.are_trusted() || self.sweep.is_trusted();
        let is_walking = is_known && !self.is_dry();
        Some(if is_walking { self.pages.min(affordable) } else { 0 })
    }

    /// A walk from `address`, where the thread has faulted and whose page holds `content`. It fetches up to `most` pages.
    pub fn walk(&mut self, address: VirtAddr, content: &PageBytes, most: u32) -> Walk<'_> {
        self.sweep.touched(address.page(), content);
        let mut walk = Walk::new(&self.links, address, self.way, self.branches, most as usize);
        let compression = self.links.compression();
        if self.swept != Explained::Not && self.sweep.is_trusted() {
            walk.run(self.sweep.run(compression));
            return walk;
        }
        if self.links.are_trusted() {
            walk.arrive(content);
        }
        if let Some(place) = walk.first_place() {
            // A link may lead to an array's first element.
            walk.run(self.sweep.run_behind(place, compression));
        }
        walk
    }

    /// What came of it. `address` and `content` are those with which it began.
    pub fn walked(&mut self, address: VirtAddr, content: &PageBytes, walked: Walked) {
        let start = Surroundings::new(address, self.way, content);
        if self.swept != Explained::Onward {
            self.history = match walked.last {
                Some(last) if walked.count > 0 => [Some(last), Some(start)],
                _ => [Some(start), self.history[0]],
            };
        }
        if walked.is_run {
            self.sweep.begin();
        }
        self.branches = walked.branches;
        if walked.count == 0 && walked.expected.is_none() {
            return;
        }
        let settled = Settled { pages: walked.pages, count: walked.count, is_used: false, took_ns: 0 };
        self.past = Some(Past {
            settled,
            taken: walked.taken,
            is_run: walked.is_run,
            expected: walked.expected,
            is_dry: walked.count == 0,
            start: address.page(),
            rests_left: 1 + MOST_PAGES as u32,
        });
    }

    /// A page whose words it would like to know, if that costs nothing but time: [`Follower::show`].
    pub fn wanted(&mut self) -> Option<PageIndex> {
        self.sweep.wanted()
    }

    /// `page` holds, or held, `content`.
    pub fn show(&mut self, page: PageIndex, content: &PageBytes) {
        self.sweep.show(page, content);
    }

    /// Pages that came ahead and are not settled.
    pub fn unsettled_pages(&self) -> u32 {
        self.past.map_or(0, |past| past.settled.count as u32)
    }

    fn lose_track(&mut self) {
        self.history = [None; HISTORY];
        self.past = None;
        self.branches = Branches::new();
    }
}

/// Whether a fault at `address` ends a rest of which so many faults are left.
fn ends_rest(address: VirtAddr, rest: u32) -> bool {
    let is_edge = address.get() % (PAGE_BYTES as u64) < EDGE_BYTES;
    is_edge && (1..=REST_FAULTS - REST_LEAST_FAULTS).contains(&rest)
}

const _: () = assert!(
    GLANCE_FAULTS * (FRUITLESS_FAULTS + REST_FAULTS)
        <= FRUITLESS_FAULTS * (GLANCE_FAULTS + REST_LEAST_FAULTS),
    "glances are no larger a part of faults than looks"
);
