//! userfaultfd, as the pager's thin fence shows it: refused while a change is under way that has not been
//! read, partial where something comes between, atomic against the program page by page.

use farmem_page::{PAGE_BYTES, PageBytes, PageCount, PageIndex, PageRange};

use crate::descriptors::Named;
use crate::pagemap::Pagemap;
use crate::schedule::{self, Key};
use crate::subject::objects::Objects;
use crate::world::{self, Change, Entry, Reader, World};
use crate::{AsFd, BorrowedFd, Errno, OwnedFd, RawFd};

use farmem_sys::uffd::NOTHING;
pub use farmem_sys::uffd::{MOST_MOVES, Move, Progress, UNTRIED, UffdError, Waiters};

/// A message from the kernel.
pub type Message = farmem_sys::uffd::Message<Uffd>;

/// A userfaultfd.
#[derive(Debug)]
pub struct Uffd {
    number: usize,
    /// What it stands for, where it is no userfaultfd.
    objects: Option<&'static Objects>,
}

impl From<OwnedFd> for Uffd {
    fn from(fd: OwnedFd) -> Self {
        match fd.0 {
            Named::Uffd(number) => Self::of(number),
            _ => Self::of(usize::MAX),
        }
    }
}

impl AsFd for Uffd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        BorrowedFd::of(Named::Uffd(self.number))
    }
}

/// What one page brought.
type Step = Result<(), UffdError>;

impl Uffd {
    fn of(number: usize) -> Self {
        Self { number, objects: None }
    }

    /// All messages of the processes that map shared memory.
    pub(crate) fn of_objects(_ready: OwnedFd, objects: &'static Objects) -> Self {
        Self { number: usize::MAX, objects: Some(objects) }
    }

    /// A new userfaultfd of a process's memory.
    pub fn of_space(space: usize) -> Self {
        Self::of(world::with(|world| world.new_uffd(space)))
    }

    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// Whether the page belongs to a mapping of which writes are reported here.
    pub(crate) fn tells_of_writes(&self, page: PageIndex) -> Option<bool> {
        let one = PageRange::at(page, PageCount::new(1));
        match self.protect(one).and_then(|()| self.unprotect(one)) {
            Ok(()) => Some(true),
            Err(UffdError::Gone) => Some(false),
            Err(_) => None,
        }
    }

    /// A new userfaultfd for the calling process.
    ///
    /// # Errors
    /// None.
    pub fn create(_device: Option<BorrowedFd<'_>>) -> Result<Self, UffdError> {
        let number = world::with(|world| {
            let space = world.own_space();
            world.new_uffd(space)
        });
        Ok(Self::of(number))
    }

    /// Reports faults on missing and on protected pages of `range`.
    ///
    /// # Errors
    /// [`UffdError::Unsupported`] where nothing is mapped.
    pub fn register(&self, range: PageRange) -> Result<(), UffdError> {
        self.set_registered(range, true)
    }

    /// Reports faults on missing pages of `range` alone.
    ///
    /// # Errors
    /// As [`Uffd::register`].
    pub fn register_missing(&self, range: PageRange) -> Result<(), UffdError> {
        self.set_registered(range, true)
    }

    /// Ends what [`Uffd::register`] began.
    ///
    /// # Errors
    /// None.
    pub fn unregister(&self, range: PageRange) -> Result<(), UffdError> {
        if let Some(objects) = self.objects {
            return objects.unregister(range);
        }
        let _ = self.set_registered(range, false);
        self.wake(range);
        Ok(())
    }

    fn set_registered(&self, range: PageRange, is_registered: bool) -> Result<(), UffdError> {
        if self.objects.is_some() {
            return Ok(());
        }
        schedule::point();
        world::with(|world| {
            let space = &mut world.spaces[world.uffds[self.number].space];
            space.split(range);
            let mut is_any = false;
            for (_, area) in space.areas_in(range) {
                area.uffd = is_registered.then_some(self.number);
                is_any = true;
            }
            if is_any { Ok(()) } else { Err(UffdError::Unsupported) }
        })
    }

    /// Whether there is a message to read.
    pub fn has_message(&self) -> bool {
        world::end_look();
        world::with(|world| match self.objects {
            Some(_) => world.ready.iter().any(|(uffd, _)| world.uffds[*uffd].has_message()),
            None => world.uffds[self.number].has_message(),
        })
    }

