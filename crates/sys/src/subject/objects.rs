//! Memory that processes of an application share, as what a pager manages: anonymous shared memory, which no
//! process reaches but through its mappings.
//!
//! The kernel moves no page of shared memory from one place to another. A page leaves in three steps: it is
//! protected against writes in all processes that map it, copied, and punched out of the object; from then on
//! a touch by any of them is a fault. It comes back once for all, through one of them. While a page leaves,
//! whoever wants to write it waits: so nothing is written between the copy and the hole.
//!
//! To the pager the objects are one address space, in which each lies at a place of its own. What the kernel
//! says by the userfaultfd of one of the processes is told with these addresses. A process that is forked has
//! the mappings of its parent, and a userfaultfd from its first moment on.

use core::fmt;

use farmem_page::{PAGE_BYTES, PageCount, PageIndex, PageRange};

use crate::guard::{self, Guard};
use crate::list::List;
use crate::lock::Lock;
use crate::maps::Mapping;
use crate::memory;
use crate::object::{self, Current, ObjectFile, Ready};
use crate::pagemap::{Runs, Vacancies};
use crate::uffd::{Message, Move, Progress, Uffd, UffdError, Waiters};
use crate::{AsFd, AsRawFd, BorrowedFd, Errno, OwnedFd};

#[path = "objects/mapper.rs"]
mod mapper;

use super::punched::Punches;
use mapper::Mapper;

/// Objects that are managed at a time.
pub const MOST_OBJECTS: usize = 64;
/// Threads whose faults are told apart. Where more wait all processes are woken.
const MOST_WAITERS: usize = 512;
/// Moves that are under way at a time: one for each evictor.
const MOST_LEAVING: usize = 4;
/// Where the first object lies, and pages between two of them.
const FIRST: PageIndex = PageIndex::new(1 << 20);
const BETWEEN: u64 = 1 << 10;
/// Frames on their way out, and where the pager sees them.
const FRAMES: usize = 512;
const FRAMES_AT: PageIndex = PageIndex::new(1 << 19);
pub(crate) const STAGING: PageRange = PageRange::at(FRAMES_AT, PageCount::new(FRAMES as u64));
/// Messages that are looked for in one go.
const READY: usize = 8;

/// An object.
#[derive(Debug)]
struct Object {
    file: ObjectFile,
    pages: PageRange,
    /// Whether all processes that map it are known, so that its pages may leave.
    is_open: bool,
}

/// A process waits for a page.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    page: PageIndex,
    mapper: usize,
}

struct State {
    objects: [Option<Object>; MOST_OBJECTS],
    mappers: List<Option<&'static mut Mapper>>,
    /// Memory for further ones, which has been others'.
    spare: List<&'static mut Mapper>,
    /// Where the next object may lie.
    next: PageIndex,
    /// What the next process is known by.
    next_number: u64,
    /// Whether it is known of all mappings how long they are.
    are_measured: bool,
    waiters: [Option<Waiter>; MOST_WAITERS],
    /// There are none from that place on.
    waiters_end: usize,
    are_all_waiting: bool,
    /// Pages that are leaving.
    leaving: [Option<PageRange>; MOST_LEAVING],
    /// What the program has punched, and what nobody maps any more, until it is told.
    punched: List<PageRange>,
    gone: [Option<PageRange>; MOST_OBJECTS],
}

/// The shared memory of an application. One for each process, for ever.
pub struct Objects {
    /// Readable while any userfaultfd of a process is.
    ready: Ready,
    state: Lock<State>,
    frames: &'static [[u8; PAGE_BYTES]],
    /// Processes that map objects, as they were found last: their numbers, and descriptors that stand for
    /// them.
    processes: Lock<List<(u32, i32)>>,
    /// Hears of the userfaultfd of each new process.
    keep: fn(BorrowedFd<'_>),
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects").finish_non_exhaustive()
    }
}

static OBJECTS: Current<Objects> = Current::nothing();

