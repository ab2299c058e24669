//! userfaultfd: faults and address-space events of a program, and the calls that resolve them.
//!
//! A thin fence. The semantics that the pager rests on (versions of Linux in parentheses):
//! - reading a message and the calls below are refused with [`UffdError::Changing`] while an event that was
//!   raised has not been read yet; but one that begins just before an unmapping may be refused with
//!   [`UffdError::Gone`] instead, since Linux looks for the mapping first;
//! - `move_pages` (6.8) works only for a caller inside the address space, `copy_in`, `wake` and `poison`
//!   (6.6) for everyone who holds the descriptor.

use core::mem::{MaybeUninit, size_of};

use farmem_page::{PAGE_BYTES, PageCount, PageIndex, PageRange, VirtAddr};
use linux_raw_sys::general as raw;
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::ioctl::{Updater, ioctl, opcode};

use crate::pagemap::{Pagemap, Runs};
use crate::subject;
use crate::subject::objects::Objects;
use crate::subject::puppet::{self, Puppet};

const UFFDIO: u8 = 0xaa;

/// What the kernel is asked to report and to allow. All are required; see [`Uffd::handshake`].
pub const FEATURES: u64 = (raw::UFFD_FEATURE_EVENT_FORK
    | raw::UFFD_FEATURE_EVENT_REMAP
    | raw::UFFD_FEATURE_EVENT_REMOVE
    | raw::UFFD_FEATURE_EVENT_UNMAP
    | raw::UFFD_FEATURE_THREAD_ID
    | raw::UFFD_FEATURE_EXACT_ADDRESS
    | raw::UFFD_FEATURE_PAGEFAULT_FLAG_WP
    | raw::UFFD_FEATURE_WP_UNPOPULATED
    | raw::UFFD_FEATURE_MOVE
    | raw::UFFD_FEATURE_POISON) as u64;

/// The same for shared memory, which isn't moved.
pub const SHARED_FEATURES: u64 =
    FEATURES | (raw::UFFD_FEATURE_MISSING_SHMEM | raw::UFFD_FEATURE_WP_HUGETLBFS_SHMEM) as u64;

/// Why a call on a userfaultfd failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UffdError {
    /// An event is waiting to be read, or the address space changed meanwhile: read messages, then try again.
    Changing,
    /// There already is a page at the target.
    Exists,
    /// There is nothing there any more: no mapping, or no page.
    Gone,
    /// The process has ended.
    Ended,
    /// The page can't be moved now: shared copy-on-write, pinned for I/O, or locked by the kernel.
    Busy,
    /// The mapping is of a kind that doesn't allow it (read-only, locked, special).
    Unsupported,
    /// No memory for it.
    OutOfMemory,
    /// Not permitted.
    Denied,
    /// Something else; the kernel's number.
    Other(i32),
}

impl From<Errno> for UffdError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::AGAIN => Self::Changing,
            Errno::EXIST => Self::Exists,
            Errno::NOENT | Errno::FAULT => Self::Gone,
            Errno::SRCH => Self::Ended,
            Errno::BUSY => Self::Busy,
            Errno::INVAL => Self::Unsupported,
            Errno::NOMEM => Self::OutOfMemory,
            Errno::PERM | Errno::ACCESS => Self::Denied,
            other => Self::Other(other.raw_os_error()),
        }
    }
}

impl From<UffdError> for Errno {
    /// The number by which the error is told to users.
    fn from(error: UffdError) -> Self {
        match error {
            UffdError::Changing => Self::AGAIN,
            UffdError::Exists => Self::EXIST,
            UffdError::Gone => Self::NOENT,
            UffdError::Ended => Self::SRCH,
            UffdError::Busy => Self::BUSY,
            UffdError::Unsupported => Self::INVAL,
            UffdError::OutOfMemory => Self::NOMEM,
            UffdError::Denied => Self::PERM,
            UffdError::Other(number) => Self::from_raw_os_error(number),
        }
    }
}

/// A call that worked through several pages, and how far it came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Pages that were dealt with, from the start of the range.
    pub done: PageCount,
    /// What stopped it, if it didn't reach the end.
    pub stopped: Option<UffdError>,
}

