//! Forked children that this process serves: each one until it has a pager of its own, and until their end
//! those that never get one.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use farmem_page::{PageCount, PageIndex, PageRange, Place};
use farmem_store::{Origin, Urgency};
use farmem_sys::guard::{self, Guard};
use farmem_sys::lock::Lock;
use farmem_sys::pagemap::Pagemap;
use farmem_sys::uffd::{Message, Uffd, UffdError, Waiters};
use farmem_sys::{AsFd, AsRawFd, Errno, OwnedFd, RawFd, thread};
use farmem_telemetry::{Counter, MAX_HANDLERS, Step};

use crate::address_space::table::PageTable;
use crate::engine::Engine;
use crate::eviction::evict::RUN_PAGES;
use crate::eviction::residency::TOLERATED_PAGES;
use crate::eviction::vault::LoadFailure;
use crate::fault::serve::ServeBuffers;
use crate::forks::sharing::Patience;
use crate::gate::Reading;

/// Most children served at a time.
pub(crate) const MOST: usize = 256;
const _: () = assert!(MOST > places_kept(MAX_HANDLERS), "some are served before others have to wait");
/// Places for what so many handlers may be hearing of at this moment: each of a fork, and of four of
/// children.
const fn places_kept(handlers: usize) -> usize {
    handlers * (1 + 4)
}

/// A child that lives for so long may have a pager of its own. Most run another program, or end, before.
const GROWN_UP_NS: u64 = 2_000_000;
/// How often that time is doubled where it can't have one: to a second.
const MOST_DOUBLED: u32 = 9;
/// How often it is checked whether a child still lives.
const PROBE_NS: u64 = 50_000_000;
/// How long to wait until a child has done what has been read.
const LOOK_NS: u64 = 20_000;
/// How long to wait before a child for whose page there was no memory tries again.
const MEMORY_NS: u64 = 1_000_000;

/// A child.
#[derive(Debug)]
struct View {
    uffd: Uffd,
    /// The parent's count of forks when this child was made.
    epoch: u64,
    /// The child's words: those of its parent when the fork was heard of, and what has become of them since.
    table: PageTable,
    /// Whether it was protected when it began, so that what it shares counts once.
    is_protected: bool,
    /// Pages that it shared with this process when it was forked, where those count once.
    shared: PageCount,
    /// From when on it may have a pager of its own: it came to be served here, or could not be given one.
    due_ns: u64,
    /// How often it could not.
    attempts: u32,
    /// Pages that it has made its own while it was served here, or may have.
    own: PageCount,
    /// Whether what it asks for waits until there is room, or until it has a pager of its own.
    is_waiting: bool,
}

impl View {
    /// A child that is served here from now on, and hears of no protection.
    fn beginning(uffd: Uffd, epoch: u64, table: PageTable) -> Self {
        Self {
            uffd,
            epoch,
            table,
            is_protected: false,
            shared: PageCount::ZERO,
            due_ns: thread::now_ns() + GROWN_UP_NS,
            attempts: 0,
            own: PageCount::ZERO,
            is_waiting: false,
        }
    }
}

/// The children.
#[derive(Debug)]
pub(crate) struct Children {
    views: Lock<[Option<View>; MOST]>,
    /// Tables of children that have ended, empty: there are never more tables than there have been children
    /// at a time.
    spare: Lock<[Option<PageTable>; MOST]>,
    /// How many views there are: asked at every fault, without the lock. Written under it.
    count: AtomicUsize,
    probed_ns: AtomicU64,
    /// What children ask for that waits until the application is within its budget.
    patience: Patience,
}

/// Whether a child goes on being served here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Service {
    GoesOn,
    IsOver,
}

impl Children {
    pub(crate) const fn new() -> Self {
        Self {
            views: Lock::new([const { None }; MOST]),
            spare: Lock::new([const { None }; MOST]),
            count: AtomicUsize::new(0),
            probed_ns: AtomicU64::new(0),
            patience: Patience::new(),
        }
    }

    /// Whether a child is served here.
    pub(crate) fn are_any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// `false` when there are too many.
    fn add(&self, view: View) -> bool {
        let mut views = self.views.lock();
        let is_open = |place: &Option<View>| place.is_none();
        let place = match views.iter().position(is_open) {
            // Some may have ended since it was last looked.
            None => views.iter().position(|place| place.as_ref().is_some_and(|view| view.uffd.has_ended())),
            open => open,
        };
        let Some(place) = place else { return false };
        if let Some(ended) = views[place].replace(view) {
            self.retire(ended);
        }
        self.count.store(views.iter().flatten().count(), Ordering::Release);
        true
    }