/// The shared memory that this process's pager manages, if it does.
pub fn objects() -> Option<&'static Objects> {
    OBJECTS.get()
}

/// From now on the calling process's pager manages shared memory, none at first. `keep` hears of each
/// userfaultfd that a fork brings, before the child runs.
///
/// # Errors
/// No memory, or no descriptor.
pub fn begin(keep: fn(BorrowedFd<'_>)) -> Result<&'static Objects, Errno> {
    let objects: &'static Objects = memory::leak(Objects {
        ready: Ready::new()?,
        state: Lock::new(State {
            objects: [const { None }; MOST_OBJECTS],
            mappers: List::new(),
            spare: List::new(),
            next: FIRST,
            next_number: 1,
            are_measured: true,
            waiters: [None; MOST_WAITERS],
            waiters_end: 0,
            are_all_waiting: false,
            leaving: [None; MOST_LEAVING],
            punched: List::new(),
            gone: [None; MOST_OBJECTS],
        }),
        frames: memory::table(FRAMES)?,
        processes: Lock::new(List::new()),
        keep,
    })?;
    OBJECTS.set(objects);
    Ok(objects)
}

impl State {
    fn mapper(&self, number: usize) -> Option<&Mapper> {
        self.mappers.get(number)?.as_deref()
    }

    fn object_of(&self, page: PageIndex) -> Option<&Object> {
        self.objects.iter().flatten().find(|object| object.pages.contains(page))
    }

    /// Takes on a process, which has the mappings of its `parent` if it was forked.
    fn add_mapper(&mut self, uffd: Uffd, parent: Option<usize>, ready: &Ready) -> Result<(), Errno> {
        let number = match self.mappers.iter().position(Option::is_none) {
            Some(number) => number,
            None => {
                self.mappers.push(None)?;
                self.mappers.len() - 1
            }
        };
        ready.add(&uffd, number)?;
        let own = self.next_number;
        self.next_number += 1;
        let place = match self.spare.pop() {
            Some(place) => {
                // What was there has been emptied when its process ended.
                (place.number, place.uffd, place.thread) = (own, uffd, None);
                place.given_up.clear();
                place
            }
            None => {
                let (places, given_up) = (mapper::Places::new(), List::new());
                memory::leak(Mapper { number: own, uffd, places, thread: None, given_up })?
            }
        };
        if let Some(parent) = parent.and_then(|parent| self.mapper(parent)) {
            place.inherit(parent)?;
        }
        self.mappers[number] = Some(place);
        Ok(())
    }

    /// A process has ended, or has another program's memory.
    fn remove_mapper(&mut self, number: usize, ready: &Ready) {
        let Some(mapper) = self.mappers[number].take() else { return };
        // Others hold duplicates, so that closing it wouldn't do.
        ready.remove(&mapper.uffd);
        mapper.places.clear();
        for place in &mut self.waiters {
            let _ = place.take_if(|waiter| waiter.mapper == number);
        }
        // Without memory for the list its own is not used again.
        let _ = self.spare.push(mapper);
        self.close_unmapped();
    }

    /// Objects that nobody maps any more are over. Those that aren't open yet are about to be mapped.
    fn close_unmapped(&mut self) {
        for at in 0..MOST_OBJECTS {
            let Some(object) = &self.objects[at] else { continue };
            let (pages, is_open) = (object.pages, object.is_open);
            let is_mapped = self.mappers.iter().flatten().any(|mapper| mapper.maps_any(pages));
            if is_open && !is_mapped {
                self.objects[at] = None;
                if let Some(place) = self.gone.iter_mut().find(|place| place.is_none()) {
                    *place = Some(pages);
                }
            }
        }
    }

