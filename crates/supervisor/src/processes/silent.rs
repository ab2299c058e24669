//! Processes that live without a connection: forked children that have no pager of their own yet, or never
//! will, and those whose connection has closed before their memory was gone.
//!
//! Their userfaultfd stays open here, so that what they can't have never reads as zeros. While a process
//! lives that may serve them, they are left to it. When none does, nobody knows what their pages held: a page
//! that they ask for is poisoned, and touching it ends them with SIGBUS instead of a wait for ever.

use std::time::{Duration, Instant};

use farmem_page::{PageCount, PageRange};
use farmem_sys::AsFd;
use farmem_sys::uffd::{Message, Uffd};
use rustix::event::{PollFd, PollFlags, poll};

use crate::processes::lineage::Lineage;

/// How long a fault waits for somebody who serves it, for a child may be on its way.
const GRACE: Duration = Duration::from_secs(2);
/// Messages answered in one look.
const MESSAGES: usize = 64;

/// A process without a connection.
pub(crate) struct Silent {
    pub(crate) uffd: Uffd,
    pub(crate) lineage: Lineage,
    /// The slot that it had when it was connected.
    pub(crate) own: Option<usize>,
    /// Since when it has had something to say that nobody has listened to, and its pager's heartbeat then.
    waiting: Option<(Instant, u64)>,
}

impl Silent {
    pub(crate) fn new(uffd: Uffd, lineage: Lineage, own: Option<usize>) -> Self {
        Self { uffd, lineage, own, waiting: None }
    }

    /// Whether it reads entries of that slot.
    pub(crate) fn reads(&self, slot: usize) -> bool {
        self.own == Some(slot) || self.lineage.reads(slot)
    }

    /// Whether its memory is gone, so that nothing of it can be read any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.uffd.has_ended()
    }

    /// Somebody serves it, or time has passed that doesn't count.
    pub(crate) fn wait_anew(&mut self) {
        self.waiting = None;
    }

    /// Whether it has been waiting too long. `heartbeat` is its pager's, if it has one.
    pub(crate) fn is_abandoned(&mut self, now: Instant, heartbeat: u64) -> bool {
        if !has_messages(&self.uffd) {
            // What has been given up stays so: the next fault need not wait again.
            return false;
        }
        let (since, then) = *self.waiting.get_or_insert((now, heartbeat));
        if then != heartbeat {
            self.waiting = Some((now, heartbeat));
            return false;
        }
        now.duration_since(since) > GRACE
    }

    /// Answers what it asks with poison. The processes that it has forked meanwhile, in the same plight; and
    /// whether a page was refused.
    pub(crate) fn give_up(&self) -> (Vec<Self>, bool) {
        let mut children = Vec::new();
        let mut is_refused = false;
        for _ in 0..MESSAGES {
            match self.uffd.read() {
                Ok(Some(Message::Fault { address, protected, .. })) => {
                    let page = address.page();
                    let range = PageRange::at(page, PageCount::new(1));
                    if protected && self.uffd.unprotect(range).is_ok() {
                        continue;
                    }
                    match self.uffd.poison(range).stopped {
                        None => is_refused = true,
                        // The thread looks again: the page is there by now, or its event is read next.
                        Some(_) => self.uffd.wake(range),
                    }
                }
                Ok(Some(Message::Fork(uffd))) => {
                    let lineage = match self.own {
                        Some(slot) => self.lineage.of_child(slot, 0),
                        None => self.lineage.clone(),
                    };
                    children.push(Self::new(uffd, lineage, None));
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        (children, is_refused)
    }
}

/// Whether there is something to be read.
pub(crate) fn has_messages(end: &impl AsFd) -> bool {
    let mut set = [PollFd::from_borrowed_fd(end.as_fd(), PollFlags::IN)];
    let none = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut set, Some(&none)).is_ok_and(|ready| ready > 0) && set[0].revents().contains(PollFlags::IN)
}
