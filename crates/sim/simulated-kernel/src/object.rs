//! Objects of shared memory, as `farmem-sys` shows them: frames that several address spaces map.

use core::marker::PhantomData;

use farmem_page::{PAGE_BYTES, PageBytes, PageIndex};

use crate::descriptors::Named;
use crate::schedule::{self, Key};
use crate::subject::objects::Objects;
use crate::uffd::Uffd;
use crate::world::Entry;
use crate::{Errno, OwnedFd, program, world};

/// What there is one of in a run.
pub(crate) struct Current<T: 'static>(PhantomData<fn() -> &'static T>);

impl Current<Objects> {
    pub(crate) const fn nothing() -> Self {
        Self(PhantomData)
    }

    pub(crate) fn set(&self, value: &'static Objects) {
        world::with(|world| world.shared = Some(value));
    }

    pub(crate) fn get(&self) -> Option<&'static Objects> {
        world::with(|world| world.shared)
    }
}

/// An object's file, by its number in the world.
#[derive(Debug)]
pub(crate) struct ObjectFile(usize);

impl From<OwnedFd> for ObjectFile {
    fn from(file: OwnedFd) -> Self {
        match file.0 {
            Named::Object(number) => Self(number),
            _ => Self(usize::MAX),
        }
    }
}

fn page_at(offset: u64) -> PageIndex {
    PageIndex::new(offset / PAGE_BYTES as u64)
}

impl ObjectFile {
    pub(crate) fn duplicate(&self) -> Result<Self, Errno> {
        Ok(Self(self.0))
    }

    /// One page at a time: the turn may pass between two.
    pub(crate) fn read_at(&self, out: &mut [u8], offset: u64) -> Result<usize, Errno> {
        const ZEROS: PageBytes = [0; PAGE_BYTES];
        schedule::point();
        world::with(|world| {
            let object = world.objects.get(self.0).ok_or(Errno::BADF)?;
            let frame = object.frames.get(&page_at(offset)).unwrap_or(&ZEROS);
            let length = out.len().min(PAGE_BYTES);
            out[..length].copy_from_slice(&frame[..length]);
            Ok(length)
        })
    }

    /// Takes pages out of the object, and out of the sight of all who map it.
    pub(crate) fn punch(&self, offset: u64, bytes: u64) -> Result<(), Errno> {
        for page in page_at(offset).get()..page_at(offset + bytes).get() {
            schedule::point();
            world::with(|world| {
                world.moved += 1;
                punch_page(world, self.0, PageIndex::new(page));
            });
        }
        Ok(())
    }

    pub(crate) fn next_data(&self, offset: u64) -> Result<Option<u64>, Errno> {
        schedule::point();
        world::with(|world| {
            let object = world.objects.get(self.0).ok_or(Errno::BADF)?;
            let next = object.frames.range(page_at(offset)..).next();
            Ok(next.map(|(page, _)| page.addr().get().max(offset)))
        })
    }

    pub(crate) fn next_hole(&self, offset: u64) -> Result<Option<u64>, Errno> {
        schedule::point();
        world::with(|world| {
            let object = world.objects.get(self.0).ok_or(Errno::BADF)?;
            let end = object.count.get();
            let hole =
                (page_at(offset).get()..end).find(|&at| !object.frames.contains_key(&PageIndex::new(at)));
            Ok(Some(PageIndex::new(hole.unwrap_or(end)).addr().get()))
        })
    }

    pub(crate) fn resident_bytes(&self) -> Result<u64, Errno> {
        schedule::point();
        world::with(|world| {
            let object = world.objects.get(self.0).ok_or(Errno::BADF)?;
            Ok((object.frames.len() * PAGE_BYTES) as u64)
        })
    }
}

/// A page of an object goes. What was protected of it leaves a marker, as in a real kernel.
pub(crate) fn punch_page(world: &mut world::World, object: usize, page: PageIndex) {
    for space in &mut world.spaces {
        for there in space.mapped_at(object, page) {
            match space.entry(there) {
                Some(Entry::Mapped { is_protected: true }) => space.set(there, Entry::Marked),
                Some(Entry::Mapped { .. }) => drop(space.take(there)),
                _ => {}
            }
        }
    }
    world.objects[object].frames.remove(&page);
    world.tell(page, || "punched out".to_owned());
}

/// Which of several userfaultfds have messages.
#[derive(Debug)]
pub(crate) struct Ready(());

impl Ready {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self(()))
    }

    pub(crate) fn duplicate(&self) -> Result<OwnedFd, Errno> {
        Ok(OwnedFd(Named::Nothing))
    }

    pub(crate) fn add(&self, uffd: &Uffd, number: usize) -> Result<(), Errno> {
        world::with(|world| world.ready.push((uffd.number(), number)));
        schedule::wake(Key::AnyMessages, usize::MAX);
        Ok(())
    }

    pub(crate) fn remove(&self, uffd: &Uffd) {
        world::with(|world| world.ready.retain(|(it, _)| *it != uffd.number()));
    }

    /// Any of them first.
    pub(crate) fn look<const MOST: usize>(&self, numbers: &mut [usize; MOST]) -> Result<usize, Errno> {
        schedule::point();
        Ok(world::with(|world| {
            let waiting = world.ready.iter().filter(|(uffd, _)| world.uffds[*uffd].has_message());
            let mut waiting: Vec<usize> = waiting.map(|(_, number)| *number).collect();
            if !waiting.is_empty() {
                let first = rand::Rng::random_range(&mut world.random, 0..waiting.len());
                waiting.rotate_left(first);
            }
            numbers.iter_mut().zip(&waiting).for_each(|(place, number)| *place = *number);
            waiting.len().min(MOST)
        }))
    }
}

/// Ends a process: the pager gives its application up.
pub(crate) fn kill(_handle: i32) {}

/// A new object of so many pages.
pub fn create(count: u64) -> OwnedFd {
    OwnedFd(Named::Object(program::create_object(count)))
}

/// An object's number in the world.
pub fn number(file: &OwnedFd) -> usize {
    match file.0 {
        Named::Object(number) => number,
        _ => usize::MAX,
    }
}