    /// Finds out how long mappings are of which the kernel hasn't told that. As long as it can't be found out
    /// something changes in that process, and the kernel refuses what is asked for there.
    fn measure(&mut self) {
        // Asking ends the protection of a page: not while some are leaving.
        if !self.are_measured && self.leaving.iter().all(Option::is_none) {
            self.are_measured = true;
            for mapper in self.mappers.iter_mut().filter_map(Option::as_deref_mut) {
                let Mapper { uffd, places, .. } = mapper;
                self.are_measured &= places.measure(|there| uffd.tells_of_writes(there));
            }
        }
    }

    /// Makes a call for each process that maps some of `pages`, with where it does; stops at the first that
    /// is refused.
    fn each_place(
        &mut self,
        pages: PageRange,
        ready: &Ready,
        call: impl Fn(&Uffd, PageRange) -> Result<(), UffdError>,
    ) -> Result<(), UffdError> {
        self.measure();
        for number in 0..self.mappers.len() {
            let Some(mapper) = self.mapper(number) else { continue };
            let made = mapper.places.of(pages).try_for_each(|place| call(&mapper.uffd, place.there));
            match made {
                Ok(()) => {}
                Err(UffdError::Ended) => self.remove_mapper(number, ready),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// What has been read already and not been told.
    fn rest(&mut self) -> Option<Message> {
        let gone = self.gone.iter_mut().find_map(Option::take).map(Message::Unmap);
        gone.or_else(|| self.punched.pop().map(Message::Remove))
    }

    fn note_waiter(&mut self, page: PageIndex, mapper: usize) {
        match self.waiters.iter_mut().position(|place| place.is_none()) {
            Some(place) => {
                self.waiters[place] = Some(Waiter { page, mapper });
                self.waiters_end = self.waiters_end.max(place + 1);
            }
            None => self.are_all_waiting = true,
        }
    }

    /// Lets threads that wait for pages of `pages` try again, in the processes where some do.
    fn wake(&mut self, pages: PageRange, ready: &Ready) {
        let wake = |uffd: &Uffd, there: PageRange| {
            uffd.wake(there);
            Ok(())
        };
        if self.are_all_waiting {
            let _ = self.each_place(pages, ready, wake);
            return;
        }
        for at in 0..self.waiters_end {
            if !guard::stands(Guard::SharersAreWoken) {
                return;
            }
            let Some(waiter) = self.waiters[at].take_if(|waiter| pages.contains(waiter.page)) else {
                continue;
            };
            if let Some(mapper) = self.mapper(waiter.mapper) {
                let one = PageRange::at(waiter.page, PageCount::new(1));
                mapper.places.of(one).for_each(|place| mapper.uffd.wake(place.there));
            }
        }
        while self.waiters_end > 0 && self.waiters[self.waiters_end - 1].is_none() {
            self.waiters_end -= 1;
        }
    }

    /// A process of those that map `page`, best one that waits for it, and where; how many of the `count`
    /// pages from there on it maps in a row.
    fn way_in(&self, page: PageIndex, count: u64) -> Option<(usize, PageRange)> {
        let waiters = self.waiters[..self.waiters_end].iter().flatten();
        let waits = waiters.filter(|waiter| waiter.page == page).map(|waiter| waiter.mapper);
        let pages = PageRange::at(page, PageCount::new(count));
        waits.chain(0..self.mappers.len()).find_map(|number| {
            let mapper = self.mapper(number)?;
            let place = mapper.places.of(pages).find(|place| place.pages == page)?;
            Some((number, place.there))
        })
    }

    /// A message of a process's, as the pager is told it. `None` where it is none of the pager's business.
    fn take_in(
        &mut self,
        number: usize,
        message: Message,
        punches: &Punches,
        objects: &Objects,
    ) -> Option<Message> {
        match message {
            Message::Fault { address, write, protected, thread } => {
                let mapper = self.mappers[number].as_deref_mut()?;
                mapper.thread = Some(thread);
                let there = address.page();
                let Some(page) = mapper.places.page_of(there) else {
                    // It has gone since, or is about to be told of.
                    mapper.uffd.wake(PageRange::at(there, PageCount::new(1)));
                    return None;
                };
                if !protected {
                    self.note_waiter(page, number);
                    let within = address.get() - there.addr().get();
                    let address = farmem_page::VirtAddr::new(page.addr().get() + within);
                    return Some(Message::Fault { address, write, protected: false, thread });
                }
                // While it leaves, whoever has protected it ends that. Otherwise it has stayed, or is back.
                if self.leaving.iter().flatten().any(|leaving| leaving.contains(page)) {
                    return None;
                }
                let there = PageRange::at(there, PageCount::new(1));
                match mapper.uffd.unprotect(there) {
                    Ok(()) | Err(UffdError::Ended) => None,
                    Err(UffdError::Changing) => {
                        // An event waits to be read: the pager asks again when it has been.
                        self.note_waiter(page, number);
                        Some(Message::Fault { address: page.addr(), write, protected, thread })
                    }
                    Err(_) => {
                        mapper.uffd.wake(there);
                        None
                    }
                }
            }
            Message::Fork(uffd) => {
                self.mapper(number)?;
                let parent = guard::stands(Guard::ForkedHaveTheirPlaces).then_some(number);
                (objects.keep)(uffd.as_fd());
                if self.add_mapper(uffd, parent, &objects.ready).is_err() {
                    // Its pages would come back as zeros.
                    objects.end();
                }
                None
            }
            Message::Unmap(there) => {
                let mapper = self.mappers[number].as_deref_mut()?;
                if mapper.places.remove(there).is_err() {
                    objects.end();
                }
                self.close_unmapped();
                None
            }
            Message::Remap { from, to, count } => {
                let page = self.mapper(number)?.places.page_of(from);
                let object = page.and_then(|page| self.object_of(page)).map(|object| object.pages);
                let mapper = self.mappers[number].as_deref_mut()?;
                if !guard::stands(Guard::PlacesFollowMoves) {
                    return None;
                }
                let followed = match object {
                    Some(object) if count == PageCount::ZERO => mapper.places.duplicate(from, to, object.end),
                    _ => mapper.places.relocate(PageRange::at(from, count), to),
                };
                self.are_measured = false;
                if followed.is_err() {
                    objects.end();
                }
                None
            }
            Message::Remove(there) => {
                if !guard::stands(Guard::HolesAreTold) {
                    return None;
                }
                let mapper = self.mappers[number].as_deref()?;
                // What another thread only looks away from at the same time keeps the rest of its pages.
                let punched = punches
                    .within(there)
                    .flat_map(|hole| mapper.places.iter().map(move |place| place.part(hole).pages()));
                for pages in punched.filter(|pages| !pages.is_empty()) {
                    if self.punched.push(pages).is_err() {
                        objects.end();
                    }
                }
                None
            }
            Message::Unknown(kind) => Some(Message::Unknown(kind)),
        }
    }
}

impl Objects {
    /// A process that maps objects, by a userfaultfd of its memory that was shaken hands with; what it is
    /// known by, which no other process ever is.
    ///
    /// # Errors
    /// No memory, or the kernel refuses.
    pub fn add_process(&self, uffd: Uffd) -> Result<u64, Errno> {
        let mut state = self.state.lock();
        let number = state.next_number;
        state.add_mapper(uffd, None, &self.ready).map(|()| number)
    }

    /// An object of so many pages, of which none may leave yet.
    ///
    ///
    /// `None` when there are too many.
    pub fn add_object(&self, file: OwnedFd, count: PageCount) -> Option<PageRange> {
        let mut state = self.state.lock();
        let pages = PageRange::at(state.next, count);
        let place = state.objects.iter_mut().find(|place| place.is_none())?;
        *place = Some(Object { file: file.into(), pages, is_open: false });
        state.next = pages.end + PageCount::new(BETWEEN);
        Some(pages)
    }

    /// The process of that number has a mapping at `there`, of `pages` from the first on. From now on its
    /// faults are told.
    ///
    /// # Errors
    /// No memory, or the kernel refuses.
    pub fn add_mapping(&self, process: u64, there: PageRange, pages: PageIndex) -> Result<(), Errno> {
        let mut state = self.state.lock();
        let mut mappers = state.mappers.iter_mut().filter_map(Option::as_deref_mut);
        let mapper = mappers.find(|mapper| mapper.number == process).ok_or(Errno::SRCH)?;
        // With the lock held, so that a child that is forked meanwhile is told of afterwards.
        mapper.uffd.register(there).map_err(Errno::from)?;
        let place = mapper::Place { there, pages, is_measured: true };
        mapper.places.remove(there)?;
        mapper.given_up.retain(|given_up| given_up.intersect(there).is_empty());
        mapper.places.add(place)
    }

    /// All processes that map the object are known: its pages may leave.
    pub fn open(&self, pages: PageRange) {
        let mut state = self.state.lock();
        let object = state.objects.iter_mut().flatten().find(|object| object.pages == pages);
        object.into_iter().for_each(|object| object.is_open = true);
        state.close_unmapped();
    }

    /// Not all processes that map the object could be taken on: it stays as it is.
    pub fn give_up(&self, pages: PageRange) {
        let mut state = self.state.lock();
        let _ = state.each_place(pages, &self.ready, |uffd, there| {
            let _ = uffd.unregister(there);
            Ok(())
        });
        let forgotten = state.mappers.iter_mut().flatten().try_for_each(|mapper| mapper.give_up(pages));
        if forgotten.is_err() {
            // Children that nobody has been told of yet would wait for ever.
            self.end();
        }
        let object =
            state.objects.iter_mut().find(|object| object.as_ref().is_some_and(|it| it.pages == pages));
        object.into_iter().for_each(|object| *object = None);
    }

    /// Forgets processes that have ended or run another program by now, of which no message tells. How many
    /// are left that map an object.
    pub fn sweep(&self) -> usize {
        let mut state = self.state.lock();
        for number in 0..state.mappers.len() {
            if state.mapper(number).is_some_and(|mapper| mapper.uffd.has_ended()) {
                state.remove_mapper(number, &self.ready);
            }
        }
        // Also what was measured since the last sweep may have turned out to be mapped by nobody.
        state.measure();
        state.close_unmapped();
        state.mappers.iter().flatten().filter(|mapper| !mapper.places.is_empty()).count()
    }

    /// Whether that object is managed.
    pub fn has(&self, pages: PageRange) -> bool {
        self.state.lock().objects.iter().flatten().any(|object| object.pages == pages)
    }

    /// Whether an object is managed, or is being taken on.
    pub fn has_any(&self) -> bool {
        self.state.lock().objects.iter().any(Option::is_some)
    }

    /// Processes that map objects, as they are now: their numbers, and descriptors that stand for them, which
    /// stay open until others are said.
    ///
    /// # Errors
    /// No memory: only some of them are known.
    pub fn set_processes<'a>(
        &self,
        processes: impl Iterator<Item = (u32, BorrowedFd<'a>)>,
    ) -> Result<(), Errno> {
        let mut known = self.processes.lock();
        known.clear();
        processes.map(|(number, handle)| (number, handle.as_raw_fd())).try_for_each(|one| known.push(one))
    }

    /// Ends the processes that map objects, and the calling one.
    pub(crate) fn end(&self) -> ! {
        self.processes.lock().iter().for_each(|&(_, handle)| object::kill(handle));
        crate::process::kill_self()
    }

    /// A descriptor that is readable while a message waits.
    ///
    /// # Errors
    /// No descriptor.
    pub fn messages(&'static self) -> Result<Uffd, Errno> {
        Ok(Uffd::of_objects(self.ready.duplicate()?, self))
    }

    /// The next message of any process, as [`Uffd::read`].
    pub(crate) fn read(&self) -> Result<Option<Message>, UffdError> {
        let mut state = self.state.lock();
        if let Some(message) = state.rest() {
            return Ok(Some(message));
        }
        let mut numbers = [0; READY];
        let count = self.ready.look(&mut numbers).map_err(UffdError::from)?;
        for &number in &numbers[..count] {
            let Some(mapper) = state.mapper(number) else { continue };
            // Before it is read: from then on whoever asked for a discard goes on with it.
            let punches =
                if mapper.uffd.is_changing() { Punches::of(mapper.thread) } else { Punches::default() };
            let Some(message) = mapper.uffd.read()? else { continue };
            let told = state.take_in(number, message, &punches, self);
            return Ok(Some(told.unwrap_or(Message::Unknown(0))));
        }
        Ok(None)
    }

    /// As [`Uffd::read_rest`].
    pub(crate) fn read_rest(&self) -> Option<Message> {
        guard::stands(Guard::HolesAreToldAtOnce).then(|| self.state.lock().rest()).flatten()
    }

    /// As [`Uffd::unprotect`], in all processes that map the pages.
    pub(crate) fn unprotect(&self, pages: PageRange) -> Result<(), UffdError> {
        self.state.lock().each_place(pages, &self.ready, |uffd, there| uffd.unprotect(there))
    }

    /// As [`Uffd::copy_in`], for whichever process maps the pages.
    pub(crate) fn copy_in(&self, page: PageIndex, content: &[u8], waiters: Waiters) -> Progress {
        let mut state = self.state.lock();
        state.measure();
        let asked = PageCount::new((content.len() / PAGE_BYTES) as u64);
        let mut done = PageCount::ZERO;
        let mut stopped = None;
        while done < asked && stopped.is_none() {
            let left = asked.saturating_sub(done);
            let Some((number, there)) = state.way_in(page + done, left.get()) else {
                stopped = Some(UffdError::Gone);
                break;
            };
            let Some(mapper) = state.mapper(number) else { continue };
            let from = done.bytes().get() as usize;
            let part = &content[from..from + there.count().bytes().get() as usize];
            let progress = mapper.uffd.copy_in(there.start, part, Waiters::Keep);
            done += progress.done;
            match progress.stopped {
                Some(UffdError::Ended) => state.remove_mapper(number, &self.ready),
                other => stopped = other,
            }
        }
        if waiters == Waiters::Wake {
            state.wake(PageRange::at(page, done), &self.ready);
        }
        Progress { done, stopped }
    }

    /// As [`Uffd::zero_vacant`]; each of the pages gets a frame.
    pub(crate) fn zero_in(&self, pages: PageRange) -> Progress {
        static ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
        let mut done = PageCount::ZERO;
        for page in pages.iter() {
            let progress = self.copy_in(page, &ZEROS, Waiters::Wake);
            done += progress.done;
            if progress.stopped.is_some() {
                return Progress { done, ..progress };
            }
        }
        Progress { done, stopped: None }
    }

    /// What there is in the first pages of `range`, as [`crate::pagemap::Pagemap::vacancies`].
    pub(crate) fn vacancies(&self, range: PageRange) -> Option<Vacancies> {
        let count = range.count().get().min(Vacancies::MOST as u64);
        let mut runs = Runs::empty();
        self.present(PageRange::at(range.start, PageCount::new(count)), &mut runs).ok()?;
        let mut vacancies = Vacancies::default();
        for (at, page) in range.iter().take(count as usize).enumerate() {
            let bits = if runs.hold(page) { &mut vacancies.present } else { &mut vacancies.marked };
            *bits |= 1 << at;
        }
        Some(vacancies)
    }

    /// As [`Uffd::wake`].
    pub(crate) fn wake(&self, pages: PageRange) {
        self.state.lock().wake(pages, &self.ready);
    }

    /// As [`Uffd::poison`].
    pub(crate) fn poison(&self, pages: PageRange) -> Progress {
        let mut state = self.state.lock();
        let poison = |uffd: &Uffd, there: PageRange| uffd.poison(there).stopped.map_or(Ok(()), Err);
        let stopped = state.each_place(pages, &self.ready, poison).err();
        state.wake(pages, &self.ready);
        Progress { done: if stopped.is_none() { pages.count() } else { PageCount::ZERO }, stopped }
    }

    /// As [`Uffd::is_registered`].
    pub(crate) fn is_registered(&self, page: PageIndex) -> bool {
        self.state.lock().object_of(page).is_some()
    }

    /// As [`Uffd::unregister`].
    pub(crate) fn unregister(&self, pages: PageRange) -> Result<(), UffdError> {
        self.state.lock().each_place(pages, &self.ready, |uffd, there| uffd.unregister(there))
    }

    /// As [`Uffd::move_runs`]: to the frames, or from there.
    pub(crate) fn move_runs(&self, moves: &mut [Move]) {
        for it in moves {
            let is_out = frame_number(it.to).is_some();
            it.progress = if is_out { self.move_out(it.from, it.to) } else { self.move_back(it.from, it.to) };
        }
    }

    fn move_out(&self, from: PageRange, to: PageIndex) -> Progress {
        let nothing = |stopped| Progress { done: PageCount::ZERO, stopped: Some(stopped) };
        let mut state = self.state.lock();
        let Some((file, first)) =
            state.object_of(from.start).map(|object| (&object.file, object.pages.start))
        else {
            return nothing(UffdError::Gone);
        };
        // The object is open as long as its pages are managed. What closes it comes by a message, and none is
        // read while pages move.
        let file = match file.duplicate() {
            Ok(file) => file,
            Err(_) => return nothing(UffdError::OutOfMemory),
        };
        let offset = PageRange::new(first, from.start).count().bytes().get();
        let pages = PageRange::at(from.start, data_at(&file, offset, from.count()));
        if pages.is_empty() {
            return nothing(UffdError::Gone);
        }
        let Some(place) = state.leaving.iter().position(Option::is_none) else {
            return nothing(UffdError::Changing);
        };
        state.leaving[place] = Some(pages);
        let protected = if guard::stands(Guard::LeavingIsProtected) {
            state.each_place(pages, &self.ready, |uffd, there| uffd.protect(there))
        } else {
            Ok(())
        };
        drop(state);
        let left = protected.map_err(|error| match error {
            // The mapping has gone or is going: the message that says so is on its way.
            UffdError::Gone | UffdError::Changing => UffdError::Changing,
            other => other,
        });
        let left = left.and_then(|()| self.take_out(&file, offset, pages, to));
        let mut state = self.state.lock();
        state.leaving[place] = None;
        // Whoever waits to write tries again: and finds the page, or misses it. Where nobody waits the
        // protection of what has left would stay in each process, and be a fault of its own at the first
        // write after the page has come back.
        let _ = state.each_place(pages, &self.ready, |uffd, there| {
            let _ = uffd.unprotect(there);
            Ok(())
        });
        match left {
            Ok(()) if pages.count() == from.count() => Progress { done: pages.count(), stopped: None },
            Ok(()) => Progress { done: pages.count(), stopped: Some(UffdError::Gone) },
            Err(error) => nothing(error),
        }
    }

    /// Copies pages, which nobody can write, to frames, and takes them out of the object.
    fn take_out(
        &self,
        file: &ObjectFile,
        offset: u64,
        pages: PageRange,
        to: PageIndex,
    ) -> Result<(), UffdError> {
        let bytes = pages.count().bytes().get();
        let mut frames = self.frames_from(to, pages.count()).ok_or(UffdError::Unsupported)?;
        let mut at = offset;
        while !frames.is_empty() {
            let length = file.read_at(&mut *frames, at).map_err(UffdError::from)?;
            if length == 0 {
                return Err(UffdError::Gone);
            }
            frames = &mut frames[length..];
            at += length as u64;
        }
        file.punch(offset, bytes).map_err(UffdError::from)
    }

    fn move_back(&self, from: PageRange, to: PageIndex) -> Progress {
        let Some(frames) = self.frames_from(from.start, from.count()) else {
            return Progress { done: PageCount::ZERO, stopped: Some(UffdError::Unsupported) };
        };
        self.copy_in(to, frames, Waiters::Keep)
    }

    #[expect(clippy::mut_from_ref, reason = "the frames are the evictor's")]
    fn frames_from(&self, frame: PageIndex, count: PageCount) -> Option<&mut [u8]> {
        let first = frame_number(frame)?;
        let last = first.checked_add(count.get() as usize).filter(|&last| last <= FRAMES)?;
        let start = self.frames[first..last].as_ptr().cast_mut().cast::<u8>();
        // SAFETY: the frames are memory of this process's, which lives for ever and any bytes may be in. They
        // belong to the holder of the `Frames`, the evictor, which makes all moves and holds no look at a
        // frame meanwhile.
        Some(unsafe { core::slice::from_raw_parts_mut(start, count.bytes().get() as usize) })
    }

    /// What is staged in a frame.
    pub(crate) fn staged(&self, frame: PageIndex) -> &[u8; PAGE_BYTES] {
        &self.frames[frame_number(frame).unwrap_or(FRAMES)]
    }

    /// The object that holds `from`, or the next one behind it, as a mapping. Only those whose pages may
    /// leave.
    pub(crate) fn next(&self, from: PageIndex) -> Option<Mapping> {
        let state = self.state.lock();
        let open = state.objects.iter().flatten().filter(|object| object.is_open && object.pages.end > from);
        let pages = open.map(|object| object.pages).min_by_key(|pages| pages.start)?;
        Some(Mapping { range: pages, writable: true, executable: false, anonymous: true, shared: false })
    }

    /// Which pages of `range` are there, as runs, and how far was looked.
    pub(crate) fn present(&self, range: PageRange, runs: &mut Runs) -> Result<PageIndex, Errno> {
        let state = self.state.lock();
        runs.clear();
        for object in state.objects.iter().flatten() {
            let part = object.pages.intersect(range);
            let first = object.pages.start;
            let page_at = |offset: u64| first + PageCount::new(offset / PAGE_BYTES as u64);
            let offset_of = |page: PageIndex| PageRange::new(first, page).count().bytes().get();
            let mut at = part.start;
            while at < part.end {
                let Some(data) = object.file.next_data(offset_of(at))? else { break };
                let start = page_at(data);
                if start >= part.end {
                    break;
                }
                let hole = object.file.next_hole(data)?;
                let end = hole.map_or(part.end, page_at).min(part.end);
                if !runs.push(PageRange::new(start, end)) {
                    return Ok(start);
                }
                at = end;
            }
        }
        Ok(range.end)
    }

    /// Pages of all objects that are there.
    pub(crate) fn resident(&self) -> Result<PageCount, Errno> {
        let state = self.state.lock();
        let mut bytes = 0;
        for object in state.objects.iter().flatten() {
            bytes += object.file.resident_bytes()?;
        }
        Ok(PageCount::new(bytes / PAGE_BYTES as u64))
    }

    /// Processor time of the processes that map objects, in nanoseconds.
    pub(crate) fn cpu_ns(&self) -> u64 {
        self.processes.lock().iter().map(|&(number, _)| super::cpu_ns_of(number)).sum()
    }
}

/// Which frame that is.
fn frame_number(page: PageIndex) -> Option<usize> {
    (page.get() as usize).checked_sub(FRAMES_AT.get() as usize).filter(|&number| number < FRAMES)
}

/// How many of the `count` pages from `offset` on are there in a row. One by one: to find where the next hole
/// is the kernel would look at all pages until there, of which there may be very many.
fn data_at(file: &ObjectFile, offset: u64, count: PageCount) -> PageCount {
    let offsets = (0..count.get()).map(|page| offset + page * PAGE_BYTES as u64);
    let there = offsets.take_while(|&at| file.next_data(at) == Ok(Some(at)));
    PageCount::new(there.count() as u64)
}