    /// An empty table for a child.
    fn table(&self) -> Result<PageTable, Errno> {
        let spare = self.spare.lock().iter_mut().find_map(Option::take);
        spare.map_or_else(PageTable::new, Ok)
    }

    /// A child has gone. Its table is for the next one: memory of the pager's own is never given back.
    fn retire(&self, view: View) {
        view.table.clear();
        if let Some(place) = self.spare.lock().iter_mut().find(|place| place.is_none()) {
            *place = Some(view.table);
        }
    }

    /// What the words of all children take. `None` while they are being served, which may take long.
    pub(crate) fn table_pages(&self, pagemap: &Pagemap) -> Option<PageCount> {
        let views = self.views.try_lock()?;
        let pages = views.iter().flatten().filter_map(|view| view.table.words().resident(pagemap).ok());
        Some(PageCount::new(pages.map(PageCount::get).sum()))
    }

    /// The descriptors to wait for, and how many there are. Those of children that wait would end each wait
    /// at once.
    pub(crate) fn descriptors(&self) -> ([RawFd; MOST], usize) {
        let mut descriptors = [-1; MOST];
        let mut count = 0;
        for view in self.views.lock().iter().flatten().filter(|view| !view.is_waiting) {
            descriptors[count] = view.uffd.as_fd().as_raw_fd();
            count += 1;
        }
        (descriptors, count)
    }

    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire) as u64
    }

    /// Pages that those which still live have made their own, or may have.
    pub(super) fn own_pages(&self) -> PageCount {
        let mut views = self.views.lock();
        views
            .iter_mut()
            .flatten()
            .filter(|view| view.uffd.has_ended())
            .for_each(|view| view.own = PageCount::ZERO);
        own_pages(&views)
    }

    /// Whether it is time to look which children still live.
    fn is_probe_due(&self) -> bool {
        let now_ns = thread::now_ns();
        let is_due = now_ns - self.probed_ns.load(Ordering::Relaxed) >= PROBE_NS;
        if is_due {
            self.probed_ns.store(now_ns, Ordering::Relaxed);
        }
        is_due
    }
}

impl Engine {
    /// Begins to serve a child, of the fork that has ended that epoch. `is_protected` if each of its writes
    /// to what it shares is heard of.
    pub(crate) fn adopt(&self, reading: &Reading<'_>, uffd: Uffd, epoch: u64, is_protected: bool) {
        let table =
            if guard::stands(Guard::ChildHasItsWords) { self.copy_table() } else { self.empty_table() };
        // Where nobody hears of what it writes, it may have made all of it its own.
        let resident = PageCount::new(self.slot.get(Counter::ResidentPages));
        let (shared, own) =
            if is_protected { (resident, PageCount::ZERO) } else { (PageCount::ZERO, resident) };
        let mut view = View { is_protected, shared, own, ..View::beginning(uffd, epoch, table) };
        let mut grandchildren = [const { None }; 4];
        self.give_stranded_to(reading, &mut view, &mut grandchildren);
        for view in [Some(view)].into_iter().chain(grandchildren).flatten() {
            if !self.family.children.add(view) {
                // Letting go of the descriptor would show the child zeros.
                self.refused(Step::Child, Errno::NFILE);
            }
        }
        self.note_children(&self.family.children.views.lock());
    }

    /// Gives the child the pages that nobody could put back before it was forked: it lacks them, and its
    /// words don't know of them. It runs already, and may change its memory meanwhile.
    fn give_stranded_to(
        &self,
        reading: &Reading<'_>,
        view: &mut View,
        grandchildren: &mut [Option<View>; 4],
    ) {
        let mut gifts = [None; RUN_PAGES];
        let mut count = 0;
        self.each_stranded_page(reading, |page| {
            gifts[count] = Some(page);
            count += 1;
        });
        self.give(view, gifts, grandchildren);
    }

