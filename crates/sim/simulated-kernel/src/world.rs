//! All that there is: address spaces, userfaultfds, threads, time.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::rc::Rc;

use farmem_page::{PAGE_BYTES, PageBytes, PageCount, PageIndex, PageRange, VirtAddr};
use farmem_sys::maps::Mapping;
use rand::Rng;
use rand::rngs::SmallRng;

use crate::expected::Expected;
use crate::guard::Guard;
use crate::link::{Answer, Supervisor};
use crate::schedule::{self, Key, Outcome, Sleeper};
use crate::subject::objects::Objects;
use crate::uffd::UffdError;

/// How a world behaves. Chances are "one in so many", 0 for never.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Processors, and so handlers.
    pub processors: u32,
    /// How long a call takes, about.
    pub step_ns: u64,
    /// Calls at which the turn passes to another thread.
    pub switch_one_in: u32,
    /// Calls that take long, as on a loaded machine.
    pub late_one_in: u32,
    /// How long at most.
    pub late_ns: u64,
    /// Pages at which a call that covers several stops early.
    pub stop_one_in: u32,
    /// Pages that the kernel uses when they are to be moved.
    pub busy_one_in: u32,
    /// Mappings that the program may run, of those that it makes.
    pub executable_one_in: u32,
    /// How long the disk takes at most, for a read or a write.
    pub disk_ns: u64,
    /// Writes that the disk refuses.
    pub disk_full_one_in: u32,
    /// Calls after which a run counts as endless.
    pub most_steps: u64,
    /// What is missing of what keeps pages right.
    pub without: Option<Guard>,
    /// The page whose history is kept.
    pub watched: Option<PageIndex>,
}

/// What a page table says of a page.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A frame of memory.
    Frame {
        /// What it holds. Several entries may have it after a fork.
        frame: Rc<PageBytes>,
        /// Whether a fork has left it shared, whoever has it still.
        is_exclusive: bool,
        /// Whether a write is a fault.
        is_protected: bool,
    },
    /// The kernel's page of zeros.
    Zeros {
        /// Whether a write is a fault.
        is_protected: bool,
    },
    /// A page of an object.
    Mapped {
        /// Whether a write is a fault.
        is_protected: bool,
    },
    /// A touch is a SIGBUS.
    Poisoned,
    /// No page: a marker.
    Marked,
    /// No page: the program wants none there.
    Guarded,
}

impl Entry {
    pub(crate) fn frame(content: &PageBytes) -> Self {
        Self::Frame { frame: Rc::new(*content), is_exclusive: true, is_protected: false }
    }

    pub(crate) fn is_protected(&self) -> bool {
        match self {
            Self::Frame { is_protected, .. }
            | Self::Zeros { is_protected }
            | Self::Mapped { is_protected } => *is_protected,
            Self::Poisoned | Self::Marked | Self::Guarded => false,
        }
    }

    pub(crate) fn protect(&mut self, value: bool) {
        if let Self::Frame { is_protected, .. }
        | Self::Zeros { is_protected }
        | Self::Mapped { is_protected } = self
        {
            *is_protected = value;
        }
    }

    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Self::Frame { is_exclusive: false, .. })
    }
}

/// An object of shared memory, and what programs have written there.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) count: PageCount,
    pub(crate) frames: BTreeMap<PageIndex, PageBytes>,
    /// By pages of the object.
    pub(crate) expected: Expected,
}

/// A mapping, anonymous: private, or of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Area {
    pub(crate) end: PageIndex,
    /// The userfaultfd that it is registered with.
    pub(crate) uffd: Option<usize>,
    /// The pager's own, which a fork leaves out.
    is_own: bool,
    /// The program may run it.
    pub(crate) is_executable: bool,
    /// The object that is mapped, and which page of it would be at address 0.
    pub(crate) object: Option<(usize, i64)>,
}

impl Area {
    /// Which object is at a page of the mapping, and which page of it.
    pub(crate) fn object_page(&self, page: PageIndex) -> Option<(usize, PageIndex)> {
        let (object, base) = self.object?;
        Some((object, PageIndex::new(page.get().wrapping_add_signed(base))))
    }
}

