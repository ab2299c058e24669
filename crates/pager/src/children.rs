//! Forked children that this process serves: each one until it serves itself, and for good those that were forked
//! past the C library (a bare `clone`), which have no pager of their own.

use farmem_page::{PageIndex, PageRange, Place};
use farmem_sys::lock::Lock;
use farmem_sys::uffd::{Message, Uffd, UffdError, Waiters};
use farmem_sys::{AsFd, AsRawFd, RawFd};

use crate::engine::{Engine, Failure};
use crate::serve::Desk;
use crate::table::PageTable;
use crate::vault::LoadFailure;

/// Most children served at a time.
pub(crate) const MOST: usize = 32;
/// Attempts to answer one fault while the child's address space keeps changing.
const ATTEMPTS: u32 = 1000;

/// A child.
#[derive(Debug)]
pub(crate) struct View {
    uffd: Uffd,
    /// The parent's count of forks when this child was made.
    epoch: u64,
    /// The child's words; `None` while nothing leaves the parent, whose own words then are right for the child too.
    table: Option<PageTable>,
}

/// The children.
#[derive(Debug)]
pub(crate) struct Children {
    views: Lock<[Option<View>; MOST]>,
}

impl Children {
    pub(crate) const fn new() -> Self {
        Self { views: Lock::new([const { None }; MOST]) }
    }

    fn add(&self, view: View) -> bool {
        let mut views = self.views.lock();
        match views.iter_mut().find(|place| place.is_none()) {
            Some(place) => {
                *place = Some(view);
                true
            }
            None => false,
        }
    }

    /// The descriptors to wait for, and how many there are.
    pub(crate) fn descriptors(&self) -> ([RawFd; MOST], usize) {
        let mut descriptors = [-1; MOST];
        let mut count = 0;
        for view in self.views.lock().iter().flatten() {
            descriptors[count] = view.uffd.as_fd().as_raw_fd();
            count += 1;
        }
        (descriptors, count)
    }

    /// Whether there are any.
    pub(crate) fn is_empty(&self) -> bool {
        self.views.lock().iter().all(Option::is_none)
    }

    /// Whether a child still goes by its parent's own words.
    pub(crate) fn is_served_by_parent(&self) -> bool {
        self.views.lock().iter().flatten().any(|view| view.table.is_none())
    }

    /// The parent's words are about to change: a child that doesn't serve itself by now gets a copy.
    pub(crate) fn settle(&self, engine: &Engine) {
        for view in self.views.lock().iter_mut().flatten() {
            if view.table.is_none() && engine.slot.taken_epoch() < view.epoch {
                view.table = Some(engine.copy_table());
            }
        }
    }
}

impl Engine {
    /// Begins to serve a child. `is_shared` while the parent's words stay right for the child: until it serves itself
    /// nothing leaves the parent.
    pub(crate) fn adopt(&self, uffd: Uffd, epoch: u64, is_shared: bool) {
        let table = if is_shared { None } else { Some(self.copy_table()) };
        if !self.children.add(View { uffd, epoch, table }) {
            // Letting go of the descriptor would show the child zeros.
            self.fail(Failure::Kernel);
        }
    }

    fn copy_table(&self) -> PageTable {
        match self.table.copy_for_child(self.regions.iter()) {
            Ok(table) => table,
            Err(_) => self.fail(Failure::Kernel),
        }
    }

    /// Answers what children have asked, and forgets those that have gone or serve themselves.
    pub(crate) fn serve_children(&self, desk: &mut Desk) {
        let mut grandchildren = [const { None }; 4];
        let mut views = self.children.views.lock();
        for place in views.iter_mut() {
            let Some(view) = place else { continue };
            let mut is_over = view.table.is_none() && self.slot.taken_epoch() >= view.epoch;
            while !is_over {
                match view.uffd.read() {
                    Ok(None) => break,
                    Ok(Some(message)) => is_over = !self.answer(view, message, desk, &mut grandchildren),
                    Err(_) => is_over = true,
                }
            }
            if is_over {
                *place = None;
            }
        }
        drop(views);
        for (uffd, epoch, table) in grandchildren.into_iter().flatten() {
            if !self.children.add(View { uffd, epoch, table: Some(table) }) {
                self.fail(Failure::Kernel);
            }
        }
    }

    /// `false` when the child has gone.
    fn answer(
        &self,
        view: &mut View,
        message: Message,
        desk: &mut Desk,
        grandchildren: &mut [Option<(Uffd, u64, PageTable)>; 4],
    ) -> bool {
        if let Message::Fault { page, .. } = message {
            return self.answer_fault(view, page, desk);
        }
        let table = match &view.table {
            Some(table) => table,
            None => view.table.insert(self.copy_table()),
        };
        match message {
            Message::Remove(range) | Message::Unmap(range) => table.discard(range, |_, _| {}),
            Message::Remap { from, to, count } => table.relocate(PageRange::at(from, count), to),
            Message::Fork(uffd) => {
                let Ok(copy) = table.copy_for_child(self.regions.iter()) else { self.fail(Failure::Kernel) };
                let Some(place) = grandchildren.iter_mut().find(|place| place.is_none()) else {
                    self.fail(Failure::Kernel)
                };
                *place = Some((uffd, view.epoch, copy));
            }
            Message::Fault { .. } | Message::Unknown(_) => {}
        }
        true
    }

    fn answer_fault(&self, view: &View, page: PageIndex, desk: &mut Desk) -> bool {
        let table = view.table.as_ref().unwrap_or(&self.table);
        let content = &mut desk.content[0];
        let range = PageRange::new(page, PageIndex::new(page.get() + 1));
        for _ in 0..ATTEMPTS {
            let loaded = match table.word(page).place() {
                None | Some(Place::Zero) => {
                    content.fill(0);
                    Ok(())
                }
                Some(place) => self.vault.load(&mut desk.reader, place, content),
            };
            let progress = match loaded {
                Ok(()) => view.uffd.copy_in(page, content, Waiters::Wake),
                Err(LoadFailure::Lost) => view.uffd.poison(range),
            };
            match progress.stopped {
                None => return true,
                Some(UffdError::Exists) => {
                    view.uffd.wake(range);
                    return true;
                }
                Some(UffdError::Changing) => {
                    // Its event is read next; the fault comes again once the thread is woken.
                    view.uffd.wake(range);
                    return true;
                }
                Some(UffdError::Gone) => {
                    view.uffd.wake(range);
                    return true;
                }
                Some(_) => farmem_sys::thread::sleep(100_000),
            }
        }
        false
    }
}