    /// Gives a child these pages, and whoever it forks meanwhile.
    fn give(
        &self,
        view: &mut View,
        mut gifts: [Option<(PageIndex, PageIndex)>; RUN_PAGES],
        grandchildren: &mut [Option<View>; 4],
    ) {
        while gifts.iter().any(Option::is_some) {
            for place in &mut gifts {
                let Some((page, frame)) = *place else { continue };
                match self.give_frame(&view.uffd, page, frame) {
                    // Not mapped in the child, or the child has ended.
                    None | Some(UffdError::Exists | UffdError::Gone | UffdError::Ended) => *place = None,
                    // It changes its memory.
                    Some(UffdError::Changing) => break,
                    Some(error) => self.refused(Step::Child, error),
                }
            }
            if gifts.iter().all(Option::is_none) || grandchildren.iter().all(Option::is_some) {
                return;
            }
            match view.uffd.read() {
                // Its threads ask again.
                Ok(Some(Message::Fault { address, .. })) => {
                    view.uffd.wake(PageRange::at(address.page(), PageCount::new(1)));
                }
                Ok(Some(message)) => {
                    gifts.iter_mut().for_each(|gift| *gift = gift.and_then(|it| follow(it, &message)));
                    let before = grandchildren.iter().flatten().count();
                    self.hear(view, message, grandchildren);
                    if let Some(mut forked) = grandchildren.get_mut(before).and_then(Option::take) {
                        self.give(&mut forked, gifts, grandchildren);
                        grandchildren
                            .iter_mut()
                            .find(|place| place.is_none())
                            .map(|place| place.replace(forked));
                    }
                }
                // What has been read is being done.
                Ok(None) | Err(_) => thread::sleep(LOOK_NS),
            }
        }
    }

    /// The words that a child begins with. What it finds empty (MADV_WIPEONFORK) is in none of them. Which
    /// pages that are the kernel tells, also after they have been moved, unmapped, or kept again.
    fn copy_table(&self) -> PageTable {
        let table = self.copy_of(&self.pages.table);
        let wiped = self.pages.files.flags.wiped_on_fork(|range| table.discard(range, |_, _| {}));
        if let Err(errno) = wiped {
            self.refused(Step::Mappings, errno);
        }
        table
    }

    fn copy_of(&self, table: &PageTable) -> PageTable {
        let copy = self.empty_table();
        if let Err(errno) = table.copy_to_child(&copy) {
            self.refused(Step::Child, errno);
        }
        copy
    }

    fn empty_table(&self) -> PageTable {
        self.family.children.table().unwrap_or_else(|errno| self.refused(Step::Child, errno))
    }

    /// Answers what children have asked, and forgets those that have ended.
    pub(crate) fn serve_children(&self, buffers: &mut ServeBuffers) {
        let is_probe_due = self.family.children.is_probe_due();
        let over = self.over_budget();
        let mut grandchildren = [const { None }; 4];
        let mut views = self.family.children.views.lock();
        for place in views.iter_mut() {
            let Some(view) = place else { continue };
            let mut service = Service::GoesOn;
            view.is_waiting = self.must_child_wait(view, over);
            // Where there is no place for another grandchild its event waits, and with it the thread that
            // makes it.
            while service == Service::GoesOn && !view.is_waiting && grandchildren.iter().any(Option::is_none)
            {
                match view.uffd.read() {
                    Ok(Some(message)) => service = self.answer(view, message, buffers, &mut grandchildren),
                    // The descriptor of a process that has ended has nothing to read either.
                    Ok(None) | Err(_) => break,
                }
            }
            if service == Service::GoesOn && is_probe_due && view.uffd.has_ended() {
                service = Service::IsOver;
            }
            if service == Service::IsOver {
                place.take().into_iter().for_each(|view| self.family.children.retire(view));
            }
        }
        self.note_children(&views);
        drop(views);
        for view in grandchildren.into_iter().flatten() {
            if !self.family.children.add(view) {
                self.refused(Step::Child, Errno::NFILE);
            }
        }
    }

    /// What others ask about the children, after these have changed.
    fn note_children(&self, views: &[Option<View>; MOST]) {
        self.family.children.count.store(views.iter().flatten().count(), Ordering::Release);
        self.slot.set_children_pages(own_pages(views));
    }

    /// Whether a child that asks for something waits unheard, for the application has `over` pages too many:
    /// what it makes its own meanwhile could not leave. It gets a pager of its own next. Where it can't have
    /// one, it doesn't wait.
    fn must_child_wait(&self, view: &mut View, over: i64) -> bool {
        if over <= TOLERATED_PAGES || view.attempts > 0 || !view.uffd.has_message() {
            return false;
        }
        view.due_ns = view.due_ns.min(thread::now_ns());
        self.family.children.patience.must_wait(over)
    }

