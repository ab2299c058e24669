//! One thread's link to one node: made ahead of need or when it is needed, made again when it breaks.

mod aside;
mod exchange;

use std::time::{Duration, Instant};

use farmem_transport::{
    Answer, Completion, LinkError, NodeDescription, Request, Ticket, Transport, Unsubmitted,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Carrier;
use super::prepared::{Made, Permit};
use aside::Aside;
pub(super) use aside::Reply;
pub(super) use exchange::{SLICE, exchange};

/// Between two looks at a node that has no descriptor to wait for.
const UNSEEN: Duration = Duration::from_micros(100);
/// After a link could not be made it is not tried again for so long, and twice as long each time up to the
/// second: each try takes the time of a thread that others wait for.
const REST_FIRST: Duration = Duration::from_millis(50);
const REST_MOST: Duration = Duration::from_secs(2);

pub(super) struct NodeLink {
    carrier: &'static Carrier,
    node: usize,
    lane: u8,
    transport: Option<Box<dyn Transport>>,
    /// Counts it, if it was made ahead of need.
    permit: Option<Permit>,
    /// Which incarnation of the node the link is to, or was when there was one.
    incarnation: u32,
    /// The latest ticket; they rise for as long as the application runs, whatever becomes of links.
    ticket: u64,
    /// How often it was made.
    made: u64,
    /// What was asked without waiting for it.
    aside: Option<Aside>,
    /// Whether an answer was late and nothing has been heard since.
    owes: bool,
    /// Whether it is to be made again before it is used again.
    is_stale: bool,
    /// After it could not be made: when that is tried again, and how long after that.
    rest: Option<(Instant, Duration)>,
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
            permit: None,
            incarnation: 0,
            ticket,
            made: 0,
            aside: None,
            owes: false,
            is_stale: false,
            rest: None,
        }
    }

    pub(super) fn node(&self) -> usize {
        self.node
    }

    pub(super) fn is_open(&self) -> bool {
        self.transport.is_some()
    }

    /// Makes the link if there is none, unless that has been done ahead of need. Whether there is one now.
    pub(super) fn open(&mut self) -> bool {
        if self.transport.is_none()
            && let Some(made) = self.carrier.prepared.take(self.node, self.lane)
        {
            self.adopt(made);
        }
        let is_resting = self.rest.is_some_and(|(until, _)| Instant::now() < until);
        if self.transport.is_none() && !is_resting {
            let incarnation = self.carrier.incarnation(self.node);
            match self.carrier.link(self.node, self.lane) {
                Ok((transport, incarnation)) => self.put(transport, incarnation),
                Err(error) => {
                    tracing::debug!(node = %self.carrier.nodes[self.node].address, lane = self.lane, %error, "no link");
                    let pause = self.rest.map_or(REST_FIRST, |(_, pause)| (pause * 2).min(REST_MOST));
                    self.rest = Some((Instant::now() + pause, pause));
                    self.carrier.doubted(self.node, incarnation);
                }
            }
        }
        self.transport.is_some()
    }

    /// Has the link made before it is needed, if there is none, and takes it when that has been done.
    pub(super) fn prepare(&mut self) {
        if self.transport.is_some() {
            return;
        }
        self.permit = None;
        if self.carrier.is_up(self.node) {
            let made = self.carrier.prepared.want(self.node, self.lane);
            made.into_iter().for_each(|made| self.adopt(made));
        }
    }

    /// Takes a link that was made ahead of need, unless the node is another one by now.
    fn adopt(&mut self, Made { transport, incarnation, permit }: Made) {
        if incarnation == self.carrier.incarnation(self.node) {
            self.put(transport, incarnation);
            self.permit = Some(permit);
        }
    }

    /// From now on this is the link, to that incarnation of the node.
    pub(super) fn put(&mut self, transport: Box<dyn Transport>, incarnation: u32) {
        // Another incarnation of the node owes nothing.
        self.owes &= self.incarnation == incarnation;
        (self.transport, self.incarnation, self.permit) = (Some(transport), incarnation, None);
        self.made += 1;
        self.is_stale = false;
        self.rest = None;
        self.repeat_aside();
    }

    /// Which incarnation of the node the link is to.
    pub(super) fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// The node is late. The node monitor finds out whether it is there at all.
    pub(super) fn doubt(&self) {
        self.carrier.failed(self.node, self.incarnation);
    }

    /// The link has ended, perhaps without the node's knowledge: the node monitor asks the node.
    fn suspect(&self) {
        self.carrier.doubted(self.node, self.incarnation);
    }

    /// Asks the node whether it is there, by the link that there is and whatever is thought of the node. Not
    /// while it is asked already.
    pub(super) fn ask_whether_there(&mut self, patience: Duration) {
        let ticket = Ticket(self.ticket + 1);
        if let Some(transport) = self.transport.as_mut().filter(|transport| transport.pending() == 0)
            && transport.submit(ticket, Request::Renew, Instant::now() + patience).is_ok()
        {
            self.ticket += 1;
        }
    }

    /// The node at the other end, if there is a link.
    pub(super) fn described(&self) -> Option<NodeDescription> {
        self.transport.as_ref().map(|transport| transport.node())
    }

    /// Lets go a link to an earlier incarnation of the node: nobody would believe what it says of the node.
    pub(super) fn close_if_outdated(&mut self) {
        if self.transport.is_some() && self.incarnation != self.carrier.incarnation(self.node) {
            self.transport = None;
        }
    }

    /// Tells the node that nobody wants what it has granted, if there is a link.
    pub(super) fn tell_to_forget(&mut self, patience: Duration) {
        self.ticket += 1;
        if let Some(transport) = &mut self.transport {
            // One that doesn't hear of it finds out when the lease ends.
            let _ = tell_to_forget(&mut **transport, Ticket(self.ticket), patience);
        }
    }

    /// Whether the node is up and there is a link to this incarnation of it, or one could be made now.
    fn is_usable(&mut self) -> bool {
        let Some(incarnation) = self.carrier.incarnation_up(self.node) else { return false };
        if self.transport.is_some() && incarnation != self.incarnation {
            // Whoever waits for something by it sees first that it has ended.
            if self.pending() > 0 {
                return false;
            }
            self.transport = None;
        }
        self.open()
    }

    /// Submits a request. `None` when there is no link, or it takes no more now.
    pub(super) fn submit(&mut self, request: Request, patience: Duration) -> Option<Ticket> {
        if !self.is_usable() {
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

    /// Closes the link if its node has left. Nothing that is kept is there any more; but what was asked of it
    /// last may have to be given back.
    pub(super) fn close_if_left(&mut self) {
        if self.aside.is_none() && self.carrier.nodes[self.node].has_left() {
            (self.transport, self.permit) = (None, None);
            self.carrier.prepared.forget(self.node, self.lane);
        }
    }

    /// Hears what has been completed, waiting at most so long.
    ///
    /// # Errors
    /// The link has ended; the node monitor asks the node by its own. What was not completed never will be.
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
            self.suspect();
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

/// Tells a node, by any link to it, that nobody wants what it has granted, and waits until it knows.
pub(super) fn tell_to_forget(
    link: &mut dyn Transport,
    ticket: Ticket,
    patience: Duration,
) -> Result<(), LinkError> {
    let deadline = Instant::now() + patience;
    link.submit(ticket, Request::Leave, deadline).map_err(|_| LinkError::Closed)?;
    let mut completions = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let heard = link.complete(&mut completions, left);
        if completions.drain(..).any(|completion| completion.result == Ok(Answer::Left)) {
            return Ok(());
        }
        heard?;
        if left.is_zero() {
            return Err(LinkError::Silent);
        }
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
