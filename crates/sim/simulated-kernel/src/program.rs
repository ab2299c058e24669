//! What programs do: calls of the simulated kernel, made by threads of the simulated program.

use std::rc::Rc;

use farmem_page::{PageBytes, PageCount, PageIndex, PageRange};

use crate::schedule::{self, Key};
use crate::world::{self, Change, Entry, Fault, Reader, World};

/// Where staging areas lie: behind all that programs map.
pub const STAGING: PageIndex = PageIndex::new(1 << 34);
/// The same for pages that the program may run.
pub(crate) const EXECUTABLE_STAGING: PageIndex = PageIndex::new((1 << 34) + (1 << 20));

/// What a thread wants of a page.
enum Want {
    Read,
    Write(Rc<PageBytes>),
    /// To have it to itself, as it is.
    Own,
}

/// What became of a touch.
enum Touched {
    Done,
    /// The thread waits for that fault of that userfaultfd.
    Waits {
        uffd: usize,
        fault: u64,
    },
    /// Nothing is mapped there.
    Unmapped,
    /// It is a SIGBUS.
    Poisoned,
}

/// A new mapping of zeros.
pub fn map(space: usize, count: u64) -> PageRange {
    schedule::point();
    world::with(|world| {
        let is_executable = world.chance(world.plan.executable_one_in);
        let space = &mut world.spaces[space];
        let range = space.place(PageCount::new(count));
        space.map(range, false, is_executable);
        range
    })
}

/// Reads a page, and compares it with what was written.
pub fn read(space: usize, page: PageIndex) {
    touch(space, page, Want::Read);
}

/// Writes a page as a whole.
pub fn write(space: usize, page: PageIndex, value: Rc<PageBytes>) {
    touch(space, page, Want::Write(value));
}

/// MADV_POPULATE_WRITE of a page; nothing happens where nothing is mapped.
pub fn populate(space: usize, page: PageIndex) {
    touch(space, page, Want::Own);
}

fn touch(space: usize, page: PageIndex, want: Want) {
    loop {
        schedule::point();
        match world::with(|world| look(world, space, page, &want)) {
            Touched::Done => return,
            // Another thread has unmapped it: a real program would die of its own mistake.
            Touched::Unmapped => return,
            Touched::Poisoned => {
                world::with(|world| world.fail_at(space, page, "SIGBUS"));
                return;
            }
            Touched::Waits { uffd, fault } => {
                note_message(uffd);
                // A thread that was woken since isn't asleep.
                if world::with(|world| world.uffds[uffd].faults.iter().any(|it| it.number == fault)) {
                    schedule::block(Key::Fault(fault), None);
                }
            }
        }
    }
}

/// Somebody waits at a userfaultfd, or has changed something.
fn note_message(uffd: usize) {
    schedule::wake(Key::Messages(uffd), usize::MAX);
    if world::with(|world| world.ready.iter().any(|(it, _)| *it == uffd)) {
        schedule::wake(Key::AnyMessages, usize::MAX);
    }
}

/// A thread looks at a page of an object.
fn look_shared(
    world: &mut World,
    number: usize,
    page: PageIndex,
    want: &Want,
    (object, at): (usize, PageIndex),
) -> Touched {
    let now = world.number();
    let space = &mut world.spaces[number];
    let Some((_, area)) = space.area(page) else { return Touched::Unmapped };
    let shared = &mut world.objects[object];
    if !matches!(space.entry(page), Some(Entry::Mapped { .. } | Entry::Poisoned)) {
        match area.uffd {
            Some(uffd) if !shared.frames.contains_key(&at) => {
                return wait_for(world, number, page, uffd, want, false);
            }
            _ => {
                shared.frames.entry(at).or_insert([0; farmem_page::PAGE_BYTES]);
            }
        }
        let is_protected = matches!(space.entry(page), Some(Entry::Marked));
        space.set(page, Entry::Mapped { is_protected });
    }
    match (space.entry(page), area.uffd) {
        (Some(Entry::Poisoned), _) => return Touched::Poisoned,
        (Some(Entry::Mapped { is_protected: true }), Some(uffd)) if !matches!(want, Want::Read) => {
            return wait_for(world, number, page, uffd, want, true);
        }
        _ => {}
    }
    if !shared.expected.see(at, shared.frames.get(&at)) {
        world.wrong = world.wrong.or(Some(at));
        world.fail_at(number, at, "other bytes of an object than were written");
        return Touched::Done;
    }
    if let Want::Write(value) = want {
        shared.frames.insert(at, **value);
        shared.expected.write(at, Rc::clone(value), now);
        world.tell(at, || format!("process {number} writes"));
    }
    Touched::Done
}

