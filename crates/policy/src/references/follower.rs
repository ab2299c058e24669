//! What is known of one thread: when to learn, when and how far to walk, and whether it was of any use.
//!
//! A walk ends at a page that it would have fetched next. If that is where the thread faults next, the
//! program came through all that was fetched, and the next walk may be twice as long; if it faults elsewhere,
//! nothing of it counts as used, and the next one is half as long. A walk that ends where the references do
//! (the end of a chain) can't be judged so. After a few of these the next one is *dry*: it fetches nothing,
//! and is judged by the first page that it would have fetched.
//!
//! An object may reach over the edge of its page, or be larger than one. A fault on the page right behind one
//! that the walk came through is such a rest: it says nothing of where the program goes next, and the
//! judgement waits for the fault after it.
//!
//! Pages of memory nodes are on their way for a while, and the program may fault on them before they are
//! there: then the walk has led there, and the next one goes on from there, past those that are under way. A
//! walk along links ends with the first page whose content it has to wait for. If that comes in time, nothing
//! is known of the walk.
//!
//! Pages are paid from an [`Account`] of their kind; while both are empty the thread costs next to nothing. A
//! thread whose faults no word explains rests, so that programs without references cost next to nothing, too.

use farmem_page::{PAGE_BYTES, PageBytes, PageIndex, VirtAddr};

use super::account::{Account, Cost};
use super::links::{Compression, Links, Surroundings, Way};
use super::sweep::{Explained, Pages, Sweep};
use super::walk::{Branches, End, MOST_PAGES, Walk, Walked};

/// Faults in a row at which tier 1 has fetched nothing ahead before this tier begins (Canvas §5.2).
const SILENT_FAULTS: u32 = 3;
/// Addresses whose surroundings are remembered. The reference to a second child of a tree's node was not seen
/// at the last fault but the one before.
const HISTORY: usize = 2;
/// Faults in a row that nothing explains before the thread rests, and for how many.
const FRUITLESS_FAULTS: u32 = 32;
const REST_FAULTS: u32 = 512;
/// After so many of them a fault at the very beginning of a page ends a rest, for so many faults: an array's
/// next page may have come, whose words explain what follows. The part of faults that is looked at stays the
/// same, whatever the addresses are.
const REST_LEAST_FAULTS: u32 = 128;
const GLANCE_FAULTS: u32 = 8;
/// Within so many faults a program comes to where a walk through an array has ended, if it comes there.
const PATIENCE: u32 = 4;
/// Pages of an array to which a link leads, as far as known: fewer than most arrays have, so that the next
/// one shows whether the program goes there.
const LINKED_PAGES: usize = 4;
/// Faults that go by unseen when there is no time for looking at them.
const PAUSE_FAULTS: u32 = 64;
/// Looks that follow each other once there is time for one. A word that leads on is found when the fault
/// behind it is looked at, too: single looks with pauses between them would never find any.
const LOOKS_IN_A_ROW: u32 = 8;
/// A program that reads on over the edge of a page touches one of these first.
const EDGE_BYTES: u64 = 64;

/// Pages that came ahead, and whether they have been used as far as known.
#[derive(Clone, Copy, Debug)]
pub struct Settled {
    pages: [PageIndex; MOST_PAGES],
    count: usize,
    /// Whether the program has used them; `None` where that can't be told.
    pub is_used: Option<bool>,
    /// Whether the walk was worth its time, for all that is known.
    pub is_worthwhile: bool,
    /// What it took to find and fetch them, as [`Follower::took`] was told.
    pub took_ns: u64,
}

impl Settled {
    /// The pages.
    pub fn pages(&self) -> &[PageIndex] {
        &self.pages[..self.count]
    }
}

/// Follows the references that one thread follows. Some two kilobytes in addition to what it is given, and no
/// allocation. Not synchronised.
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
    /// Of walks along links, and of those through arrays.
    link_account: Account,
    run_account: Account,
    past: Option<Past>,
    trial: Option<Trial>,
    branches: Branches,
    /// How the thread came to where it has faulted.
    way: Way,
    /// The last fault was on the rest of an object.
    is_rest: bool,
    /// Faults left until there may be time for walks again.
    pause: u32,
    /// Looks left of a row that has begun.
    looks: u32,
}

/// The last walk.
#[derive(Clone, Copy, Debug)]
struct Past {
    settled: Settled,
    taken: super::links::Taken,
    is_run: bool,
    /// Whether an element of the array had led to where it began.
    is_explained: bool,
    end: Option<End>,
    is_dry: bool,
    /// The page that it began at.
    start: PageIndex,
    /// Rests of objects that may still turn up before it is judged.
    rests_left: u32,
}