/// The address space of a process, and what its program has written there.
#[derive(Debug, Default)]
pub struct Space {
    pub(crate) areas: BTreeMap<PageIndex, Area>,
    table: BTreeMap<PageIndex, Entry>,
    /// What the program has written.
    pub(crate) expected: Expected,
    /// Where something was mapped: what is mapped next may come there, as with a real kernel.
    pub(crate) holes: Vec<PageRange>,
    /// Where the next mapping begins.
    pub(crate) next: u64,
    pub(crate) has_ended: bool,
    /// Calls under way that look through mappings: none is changed meanwhile (the kernel's `mmap_lock`).
    readers: u32,
    /// Pages that the pager has in hand: it has moved them out or taken their marker away, and put nothing
    /// there yet.
    pub(crate) in_hand: BTreeSet<PageIndex>,
}

impl Space {
    /// An empty one.
    pub(crate) fn new() -> Self {
        Self { next: 1 << 20, ..Self::default() }
    }

    /// What is left of one whose process has ended.
    pub(crate) fn ended() -> Self {
        Self { has_ended: true, ..Self::default() }
    }

    pub(crate) fn map(&mut self, range: PageRange, is_own: bool, is_executable: bool) {
        self.areas
            .insert(range.start, Area { end: range.end, uffd: None, is_own, is_executable, object: None });
    }

    /// Where a page of an object is mapped.
    pub(crate) fn mapped_at(&self, object: usize, page: PageIndex) -> Vec<PageIndex> {
        let there = self.areas.iter().filter_map(|(start, area)| {
            let (_, base) = area.object.filter(|(it, _)| *it == object)?;
            let there = PageIndex::new(page.get().wrapping_add_signed(-base));
            (*start <= there && there < area.end).then_some(there)
        });
        there.collect()
    }

    /// Addresses for a mapping: of a hole, if there is one that is large enough.
    pub(crate) fn place(&mut self, count: PageCount) -> PageRange {
        /// Pages between two mappings.
        const GAP: u64 = 3;
        if let Some(at) = self.holes.iter().position(|hole| hole.count() >= count) {
            let hole = self.holes.swap_remove(at);
            let range = PageRange::at(hole.start, count);
            self.holes.push(PageRange::new(range.end, hole.end));
            return range;
        }
        let range = PageRange::at(PageIndex::new(self.next), count);
        self.next += count.get() + GAP;
        range
    }

    pub(crate) fn area(&self, page: PageIndex) -> Option<(PageIndex, Area)> {
        let (start, area) = self.areas.range(..=page).next_back()?;
        (page < area.end).then_some((*start, *area))
    }

    /// Makes mappings end and begin at the ends of `range`.
    pub(crate) fn split(&mut self, range: PageRange) {
        for at in [range.start, range.end] {
            if let Some((start, area)) = self.area(at)
                && start < at
            {
                self.areas.insert(start, Area { end: at, ..area });
                self.areas.insert(at, area);
            }
        }
    }

    /// The mappings inside `range`, at whose ends mappings end.
    pub(crate) fn areas_in(&mut self, range: PageRange) -> impl Iterator<Item = (PageIndex, &mut Area)> {
        self.areas.range_mut(range.start..range.end).map(|(start, area)| (*start, area))
    }

    /// The userfaultfds that parts of `range` are registered with.
    pub(crate) fn uffd_of(&self, range: PageRange) -> Option<usize> {
        range.iter().find_map(|page| self.area(page)?.1.uffd)
    }

    pub(crate) fn mapping_from(&self, page: PageIndex) -> Option<Mapping> {
        let (start, area) = self
            .area(page)
            .or_else(|| self.areas.range(page..).next().map(|(start, area)| (*start, *area)))?;
        Some(Mapping {
            range: PageRange::new(start, area.end),
            writable: true,
            executable: area.is_executable,
            anonymous: true,
            shared: false,
        })
    }

    pub(crate) fn resident(&self) -> PageCount {
        let frames = self.table.values().filter(|entry| matches!(entry, Entry::Frame { .. }));
        PageCount::new(frames.count() as u64)
    }

