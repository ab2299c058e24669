//! How a pager begins: that of a program that was attached to, and that of a forked child.

use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicU32, Ordering};

use farmem_page::PageRange;
use farmem_store::Pool;
use farmem_sys::disk::DiskFile;
use farmem_sys::link::{Descriptors, Link};
use farmem_sys::maps::Maps;
use farmem_sys::shared::SharedMemory;
use farmem_sys::uffd::Uffd;
use farmem_sys::wait::{self, Scope, Sleepers};
use farmem_sys::{AsFd, Errno, OwnedFd, memory, subject, thread};
use farmem_telemetry::{LEDGER_BYTES, Ledger, SlotState};
use farmem_wire::{Address, HAS_DISK, PACKET_BYTES, Reply, Request};

use crate::address_space::scan::mapping_at;
use crate::bookkeeper::Bookkeeper;
use crate::engine::{Engine, Parts};
use crate::eviction::vault::{DiskTier, Vault};
use crate::forks::children::PartedChild;
use crate::inject::{Injection, inject_death_at_start};

/// Longest name of a supervisor's socket.
pub const NAME_BYTES: usize = 64;

/// Why no pager started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartError {
    /// No supervisor answers.
    Alone,
    /// The kernel refuses something.
    Kernel(Errno),
    /// The supervisor refuses, or speaks another version.
    Refused,
}

impl From<Errno> for StartError {
    fn from(errno: Errno) -> Self {
        Self::Kernel(errno)
    }
}

/// What a process keeps of its pager.
pub type Started = &'static Engine;

/// What a start is told.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// The supervisor's address: its name and the application's token.
    pub name: [u8; NAME_BYTES],
    /// How much of it counts.
    pub name_length: usize,
    /// An address on the program's main stack.
    pub stack: usize,
}

const PENDING: u32 = 0;
const STARTED: u32 = 1;
const FAILED: u32 = 2;

impl Start {
    /// Starts a pager for a program that this process was attached to ([`subject::attach`]). `uffd` is of
    /// that program's memory, not shaken hands with. Returns when it is connected.
    ///
    /// # Errors
    /// Then the program isn't managed.
    pub fn for_attached(self, uffd: Uffd, publish: fn(Started)) -> Result<(), StartError> {
        self.launch_as(Kind::New, uffd, publish)
    }

    /// Starts the pager of memory that processes share ([`subject::objects`]). `messages` is what they say.
    /// Returns when it is connected.
    ///
    /// # Errors
    /// Then that memory isn't managed.
    pub fn for_shared(self, messages: Uffd, publish: fn(Started)) -> Result<(), StartError> {
        self.launch_as(Kind::Shared, messages, publish)
    }

    /// In a pager that was forked for a forked child ([`Engine::part_with`]), and attached to that: starts
    /// the child's own pager on the words that its parent's has kept. `uffd` is the child's. Returns when it
    /// is connected.
    ///
    /// # Errors
    /// The child must not go on: nobody serves it.
    pub fn for_parted(
        self,
        parent: Started,
        child: PartedChild,
        uffd: Uffd,
        publish: fn(Started),
    ) -> Result<(), StartError> {
        self.launch_as(Kind::Parted { parent, child }, uffd, publish)
    }

    fn launch_as(self, kind: Kind, uffd: Uffd, publish: fn(Started)) -> Result<(), StartError> {
        let outcome = memory::table::<AtomicU32>(1)?;
        let task = memory::leak(Task { start: self, begins: Some((kind, uffd)), publish, outcome })?;
        let outcome = task.outcome;
        thread::spawn_with(Task::run, task)?;
        // The outcome is the new thread's to decide, however long it takes: a program that ran on meanwhile
        // would be served by two pagers, or by none. A supervisor that ends is noticed.
        while outcome[0].load(Ordering::Acquire) == PENDING {
            wait::wait(&outcome[0], PENDING, None, Scope::Process);
        }
        if outcome[0].load(Ordering::Acquire) == STARTED { Ok(()) } else { Err(StartError::Refused) }
    }

    /// A connection to the supervisor, and the application's token.
    fn link(&self) -> Result<(Link, u64), StartError> {
        let text = &self.name[..self.name_length.min(NAME_BYTES)];
        let address = Address::parse(text).ok_or(StartError::Alone)?;
        let link = Link::connect(address.name).map_err(|_| StartError::Alone)?;
        Ok((link, address.token))
    }
}

/// Whose pager starts.
enum Kind {
    /// That of a program that had none.
    New,
    /// That of memory which processes share.
    Shared,
    /// That of a forked child.
    Parted { parent: &'static Engine, child: PartedChild },
}

/// The bookkeeper's thread, before it is one.
struct Task {
    start: Start,
    /// Whose pager it is, and the userfaultfd of that program; taken by the thread.
    begins: Option<(Kind, Uffd)>,
    publish: fn(Started),
    outcome: &'static [AtomicU32],
}

impl Task {
    fn run(task: &'static mut Task) -> ! {
        let (connected, is_managed) = match task.begins.take() {
            Some((Kind::New, uffd)) => (task.connect(uffd, true), false),
            // Whoever takes a process on shakes hands for it.
            Some((Kind::Shared, messages)) => (task.connect(messages, false), true),
            Some((Kind::Parted { parent, child }, uffd)) => (task.connect_parted(uffd, parent, child), true),
            None => (Err(StartError::Refused), false),
        };
        let Ok((engine, excluded)) = connected else {
            task.finish(FAILED);
            thread::exit()
        };
        let mut bookkeeper = Bookkeeper::new(engine, excluded);
        if is_managed {
            // What was managed in the parent is managed here from the first moment on; and processes that
            // share memory wait for messages to be read as soon as they are taken on.
            bookkeeper.begin();
        }
        (task.publish)(engine);
        task.finish(STARTED);
        bookkeeper.run()
    }