/// The thread waits for whoever reads the userfaultfd.
fn wait_for(
    world: &mut World,
    number: usize,
    page: PageIndex,
    uffd: usize,
    want: &Want,
    is_protected: bool,
) -> Touched {
    let fault = world.number();
    world.faults += 1;
    let (thread, write) = (world.current, !matches!(want, Want::Read));
    world.tell(page, || format!("process {number} waits, write {write}, protected {is_protected}"));
    let fault_of = Fault { number: fault, page, write, is_protected, thread, is_read: false };
    world.uffds[uffd].faults.push(fault_of);
    Touched::Waits { uffd, fault }
}

/// A new object.
pub(crate) fn create_object(count: u64) -> usize {
    world::with(|world| {
        world.objects.push(world::Object {
            count: PageCount::new(count),
            frames: std::collections::BTreeMap::new(),
            expected: crate::expected::Expected::default(),
        });
        world.objects.len() - 1
    })
}

/// A new process, which maps an object of that number as a whole.
pub fn begin(object: usize) -> (usize, PageRange) {
    world::with(|world| {
        let count = world.objects[object].count;
        world.spaces.push(world::Space::new());
        let number = world.spaces.len() - 1;
        let space = &mut world.spaces[number];
        let range = space.place(count);
        space.map(range, false, false);
        let base = -range.start.get().cast_signed();
        space.areas_in(range).for_each(|(_, area)| area.object = Some((object, base)));
        (number, range)
    })
}

/// MADV_REMOVE: told before it happens, to those who read the process's userfaultfd.
pub fn punch(space: usize, range: PageRange) {
    schedule::point();
    let Some((object, at)) =
        world::with(|world| world.spaces[space].area(range.start)?.1.object_page(range.start))
    else {
        return;
    };
    let pages = PageRange::at(at, range.count());
    let began = world::with(|world| {
        let now = world.number();
        world.objects[object].expected.begin_discard(pages, now);
        world.punches.push((space, range));
        now
    });
    if let Some(uffd) = world::with(|world| begin_change(world, space, range)) {
        tell(uffd, Change::Remove(range));
    }
    for page in pages.iter() {
        schedule::point();
        world::with(|world| crate::object::punch_page(world, object, page));
    }
    world::with(|world| {
        if let Some(place) = world.punches.iter().position(|it| *it == (space, range)) {
            world.punches.swap_remove(place);
        }
        world.objects[object].expected.end_discard(began);
        world.count("holes");
    });
}

/// MADV_DONTNEED of shared memory: the pages stay where they are. Protection outlives it.
pub fn look_away(space: usize, range: PageRange) {
    schedule::point();
    if let Some(uffd) = world::with(|world| begin_change(world, space, range)) {
        tell(uffd, Change::Remove(range));
    }
    for page in range.iter() {
        schedule::point();
        world::with(|world| {
            let space = &mut world.spaces[space];
            match space.entry(page) {
                Some(Entry::Mapped { is_protected: true }) => space.set(page, Entry::Marked),
                Some(Entry::Mapped { .. }) => drop(space.take(page)),
                _ => {}
            }
        });
    }
}