    /// Whether all of `range` is mapped.
    pub fn has(&self, range: PageRange) -> bool {
        range.iter().all(|page| self.area(page).is_some())
    }

    pub(crate) fn entries(&self, range: PageRange) -> impl Iterator<Item = (PageIndex, &Entry)> {
        let end = range.end.max(range.start);
        self.table.range(range.start..end).map(|(page, entry)| (*page, entry))
    }

    pub(crate) fn entry(&self, page: PageIndex) -> Option<&Entry> {
        self.table.get(&page)
    }

    pub(crate) fn entry_mut(&mut self, page: PageIndex) -> Option<&mut Entry> {
        self.table.get_mut(&page)
    }

    pub(crate) fn set(&mut self, page: PageIndex, entry: Entry) {
        self.in_hand.remove(&page);
        self.table.insert(page, entry);
    }

    pub(crate) fn take(&mut self, page: PageIndex) -> Option<Entry> {
        self.table.remove(&page)
    }

    pub(crate) fn drop_entries(&mut self, range: PageRange) {
        range.iter().for_each(|page| drop(self.table.remove(&page)));
    }

    /// What the kernel would let a thread see.
    pub(crate) fn content(&self, page: PageIndex) -> Option<Box<PageBytes>> {
        match self.table.get(&page)? {
            Entry::Frame { frame, .. } => Some(Box::new(**frame)),
            Entry::Zeros { .. } => Some(Box::new([0; PAGE_BYTES])),
            Entry::Poisoned | Entry::Marked | Entry::Guarded | Entry::Mapped { .. } => None,
        }
    }

    /// Whether a thread that looks at a page now sees what it may.
    pub(crate) fn see(&mut self, page: PageIndex) -> bool {
        match self.table.get(&page) {
            Some(Entry::Frame { frame, .. }) => self.expected.see(page, Some(frame)),
            Some(Entry::Zeros { .. } | Entry::Marked) | None => self.expected.see(page, None),
            Some(Entry::Poisoned | Entry::Guarded | Entry::Mapped { .. }) => false,
        }
    }

    /// A fork's copy, registered with another userfaultfd.
    pub(crate) fn fork(&mut self, uffd: Option<usize>) -> Self {
        for entry in self.table.values_mut() {
            if let Entry::Frame { is_exclusive, .. } = entry {
                *is_exclusive = false;
            }
        }
        let areas = self.areas.iter().filter(|(_, area)| !area.is_own);
        let areas: BTreeMap<_, _> =
            areas.map(|(start, area)| (*start, Area { uffd: area.uffd.and(uffd), ..*area })).collect();
        let is_there = |page: &PageIndex| *page < crate::program::STAGING;
        let table = self.table.iter().filter(|(page, _)| is_there(page));
        Self {
            areas,
            table: table.map(|(page, entry)| (*page, entry.clone())).collect(),
            expected: self.expected.fork(),
            next: self.next,
            holes: self.holes.clone(),
            ..Self::default()
        }
    }
}

/// A fault that a thread waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) number: u64,
    pub(crate) page: PageIndex,
    pub(crate) write: bool,
    pub(crate) is_protected: bool,
    pub(crate) thread: u32,
    pub(crate) is_read: bool,
}

/// A change of an address space that is told.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Fork { uffd: usize },
    Remap { from: PageRange, to: PageIndex },
    Remove(PageRange),
    Unmap(PageRange),
}

/// A userfaultfd.
#[derive(Debug, Default)]
pub(crate) struct Context {
    pub(crate) space: usize,
    pub(crate) faults: Vec<Fault>,
    pub(crate) events: VecDeque<(u64, Change)>,
    /// Changes that are under way: calls are refused.
    pub(crate) changing: u32,
    /// Whether there ever was one.
    pub(crate) has_changed: bool,
}

impl Context {
    pub(crate) fn has_message(&self) -> bool {
        !self.events.is_empty() || self.faults.iter().any(|fault| !fault.is_read)
    }

    /// A change begins: calls are refused until it is over.
    pub(crate) fn begin_change(&mut self) {
        self.changing += 1;
        self.has_changed = true;
    }
}

