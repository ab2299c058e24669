//! What policies of prefetching would have made of a trace.
//!
//! The trace says when pages left, and when the program asked for them again. A policy is shown each page
//! that is asked for and isn't there; the stored ones among those that it advises come, and stay until they
//! are asked for, or until so many others have come after them that the program's budget would have had no
//! room for them. All else stays as it was recorded: that a page which came ahead makes another one leave
//! earlier is not followed further.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::iter;

use farmem_page::PageCount;
use farmem_policy::{ChosenPrefetcher, PrefetchPolicy, Prefetcher};
use serde::Serialize;

use crate::course::{Access, Course, Step};
use crate::oracle::Oracle;

/// Most pages that come with one fault, as in the pager.
pub(crate) const WINDOW_PAGES: u32 = 64;
/// Of the budget, what pages may take up that came ahead and weren't asked for yet.
const STAGED_SHARE: u64 = 8;
const LEAST_STAGED: u64 = 4 * WINDOW_PAGES as u64;

/// What is assumed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replay {
    /// The application's budget.
    pub budget: PageCount,
    /// How long it takes until an advised page is there.
    pub latency_ns: u64,
}

/// What came of one policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Figures {
    /// Stored pages that were asked for.
    pub accesses: u64,
    /// Of these, those that weren't there.
    pub faults: u64,
    /// Pages that came ahead.
    pub prefetched: u64,
    /// Of these, those that were asked for, and how many of them sooner than they could be there.
    pub used: u64,
    /// See `used`.
    pub late: u64,
}

impl Figures {
    /// Share of accesses that prefetching served (Canvas, §6).
    #[must_use]
    pub fn contribution(&self) -> f64 {
        share(self.used, self.accesses)
    }

    /// Share of prefetched pages that were asked for; 1 when there were none.
    #[must_use]
    pub fn accuracy(&self) -> f64 {
        if self.prefetched == 0 { 1.0 } else { share(self.used, self.prefetched) }
    }

    /// Share of used pages that could be there in time; 1 when there were none.
    #[must_use]
    pub fn timeliness(&self) -> f64 {
        1.0 - share(self.late, self.used)
    }

    fn add(&mut self, other: &Self) {
        self.accesses += other.accesses;
        self.faults += other.faults;
        self.prefetched += other.prefetched;
        self.used += other.used;
        self.late += other.late;
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// One policy's line, or the oracle's.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// The policy's name, or `oracle`.
    pub policy: &'static str,
    /// What was counted.
    #[serde(flatten)]
    pub figures: Figures,
    /// [`Figures::contribution`].
    pub contribution: f64,
    /// [`Figures::accuracy`].
    pub accuracy: f64,
    /// [`Figures::timeliness`].
    pub timeliness: f64,
    /// The contribution over the oracle's: how much of what could be had was had.
    pub of_the_bound: f64,
}

/// Replays the courses of a trace's processes under each policy, and then with an oracle: what knows the
/// future would reach under the same rules.
#[must_use]
pub fn replay(courses: &[Course], policies: &[PrefetchPolicy], assumed: Replay) -> Vec<Row> {
    let staged = (assumed.budget.get() / STAGED_SHARE).max(LEAST_STAGED) as usize;
    let run = |name: &'static str, policy: Option<PrefetchPolicy>| {
        let mut figures = Figures::default();
        for course in courses {
            let mut process =
                Process { latency_ns: assumed.latency_ns, most_staged: staged, ..Process::default() };
            match policy {
                Some(policy) => process.run(course, &mut ChosenPrefetcher::new(policy, WINDOW_PAGES)),
                None => process.run(course, &mut Oracle::new(course)),
            }
            figures.add(&process.figures);
        }
        (name, figures)
    };
    let of_policies = policies.iter().map(|&policy| run(policy.name(), Some(policy)));
    let rows: Vec<_> = of_policies.chain(iter::once_with(|| run("oracle", None))).collect();
    let bound = rows.last().map_or(0.0, |(_, figures)| figures.contribution());
    rows.into_iter()
        .map(|(policy, figures)| Row {
            policy,
            figures,
            contribution: figures.contribution(),
            accuracy: figures.accuracy(),
            timeliness: figures.timeliness(),
            of_the_bound: if bound > 0.0 { figures.contribution() / bound } else { 1.0 },
        })
        .collect()
}

