//! Pages that were moved out, for which the pool has no room, and which can't be put back yet: an event
//! waits, or is being finished, and the kernel refuses all changes until then.
//!
//! Their content is nowhere but in the staging area. So they stay held, and a thread that touches one waits,
//! until the kernel takes them back; nothing else leaves before. No thread has them in hand meanwhile, so
//! what a message says of a page is done to them here: what it has moved is put back elsewhere, and a child
//! forked meanwhile gets a copy. What the program has discarded or unmapped is let go when it would be put
//! back.

use farmem_page::{PageCount, PageIndex, PageRange};
use farmem_sys::Errno;
use farmem_sys::guard::{self, Guard};
use farmem_sys::uffd::{Uffd, UffdError, Waiters};
use farmem_telemetry::Step;

use crate::address_space::table::Taken;
use crate::engine::Engine;
use crate::eviction::evict::{Evictor, RUN_PAGES};
use crate::gate::{Change, Holding, Reading};
use crate::inject::Injection;

/// The pages, at most those of one run: the next one begins when these are back.
pub(crate) struct Stranded {
    pages: [Option<Page>; RUN_PAGES],
    count: usize,
}

struct Page {
    taken: Taken,
    frame: PageIndex,
    /// Whether it has a marker, as far as this process has taken none away.
    is_marked: bool,
}

impl Stranded {
    pub(crate) const fn new() -> Self {
        Self { pages: [const { None }; RUN_PAGES], count: 0 }
    }

    fn push(&mut self, page: Page) {
        self.pages[self.count] = Some(page);
        self.count += 1;
    }

    /// Goes through all pages. Those stay that `visit` gives back.
    fn retain(&mut self, mut visit: impl FnMut(Page) -> Option<Page>) {
        for at in 0..core::mem::take(&mut self.count) {
            if let Some(page) = self.pages[at].take().and_then(&mut visit) {
                self.push(page);
            }
        }
    }
}

impl Engine {
    /// Puts a page that could not be stored back where the program expects it: at once, or, where nothing may
    /// be changed at this moment, later.
    pub(crate) fn put_back(
        &self,
        change: Option<&Change<'_>>,
        evictor: &mut Evictor,
        page: Taken,
        frame: PageIndex,
        is_marked: bool,
    ) {
        let page = Page { taken: page, frame, is_marked };
        let left = match change.filter(|_| !Injection::RefusedPutBack.is_ordered(self.ledger)) {
            Some(change) => self.try_put_back(change, evictor, page),
            None => Some(page),
        };
        if let Some(page) = left {
            evictor.stranded.push(page);
            self.eviction.note_stranded(true);
        }
    }

    /// Tries to put back what is stranded, unless another thread evicts at this moment, which does the same.
    pub(crate) fn return_stranded(&self, holding: &Holding<'_>) {
        if let Some(Some(evictor)) = self.eviction.evictor.try_lock().as_deref_mut() {
            self.return_stranded_of(holding, evictor);
        }
    }

    /// Tries to put back what is stranded. `false` while some of it is left.
    pub(crate) fn return_stranded_of(&self, holding: &Holding<'_>, evictor: &mut Evictor) -> bool {
        if !self.eviction.are_stranded() {
            return true;
        }
        let Some(change) = self.change(holding) else { return false };
        let mut stranded = core::mem::replace(&mut evictor.stranded, Stranded::new());
        stranded.retain(|page| self.try_put_back(&change, evictor, page));
        self.keep_stranded(evictor, stranded);
        !self.eviction.are_stranded()
    }

    fn keep_stranded(&self, evictor: &mut Evictor, stranded: Stranded) {
        self.eviction.note_stranded(stranded.count > 0);
        evictor.stranded = stranded;
    }