    fn answer(
        &self,
        view: &mut View,
        message: Message,
        buffers: &mut ServeBuffers,
        grandchildren: &mut [Option<View>; 4],
    ) -> Service {
        match message {
            Message::Fault { address, protected: true, .. } => self.let_child_write(view, address.page()),
            Message::Fault { address, thread, .. } => {
                self.inject_death_of(thread, || view.uffd.has_ended());
                self.answer_fault(view, address.page(), buffers)
            }
            event => {
                self.hear(view, event, grandchildren);
                Service::GoesOn
            }
        }
    }

    /// Takes in what a child has done to its memory.
    fn hear(&self, view: &mut View, event: Message, grandchildren: &mut [Option<View>; 4]) {
        let table = &view.table;
        match event {
            Message::Remove(range) | Message::Unmap(range) => table.discard(range, |_, _| {}),
            Message::Remap { from, to, count } => {
                // What was there may have gone before this process heard of it.
                table.discard(PageRange::at(to, count), |_, _| {});
                if !table.relocate(PageRange::at(from, count), to) {
                    self.refused(Step::Child, Errno::NOMEM);
                }
            }
            Message::Fork(uffd) => {
                let copy = self.copy_of(table);
                let Some(place) = grandchildren.iter_mut().find(|place| place.is_none()) else {
                    self.refused(Step::Child, Errno::NFILE)
                };
                // By it the grandchild is told from its siblings when it gets a pager of its own.
                let epoch = self.vault.end_epoch();
                self.tell_of_fork(&uffd, epoch);
                *place = Some(View::beginning(uffd, epoch, copy));
            }
            Message::Fault { .. } | Message::Unknown(_) => {}
        }
    }

    /// A child that has no pager yet writes little: its C library's own memory, and the stack.
    fn let_child_write(&self, view: &mut View, page: PageIndex) -> Service {
        let range = PageRange::new(page, PageIndex::new(page.get() + 1));
        match view.uffd.unprotect(range) {
            Ok(()) => {
                view.own += range.count();
                Service::GoesOn
            }
            Err(UffdError::Ended) => Service::IsOver,
            // An event to be read first, or a mapping that has gone: the thread tries again.
            Err(_) => {
                view.uffd.wake(range);
                Service::GoesOn
            }
        }
    }

    fn answer_fault(&self, view: &mut View, page: PageIndex, buffers: &mut ServeBuffers) -> Service {
        let table = &view.table;
        let content = &mut buffers.content[0];
        let range = PageRange::new(page, PageIndex::new(page.get() + 1));
        let word = table.word(page);
        if word.is_marked() {
            match view.uffd.zero_vacant(range).stopped {
                // There was no marker any more: the page has been discarded, and nobody has told of it.
                None => {
                    table.discard(range, |_, _| {});
                    return Service::GoesOn;
                }
                Some(UffdError::Exists) => {}
                Some(UffdError::Ended) => return Service::IsOver,
                Some(_) => {
                    view.uffd.wake(range);
                    return Service::GoesOn;
                }
            }
        }
        // A page that hadn't left at the fork came with it.
        let is_discarded = word.is_stored() && !word.is_far();
        let loaded = match word.place().filter(|_| !is_discarded) {
            None | Some(Place::Zero) => {
                content.fill(0);
                Ok(Origin::Memory)
            }
            Some(place) => self.vault.load(&mut buffers.reader, place, content, Urgency::Awaited),
        };
        let progress = match loaded {
            Ok(_) => view.uffd.copy_in(page, content, Waiters::Wake),
            Err(LoadFailure::Lost | LoadFailure::Later) => self.poison(&view.uffd, page),
        };
        match progress.stopped {
            Some(UffdError::Ended) => return Service::IsOver,
            None => {
                view.own += range.count();
                // A child that gets a pager of its own takes its words along.
                view.table.update(page, |word| word.with_far(false));
                return Service::GoesOn;
            }
            // Other children must not wait for as long as this one finds no memory.
            Some(UffdError::OutOfMemory) => thread::sleep(MEMORY_NS),
            // A page that is there, a mapping that has gone, or an event to be read first.
            Some(_) => {}
        }
        // The thread tries again.
        view.uffd.wake(range);
        Service::GoesOn
    }
}

impl Engine {
    /// A child that is served here and has lived for so long that it may have a pager of its own: the epoch
    /// of its fork, and its userfaultfd.
    ///
    /// None where there is no supervisor any more, which would have to take that pager in: then children are
    /// served here until they end.
    pub fn child_to_part_with(&self) -> Option<(u64, OwnedFd)> {
        if self.family.teller.is_alone() {
            return None;
        }
        let now_ns = thread::now_ns();
        let views = self.family.children.views.lock();
        let due = views.iter().flatten().filter(|view| view.due_ns <= now_ns);
        let view = due.filter(|view| !view.uffd.has_ended()).min_by_key(|view| view.due_ns)?;
        Some((view.epoch, view.uffd.duplicate().ok()?))
    }

