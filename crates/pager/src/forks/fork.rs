//! Forks: what the supervisor is told of them.
//!
//! 1. The fork event (a handler): the child's userfaultfd is sent to the supervisor. The child is served from
//!    here, with a copy of the words ([`crate::forks::children`]).
//! 2. When it has lived for some milliseconds it gets a pager of its own, which is forked from this one
//!    ([`Engine::part_with`]). Where that can't be, it is served from here until it ends.

use farmem_sys::link::Link;
use farmem_sys::lock::Lock;
use farmem_sys::uffd::Uffd;
use farmem_sys::{AsFd, BorrowedFd};
use farmem_sys::{Errno, thread};
use farmem_wire::Request;

use crate::engine::Engine;

/// How long the supervisor is tried to be told of a child.
const PATIENCE_NS: u64 = 5_000_000_000;
/// How long to wait before it is told again.
const RETRY_NS: u64 = 1_000_000;

/// The connection by which the supervisor is told; none any more where there is no supervisor.
#[derive(Debug)]
pub(crate) struct Teller(Lock<Option<Link>>);

impl Teller {
    pub(crate) const fn new(link: Link) -> Self {
        Self(Lock::new(Some(link)))
    }

    fn tell(&self, uffd: BorrowedFd<'_>, request: Request) {
        let mut link = self.0.lock();
        let send = |link: &Link| link.send(&request.encode(), &[uffd]);
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
    }

    /// Whether there is no supervisor any more, so that this process alone has its children's userfaultfds.
    pub(crate) fn is_alone(&self) -> bool {
        let mut link = self.0.lock();
        if link.as_ref().is_some_and(Link::is_cut) {
            *link = None;
        }
        link.is_none()
    }
}

impl Engine {
    /// Sends a child's userfaultfd to the supervisor, if there is one, which keeps it open whatever happens
    /// here.
    pub(crate) fn tell_of_fork(&self, uffd: &Uffd, epoch: u64) {
        self.slot.note_told_epoch(epoch);
        self.family.teller.tell(uffd.as_fd(), Request::Forked { epoch });
    }

    /// Sends the supervisor the userfaultfd of a process that maps shared memory, as [`Engine::tell_of_fork`]
    /// does.
    pub fn keep_mapper(&self, uffd: BorrowedFd<'_>) {
        self.family.teller.tell(uffd, Request::Keep);
    }
}