/// A walk through an array of which isn't known yet whether it has led where the program goes.
#[derive(Clone, Copy, Debug)]
struct Trial {
    past: Past,
    faults_left: u32,
}

impl Past {
    /// Whether `address` is in the rest of an object on the way, but not through an array, which goes on
    /// there: on the page right behind one that was fetched, or, as the walk may have come over local ones,
    /// at the very beginning of any.
    fn is_rest(&self, address: VirtAddr) -> bool {
        let page = address.page();
        let mut way = [self.start].into_iter().chain(self.settled.pages().iter().copied());
        let is_behind = way.any(|before| before.get() + 1 == page.get())
            || address.get() % (PAGE_BYTES as u64) < EDGE_BYTES;
        !self.has_led_to(page) && self.rests_left > 0 && is_behind && !self.is_run
    }

    /// Whether it has led to `page`: that would have been fetched next, or it is on its way still.
    fn has_led_to(&self, page: PageIndex) -> bool {
        self.expected() == Some(page) || self.settled.pages().contains(&page)
    }

    fn expected(&self) -> Option<PageIndex> {
        self.end.and_then(End::expected)
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
            link_account: Account::new(),
            run_account: Account::new(),
            past: None,
            trial: None,
            branches: Branches::new(),
            way: Way::UNKNOWN,
            is_rest: false,
            pause: 0,
            looks: 0,
        }
    }

    /// From now on of `thread`. What another one has taught it may do for this one: threads of a process run
    /// the same code.
    pub fn attend(&mut self, thread: u32) {
        if self.thread != thread {
            self.thread = thread;
            self.lose_track();
            self.sweep.lose_track();
            self.silent = 0;
        }
    }

    /// Whether that thread is the one that is followed.
    pub fn attends(&self, thread: u32) -> bool {
        self.thread == thread
    }

    /// From now on references of four bytes are understood so.
    pub fn understand(&mut self, compression: Option<Compression>) {
        self.links.understand(compression);
    }

    /// Whether it will look for what explains a fault at `address`. Else that takes next to no time. At the
    /// beginning of a row of looks `has_time` is asked; where there is no time, the next faults are used for
    /// judging the last walk, and for nothing else.
    pub fn looks_at(&mut self, address: VirtAddr, has_time: impl FnOnce() -> bool) -> bool {
        if !self.is_awake(address) {
            return false;
        }
        if self.looks == 0 {
            if !has_time() {
                self.pause = PAUSE_FAULTS;
                return false;
            }
            self.looks = LOOKS_IN_A_ROW;
        }
        self.looks -= 1;
        true
    }

    fn is_awake(&self, address: VirtAddr) -> bool {
        let rest = self.rest.saturating_sub(1);
        let is_listening = self.silent + 1 >= SILENT_FAULTS && self.pause <= 1;
        is_listening && (rest == 0 || ends_rest(address, rest)) && self.can_pay_in(1)
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

    /// The thread has faulted at `address`, a page that is stored, and tier 1 has fetched nothing ahead:
    /// learns from it. What is known now of pages that came ahead.
    pub fn on_fault(&mut self, address: VirtAddr) -> Option<Settled> {
        self.silent = (self.silent + 1).min(SILENT_FAULTS);
        self.link_account.grow();
        self.run_account.grow();
        self.pause = self.pause.saturating_sub(1);
        self.rest = self.rest.saturating_sub(1);
        if ends_rest(address, self.rest) {
            self.rest = 0;
            self.fruitless = FRUITLESS_FAULTS - GLANCE_FAULTS;
        }
        if self.past.is_none() && self.trial.is_none() && !self.is_learning() {
            // Nothing to judge, and nothing to learn: as a rule where nothing can be predicted.
            self.is_rest = false;
            self.swept = Explained::Not;
            self.way = Way::UNKNOWN;
            self.branches.clear();
            return None;
        }
        self.is_rest = self.past.is_some_and(|past| past.is_rest(address));
        if self.is_rest {
            self.past = self.past.map(|past| Past { rests_left: past.rests_left - 1, ..past });
            return None;
        }
        self.try_on(address.page());
        let is_learning = self.is_learning();
        let past = self.past.take();
        // The program may come to an awaited page before it is there, or after that without a fault.
        let met = past.and_then(|past| past.end).and_then(|end| end.way_to(address.page()));
        let compression = self.links.compression();
        self.swept = if is_learning { self.sweep.learn(address, compression) } else { Explained::Not };
        self.way = match met {
            Some(way) => way,
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
        if met.is_none() {
            self.branches.clear();
        }
        let mut past = past?;
        let has_led = past.has_led_to(address.page());
        if let Some(at) = past.settled.pages().iter().position(|&page| page == address.page()) {
            // Nothing is known yet of those behind it.
            past.settled.count = at + 1;
        }
        self.judge(past, (has_led || past.expected().is_some()).then_some(has_led))
    }

    /// The thread has faulted on `page`: whether the walk on trial has led there.
    fn try_on(&mut self, page: PageIndex) {
        let Some(mut trial) = self.trial.take() else { return };
        trial.faults_left -= 1;
        let has_led = trial.past.has_led_to(page);
        if has_led || trial.faults_left == 0 {
            self.account(trial.past, Some(has_led));
        } else {
            self.trial = Some(trial);
        }
    }

    /// `has_led`: whether the walk led where the program went, if that can be told.
    fn judge(&mut self, past: Past, has_led: Option<bool>) -> Option<Settled> {
        // A program that reads an array reads other things as well: it may come to the page a little later.
        let is_open = past.is_run && has_led == Some(false);
        let is_used = has_led.filter(|_| !is_open);
        let is_worthwhile = if is_open && self.trial.is_none() {
            self.trial = Some(Trial { past, faults_left: PATIENCE });
            false
        } else {
            self.account(past, is_used)
        };
        let settled = Settled { is_used, is_worthwhile, ..past.settled };
        (settled.count > 0).then_some(settled)
    }

    /// Draws the conclusions from a walk. Whether it was worth its time, for all that is known.
    fn account(&mut self, past: Past, has_led: Option<bool>) -> bool {
        let account = if past.is_explained { &mut self.run_account } else { &mut self.link_account };
        let cost = Cost { pages: past.settled.count as u32, is_dry: past.is_dry };
        if let Some(has_led) = has_led {
            self.links.settle(past.taken, has_led);
            if past.is_explained {
                self.sweep.settle(has_led);
            }
        }
        account.judge(cost, has_led)
    }

    fn can_pay_in(&self, faults: i32) -> bool {
        self.link_account.is_enough_in(faults) || self.run_account.is_enough_in(faults)
    }

    fn is_learning(&self) -> bool {
        self.pause == 0 && self.silent == SILENT_FAULTS && self.rest == 0 && self.can_pay_in(0)
    }

    /// Whether the thread is in an array that is worth to be followed.
    fn is_in_array(&self) -> bool {
        matches!(self.swept, Explained::Elsewhere | Explained::Onward) && self.sweep.is_trusted()
    }

    /// Pages that a walk from where the thread has faulted may fetch, at most. `None` for no walk: then
    /// nothing is to be told of the page either.
    pub fn reach(&self) -> Option<u32> {
        if !self.is_learning() || self.is_rest {
            return None;
        }
        let is_known = self.links.are_trusted() || self.sweep.is_trusted();
        let account = if self.is_in_array() { &self.run_account } else { &self.link_account };
        Some(if is_known { account.most() } else { 0 })
    }

    /// A walk from `address`, where the thread has faulted and whose page holds `content`. It fetches up to
    /// `most` pages.
    pub fn walk(&mut self, address: VirtAddr, content: &PageBytes, most: u32) -> Walk<'_> {
        self.sweep.touched(address, content);
        let mut walk = Walk::new(&self.links, address, self.way, self.branches, most as usize);
        let compression = self.links.compression();
        if self.is_in_array() {
            walk.run(self.sweep.run(compression), MOST_PAGES);
            return walk;
        }
        if self.links.are_trusted() {
            walk.arrive(content);
        }
        if let Some(place) = walk.first_place() {
            // A link may lead to an array's first element.
            walk.run(self.sweep.run_behind(place, compression), LINKED_PAGES);
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
        if walked.count == 0 && walked.end.and_then(End::expected).is_none() {
            return;
        }
        let settled = Settled {
            pages: walked.pages,
            count: walked.count,
            is_used: None,
            is_worthwhile: false,
            took_ns: 0,
        };
        self.past = Some(Past {
            settled,
            taken: walked.taken,
            is_run: walked.is_run,
            is_explained: self.is_in_array(),
            end: walked.end,
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
        // Nothing will be known of it.
        self.trial = None;
        let is_awaited = |end: &End| end.expected().is_none();
        self.past = self.past.map(|past| Past { end: past.end.filter(is_awaited), rests_left: 0, ..past });
        self.branches.clear();
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