    /// Whether so many children are served here that a thread that forks has to wait until some of them have
    /// pagers of their own. Not where all have been tried that might have one: nothing would come of it.
    pub(crate) fn is_crowded(&self) -> bool {
        let children = &self.family.children;
        let is_any_untried = || children.views.lock().iter().flatten().any(|view| view.attempts == 0);
        // From so many on no further fork is heard of before some have pagers of their own. A handler is
        // counted before it begins, so those that have looked before leave places for it, too.
        let crowd = MOST - places_kept(self.handlers.started() as usize);
        children.count.load(Ordering::Acquire) >= crowd && !self.family.teller.is_alone() && is_any_untried()
    }

    /// Whether the child of that epoch may have a marker where that page was.
    pub fn may_child_have_marker(&self, epoch: u64, page: PageIndex) -> bool {
        let views = self.family.children.views.lock();
        let Some(view) = views.iter().flatten().find(|view| view.epoch == epoch) else { return true };
        view.table.word(page).is_marked()
    }

    /// Whether a forked child is served here, or is about to be: a fork returns when its event has been read,
    /// and whoever read it may still be at it.
    pub fn has_children(&self) -> bool {
        /// How often to look whether the reading is the last one, which doesn't end.
        const LOOK_NS: u64 = 1_000_000;
        while !self.pages.gate.is_read_within(LOOK_NS) {
            if self.has_withdrawn() {
                return false;
            }
        }
        self.family.children.are_any()
    }

    /// The child of that epoch can't have a pager of its own now. It is tried again, each time after twice as
    /// long.
    pub fn put_child_off(&self, epoch: u64) {
        let mut views = self.family.children.views.lock();
        if let Some(view) = views.iter_mut().flatten().find(|view| view.epoch == epoch) {
            view.due_ns = thread::now_ns() + (GROWN_UP_NS << view.attempts);
            view.attempts = (view.attempts + 1).min(MOST_DOUBLED);
        }
    }

    /// Ends the service of the child of that epoch, and calls `split` while nobody serves it, which forks
    /// this process: then it has said `true` here, and the child's words, as they are at this moment, are the
    /// forked process's. `None` here, and where there is no such child.
    pub fn part_with(&self, epoch: u64, split: impl FnOnce() -> Split) -> Option<PartedChild> {
        let mut views = self.family.children.views.lock();
        let place = views.iter_mut().find(|place| place.as_ref().is_some_and(|view| view.epoch == epoch))?;
        match split() {
            Split::Failed => None,
            Split::Here => {
                place.take().into_iter().for_each(|view| self.family.children.retire(view));
                self.note_children(&views);
                None
            }
            Split::There => {
                let view = place.take()?;
                Some(PartedChild {
                    table: view.table,
                    is_protected: view.is_protected,
                    epoch,
                    shared: view.shared.saturating_sub(view.own),
                    own: view.own,
                })
            }
        }
    }
}

/// Where a process goes on that has forked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Split {
    /// It hasn't.
    Failed,
    /// In the process that has forked.
    Here,
    /// In the forked one.
    There,
}

/// In a forked pager: the child that it is to manage.
#[derive(Debug)]
pub struct PartedChild {
    /// Its words.
    pub(crate) table: PageTable,
    /// Whether it was protected when it began.
    pub(crate) is_protected: bool,
    /// The epoch of its fork.
    pub(crate) epoch: u64,
    /// Pages that it shared with its parent at the fork, and has not made its own since.
    pub(crate) shared: PageCount,
    /// Pages that it has made its own, or may have.
    pub(crate) own: PageCount,
}

/// A page that a child is to get, and what it holds, after the child has done that to its memory; `None` when
/// it needn't have it any more.
fn follow((page, frame): (PageIndex, PageIndex), event: &Message) -> Option<(PageIndex, PageIndex)> {
    match *event {
        Message::Remove(range) | Message::Unmap(range) if range.contains(page) => None,
        Message::Remap { from, to, count } if PageRange::at(from, count).contains(page) => {
            Some((to + (page - from), frame))
        }
        _ => Some((page, frame)),
    }
}

fn own_pages(views: &[Option<View>; MOST]) -> PageCount {
    PageCount::new(views.iter().flatten().map(|view| view.own.get()).sum())
}