/// What decides, and what it may know.
pub(crate) trait Decider {
    /// Pages to bring with the one that is asked for in that step and isn't there. Those that aren't stored
    /// then don't come.
    fn advise(&mut self, step: usize, access: &Access, stored: &BTreeSet<u64>, come: &mut Vec<u64>);

    /// Pages are gone.
    fn forget(&mut self, range: farmem_page::PageRange);
}

impl Decider for ChosenPrefetcher {
    fn advise(&mut self, _step: usize, access: &Access, _stored: &BTreeSet<u64>, come: &mut Vec<u64>) {
        let advice = self.on_fault(access.fault, access.bounds);
        come.extend(advice.fetch.into_iter().flat_map(|run| run.pages().map(|page| page.get())));
    }

    fn forget(&mut self, range: farmem_page::PageRange) {
        Prefetcher::forget(self, range);
    }
}

/// One process, replayed.
#[derive(Default)]
struct Process {
    latency_ns: u64,
    most_staged: usize,
    /// Pages that are stored and not local.
    stored: BTreeSet<u64>,
    /// Pages that came ahead and weren't asked for yet, and when they were advised.
    staged: BTreeMap<u64, u64>,
    /// The same in the order in which they came; some are gone since.
    order: VecDeque<(u64, u64)>,
    figures: Figures,
}

impl Process {
    fn run(&mut self, course: &Course, decider: &mut impl Decider) {
        let mut come = Vec::new();
        for (at, step) in course.steps.iter().enumerate() {
            match step {
                Step::Access(access) => self.access(at, access, decider, &mut come),
                Step::Touch(page) => {
                    self.stored.remove(&page.get());
                    self.staged.remove(&page.get());
                }
                Step::Left(page) => {
                    self.staged.remove(&page.get());
                    self.stored.insert(page.get());
                }
                Step::Discarded(range) => {
                    let pages = range.start.get()..range.end.get();
                    let gone: Vec<u64> = self.stored.range(pages.clone()).copied().collect();
                    gone.iter().for_each(|page| _ = self.stored.remove(page));
                    let gone: Vec<u64> = self.staged.range(pages).map(|(&page, _)| page).collect();
                    gone.iter().for_each(|page| _ = self.staged.remove(page));
                    decider.forget(*range);
                }
            }
        }
    }

    fn access(&mut self, at: usize, access: &Access, decider: &mut impl Decider, come: &mut Vec<u64>) {
        let page = access.fault.page.get();
        if let Some(advised_ns) = self.staged.remove(&page) {
            self.figures.accesses += 1;
            self.figures.used += 1;
            self.figures.late += u64::from(access.time_ns.saturating_sub(advised_ns) < self.latency_ns);
            return;
        }
        if !self.stored.remove(&page) {
            // Asked for twice before it came, or stored before the recording began: nothing is known of it.
            return;
        }
        self.figures.accesses += 1;
        self.figures.faults += 1;
        come.clear();
        decider.advise(at, access, &self.stored, come);
        for &page in come.iter().take(WINDOW_PAGES as usize) {
            if self.stored.remove(&page) {
                self.figures.prefetched += 1;
                self.staged.insert(page, access.time_ns);
                self.order.push_back((page, access.time_ns));
            }
        }
        while self.staged.len() > self.most_staged
            && let Some((page, advised_ns)) = self.order.pop_front()
        {
            if self.staged.get(&page) == Some(&advised_ns) {
                self.staged.remove(&page);
                self.stored.insert(page);
            }
        }
    }
}