fn look(world: &mut World, number: usize, page: PageIndex, want: &Want) -> Touched {
    let space = &mut world.spaces[number];
    let Some((_, area)) = space.area(page) else { return Touched::Unmapped };
    if let Some(at) = area.object_page(page) {
        return look_shared(world, number, page, want, at);
    }
    let is_write = !matches!(want, Want::Read);
    let mut is_protected = false;
    match space.entry(page) {
        Some(Entry::Poisoned) => return Touched::Poisoned,
        // A real program would die of its own mistake.
        Some(Entry::Guarded) => return Touched::Unmapped,
        Some(entry) if is_write && entry.is_protected() => is_protected = true,
        Some(Entry::Frame { .. } | Entry::Zeros { .. } | Entry::Mapped { .. }) => {
            if !space.see(page) {
                world.fail_at(number, page, "other bytes than were written");
                return Touched::Done;
            }
            if is_write {
                write_present(world, number, page, want);
            }
            return Touched::Done;
        }
        _ if area.uffd.is_none() => {
            if !space.see(page) {
                world.fail_at(number, page, "zeros where something was written, and nobody is asked");
                return Touched::Done;
            }
            space.set(page, Entry::Zeros { is_protected: false });
            if is_write {
                write_present(world, number, page, want);
            }
            return Touched::Done;
        }
        _ => {}
    }
    let Some(uffd) = area.uffd else { return Touched::Unmapped };
    let fault = world.number();
    world.faults += 1;
    let thread = world.current;
    world.tell(page, || format!("process {number} waits, write {is_write}, protected {is_protected}"));
    world.uffds[uffd].faults.push(Fault {
        number: fault,
        page,
        write: is_write,
        is_protected,
        thread,
        is_read: false,
    });
    Touched::Waits { uffd, fault }
}

/// A write to a page that is there and not protected.
fn write_present(world: &mut World, number: usize, page: PageIndex, want: &Want) {
    world.tell(page, || format!("process {number} writes"));
    let now = world.number();
    let space = &mut world.spaces[number];
    let kept = space.content(page).unwrap_or_else(|| Box::new([0; farmem_page::PAGE_BYTES]));
    match want {
        Want::Write(value) => {
            space.set(page, Entry::frame(value));
            space.expected.write(page, Rc::clone(value), now);
        }
        Want::Own | Want::Read => space.set(page, Entry::frame(&kept)),
    }
}

/// Tells whoever reads the userfaultfd of a change, and waits until it is read.
fn tell(uffd: usize, change: Change) {
    let number = world::with(|world| {
        let number = world.number();
        world.uffds[uffd].events.push_back((number, change));
        let (Change::Remap { from: range, .. } | Change::Remove(range) | Change::Unmap(range)) = change
        else {
            return number;
        };
        world.tell_of(range, || format!("an event waits: {change:?}"));
        number
    });
    note_message(uffd);
    if world::with(|world| world.uffds[uffd].events.iter().any(|(event, _)| *event == number)) {
        schedule::block(Key::Event(number), None);
    }
    schedule::point();
    world::with(|world| world.uffds[uffd].changing -= 1);
}

/// From here on calls at that userfaultfd are refused.
fn begin_change(world: &mut World, space: usize, range: PageRange) -> Option<usize> {
    let uffd = world.spaces[space].uffd_of(range)?;
    world.uffds[uffd].begin_change();
    Some(uffd)
}

/// MADV_DONTNEED: told before it happens.
pub fn discard(space: usize, range: PageRange) {
    schedule::point();
    let began = world::with(|world| {
        let now = world.number();
        world.spaces[space].expected.begin_discard(range, now);
        now
    });
    if let Some(uffd) = world::with(|world| begin_change(world, space, range)) {
        tell(uffd, Change::Remove(range));
    }
    let _reader = Reader::of(space);
    for page in range.iter() {
        schedule::point();
        world::with(|world| {
            world.tell(page, || "discarded".to_owned());
            let space = &mut world.spaces[space];
            if space.area(page).is_some() {
                space.take(page);
            }
        });
    }
    world::with(|world| world.spaces[space].expected.end_discard(began));
}

