//! One thread's link to one node: made when it is needed, made anew when it breaks.

mod aside;
mod exchange;

use std::time::{Duration, Instant};

use farmem_transport::{Completion, LinkError, Request, Ticket, Transport, Unsubmitted};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Carrier;
use aside::Aside;
pub(super) use aside::Reply;
pub(super) use exchange::{SLICE, exchange};

/// Between two looks at a node that has no descriptor to wait for.
const UNSEEN: Duration = Duration::from_micros(100);

pub(super) struct NodeLink {
    carrier: &'static Carrier,
    node: usize,
    lane: u8,
    transport: Option<Box<dyn Transport>>,
    /// Which life of the node the link is to.
    life: u32,
    /// The latest ticket; they rise for as long as the application runs, whatever becomes of links.
    ticket: u64,
    /// How often it was made.
    made: u64,
    /// What was asked without waiting for it.
    aside: Option<Aside>,
    /// Whether an answer was late and nothing has been heard since.
    owes: bool,
    /// Whether it is to be made anew before it is used again.
    is_stale: bool,
}

impl NodeLink {
    pub(super) fn new(carrier: &'static Carrier, node: usize, lane: u8) -> Self {
        // Above all that this lane used before a copy of the supervisor took over.
        let ticket = carrier.now().as_micros() as u64;
        Self {
            carrier,
            node,
            lane,
            transport: None,
            life: 0,
            ticket,
            made: 0,
            aside: None,
            owes: false,
            is_stale: false,
        }
    }

    pub(super) fn node(&self) -> usize {
        self.node
    }

    pub(super) fn is_open(&self) -> bool {
        self.transport.is_some()
    }

    /// Makes the link if there is none. Whether there is one now.
    pub(super) fn open(&mut self) -> bool {
        if self.transport.is_none() {
            let before = self.life;
            self.life = self.carrier.life(self.node);
            match self.carrier.link(self.node, self.lane) {
                Ok(transport) => {
                    self.transport = Some(transport);
                    self.life = self.carrier.life(self.node);
                    self.made += 1;
                    self.is_stale = false;
                    // Another life of the node owes nothing.
                    self.owes &= self.life == before;
                    self.repeat_aside();
                }
                Err(error) => {
                    tracing::debug!(node = %self.carrier.nodes[self.node].address, lane = self.lane, %error, "no link");
                    self.carrier.failed(self.node, self.life);
                }
            }
        }
        self.transport.is_some()
    }

    /// Makes the link anew, to see whether anybody answers.
    pub(super) fn reopen(&mut self) -> bool {
        self.transport = None;
        self.open()
    }

    /// The node is late. Whether it is there at all shows when a link to it is made.
    pub(super) fn doubt(&self) {
        self.carrier.failed(self.node, self.life);
    }

    /// Submits a request. `None` when there is no link, or it takes no more now.
    pub(super) fn submit(&mut self, request: Request, patience: Duration) -> Option<Ticket> {
        if !self.carrier.is_up(self.node) || !self.open() {
            return None;
        }
        let ticket = Ticket(self.ticket + 1);
        let transport = self.transport.as_mut()?;
        match transport.submit(ticket, request, Instant::now() + patience) {
            Ok(()) => {
                self.ticket += 1;
                Some(ticket)
            }
            Err(Unsubmitted { .. }) => None,
        }
    }

    /// Closes the link if its node has left. Nothing that is kept is there any more; but what was asked of it last may have to be given back.
    pub(super) fn close_if_left(&mut self) {
        if self.transport.is_some() && self.aside.is_none() && self.carrier.nodes[self.node].has_left() {
            self.transport = None;
        }
    }

    /// Hears what has been completed, waiting at most so long.
    ///
    /// # Errors
    /// The link has ended; the node is noted to be away. What was not completed never will be.
    pub(super) fn hear(&mut self, into: &mut Vec<Completion>, timeout: Duration) -> Result<(), LinkError> {
        self.hear_as(into, timeout, false)
    }

    fn hear_as(
        &mut self,
        into: &mut Vec<Completion>,
        timeout: Duration,
        is_waiting: bool,
    ) -> Result<(), LinkError> {
        let Some(transport) = &mut self.transport else { return Ok(()) };
        let before = into.len();
        let mut heard = transport.complete(into, timeout);
        if self.aside.is_some() || self.owes {
            let came = into.split_off(before);
            into.extend(came.into_iter().filter_map(|completion| self.note(completion, is_waiting)));
        }
        if std::mem::take(&mut self.is_stale) && heard.is_ok() {
            heard = Err(LinkError::Silent);
        }
        if let Err(error) = &heard {
            tracing::debug!(node = %self.carrier.nodes[self.node].address, lane = self.lane, %error, "link has ended");
            self.transport = None;
            self.doubt();
        }
        heard
    }

    /// Requests without an answer.
    pub(super) fn pending(&self) -> usize {
        self.transport.as_ref().map_or(0, |transport| transport.pending())
    }

    /// What tells that there is something to hear, or room to send.
    fn descriptor(&self) -> Option<PollFd<'_>> {
        let transport = self.transport.as_ref()?;
        let out = if transport.waits_to_send() { PollFlags::OUT } else { PollFlags::empty() };
        Some(PollFd::from_borrowed_fd(transport.as_fd()?, PollFlags::IN | out))
    }
}

/// Waits until something has come by one of these links, at most so long. Whether it may have.
pub(super) fn wait_for_any<'a>(links: impl Iterator<Item = &'a NodeLink>, timeout: Duration) -> bool {
    let Some(mut waiting) = links.map(NodeLink::descriptor).collect::<Option<Vec<_>>>() else {
        // One of them can't be waited for so: it is looked at soon.
        std::thread::sleep(timeout.min(UNSEEN));
        return true;
    };
    let timeout = Timespec { tv_sec: 0, tv_nsec: timeout.subsec_nanos().into() };
    poll(&mut waiting, Some(&timeout)).is_ok_and(|ready| ready > 0)
}
