//! From one address to the next, as far as the words lead.
//!
//! In the order in which a program that visits everything goes: from an object to the first one that it
//! refers to, and what that refers to, before the second. A list has no other order; in a tree it is that of
//! a search in depth.

use farmem_page::{PageBytes, PageIndex, VirtAddr};

use super::links::{Links, Surroundings, Taken, Way};
use super::sweep::Run;

/// Pages that one walk fetches at most.
pub const MOST_PAGES: usize = 16;
/// Addresses to go on from that are remembered. Those beyond are forgotten: they would come last.
const BRANCHES: usize = 32;
/// Addresses that a walk comes to at most, for each page that it may fetch and at least: many may lie on
/// pages that are local.
const VISITS_PER_PAGE: u32 = 3;
const LEAST_VISITS: u32 = 8;
/// Elements of an array cost less: nothing is read of their pages.
const ELEMENTS_PER_PAGE: u32 = 8;

/// An address that the program may come to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Branch {
    address: VirtAddr,
    way: Way,
    /// Whence: the way to there, and the link.
    from: Option<(Way, usize)>,
}

/// Where a program may go on, the likeliest last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Branches {
    entries: [Option<Branch>; BRANCHES],
    count: usize,
}

impl Branches {
    pub(super) const fn new() -> Self {
        Self { entries: [None; BRANCHES], count: 0 }
    }

    /// Forgets them. What they were is left where it lies: a thread whose faults nothing explains comes here
    /// with each of them.
    pub(super) const fn clear(&mut self) {
        self.count = 0;
    }

    fn push(&mut self, branch: Branch) {
        if let Some(entry) = self.entries.get_mut(self.count) {
            *entry = Some(branch);
            self.count += 1;
        }
    }

    fn pop(&mut self) -> Option<Branch> {
        self.count = self.count.checked_sub(1)?;
        self.entries[self.count].take()
    }
}

/// A walk under way. [`Walk::step`] names an address; the caller finds its page, and answers with
/// [`Walk::fetch`], [`Walk::arrive`], both, or neither.
#[derive(Debug)]
pub struct Walk<'a> {
    links: &'a Links,
    most: usize,
    visits_left: u32,
    at: Branch,
    /// The elements of an array, which are gone through instead of links, and how many pages may come with
    /// them.
    run: Option<Run<'a>>,
    run_most: usize,
    walked: Walked,
}

/// The page with which a walk ended, and how the program comes there.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// It would have been fetched next.
    Expected(PageIndex, Way),
    /// It is on its way.
    Awaited(PageIndex, Way),
}

impl End {
    /// How the program has come to `page`, if that is the one.
    pub(super) fn way_to(self, page: PageIndex) -> Option<Way> {
        let (Self::Expected(at, way) | Self::Awaited(at, way)) = self;
        (at == page).then_some(way)
    }

    /// The page that would have been fetched next, if that is known.
    pub(super) fn expected(self) -> Option<PageIndex> {
        match self {
            Self::Expected(page, _) => Some(page),
            Self::Awaited(..) => None,
        }
    }
}

/// A walk that is over.
#[derive(Debug)]
pub struct Walked {
    pub(super) pages: [PageIndex; MOST_PAGES],
    pub(super) count: usize,
    /// Whether it went through an array.
    pub(super) is_run: bool,
    pub(super) taken: Taken,
    /// `None` if it isn't known where the walk went on.
    pub(super) end: Option<End>,
    /// What was left for later.
    pub(super) branches: Branches,
    /// The surroundings of the address that it came to last.
    pub(super) last: Option<Surroundings>,
}

impl<'a> Walk<'a> {
    /// From `address`, to which the program came by `way`. `branches` are left over from the walk before.
    pub(super) fn new(
        links: &'a Links,
        address: VirtAddr,
        way: Way,
        branches: Branches,
        most: usize,
    ) -> Self {
        let walked = Walked {
            pages: [PageIndex::new(0); MOST_PAGES],
            count: 0,
            is_run: false,
            taken: Taken::default(),
            end: None,
            branches,
            last: None,
        };
        let most = most.min(MOST_PAGES);
        Self {
            links,
            most,
            visits_left: LEAST_VISITS.max(most as u32 * VISITS_PER_PAGE),
            at: Branch { address, way, from: None },
            run: None,
            run_most: MOST_PAGES,
            walked,
        }
    }

    /// Goes through an array: at once, or when no link leads on. At most `most` pages come with it.
    pub(super) fn run(&mut self, run: Option<Run<'a>>, most: usize) {
        (self.run, self.run_most) = (run, most);
        self.visits_left += (1 + self.most as u32) * ELEMENTS_PER_PAGE;
    }

    /// Where in the page at which it began the word lies that leads on first.
    pub(super) fn first_place(&self) -> Option<usize> {
        let branch =
            self.walked.branches.count.checked_sub(1).and_then(|last| self.walked.branches.entries[last])?;
        self.links.place(branch.from?.1, self.at.address)
    }

    /// Whether it matters what the pages hold to which it comes.
    pub fn reads_pages(&self) -> bool {
        !self.walked.is_run
    }

    /// The address isn't one of the program's memory: what looked like an element of an array was none.
    pub fn miss(&mut self) {
        self.run = None;
    }

    /// The address that the program is expected to come to next; `None` when the walk is over.
    pub fn step(&mut self) -> Option<VirtAddr> {
        self.visits_left = self.visits_left.checked_sub(1)?;
        self.at = match self.walked.branches.pop() {
            Some(branch) if !self.walked.is_run => branch,
            _ => {
                let address = self.run.as_mut()?.next()?;
                if !self.walked.is_run {
                    self.walked.is_run = true;
                    self.most = self.most.min(self.walked.count + self.run_most);
                }
                Branch { address, way: Way::UNKNOWN, from: None }
            }
        };
        Some(self.at.address)
    }

    /// The address is on `page`, which is far. Whether to fetch it: if not, the walk is over.
    pub fn fetch(&mut self, page: PageIndex) -> bool {
        if let Some((way, link)) = self.at.from {
            self.walked.taken.add(way, link);
        }
        let Some(place) = self.walked.pages[..self.most].get_mut(self.walked.count) else {
            self.walked.end = Some(End::Expected(page, self.at.way));
            return false;
        };
        *place = page;
        self.walked.count += 1;
        true
    }

    /// The address is on a page that holds `content`: the walk may go on from there.
    pub fn arrive(&mut self, content: &PageBytes) {
        if self.walked.is_run {
            return;
        }
        let Branch { address, way, .. } = self.at;
        let branches = &mut self.walked.branches;
        self.links.follow(address, way, content, |link, next_way, next| {
            branches.push(Branch { address: next, way: next_way, from: Some((way, link)) });
        });
        self.walked.last = Some(Surroundings::new(address, way, content));
    }

    /// The page that was to be fetched last doesn't come: too much is under way. The walk is over, as if it
    /// had been one page too many.
    pub fn decline(&mut self) {
        self.visits_left = 0;
        self.walked.count = self.walked.count.saturating_sub(1);
        self.walked.end = Some(End::Expected(self.at.address.page(), self.at.way));
    }

    /// The page to which the walk has come is on its way, and nobody waits for it: what it holds will be
    /// known later. A walk along links ends with it.
    pub fn await_content(&mut self) {
        if self.walked.is_run {
            return;
        }
        self.visits_left = 0;
        self.walked.end = Some(End::Awaited(self.at.address.page(), self.at.way));
    }

    /// Ends it, for [`Follower::walked`](super::Follower::walked).
    pub fn end(self) -> Walked {
        self.walked
    }
}