/// MADV_GUARD_INSTALL, and some time later MADV_GUARD_REMOVE: the pages are zeros then. Nobody is told.
pub fn guard(space: usize, range: PageRange) {
    schedule::point();
    let began = world::change(space, |world| {
        if !world.may_guard(space, range) {
            return None;
        }
        let now = world.number();
        world.count("guards");
        for page in range.iter() {
            world.tell(page, || "guarded".to_owned());
            let space = &mut world.spaces[space];
            space.expected.begin_discard(PageRange::at(page, PageCount::new(1)), now);
            if space.area(page).is_some() {
                space.set(page, Entry::Guarded);
            }
        }
        Some(now)
    });
    let Some(began) = began else { return };
    schedule::point();
    world::change(space, |world| {
        for page in range.iter() {
            world.tell(page, || "not guarded any more".to_owned());
            let space = &mut world.spaces[space];
            if matches!(space.entry(page), Some(Entry::Guarded)) {
                space.take(page);
            }
            space.expected.end_discard(began);
        }
    });
}

/// munmap: told after it has happened.
pub fn unmap(space: usize, range: PageRange) {
    schedule::point();
    let uffd = world::change(space, |world| {
        let uffd = begin_change(world, space, range);
        let space = &mut world.spaces[space];
        space.split(range);
        space.areas.retain(|start, _| !range.contains(*start));
        for page in range.iter() {
            space.take(page);
            space.expected.unmap(page);
        }
        space.holes.push(range);
        uffd
    });
    if let Some(uffd) = uffd {
        tell(uffd, Change::Unmap(range));
    }
}

/// mremap to another address, which is returned: told after it has happened.
pub fn remap(space: usize, range: PageRange) -> PageRange {
    schedule::point();
    let (uffd, to) = world::change(space, |world| {
        let uffd = begin_change(world, space, range);
        let space = &mut world.spaces[space];
        let to = space.place(range.count());
        space.split(range);
        let area = space.area(range.start).map(|(_, area)| area);
        let registered = area.and_then(|area| area.uffd);
        space.areas.retain(|start, _| !range.contains(*start));
        space.map(to, false, area.is_some_and(|area| area.is_executable));
        let moved_by = range.start.get().cast_signed() - to.start.get().cast_signed();
        let object = area.and_then(|area| area.object).map(|(object, base)| (object, base + moved_by));
        space.areas_in(to).for_each(|(_, area)| (area.uffd, area.object) = (registered, object));
        for (old, new) in range.iter().zip(to.iter()) {
            if let Some(mut entry) = space.take(old) {
                entry.protect(entry.is_protected() && registered.is_some());
                space.set(new, entry);
            }
            space.expected.relocate(old, new);
        }
        space.holes.push(range);
        (uffd, to)
    });
    if let Some(uffd) = uffd {
        tell(uffd, Change::Remap { from: range, to: to.start });
    }
    to
}

/// A fork past the C library; the child's space. Told after it has happened.
pub fn fork(space: usize) -> usize {
    schedule::point();
    let (child, told) = world::change(space, |world| {
        let parent = world.spaces[space].areas.values().find_map(|area| area.uffd);
        let child = world.spaces.len();
        let uffd = parent.map(|_| world.new_uffd(child));
        let forked = world.spaces[space].fork(uffd);
        world.spaces.push(forked);
        if let Some(parent) = parent {
            world.uffds[parent].begin_change();
        }
        (child, parent.zip(uffd))
    });
    if let Some((parent, uffd)) = told {
        tell(parent, Change::Fork { uffd });
    }
    child
}

/// A process ends: its memory goes.
pub fn end(space: usize) {
    schedule::point();
    world::with(|world| {
        world.spaces[space] = world::Space::ended();
    });
}
