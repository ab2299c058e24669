//! Forks: the parent holds still, the child's userfaultfd goes to the supervisor, the child fetches it there.
//!
//! 1. *Before* (the forking thread): evictions stop; the count of forks goes up, which freezes every entry stored so far.
//! 2. The fork event (a handler): the child's userfaultfd is sent to the supervisor. The child is served from here, by
//!    the parent's own words: nothing leaves the parent, and what comes back keeps its entry.
//! 3. *After, in the child*: a pager of its own starts on the words that the fork has copied, fetches the userfaultfd,
//!    and asks for the child. A handler of the parent lets go; only then the child's thread goes on.
//! 4. *After, in the parent*: the forking thread waits for that, and evictions go on.
//!
//! A child that doesn't ask in time is kept: it is served from here for good, by a copy of the words. So is one whose fork
//! the C library didn't announce, or a handler of a signal made while its thread was forking; it is noticed at step 2. So is one that was forked before this process had taken in that another
//! thread had unmapped or moved memory: the tables that the fork has copied lack that, or have it by half. A child that can't serve
//! itself asks to be kept, and ends itself when nobody is left to keep it. Who decides what writes it into one word of the ledger, see
//! [`Handover`].

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use farmem_page::PageIndex;
use farmem_sys::AsFd;
use farmem_sys::link::Link;
use farmem_sys::lock::Lock;
use farmem_sys::uffd::{Message, Uffd};
use farmem_sys::{Errno, process, thread};
use farmem_telemetry::{Handover, SlotState};
use farmem_wire::Request;

use crate::engine::Engine;
use crate::gate::Reading;

/// How long a parent waits for its child's pager to ask.
const PATIENCE_NS: u64 = 5_000_000_000;
const LOOK_NS: u64 = 50_000;
/// How long to wait before the supervisor is told again of a child.
const RETRY_NS: u64 = 1_000_000;
/// Changes that are remembered between the announcement of a fork and its event. Where there are more, the child is kept.
const CHANGES: usize = 8;

/// No thread has this number.
const NOBODY: u32 = 0;

/// What a thread has done to the address space, and where a child's userfaultfd is asked whether that was before the child was forked.
#[derive(Clone, Copy, Debug)]
enum AddressChange {
    /// Memory that began here was unmapped.
    Unmapped(PageIndex),
    /// Memory was moved to here.
    Moved(PageIndex),
}

impl AddressChange {
    fn of(event: &Message) -> Option<Self> {
        match *event {
            Message::Unmap(range) => Some(Self::Unmapped(range.start)),
            Message::Remap { to, .. } => Some(Self::Moved(to)),
            _ => None,
        }
    }

    /// Whether the child was forked after it. Where that can't be told it counts as so: memory may have been moved to where there was some.
    fn is_before_fork_of(self, child: &Uffd) -> bool {
        match self {
            Self::Unmapped(page) => child.is_registered(page) != Some(true),
            Self::Moved(page) => child.is_registered(page) != Some(false),
        }
    }
}

/// A process's forks.
#[derive(Debug)]
pub(crate) struct Fork {
    /// The connection to the supervisor.
    link: Lock<Option<Link>>,
    /// The thread whose fork is announced, one at a time; 0 while none is.
    thread: AtomicU32,
    /// Forks that this thread has begun since, in handlers of signals, and that are under way. They are like bare clones.
    within: AtomicU32,
    is_expected: AtomicBool,
    /// Whether it is expected when those have happened.
    is_put_off: AtomicBool,
    /// The epoch that the announced fork ends: others may have ended since.
    epoch: AtomicU64,
    has_happened: AtomicBool,
    is_heard: AtomicBool,
    /// Changes that were taken in, or have begun to be, and how many those were when the fork was announced.
    changes: AtomicU64,
    changes_before: AtomicU64,
    /// The last of them. Locked under a [`Reading`] alone, and so never waited for.
    last_changes: Lock<[Option<AddressChange>; CHANGES]>,
}

impl Fork {
    pub(crate) const fn new(link: Link) -> Self {
        Self {
            link: Lock::new(Some(link)),
            thread: AtomicU32::new(NOBODY),
            within: AtomicU32::new(0),
            is_expected: AtomicBool::new(false),
            is_put_off: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            has_happened: AtomicBool::new(false),
            is_heard: AtomicBool::new(false),
            changes: AtomicU64::new(0),
            changes_before: AtomicU64::new(0),
            last_changes: Lock::new([None; CHANGES]),
        }
    }

    /// The epoch of the announced fork to which the next fork event belongs, if there is one.
    pub(crate) fn expected(&self) -> Option<u64> {
        self.is_expected.swap(false, Ordering::AcqRel).then(|| self.epoch.load(Ordering::Acquire))
    }