impl Progress {
    /// A move that stopped early, with those pages counted that the kernel has moved and not counted. Linux
    /// 6.18 does so when a page changed at the very moment when it was to be moved: it tries again, moves
    /// that page and those behind it, takes the failure of the first attempt for that of the second, tries
    /// the same page a third time, and stops because there is a page at its target. The kernel's page of
    /// zeros counts as arrived only where it has come from: it may have been in the way.
    fn with_uncounted(self, source: PageRange, target: PageRange, pagemap: &Pagemap) -> Self {
        let is_doubtful = match self.stopped {
            Some(UffdError::Exists) => true,
            Some(_) => self.done > PageCount::ZERO,
            None => false,
        };
        if !is_doubtful {
            return self;
        }
        let left = PageRange::new(source.start + self.done, source.end);
        let rest = PageRange::new(target.start + self.done, target.end);
        let (mut still, mut framed, mut there) = (Runs::empty(), Runs::empty(), Runs::empty());
        let answers = [
            pagemap.present(left, &mut still),
            pagemap.resident(rest, &mut framed),
            pagemap.present(rest, &mut there),
        ];
        if let Some(Err(errno)) = answers.into_iter().find(Result::is_err) {
            return Self { stopped: Some(UffdError::Other(errno.raw_os_error())), ..self };
        }
        let has_arrived = |(source, target): &(PageIndex, PageIndex)| {
            framed.hold(*target) || there.hold(*target) && !still.hold(*source)
        };
        let uncounted = left.iter().zip(rest.iter()).take_while(has_arrived).count() as u64;
        let done = self.done + PageCount::new(uncounted);
        Self { done, stopped: self.stopped.filter(|_| done < target.count()) }
    }
}

/// A move of a run of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// Where they are.
    pub from: PageRange,
    /// Where the first of them goes.
    pub to: PageIndex,
    /// How far it came.
    pub progress: Progress,
}

/// Moves that are made in one go, at most.
pub const MOST_MOVES: usize = puppet::MOST_MOVES;
/// Nothing has been done, and nothing has stopped it.
pub const UNTRIED: Progress = Progress { done: PageCount::ZERO, stopped: None };

/// A message from the kernel. `F` stands for a child's userfaultfd: the simulated kernel has its own.
#[derive(Debug)]
pub enum Message<F = Uffd> {
    /// A thread waits for a page.
    Fault {
        /// The address that it touched. Of an access to several bytes, the first one on the page.
        address: VirtAddr,
        /// Whether it wants to write.
        write: bool,
        /// The page is there, but protected ([`Uffd::protect`]), and the thread wants to write it.
        protected: bool,
        /// The kernel's number of the waiting thread.
        thread: u32,
    },
    /// The program forked; the child's address space is served through this descriptor. The forking thread
    /// waits until the message is read.
    Fork(F),
    /// Pages moved to another address; the program's call waits until the message is read.
    Remap {
        /// Where they were.
        from: PageIndex,
        /// Where they are now.
        to: PageIndex,
        /// How many.
        count: PageCount,
    },
    /// The content of these pages is being discarded (the mapping stays); told before it happens.
    Remove(PageRange),
    /// These pages were unmapped; told after it happened.
    Unmap(PageRange),
    /// A kind of message that this version doesn't know.
    Unknown(u8),
}

/// Whose fault waits are to be ended by a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiters {
    /// Threads that wait for the page go on.
    Wake,
    /// They stay asleep; somebody wakes them later.
    Keep,
}

/// A userfaultfd, or the messages of all processes that map shared memory ([`subject::objects`]).
#[derive(Debug)]
pub struct Uffd {
    fd: OwnedFd,
    /// What it stands for, where it is no userfaultfd.
    objects: Option<&'static Objects>,
}

impl From<OwnedFd> for Uffd {
    fn from(fd: OwnedFd) -> Self {
        Self { fd, objects: None }
    }
}

impl AsFd for Uffd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Uffd {
    /// All messages of those processes, by a descriptor that is readable while there is one.
    pub(crate) fn of_objects(ready: OwnedFd, objects: &'static Objects) -> Self {
        Self { fd: ready, objects: Some(objects) }
    }