/// All that there is.
pub struct World {
    /// How it behaves.
    pub plan: Plan,
    /// What is left to chance.
    pub random: SmallRng,
    pub(crate) now_ns: u64,
    pub(crate) steps: u64,
    pub(crate) faults: u64,
    pub(crate) moved: u64,
    /// The address spaces, by number. The first is the program's.
    pub spaces: Vec<Space>,
    pub(crate) uffds: Vec<Context>,
    /// Threads, with their spaces.
    pub(crate) threads: HashMap<u32, (usize, Option<shuttle::thread::Thread>)>,
    pub(crate) alive: usize,
    pub(crate) next_thread: u32,
    pub(crate) current: u32,
    pub(crate) sleepers: Vec<Sleeper>,
    pub(crate) numbers: u64,
    pub(crate) is_over: bool,
    pub(crate) failure: Option<String>,
    /// The page that held other bytes than were written.
    pub(crate) wrong: Option<PageIndex>,
    pub(crate) history: Vec<String>,
    /// What was said on standard error.
    pub said: Vec<String>,
    /// How often what has happened, by name.
    pub(crate) counts: BTreeMap<&'static str, u64>,
    /// What the disk holds.
    pub(crate) disk: Vec<u8>,
    /// The peer that answers packets.
    pub supervisor: Option<Box<dyn Supervisor>>,
    pub(crate) answers: VecDeque<Answer>,
    pub(crate) objects: Vec<Object>,
    /// What the pager knows of them.
    pub(crate) shared: Option<&'static Objects>,
    /// Userfaultfds whose messages are waited for together, with their mappers' numbers.
    pub(crate) ready: Vec<(usize, usize)>,
    /// Holes that programs are about to punch, with their spaces.
    pub(crate) punches: Vec<(usize, PageRange)>,
    /// What threads have looked at last, for what they do next.
    pub(crate) looks: HashMap<u32, (usize, PageRange)>,
}

impl World {
    pub(crate) fn new(random: SmallRng, plan: Plan) -> Self {
        let first = Space::new();
        Self {
            plan,
            random,
            now_ns: 1_000_000_000,
            steps: 0,
            faults: 0,
            moved: 0,
            spaces: vec![first],
            uffds: Vec::new(),
            threads: HashMap::new(),
            alive: 1,
            next_thread: 0,
            current: 0,
            sleepers: Vec::new(),
            numbers: 0,
            is_over: false,
            failure: None,
            wrong: None,
            history: Vec::new(),
            said: Vec::new(),
            counts: BTreeMap::new(),
            disk: Vec::new(),
            supervisor: None,
            answers: VecDeque::new(),
            objects: Vec::new(),
            shared: None,
            ready: Vec::new(),
            punches: Vec::new(),
            looks: HashMap::new(),
        }
    }

    /// The first thing that goes wrong ends the run.
    pub fn fail(&mut self, what: &str) {
        self.is_over = true;
        if self.failure.is_none() {
            self.failure = Some(what.to_owned());
        }
    }

    /// A page holds what it must not.
    pub(crate) fn fail_at(&mut self, space: usize, page: PageIndex, what: &str) {
        let place = VirtAddr::new(page.addr().get());
        self.wrong = self.wrong.or(Some(page));
        self.tell(page, || format!("process {space}: {what}"));
        self.fail(&format!("process {space}, {place:?}: {what}"));
    }

    /// Keeps what happens to the watched page.
    pub(crate) fn tell(&mut self, page: PageIndex, what: impl FnOnce() -> String) {
        if self.plan.watched == Some(page) {
            let (thread, time_us) = (self.current, self.now_ns / 1000);
            self.history.push(format!("{time_us} us, thread {thread}: {}", what()));
        }
    }

    /// The same of a range.
    pub(crate) fn tell_of(&mut self, range: PageRange, what: impl FnOnce() -> String) {
        if let Some(page) = self.plan.watched.filter(|&page| range.contains(page)) {
            self.tell(page, what);
        }
    }