    /// The next fork event isn't the announced fork's, which comes later, or has been there.
    fn begin_within(&self) {
        self.within.fetch_add(1, Ordering::AcqRel);
        if self.is_expected.swap(false, Ordering::AcqRel) {
            self.is_put_off.store(true, Ordering::Release);
        }
    }

    /// Whether the announced fork is now to come.
    fn end_within(&self) -> bool {
        let is_last = self.within.fetch_sub(1, Ordering::AcqRel) == 1;
        is_last && self.is_put_off.swap(false, Ordering::AcqRel)
    }

    /// Whether a fork was announced whose event has yet to come.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_expected.load(Ordering::Acquire)
    }

    /// An event is about to be taken in.
    pub(crate) fn note(&self, _reading: &Reading<'_>, event: &Message) {
        let Some(change) = AddressChange::of(event) else { return };
        let number = self.changes.fetch_add(1, Ordering::AcqRel);
        self.last_changes.lock()[number as usize % CHANGES] = Some(change);
    }

    /// Whether the tables that the announced fork has copied for its child lack a change that was there before, or have it by half: it
    /// was taken in after the fork was announced, at whatever time.
    pub(crate) fn is_behind(&self, _reading: &Reading<'_>, child: &Uffd) -> bool {
        let count = self.changes.load(Ordering::Acquire);
        let before = self.changes_before.load(Ordering::Acquire);
        let last = self.last_changes.lock();
        count - before > CHANGES as u64
            || (before..count)
                .filter_map(|number| last[number as usize % CHANGES])
                .any(|change| change.is_before_fork_of(child))
    }

    fn tell(&self, uffd: &Uffd, epoch: u64) -> bool {
        let mut link = self.link.lock();
        let send = |link: &Link| link.send(&Request::Forked { epoch }.encode(), &[uffd.as_fd()]);
        let mut patience_ns = PATIENCE_NS;
        let is_sent = link.as_ref().is_some_and(|link| {
            loop {
                match send(link) {
                    Ok(()) => break true,
                    Err(Errno::PIPE | Errno::CONNRESET) => break false,
                    // Too many descriptors are on their way, or there is no memory at this moment.
                    Err(_) if patience_ns > 0 => {
                        thread::sleep(RETRY_NS);
                        patience_ns = patience_ns.saturating_sub(RETRY_NS);
                    }
                    Err(_) => break false,
                }
            }
        });
        if !is_sent {
            *link = None;
        }
        is_sent
    }

    /// Whether there is no supervisor any more, so that this process alone has its children's userfaultfds.
    pub(crate) fn is_alone(&self) -> bool {
        let mut link = self.link.lock();
        if link.as_ref().is_some_and(Link::is_cut) {
            *link = None;
        }
        link.is_none()
    }

    pub(crate) fn happened(&self, is_heard: bool) {
        self.is_heard.store(is_heard, Ordering::Release);
        self.has_happened.store(true, Ordering::Release);
    }
}

impl Engine {
    /// Sends a child's userfaultfd to the supervisor, which keeps it open whatever happens here. `false` when there is no
    /// supervisor any more.
    pub(crate) fn tell_of_fork(&self, uffd: &Uffd, epoch: u64) -> bool {
        self.slot.note_told_epoch(epoch);
        self.fork.tell(uffd, epoch)
    }

    /// Before a fork, on the forking thread. `false` when the process's memory isn't managed, or a handler of a signal forks while its
    /// thread is forking: then the pager has no part in the fork.
    pub fn before_fork(&self) -> bool {
        self.protect_before_fork();
        let thread = thread::current();
        let is_within = self.fork.thread.load(Ordering::Acquire) == thread;
        if is_within {
            // Its end can't be waited for: it goes on only when the handler has returned.
            self.fork.begin_within();
        }
        if is_within || !self.is_managing() {
            self.sharing.unmanaged_fork_begins();
            return false;
        }
        while self.fork.thread.compare_exchange(NOBODY, thread, Ordering::AcqRel, Ordering::Relaxed).is_err()
        {
            thread::sleep(LOOK_NS);
        }
        self.fork.has_happened.store(false, Ordering::Release);
        self.forking.fetch_add(1, Ordering::AcqRel);
        self.sharing.fork_begins();
        // Who evicts, or begins to manage, at this moment finishes; from now on nobody begins.
        while !self.is_eviction_over() {
            thread::sleep(LOOK_NS);
        }
        self.announce_fork();
        true
    }

    /// The fork event that comes next is that of the calling thread's fork.
    fn announce_fork(&self) {
        let epoch = self.vault.announce_fork();
        self.fork.epoch.store(epoch, Ordering::Release);
        self.slot.handover().store(Handover::Begun.word(epoch), Ordering::Release);
        // A change that was counted by now is in the tables once its reading has ended. What is counted later, the fork may copy by half.
        // Whoever reads needs nothing that this thread holds: it only looks at words and sleeps.
        self.fork.changes_before.store(self.fork.changes.load(Ordering::Acquire), Ordering::Release);
        self.gate.until_read();
        self.fork.is_expected.store(true, Ordering::Release);
    }