    /// Waits until there is a message, here or at one of `others`; at most `timeout_ns`.
    pub fn wait(&self, others: &[RawFd], timeout_ns: Option<u64>) {
        schedule::point();
        if self.objects.is_some() {
            if !self.has_message() {
                let deadline_ns = timeout_ns.map(|ns| world::with(|world| world.now_ns.saturating_add(ns)));
                schedule::block(Key::AnyMessages, deadline_ns);
            }
            return;
        }
        let others = others.iter().filter_map(|&other| usize::try_from(other).ok());
        let all: Vec<usize> = core::iter::once(self.number).chain(others).collect();
        if all.iter().any(|&number| Self::of(number).has_message()) {
            return;
        }
        let deadline_ns = timeout_ns.map(|ns| world::with(|world| world.now_ns.saturating_add(ns)));
        schedule::block_on_any(all.into_iter().map(Key::Messages).collect(), deadline_ns);
    }

    /// Whether the page belongs to a mapping that is registered here.
    pub fn is_registered(&self, page: PageIndex) -> Option<bool> {
        if let Some(objects) = self.objects {
            return Some(objects.is_registered(page));
        }
        schedule::point();
        world::with(|world| {
            let context = &world.uffds[self.number];
            let space = &world.spaces[context.space];
            match space.area(page) {
                _ if space.has_ended => None,
                Some((_, area)) if area.uffd == Some(self.number) => {
                    if context.changing > 0 {
                        None
                    } else {
                        Some(true)
                    }
                }
                _ => Some(false),
            }
        })
    }

    /// Whether an event waits to be read, or is being finished.
    pub fn is_changing(&self) -> bool {
        self.zero_vacant(NOTHING).stopped == Some(UffdError::Changing)
    }

    /// Whether the process has ended, or has another program's memory.
    pub fn has_ended(&self) -> bool {
        self.zero_vacant(NOTHING).stopped == Some(UffdError::Ended)
    }

    /// Installs `content` (whole pages) from `page` on.
    pub fn copy_in(&self, page: PageIndex, content: &[u8], waiters: Waiters) -> Progress {
        if let Some(objects) = self.objects {
            return objects.copy_in(page, content, waiters);
        }
        let (pages, _) = content.as_chunks::<PAGE_BYTES>();
        let range = PageRange::at(page, PageCount::new(pages.len() as u64));
        let progress = self.each(range, |world, step, page| {
            let content: &PageBytes = &pages[step];
            self.fill(world, page, Entry::frame(content))
        });
        if waiters == Waiters::Wake {
            self.wake(PageRange::at(page, progress.done));
        }
        progress
    }

    /// Maps the kernel's shared page of zeros.
    pub fn zero_in(&self, range: PageRange) -> Progress {
        self.over_marker(range, || self.zero_vacant(range))
    }

    /// As [`Uffd::zero_in`], but a marker is in the way.
    pub fn zero_vacant(&self, range: PageRange) -> Progress {
        if let Some(objects) = self.objects {
            return objects.zero_in(range);
        }
        let progress =
            self.each(range, |world, _, page| self.fill(world, page, Entry::Zeros { is_protected: false }));
        self.wake(PageRange::at(range.start, progress.done));
        progress
    }

    fn over_marker(&self, range: PageRange, put: impl Fn() -> Progress) -> Progress {
        let progress = put();
        if progress.stopped != Some(UffdError::Exists) || range.count() != PageCount::new(1) {
            return progress;
        }
        self.unmark(range);
        put()
    }

    /// Leaves a marker for each of these pages that isn't there. `false` when some may have none.
    pub fn mark(&self, range: PageRange) -> bool {
        self.objects.is_some() || self.protect(range).is_ok()
    }

    /// Takes markers away, and wakes nobody.
    pub fn unmark(&self, range: PageRange) {
        if self.objects.is_none() {
            let _ = self.set_protected(range, false);
        }
    }

    /// Makes every later touch of these missing pages a SIGBUS.
    pub fn poison(&self, range: PageRange) -> Progress {
        if let Some(objects) = self.objects {
            return objects.poison(range);
        }
        let progress = self.over_marker(range, || {
            self.each(range, |world, _, page| self.fill(world, page, Entry::Poisoned))
        });
        self.wake(PageRange::at(range.start, progress.done));
        progress
    }