    /// The page, if the kernel refuses it at this moment.
    fn try_put_back(&self, _change: &Change<'_>, evictor: &mut Evictor, mut page: Page) -> Option<Page> {
        let to = page.taken.page;
        if page.taken.is_overtaken() {
            self.forget_in_hand(evictor, page);
            return None;
        }
        if page.is_marked {
            let Ok(found) = self.vacancies(one(to)) else { return Some(page) };
            if found.marked == 0 && guard::stands(Guard::MarkersAreLookedAt) {
                self.forget_in_hand(evictor, page);
                return None;
            }
            self.pages.uffd.unmark(one(to));
            page.is_marked = false;
        }
        let mut stopped = self.pages.uffd.move_pages(one(page.frame), to, &self.pages.files.pagemap).stopped;
        if matches!(stopped, Some(UffdError::Unsupported | UffdError::Busy)) {
            // The mapping has become read-only or locked since, to which no frame moves. A copy may be made.
            stopped = self.pages.uffd.copy_in(to, evictor.frames.look(page.frame), Waiters::Keep).stopped;
            evictor.held += u64::from(stopped.is_none());
        }
        match stopped {
            None => {
                let word = page.taken.word;
                let _ = page.taken.release(word.with_far(false));
                self.wake_page(to);
                None
            }
            // The mapping may have gone while the kernel looked for it: then the message that says so is on
            // its way.
            Some(UffdError::Changing | UffdError::Gone | UffdError::OutOfMemory) => Some(page),
            // The program wants no page there.
            Some(UffdError::Exists) => match self.vacancies(one(to)) {
                Err(_) => Some(page),
                // Memory has just been protected, for a fork.
                Ok(found) if found.marked != 0 => {
                    self.pages.uffd.unmark(one(to));
                    Some(page)
                }
                Ok(found) if found.present == 0 => {
                    self.forget_in_hand(evictor, page);
                    None
                }
                Ok(_) => self.refused(Step::PutBack, UffdError::Exists),
            },
            Some(error) => self.refused(Step::PutBack, error),
        }
    }

    /// The program has discarded a page.
    fn forget_in_hand(&self, evictor: &mut Evictor, page: Page) {
        self.residency.went_out(1);
        evictor.held += 1;
        self.forget_unheard(page.taken);
    }

    /// The program moves other memory to `range`, whose words say that nothing is there any more.
    pub(crate) fn forget_stranded(&self, reading: &Reading<'_>, range: PageRange) {
        self.each_stranded(reading, |evictor, page| {
            if !range.contains(page.taken.page) {
                return Some(page);
            }
            self.residency.went_out(1);
            evictor.held += 1;
            self.let_try_again(page.taken);
            None
        });
    }

    /// The program has moved `from` to `to`, and the words have gone with it.
    pub(crate) fn move_stranded(&self, reading: &Reading<'_>, from: PageRange, to: PageIndex) {
        self.each_stranded(reading, |_, page| {
            if !from.contains(page.taken.page) {
                return Some(page);
            }
            let old = page.taken.page;
            let Some(taken) = self.pages.table.follow(page.taken, to + (old - from.start)) else {
                self.refused(Step::Table, Errno::NOMEM)
            };
            // A thread that waits there has lost the page, as without a pager.
            self.wake_page(old);
            Some(Page { taken, ..page })
        });
    }

    /// The pages that a child lacks which has come into being, each with the frame that holds its content.
    /// Only of a fork that nobody announced: before an announced one they are all put back.
    pub(crate) fn each_stranded_page(
        &self,
        reading: &Reading<'_>,
        mut visit: impl FnMut((PageIndex, PageIndex)),
    ) {
        self.each_stranded(reading, |_, page| {
            if !self.is_wiped_on_fork(page.taken.page) && guard::stands(Guard::StrandedGoesToChildren) {
                visit((page.taken.page, page.frame));
            }
            Some(page)
        });
    }

    /// Copies a frame of the staging area to a page of a child. What the kernel says, if it refuses.
    pub(crate) fn give_frame(&self, child: &Uffd, page: PageIndex, frame: PageIndex) -> Option<UffdError> {
        let mut place = self.eviction.evictor.lock();
        let content = place.as_mut()?.frames.look(frame);
        child.copy_in(page, content, Waiters::Wake).stopped
    }

    fn is_wiped_on_fork(&self, page: PageIndex) -> bool {
        let mut is_wiped = false;
        let visit = |range: PageRange| is_wiped |= range.contains(page);
        if let Err(errno) = self.pages.files.flags.wiped_on_fork(visit) {
            self.refused(Step::Mappings, errno);
        }
        is_wiped
    }

    fn each_stranded(
        &self,
        reading: &Reading<'_>,
        mut visit: impl FnMut(&mut Evictor, Page) -> Option<Page>,
    ) {
        if !self.eviction.are_stranded() {
            return;
        }
        // Else whoever evicts would wait for this reading with the lock.
        reading.settle();
        let mut place = self.eviction.evictor.lock();
        let Some(evictor) = place.as_mut() else { return };
        let mut stranded = core::mem::replace(&mut evictor.stranded, Stranded::new());
        stranded.retain(|page| visit(evictor, page));
        self.keep_stranded(evictor, stranded);
    }
}

fn one(page: PageIndex) -> PageRange {
    PageRange::at(page, PageCount::new(1))
}