    fn finish(&self, outcome: u32) {
        self.outcome[0].store(outcome, Ordering::Release);
        wait::wake(&self.outcome[0], Sleepers::All, Scope::Process);
    }

    fn excluded(&self) -> Result<PageRange, Errno> {
        Ok(mapping_at(&Maps::open()?, self.start.stack))
    }

    fn connect(&self, uffd: Uffd, is_new: bool) -> Result<(Started, PageRange), StartError> {
        let (link, token) = self.start.link()?;
        let process = subject::number();
        let (reply, mut descriptors) = ask(&link, Request::Hello { token, process }, None)?;
        let Reply::Welcome { slot, pool_bytes, flags } = reply else { return Err(StartError::Refused) };
        let mut descriptors = descriptors.iter_mut().filter_map(Option::take);
        let mut next = || descriptors.next().ok_or(StartError::Refused);
        let ledger = attach(next()?, LEDGER_BYTES)?;
        let pool = attach(next()?, pool_bytes as usize)?;
        let disk = if flags & HAS_DISK != 0 { Some(next()?) } else { None };
        let words = ledger.atomics(0, LEDGER_BYTES / 8).ok_or(StartError::Refused)?;
        let ledger = Ledger::new(words).filter(Ledger::is_valid).ok_or(StartError::Refused)?;
        inject_death_at_start(ledger);
        if is_new && ask(&link, Request::Register, Some(&uffd))?.0 != Reply::Done {
            return Err(StartError::Refused);
        }
        let slot = ledger.slot(slot as usize).ok_or(StartError::Refused)?;
        let pool = memory::leak(Pool::attach(pool).map_err(|_| StartError::Refused)?)?;
        let vault = Vault::new(pool, disk_tier(ledger, disk)?, memory::leak(link.duplicate()?)?, slot)?;
        let engine = Engine::new(Parts { uffd, ledger, slot, vault, link })?;
        Ok((engine, self.excluded()?))
    }

    fn connect_parted(
        &self,
        uffd: Uffd,
        parent: Started,
        child: PartedChild,
    ) -> Result<(Started, PageRange), StartError> {
        let (link, token) = self.start.link()?;
        let process = subject::number();
        let inherit = Request::Inherit {
            parent_slot: parent.slot.index() as u32,
            epoch: child.epoch,
            token,
            process,
            shared_pages: child.shared.get(),
            own_pages: child.own.get(),
        };
        let (reply, mut descriptors) = ask(&link, inherit, None)?;
        let Reply::Inherited { slot, flags, .. } = reply else { return Err(StartError::Refused) };
        // The supervisor's own is the same; this one was here before.
        let mut descriptors = descriptors.iter_mut().filter_map(Option::take).skip(1);
        let mut next = || descriptors.next().ok_or(StartError::Refused);
        let parts = inherited(parent, uffd, (slot, flags), link, &mut next)?;
        let slot = parts.slot;
        let connected = parent
            .adopt_as_own(parts, child)
            .map_err(StartError::from)
            .and_then(|engine| Ok((engine, self.excluded()?)));
        if connected.is_err() && subject::has_ended() {
            slot.set_state(SlotState::Left);
        }
        connected
    }
}

/// What the pager of a forked child is made of: with the slot and the flags that the supervisor has given it,
/// and the descriptors that came after the userfaultfd.
fn inherited(
    parent: Started,
    uffd: Uffd,
    (slot, flags): (u32, u32),
    link: Link,
    next: &mut impl FnMut() -> Result<OwnedFd, StartError>,
) -> Result<Parts, StartError> {
    // The number of the pool's file is one of the parent's table. Without memory for it, it must not be
    // dropped: the mapping is the parent's, which this child goes on reading.
    let pool = ManuallyDrop::new(parent.vault.memory().with_file(next()?));
    let pool: &'static SharedMemory = memory::leak(pool)?;
    let disk = disk_tier(parent.ledger, if flags & HAS_DISK != 0 { Some(next()?) } else { None })?;
    let slot = parent.ledger.slot(slot as usize).ok_or(StartError::Refused)?;
    let pool = memory::leak(Pool::attach(pool).map_err(|_| StartError::Refused)?)?;
    let vault = Vault::new(pool, disk, memory::leak(link.duplicate()?)?, slot)?;
    Ok(Parts { uffd, ledger: parent.ledger, slot, vault, link })
}

fn disk_tier(ledger: Ledger<'_>, file: Option<OwnedFd>) -> Result<DiskTier, Errno> {
    let file = match file {
        Some(file) => Some(&*memory::leak(DiskFile::attach(file))?),
        None => None,
    };
    Ok(DiskTier { file, is_failing: Injection::DiskReadError.is_ordered(ledger) })
}

fn attach(file: OwnedFd, bytes: usize) -> Result<&'static SharedMemory, StartError> {
    let shared = SharedMemory::attach(file, bytes).map_err(|_| StartError::Refused)?;
    Ok(memory::leak(shared)?)
}

/// Sends a request and waits for its reply.
fn ask(link: &Link, request: Request, uffd: Option<&Uffd>) -> Result<(Reply, Descriptors), StartError> {
    match uffd {
        Some(uffd) => link.send(&request.encode(), &[uffd.as_fd()])?,
        None => link.send(&request.encode(), &[])?,
    }
    let mut packet = [0; PACKET_BYTES];
    let (length, descriptors) = link.receive(&mut packet)?;
    let reply = Reply::decode(&packet[..length]).ok_or(StartError::Refused)?;
    Ok((reply, descriptors))
}