    fn fill(&self, world: &mut World, page: PageIndex, entry: Entry) -> Step {
        let space = &mut world.spaces[world.uffds[self.number].space];
        match space.area(page) {
            Some((_, area)) if area.uffd == Some(self.number) => {
                if let Some(at) = area.object_page(page) {
                    return world::fill_shared(world, self.number, page, at, entry);
                }
            }
            _ => return Err(UffdError::Gone),
        }
        match (space.entry(page), &entry) {
            // A frame takes the place of anything that isn't a page.
            (None, _) | (Some(Entry::Marked | Entry::Guarded), Entry::Frame { .. }) => {}
            _ => return Err(UffdError::Exists),
        }
        let what = match entry {
            Entry::Frame { .. } => "a frame comes in",
            Entry::Zeros { .. } => "zeros come in",
            _ => "poisoned",
        };
        space.set(page, entry);
        let number = world.uffds[self.number].space;
        world.tell(page, || format!("process {number}: {what}"));
        Ok(())
    }

    /// The same under another number: for pagers in processes of their own, which there are none of here.
    ///
    /// # Errors
    /// Always.
    pub fn duplicate(&self) -> Result<OwnedFd, Errno> {
        Err(Errno::MFILE)
    }

    /// Makes several moves, one after the other.
    pub fn move_runs(&self, moves: &mut [Move], pagemap: &Pagemap) {
        if let Some(objects) = self.objects {
            return objects.move_runs(moves);
        }
        moves.iter_mut().for_each(|it| it.progress = self.move_pages(it.from, it.to, pagemap));
    }

    /// Takes pages away from where the program sees them and puts the same frames at `to`.
    pub fn move_pages(&self, from: PageRange, to: PageIndex, _pagemap: &Pagemap) -> Progress {
        if let Some(objects) = self.objects {
            let mut one = [Move { from, to, progress: UNTRIED }];
            objects.move_runs(&mut one);
            return one[0].progress;
        }
        let is_one = world::with(|world| {
            let space = &world.spaces[world.uffds[self.number].space];
            space.area(from.start).is_none_or(|(_, area)| area.end >= from.end)
        });
        self.each(from, |world, step, page| {
            if !is_one {
                return Err(UffdError::Unsupported);
            }
            let is_busy = world.chance(world.plan.busy_one_in);
            let space = &mut world.spaces[world.uffds[self.number].space];
            let target = to + PageCount::new(step as u64);
            let Some((_, area)) = space.area(page) else { return Err(UffdError::Gone) };
            if space.area(target).is_some_and(|(_, there)| there.is_executable != area.is_executable) {
                return Err(UffdError::Unsupported);
            }
            if space.entry(target).is_some() {
                return Err(UffdError::Exists);
            }
            match space.entry(page) {
                None | Some(Entry::Poisoned | Entry::Marked | Entry::Guarded) => return Err(UffdError::Gone),
                Some(entry) if entry.is_shared() || is_busy => return Err(UffdError::Busy),
                Some(_) => {}
            }
            if let Some(mut entry) = space.take(page) {
                entry.protect(false);
                space.set(target, entry);
                space.in_hand.insert(page);
            }
            world.moved += 1;
            world.tell(page, || "moved out".to_owned());
            Ok(())
        })
    }

    /// Works through pages, one after the other: the turn may pass between two, and a change may begin.
    fn each(
        &self,
        range: PageRange,
        mut page_step: impl FnMut(&mut World, usize, PageIndex) -> Step,
    ) -> Progress {
        schedule::point();
        let _reader = Reader::of(world::with(|world| world.uffds[self.number].space));
        world::end_look();
        let mut done = 0;
        for (step, page) in range.iter().enumerate() {
            if step > 0 {
                schedule::point();
            }
            let result = world::with(|world| {
                let context = &world.uffds[self.number];
                if world.spaces[context.space].has_ended {
                    return Err(UffdError::Ended);
                }
                // A change that was under way when it was looked at may be over by now.
                let may_stop = step > 0 || context.has_changed;
                if context.changing > 0 || may_stop && world.chance(world.plan.stop_one_in) {
                    return Err(UffdError::Changing);
                }
                page_step(world, step, page)
            });
            if let Err(error) = result {
                // The kernel tells what stopped it only where nothing was done.
                let stopped = Some(if done > 0 { UffdError::Changing } else { error });
                return Progress { done: PageCount::new(done), stopped };
            }
            done += 1;
        }
        Progress { done: PageCount::new(done), stopped: None }
    }