    /// Whether the program may guard `range` at this moment. A real kernel lets it: between a look at the
    /// page table and what is put there, and between a move and its marker, there is a window of a few
    /// microseconds in which a guard that comes and goes isn't noticed (ADR 54).
    pub(crate) fn may_guard(&self, space: usize, range: PageRange) -> bool {
        let is_looked_at = |(of, at): &(usize, PageRange)| *of == space && !at.intersect(range).is_empty();
        !self.looks.values().any(is_looked_at)
            && self.spaces[space].in_hand.range(range.start..range.end).next().is_none()
    }

    /// Counts something, for those who want to know whether it happens at all.
    pub fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Whether something that happens once in so many times happens now; 0 for never.
    pub fn chance(&mut self, one_in: u32) -> bool {
        one_in > 0 && self.random.random_ratio(1, one_in)
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// The calling thread's address space.
    pub(crate) fn own_space(&self) -> usize {
        self.threads.get(&self.current).map_or(0, |(space, _)| *space)
    }

    /// A new userfaultfd of a space.
    pub(crate) fn new_uffd(&mut self, space: usize) -> usize {
        self.uffds.push(Context { space, ..Context::default() });
        self.uffds.len() - 1
    }
}

/// A call that looks through the mappings of a space, page by page.
#[derive(Debug)]
pub(crate) struct Reader(usize);

impl Reader {
    pub(crate) fn of(space: usize) -> Self {
        with(|world| world.spaces[space].readers += 1);
        Self(space)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let is_last = with(|world| {
            // The process may have ended meanwhile.
            let readers = &mut world.spaces[self.0].readers;
            *readers = readers.saturating_sub(1);
            *readers == 0
        });
        if is_last {
            schedule::wake(Key::Space(self.0), usize::MAX);
        }
    }
}

/// The calling thread looks at a page table, for what it does next.
pub(crate) fn look_at(space: usize, range: PageRange) {
    with(|world| {
        world.looks.insert(world.current, (space, range));
    });
}

/// It has done that, or something else.
pub(crate) fn end_look() {
    with(|world| {
        world.looks.remove(&world.current);
    });
}

/// Changes mappings of a space, when nobody looks through them.
pub(crate) fn change<R>(space: usize, body: impl FnOnce(&mut World) -> R) -> R {
    while with(|world| world.spaces[space].readers > 0) {
        schedule::block(Key::Space(space), None);
    }
    with(body)
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

pub(crate) fn begin(world: World) {
    WORLD.set(Some(world));
}

pub(crate) fn end() -> Outcome {
    WORLD.take().map_or_else(Outcome::default, |world| Outcome {
        failure: world.failure,
        steps: world.steps,
        time_ns: world.now_ns,
        faults: world.faults,
        moved: world.moved,
        said: world.said,
        wrong: world.wrong,
        history: world.history,
        counts: world.counts,
    })
}

/// Looks at the world, or changes it. The turn must not pass meanwhile.
///
/// # Panics
/// Outside a run.
pub fn with<R>(body: impl FnOnce(&mut World) -> R) -> R {
    WORLD.with_borrow_mut(|world| body(world.as_mut().expect("a run is under way")))
}

/// A page comes into an object, by one of the mappings.
pub(crate) fn fill_shared(
    world: &mut World,
    uffd: usize,
    page: PageIndex,
    (object, at): (usize, PageIndex),
    entry: Entry,
) -> Result<(), UffdError> {
    let space = &mut world.spaces[world.uffds[uffd].space];
    if let Some(Entry::Mapped { .. } | Entry::Poisoned) = space.entry(page) {
        return Err(UffdError::Exists);
    }
    let object = &mut world.objects[object];
    match entry {
        Entry::Frame { frame, .. } => {
            if object.frames.contains_key(&at) {
                return Err(UffdError::Exists);
            }
            object.frames.insert(at, *frame);
            space.set(page, Entry::Mapped { is_protected: false });
            world.tell(at, || "a frame comes in".to_owned());
            Ok(())
        }
        Entry::Poisoned => {
            space.set(page, Entry::Poisoned);
            Ok(())
        }
        _ => Err(UffdError::Unsupported),
    }
}