    /// After a fork (or an attempt), on the forking thread.
    pub fn after_fork_in_parent(&self) {
        // The kernel lets a fork return when its event has been read; whoever read it may still be at it.
        self.gate.until_read();
        if self.fork.has_happened.load(Ordering::Acquire) {
            self.wait_for_handover();
        } else {
            let epoch = self.fork.epoch.load(Ordering::Acquire);
            self.slot.handover().store(Handover::Settled.word(epoch), Ordering::Release);
            self.vault.forget_fork();
        }
        self.fork.is_expected.store(false, Ordering::Release);
        self.forking.fetch_sub(1, Ordering::AcqRel);
        self.fork.thread.store(NOBODY, Ordering::Release);
    }

    /// After a fork (or an attempt) in which the pager had no part, on the forking thread: `true` if that is in the midst of another one.
    pub fn after_fork_within(&self) -> bool {
        let is_within = self.fork.within.load(Ordering::Acquire) > 0
            && self.fork.thread.load(Ordering::Acquire) == thread::current();
        if is_within && self.fork.end_within() {
            // The entries that were frozen then may be so no longer: the children of the fork within may have ended.
            self.announce_fork();
        }
        is_within
    }

    /// In a forked child of this process: whether that fork was made in the midst of another one.
    pub fn was_fork_within(&self) -> bool {
        self.fork.within.load(Ordering::Acquire) > 0
    }

    /// Only looks at words and sleeps: this thread's stack is managed, so it must not hold what a handler needs.
    fn wait_for_handover(&self) {
        let epoch = self.fork.epoch.load(Ordering::Acquire);
        let word = self.slot.handover();
        let mut patience_ns = if self.fork.is_heard.load(Ordering::Acquire) { PATIENCE_NS } else { 0 };
        loop {
            match Handover::of(word.load(Ordering::Acquire), epoch) {
                Some(Handover::Released | Handover::Settled) | None => return,
                Some(Handover::Begun) if patience_ns == 0 => {
                    let _ = Handover::advance(word, epoch, Handover::Begun, Handover::Kept);
                }
                Some(Handover::Begun | Handover::Asked | Handover::Kept) => {
                    thread::sleep(LOOK_NS);
                    patience_ns = patience_ns.saturating_sub(LOOK_NS);
                }
            }
        }
    }

    /// In a forked child of this process: the epoch that its fork has ended.
    pub(crate) fn announced_epoch(&self) -> u64 {
        self.fork.epoch.load(Ordering::Acquire)
    }

    /// In a forked child, on its pager's thread: asks the parent to let go. `false` when the parent keeps the child, which it also
    /// does when it knows of a change of the child's memory that these tables don't know of.
    pub(crate) fn ask_for_self(&self, epoch: u64) -> bool {
        let word = self.slot.handover();
        if !Handover::advance(word, epoch, Handover::Begun, Handover::Asked) {
            return false;
        }
        // A parent that has ended serves nobody any more.
        loop {
            match Handover::of(word.load(Ordering::Acquire), epoch) {
                Some(Handover::Kept | Handover::Settled) => return false,
                Some(Handover::Asked) if self.is_parent() => thread::sleep(LOOK_NS),
                _ => return true,
            }
        }
    }

    /// In a forked child that can't serve itself: asks the parent to keep it, and waits for that. `false` when the parent has
    /// ended. Only looks at words and sleeps: the parent serves the calling thread.
    pub(crate) fn keeps_child(&self, epoch: u64) -> bool {
        let word = self.slot.handover();
        let _ = Handover::advance(word, epoch, Handover::Begun, Handover::Kept);
        while Handover::of(word.load(Ordering::Acquire), epoch) == Some(Handover::Kept) && self.is_parent() {
            thread::sleep(LOOK_NS);
        }
        self.is_parent()
    }

    /// In a forked child that its parent keeps: whether the supervisor has the child's userfaultfd too, should the parent end.
    /// It hears of the child by a packet that may still be on its way.
    pub(crate) fn is_child_heard_of(&self, epoch: u64) -> bool {
        let mut patience_ns = PATIENCE_NS;
        while self.slot.heard_epoch() < epoch && patience_ns > 0 && self.is_parent() {
            thread::sleep(LOOK_NS);
            patience_ns = patience_ns.saturating_sub(LOOK_NS);
        }
        self.slot.heard_epoch() >= epoch
    }

    /// In a forked child: whether this, its parent's pager, still lives. By the kernel's word, which needs no supervisor; from
    /// another PID namespace that can't be had.
    fn is_parent(&self) -> bool {
        match process::parent_number() {
            0 => self.slot.state() != SlotState::Free,
            parent => parent == self.number,
        }
    }
}