    /// Makes the next write to each of these pages a fault.
    ///
    /// # Errors
    /// [`UffdError::Changing`], [`UffdError::Gone`], [`UffdError::Ended`].
    pub fn protect(&self, range: PageRange) -> Result<(), UffdError> {
        if self.objects.is_some() {
            return Ok(());
        }
        self.set_protected(range, true)
    }

    /// Ends the protection of these pages, and lets threads that wait there try again.
    ///
    /// # Errors
    /// As [`Uffd::protect`].
    pub fn unprotect(&self, range: PageRange) -> Result<(), UffdError> {
        if let Some(objects) = self.objects {
            return objects.unprotect(range);
        }
        self.set_protected(range, false)?;
        self.wake(range);
        Ok(())
    }

    fn set_protected(&self, range: PageRange, is_protected: bool) -> Result<(), UffdError> {
        schedule::point();
        let outcome = world::with(|world| {
            let context = &world.uffds[self.number];
            let number = context.space;
            if world.spaces[number].has_ended {
                return Err(UffdError::Ended);
            }
            if context.changing > 0 {
                return Err(UffdError::Changing);
            }
            let space = &mut world.spaces[number];
            let is_registered =
                |page| space.area(page).is_some_and(|(_, area)| area.uffd == Some(self.number));
            if !range.iter().all(is_registered) {
                return Err(UffdError::Gone);
            }
            for page in range.iter() {
                let space = &mut world.spaces[number];
                match space.entry_mut(page) {
                    Some(Entry::Marked) if !is_protected => {
                        space.take(page);
                        space.in_hand.insert(page);
                        world.tell(page, || "not marked any more".to_owned());
                    }
                    Some(entry) => entry.protect(is_protected),
                    None if is_protected => {
                        space.set(page, Entry::Marked);
                        world.tell(page, || "marked".to_owned());
                    }
                    None => {}
                }
            }
            Ok(())
        });
        world::end_look();
        outcome
    }

    /// Lets threads that wait for these pages try again.
    pub fn wake(&self, range: PageRange) {
        if let Some(objects) = self.objects {
            return objects.wake(range);
        }
        let woken: Vec<u64> = world::with(|world| {
            let faults = &mut world.uffds[self.number].faults;
            let (woken, left): (Vec<_>, Vec<_>) =
                faults.drain(..).partition(|fault| range.contains(fault.page));
            *faults = left;
            woken.iter().map(|fault| fault.number).collect()
        });
        woken.iter().for_each(|&fault| schedule::wake(Key::Fault(fault), usize::MAX));
    }

    /// What else the message said that was read last.
    pub fn read_rest(&self) -> Option<Message> {
        self.objects?.read_rest()
    }

    /// The next message, `None` when there is none. Faults come before events.
    ///
    /// # Errors
    /// None.
    pub fn read(&self) -> Result<Option<Message>, UffdError> {
        if let Some(objects) = self.objects {
            return objects.read();
        }
        world::end_look();
        schedule::point();
        let fault = world::with(|world| {
            let fault = world.uffds[self.number].faults.iter_mut().find(|fault| !fault.is_read)?;
            fault.is_read = true;
            let fault = *fault;
            world.tell(fault.page, || "the fault is read".to_owned());
            Some(fault)
        });
        if let Some(fault) = fault {
            return Ok(Some(Message::Fault {
                address: fault.page.addr(),
                write: fault.write,
                protected: fault.is_protected,
                thread: fault.thread,
            }));
        }
        let Some((event, change)) = world::with(|world| world.uffds[self.number].events.pop_front()) else {
            return Ok(None);
        };
        if let Change::Remap { from: range, .. } | Change::Remove(range) | Change::Unmap(range) = change {
            world::with(|world| world.tell_of(range, || format!("the event is read: {change:?}")));
        }
        schedule::wake(Key::Event(event), usize::MAX);
        Ok(Some(match change {
            Change::Fork { uffd } => Message::Fork(Self::of(uffd)),
            Change::Remap { from, to } => Message::Remap { from: from.start, to, count: from.count() },
            Change::Remove(range) => Message::Remove(range),
            Change::Unmap(range) => Message::Unmap(range),
        }))
    }
}