    /// A new userfaultfd for the calling process, even where another one's memory is managed, not yet shaken
    /// hands with. Uses the system call, or where that is not permitted `device`, an open `/dev/userfaultfd`.
    ///
    /// # Errors
    /// [`UffdError::Denied`] without permission, [`UffdError::Other`] when the kernel has no userfaultfd.
    pub fn create(device: Option<BorrowedFd<'_>>) -> Result<Self, UffdError> {
        let flags = rustix::mm::UserfaultfdFlags::CLOEXEC | rustix::mm::UserfaultfdFlags::NONBLOCK;
        // SAFETY: a new descriptor is made; no memory is registered with it yet.
        match unsafe { rustix::mm::userfaultfd(flags) } {
            Ok(fd) => Ok(Self::from(fd)),
            Err(errno @ (Errno::PERM | Errno::NOSYS)) => {
                let Some(device) = device else { return Err(errno.into()) };
                // SAFETY: USERFAULTFD_IOC_NEW takes flags by value and returns a descriptor that nobody else
                // owns.
                unsafe {
                    let fd = ioctl(device, NewFromDevice(flags.bits()))?;
                    Ok(Self::from(OwnedFd::from_raw_fd(fd)))
                }
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// The same under another number.
    ///
    /// # Errors
    /// [`Errno::MFILE`] when there are too many descriptors.
    pub fn duplicate(&self) -> Result<OwnedFd, Errno> {
        rustix::io::fcntl_dupfd_cloexec(&self.fd, 0)
    }

    /// Agrees with the kernel on the interface. May be called by another process that holds the descriptor:
    /// fork events need CAP_SYS_PTRACE of the process that makes this call.
    ///
    /// # Errors
    /// [`UffdError::Denied`] without that capability, [`UffdError::Unsupported`] when the kernel lacks a
    /// feature.
    pub fn handshake(&self, features: u64) -> Result<(), UffdError> {
        let mut api = raw::uffdio_api { api: u64::from(UFFD_API), features, ioctls: 0 };
        self.update::<API, _>(&mut api)
    }

    /// The features that this kernel has, asked with a userfaultfd of its own.
    ///
    /// # Errors
    /// As [`Uffd::create`].
    pub fn kernel_features(device: Option<BorrowedFd<'_>>) -> Result<u64, UffdError> {
        let probe = Self::create(device)?;
        let mut api = raw::uffdio_api { api: u64::from(UFFD_API), features: 0, ioctls: 0 };
        probe.update::<API, _>(&mut api)?;
        Ok(api.features)
    }

    /// Reports faults on missing and on protected pages of `range` from now on. Whole mappings only:
    /// registering a part would split the mapping, which the program can notice.
    ///
    /// # Errors
    /// [`UffdError::Unsupported`] for mappings that can't be managed, [`UffdError::Busy`] when the program
    /// has a userfaultfd of its own there.
    pub fn register(&self, range: PageRange) -> Result<(), UffdError> {
        self.register_for(range, MISSING | PROTECTED)
    }

    /// Reports faults on missing pages of `range` alone from now on: for memory of the caller's own, to which
    /// pages are moved. Pages there can't be protected, so [`Uffd::unregister`] doesn't look at each of them.
    ///
    /// # Errors
    /// As [`Uffd::register`].
    pub fn register_missing(&self, range: PageRange) -> Result<(), UffdError> {
        self.register_for(range, MISSING)
    }

    fn register_for(&self, range: PageRange, mode: u64) -> Result<(), UffdError> {
        if self.objects.is_some() {
            // Each mapping was registered when it was found.
            return Ok(());
        }
        let mut register = raw::uffdio_register { range: kernel_range(range), mode, ioctls: 0 };
        self.update::<REGISTER, _>(&mut register)
    }

    /// Ends what [`Uffd::register`] began. Threads that wait there go on.
    ///
    /// # Errors
    /// [`UffdError::OutOfMemory`] when the kernel can't split a mapping.
    pub fn unregister(&self, range: PageRange) -> Result<(), UffdError> {
        if let Some(objects) = self.objects {
            return objects.unregister(range);
        }
        let mut range = kernel_range(range);
        self.update::<UNREGISTER, _>(&mut range)
    }

    /// Whether there is a message to read.
    pub fn has_message(&self) -> bool {
        let mut set = [PollFd::from_borrowed_fd(self.fd.as_fd(), PollFlags::IN)];
        let none = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut set, Some(&none)).is_ok_and(|count| count > 0)
    }

    /// Waits until there is a message, here or at one of `others`; at most `timeout_ns`. Those are bare
    /// numbers: a thread that closes one meanwhile causes an early return at worst.
    pub fn wait(&self, others: &[RawFd], timeout_ns: Option<u64>) {
        const MOST: usize = 257;
        let mut set = [const { MaybeUninit::uninit() }; MOST];
        let mut count = 0;
        // SAFETY: the numbers are only handed to poll(), which checks them; nothing is read or closed through
        // them.
        let others = others.iter().map(|&fd| unsafe { BorrowedFd::borrow_raw(fd) });
        for fd in core::iter::once(self.fd.as_fd()).chain(others).take(MOST) {
            set[count].write(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            count += 1;
        }
        // SAFETY: the first `count` elements have been written.
        let set = unsafe { core::slice::from_raw_parts_mut(set.as_mut_ptr().cast::<PollFd<'_>>(), count) };
        let timeout = timeout_ns.map(|ns| rustix::time::Timespec {
            tv_sec: (ns / 1_000_000_000) as i64,
            tv_nsec: (ns % 1_000_000_000) as i64,
        });
        // A failure means an early return: the caller looks again.
        let _ = rustix::event::poll(set, timeout.as_ref());
    }

    /// Whether the page belongs to a mapping that is registered here. `None` when that can't be asked: an
    /// event waits, or the process has ended.
    pub fn is_registered(&self, page: PageIndex) -> Option<bool> {
        if let Some(objects) = self.objects {
            return Some(objects.is_registered(page));
        }
        // What this asks for is done in shared memory alone, and refused only after the mapping was found.
        let range = kernel_range(PageRange::at(page, PageCount::new(1)));
        let mut proceed = raw::uffdio_continue { range, mode: 0, mapped: 0 };
        match self.update::<CONTINUE, _>(&mut proceed) {
            Err(UffdError::Gone) => Some(false),
            Err(UffdError::Changing | UffdError::Ended) => None,
            _ => Some(true),
        }
    }

    /// Whether the page belongs to a mapping of which writes are reported here. `None` when that can't be
    /// asked: an event waits, or the process has ended. The page isn't protected afterwards.
    pub(crate) fn tells_of_writes(&self, page: PageIndex) -> Option<bool> {
        let one = PageRange::at(page, PageCount::new(1));
        match self.protect(one).and_then(|()| self.unprotect(one)) {
            Ok(()) => Some(true),
            Err(UffdError::Gone) => Some(false),
            Err(_) => None,
        }
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
        debug_assert_eq!(content.len() % PAGE_BYTES, 0);
        let mut copy = raw::uffdio_copy {
            dst: page.addr().get(),
            src: content.as_ptr() as u64,
            len: content.len() as u64,
            mode: match waiters {
                Waiters::Wake => 0,
                Waiters::Keep => 1,
            },
            copy: 0,
        };
        let result = self.update::<COPY, _>(&mut copy);
        progress(result, content.len() as u64, copy.copy)
    }

    /// Maps the kernel's shared page of zeros, which takes no memory until it is written. A marker makes way
    /// only for a single page.
    pub fn zero_in(&self, range: PageRange) -> Progress {
        self.over_marker(range, || self.zero_vacant(range))
    }

    /// The kernel puts neither zeros nor poison where there is a marker.
    fn over_marker(&self, range: PageRange, put: impl Fn() -> Progress) -> Progress {
        let progress = put();
        if progress.stopped != Some(UffdError::Exists) || range.count() != PageCount::new(1) {
            return progress;
        }
        self.unmark(range);
        put()
    }

    /// As [`Uffd::zero_in`], but a marker is in the way.
    pub fn zero_vacant(&self, range: PageRange) -> Progress {
        if let Some(objects) = self.objects {
            return objects.zero_in(range);
        }
        let mut zero = raw::uffdio_zeropage { range: kernel_range(range), mode: 0, zeropage: 0 };
        let result = self.update::<ZEROPAGE, _>(&mut zero);
        progress(result, range.count().bytes().get(), zero.zeropage)
    }

    /// Takes pages away from where the program sees them and puts them, the same frames, at `to`, which must
    /// be registered with this userfaultfd and empty, at most [`SCAN_PAGES`](crate::pagemap::SCAN_PAGES) of
    /// them. Stops with [`UffdError::Gone`] at a page that isn't there, with [`UffdError::Exists`] where the
    /// kernel's page of zeros is in the way. What counts as done has really arrived, and what has arrived
    /// counts as done; `pagemap`, of this process, is asked where the kernel doesn't know. Nobody is woken.
    ///
    /// Atomic against the program: a write lands either in the moved frame or faults afterwards.
    pub fn move_pages(&self, from: PageRange, to: PageIndex, pagemap: &Pagemap) -> Progress {
        let mut one = [Move { from, to, progress: UNTRIED }];
        self.move_runs(&mut one, pagemap);
        one[0].progress
    }

    /// Makes several moves as [`Uffd::move_pages`], at most [`MOST_MOVES`]; each is told how far it came,
    /// whatever became of those before it.
    pub fn move_runs(&self, moves: &mut [Move], pagemap: &Pagemap) {
        if let Some(objects) = self.objects {
            return objects.move_runs(moves);
        }
        match subject::attached() {
            Some(attached) => move_by(&attached.puppet, moves, pagemap),
            None => moves.iter_mut().for_each(|it| it.progress = self.move_one(it.from, it.to, pagemap)),
        }
    }

    fn move_one(&self, from: PageRange, to: PageIndex, pagemap: &Pagemap) -> Progress {
        let mut moved = UffdioMove {
            dst: to.addr().get(),
            src: from.start.addr().get(),
            len: from.count().bytes().get(),
            mode: MOVE_DONTWAKE,
            moved: 0,
        };
        let result = self.update::<MOVE, _>(&mut moved);
        let progress = progress(result, from.count().bytes().get(), moved.moved);
        progress.with_uncounted(from, PageRange::at(to, from.count()), pagemap)
    }

    /// Makes the next write to each of these pages a fault, reported as [`Message::Fault`]. Concerns the
    /// pages that are there now; a fork hands the protection on to the child's descriptor.
    ///
    /// # Errors
    /// [`UffdError::Changing`], [`UffdError::Gone`] when some of the range isn't registered.
    pub fn protect(&self, range: PageRange) -> Result<(), UffdError> {
        if self.objects.is_some() {
            // Nothing of it is copied at a fork.
            return Ok(());
        }
        let mut protect = raw::uffdio_writeprotect { range: kernel_range(range), mode: PROTECT };
        self.update::<WRITEPROTECT, _>(&mut protect)
    }

    /// Ends the protection of these pages, and lets threads that wait there try again.
    ///
    /// # Errors
    /// As [`Uffd::protect`]; then nobody is woken.
    pub fn unprotect(&self, range: PageRange) -> Result<(), UffdError> {
        if let Some(objects) = self.objects {
            return objects.unprotect(range);
        }
        let mut protect = raw::uffdio_writeprotect { range: kernel_range(range), mode: 0 };
        self.update::<WRITEPROTECT, _>(&mut protect)
    }

    /// Leaves a marker in the page table for each of these pages that isn't there: the kernel removes it when
    /// the program discards the page, also where it tells nobody (`MADV_GUARD_INSTALL`, Linux 6.13), and
    /// shows the page as swapped. Pages that are there are protected. `false` when some may have none.
    pub fn mark(&self, range: PageRange) -> bool {
        if self.objects.is_some() {
            // All that isn't there counts as marked: what is discarded is always told.
            return true;
        }
        self.protect(range).is_ok()
    }

    /// Takes markers away, and wakes nobody.
    pub fn unmark(&self, range: PageRange) {
        if self.objects.is_some() {
            return;
        }
        let mut protect = raw::uffdio_writeprotect { range: kernel_range(range), mode: PROTECT_DONTWAKE };
        // Where the kernel refuses, whatever is to come there is refused as well.
        let _ = self.update::<WRITEPROTECT, _>(&mut protect);
    }

    /// Makes every later touch of these missing pages a SIGBUS. A marker makes way only for a single page.
    pub fn poison(&self, range: PageRange) -> Progress {
        if let Some(objects) = self.objects {
            return objects.poison(range);
        }
        self.over_marker(range, || self.poison_unmarked(range))
    }

    fn poison_unmarked(&self, range: PageRange) -> Progress {
        let mut poison = UffdioPoison { range: kernel_range(range), mode: 0, updated: 0 };
        let result = self.update::<POISON, _>(&mut poison);
        progress(result, range.count().bytes().get(), poison.updated)
    }

    /// Lets threads that wait for these pages try again.
    pub fn wake(&self, range: PageRange) {
        if let Some(objects) = self.objects {
            return objects.wake(range);
        }
        let mut wake = kernel_range(range);
        // The only failure is a range that is no range, which PageRange rules out.
        let _ = self.update::<WAKE, _>(&mut wake);
    }

    /// The next message, `None` when there is none. Faults come before events (kernel's order).
    ///
    /// # Errors
    /// [`UffdError::Other`] when the descriptor is unusable.
    pub fn read(&self) -> Result<Option<Message>, UffdError> {
        if let Some(objects) = self.objects {
            return objects.read();
        }
        let mut buffer = MaybeUninit::<raw::uffd_msg>::uninit();
        // SAFETY: any bytes are valid content for a byte slice of the message's size, and read() only writes.
        let bytes = unsafe {
            core::slice::from_raw_parts_mut(
                buffer.as_mut_ptr().cast::<MaybeUninit<u8>>(),
                size_of::<raw::uffd_msg>(),
            )
        };
        match rustix::io::read(&self.fd, bytes) {
            Ok((filled, _)) if filled.len() == size_of::<raw::uffd_msg>() => {}
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
        // SAFETY: the kernel has filled the whole message; each union field is read only under its own event.
        let message = unsafe {
            let message = buffer.assume_init();
            match u32::from(message.event) {
                raw::UFFD_EVENT_PAGEFAULT => {
                    let fault = message.arg.pagefault;
                    Message::Fault {
                        address: VirtAddr::new(fault.address),
                        write: fault.flags & u64::from(raw::UFFD_PAGEFAULT_FLAG_WRITE) != 0,
                        protected: fault.flags & u64::from(raw::UFFD_PAGEFAULT_FLAG_WP) != 0,
                        thread: fault.feat.ptid,
                    }
                }
                raw::UFFD_EVENT_FORK => {
                    Message::Fork(Uffd::from(OwnedFd::from_raw_fd(message.arg.fork.ufd as i32)))
                }
                raw::UFFD_EVENT_REMAP => {
                    let remap = message.arg.remap;
                    Message::Remap {
                        from: VirtAddr::new(remap.from).page(),
                        to: VirtAddr::new(remap.to).page(),
                        count: PageCount::new(remap.len / PAGE_BYTES as u64),
                    }
                }
                raw::UFFD_EVENT_REMOVE => Message::Remove(range_of(message.arg.remove)),
                raw::UFFD_EVENT_UNMAP => Message::Unmap(range_of(message.arg.remove)),
                _ => Message::Unknown(message.event),
            }
        };
        Ok(Some(message))
    }

    /// What else the message said that was read last: the thread that it is about goes on already, so it is
    /// taken in before anything else is done. Of one process there is nothing else.
    pub fn read_rest(&self) -> Option<Message> {
        self.objects?.read_rest()
    }

    fn update<const OPCODE: rustix::ioctl::Opcode, T>(&self, argument: &mut T) -> Result<(), UffdError> {
        // SAFETY: every caller pairs the opcode with the structure that the kernel reads and writes for it;
        // memory that the structure points to is borrowed by the caller for the length of the call.
        unsafe { ioctl(&self.fd, Updater::<OPCODE, T>::new(argument)) }.map_err(Into::into)
    }
}

const UFFD_API: u8 = 0xaa;
/// The last page that a process can have, which only one that insists has mapped. Most kernels refuse to talk
/// about the lowest pages.
pub const NOTHING: PageRange =
    PageRange::at(VirtAddr::new((1 << 47) - 2 * PAGE_BYTES as u64).page(), PageCount::new(1));
/// What faults are reported on: missing pages, and write-protected ones.
const MISSING: u64 = 1 << 0;
const PROTECTED: u64 = 1 << 1;
const PROTECT: u64 = 1;
const PROTECT_DONTWAKE: u64 = 2;
const MOVE_DONTWAKE: u64 = 1;

const API: rustix::ioctl::Opcode = opcode::read_write::<raw::uffdio_api>(UFFDIO, 0x3f);
const REGISTER: rustix::ioctl::Opcode = opcode::read_write::<raw::uffdio_register>(UFFDIO, 0x00);
const UNREGISTER: rustix::ioctl::Opcode = opcode::read::<raw::uffdio_range>(UFFDIO, 0x01);
pub(crate) const WAKE: rustix::ioctl::Opcode = opcode::read::<raw::uffdio_range>(UFFDIO, 0x02);
const COPY: rustix::ioctl::Opcode = opcode::read_write::<raw::uffdio_copy>(UFFDIO, 0x03);
const ZEROPAGE: rustix::ioctl::Opcode = opcode::read_write::<raw::uffdio_zeropage>(UFFDIO, 0x04);
const MOVE: rustix::ioctl::Opcode = opcode::read_write::<UffdioMove>(UFFDIO, 0x05);
const WRITEPROTECT: rustix::ioctl::Opcode = opcode::read_write::<raw::uffdio_writeprotect>(UFFDIO, 0x06);
const CONTINUE: rustix::ioctl::Opcode = opcode::read_write::<raw::uffdio_continue>(UFFDIO, 0x07);
const POISON: rustix::ioctl::Opcode = opcode::read_write::<UffdioPoison>(UFFDIO, 0x08);

#[repr(C)]
struct UffdioMove {
    dst: u64,
    src: u64,
    len: u64,
    mode: u64,
    moved: i64,
}

#[repr(C)]
struct UffdioPoison {
    range: raw::uffdio_range,
    mode: u64,
    updated: i64,
}

/// [`Uffd::move_runs`] where the program is another process: its puppet moves the pages, and copies those
/// that came to be staged.
fn move_by(puppet: &Puppet, moves: &mut [Move], pagemap: &Pagemap) {
    let mut results = [None; MOST_MOVES];
    let mut places = results.iter_mut();
    let asked = moves.iter().map(|it| (it.from, it.to));
    let answered = puppet.move_pages(MOVE, MOVE_DONTWAKE, asked, |moved| {
        if let Some(place) = places.next() {
            *place = Some(moved);
        }
    });
    for (it, result) in moves.iter_mut().zip(results) {
        let (counted, copied) = match result.filter(|_| answered.is_ok()) {
            Some(moved) => {
                let asked_bytes = it.from.count().bytes().get();
                let counted = progress(moved.result.map_err(Into::into), asked_bytes, moved.bytes);
                (counted, counted.done)
            }
            // Nobody knows how far it has come. What has arrived is found as what was moved uncounted is.
            None => (Progress { done: PageCount::ZERO, stopped: Some(UffdError::Exists) }, PageCount::ZERO),
        };
        let target = PageRange::at(it.to, it.from.count());
        it.progress = counted.with_uncounted(it.from, target, pagemap);
        let uncopied = PageRange::new(it.to + copied, it.to + it.progress.done);
        let is_staged = puppet.is_staged(it.to);
        if is_staged && !uncopied.is_empty() && puppet.copy_staged(uncopied).is_err() {
            // The frames are there, and nobody can look at them.
            subject::end();
        }
        if answered.is_err() && it.progress.stopped.is_some() {
            // Without a puppet nothing leaves any more.
            it.progress.stopped = Some(UffdError::Unsupported);
        }
    }
}

/// USERFAULTFD_IOC_NEW: flags by value in, a descriptor out.
struct NewFromDevice(u32);

// SAFETY: the opcode takes an integer, not a pointer, and returns a descriptor.
unsafe impl rustix::ioctl::Ioctl for NewFromDevice {
    type Output = i32;
    const IS_MUTATING: bool = false;
    fn opcode(&self) -> rustix::ioctl::Opcode {
        opcode::none(UFFDIO, 0x00)
    }
    fn as_ptr(&mut self) -> *mut core::ffi::c_void {
        core::ptr::without_provenance_mut(self.0 as usize)
    }
    unsafe fn output_from_ptr(
        output: rustix::ioctl::IoctlOutput,
        _: *mut core::ffi::c_void,
    ) -> rustix::io::Result<i32> {
        Ok(output)
    }
}

fn kernel_range(range: PageRange) -> raw::uffdio_range {
    raw::uffdio_range { start: range.start.addr().get(), len: range.count().bytes().get() }
}

fn range_of(remove: raw::uffd_msg__bindgen_ty_1__bindgen_ty_4) -> PageRange {
    PageRange::new(VirtAddr::new(remove.start).page(), VirtAddr::new(remove.end).page_up())
}

fn progress(result: Result<(), UffdError>, asked_bytes: u64, answered_bytes: i64) -> Progress {
    match result {
        Ok(()) => Progress { done: PageCount::new(asked_bytes / PAGE_BYTES as u64), stopped: None },
        Err(error) => {
            let done = PageCount::new(answered_bytes.max(0) as u64 / PAGE_BYTES as u64);
            Progress { done, stopped: Some(error) }
        }
    }
}
