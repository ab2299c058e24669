//! Which pages are local.

use farmem_page::{PageCount, PageIndex, PageRange};

pub use farmem_sys::pagemap::Vacancies;

use crate::subject::objects::objects;
use crate::world::Entry;
use crate::{Errno, schedule, world};

/// Pages that one call finds, at most.
pub const SCAN_PAGES: usize = 512;

/// The runs of local pages in a range, in order.
#[derive(Debug)]
pub struct Runs {
    runs: [PageRange; SCAN_PAGES / 2],
    count: usize,
}

impl Runs {
    /// No runs.
    pub const fn empty() -> Self {
        let nothing = PageRange::new(PageIndex::new(0), PageIndex::new(0));
        Self { runs: [nothing; SCAN_PAGES / 2], count: 0 }
    }

    /// The runs, in order.
    pub fn iter(&self) -> impl Iterator<Item = PageRange> + '_ {
        self.runs[..self.count].iter().copied()
    }

    pub(crate) fn clear(&mut self) {
        self.count = 0;
    }

    /// `false` when there is no room for another one.
    pub(crate) fn push(&mut self, run: PageRange) -> bool {
        let Some(place) = self.runs.get_mut(self.count) else { return false };
        *place = run;
        self.count += 1;
        true
    }

    /// Whether one of them has that page.
    pub fn hold(&self, page: PageIndex) -> bool {
        self.iter().any(|run| run.contains(page))
    }
}

/// The calling process's page table.
#[derive(Debug)]
pub struct Pagemap {
    space: usize,
}

impl Pagemap {
    /// As [`Pagemap::open`].
    ///
    /// # Errors
    /// None.
    pub fn open_own() -> Result<Self, Errno> {
        Self::open()
    }

    /// Opens it.
    ///
    /// # Errors
    /// None.
    pub fn open() -> Result<Self, Errno> {
        Ok(Self { space: world::with(|world| world.own_space()) })
    }

    /// The pages of `range` that have a frame of their own.
    ///
    /// # Errors
    /// None.
    pub fn resident(&self, range: PageRange, runs: &mut Runs) -> Result<PageIndex, Errno> {
        if let Some(objects) = objects() {
            return objects.present(range, runs);
        }
        Ok(self.scan(range, runs, |entry| matches!(entry, Entry::Frame { .. })))
    }

    /// As [`Pagemap::resident`], and those where the shared page of zeros is.
    ///
    /// # Errors
    /// None.
    pub fn present(&self, range: PageRange, runs: &mut Runs) -> Result<PageIndex, Errno> {
        if let Some(objects) = objects() {
            return objects.present(range, runs);
        }
        Ok(self.scan(range, runs, |entry| matches!(entry, Entry::Frame { .. } | Entry::Zeros { .. })))
    }

    /// The pages of `range` where the shared page of zeros is, unless they are protected.
    ///
    /// # Errors
    /// None.
    pub fn open_zeros(&self, range: PageRange, runs: &mut Runs) -> Result<PageIndex, Errno> {
        Ok(self.scan(range, runs, |entry| matches!(entry, Entry::Zeros { is_protected: false })))
    }

    /// How many pages of `range` are protected and there for other processes, too.
    pub fn shared(&self, range: PageRange) -> PageCount {
        schedule::point();
        world::with(|world| {
            let entries = world.spaces[self.space].entries(range);
            PageCount::new(
                entries.filter(|(_, entry)| entry.is_protected() && entry.is_shared()).count() as u64
            )
        })
    }

    /// What there is in the first [`Vacancies::MOST`] pages of `range`. See `World::may_guard`.
    pub fn vacancies(&self, range: PageRange) -> Option<Vacancies> {
        if let Some(objects) = objects() {
            return objects.vacancies(range);
        }
        schedule::point();
        world::look_at(self.space, range);
        world::with(|world| {
            let mut vacancies = Vacancies::default();
            for (at, page) in range.iter().take(Vacancies::MOST).enumerate() {
                match world.spaces[self.space].entry(page) {
                    None => {}
                    Some(Entry::Marked) => vacancies.marked |= 1 << at,
                    Some(Entry::Guarded | Entry::Poisoned) => vacancies.barred |= 1 << at,
                    Some(Entry::Frame { .. } | Entry::Zeros { .. } | Entry::Mapped { .. }) => {
                        vacancies.present |= 1 << at;
                    }
                }
            }
            Some(vacancies)
        })
    }

    fn scan(&self, range: PageRange, runs: &mut Runs, is_meant: impl Fn(&Entry) -> bool) -> PageIndex {
        schedule::point();
        world::with(|world| {
            runs.count = 0;
            let mut found = 0;
            for (page, _) in world.spaces[self.space].entries(range).filter(|(_, entry)| is_meant(entry)) {
                let next = page + PageCount::new(1);
                let most = runs.runs.len();
                match runs.runs[..runs.count].last_mut() {
                    Some(last) if last.end == page => last.end = next,
                    _ if runs.count == most => return page,
                    _ => {
                        runs.runs[runs.count] = PageRange::new(page, next);
                        runs.count += 1;
                    }
                }
                found += 1;
                if found == SCAN_PAGES {
                    return next;
                }
            }
            range.end
        })
    }
}
