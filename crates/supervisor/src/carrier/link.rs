//! One thread's link to one node: made when it is needed, made anew when it breaks.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use farmem_broker::board::Pass;
use farmem_transport::{
    Answer, Completion, Failure, LinkError, Request, SubmitError, Ticket, Transport, Unsubmitted,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Carrier;

/// How long [`NodeLink::exchange`] waits for completions before it looks at its deadline.
const SLICE: Duration = Duration::from_millis(100);
/// Between two looks at a node that has no descriptor to wait for.
const UNSEEN: Duration = Duration::from_micros(100);
/// How often a link is made anew within one exchange: once may be an accident.
const RECONNECTIONS: u32 = 1;

pub(super) struct NodeLink {
    carrier: &'static Carrier,
    node: usize,
    lane: u8,
    transport: Option<Box<dyn Transport>>,
    /// Which life of the node the link is to.
    life: u32,
    /// The latest ticket; they rise for as long as the application runs, whatever becomes of links.
    ticket: u64,
}

/// What came of a request: itself with its buffers, and the answer. The request is lost with a link that broke for good.
pub(super) type Outcome = Option<(Request, Result<Answer, Failure>)>;

impl NodeLink {
    pub(super) fn new(carrier: &'static Carrier, node: usize, lane: u8) -> Self {
        // Above all that this lane used before a copy of the supervisor took over.
        let ticket = carrier.now().as_micros() as u64;
        Self { carrier, node, lane, transport: None, life: 0, ticket }
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
            self.life = self.carrier.life(self.node);
            match self.carrier.link(self.node, self.lane) {
                Ok(transport) => {
                    self.transport = Some(transport);
                    self.life = self.carrier.life(self.node);
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

    /// Closes the link if its node has left. Nothing that is kept is there any more.
    pub(super) fn close_if_left(&mut self) {
        if self.transport.is_some() && self.carrier.nodes[self.node].has_left() {
            self.transport = None;
        }
    }

    /// Hears what has been completed, waiting at most so long.
    ///
    /// # Errors
    /// The link has ended; the node is noted to be away. What was not completed never will be.
    pub(super) fn hear(&mut self, into: &mut Vec<Completion>, timeout: Duration) -> Result<(), LinkError> {
        let Some(transport) = &mut self.transport else { return Ok(()) };
        let heard = transport.complete(into, timeout);
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

    /// What tells that the node has sent something.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.transport.as_ref()?.as_fd()
    }

    /// Does all of these, in order, each when its turn at the link has come, and waits for it: outcomes in the same order. If the link breaks and the same node answers again, what
    /// was not answered is repeated.
    pub(super) fn exchange(&mut self, requests: Vec<Request>, patience: Duration) -> Vec<Outcome> {
        let mut deadline = Instant::now() + patience;
        let mut outcomes: Vec<Outcome> = requests.iter().map(|_| None).collect();
        if !self.carrier.is_up(self.node) || !self.open() {
            return outcomes;
        }
        let first = self.ticket + 1;
        self.ticket += requests.len() as u64;
        let mut waiting: std::collections::VecDeque<(Ticket, Request)> = requests
            .into_iter()
            .enumerate()
            .map(|(nth, request)| (Ticket(first + nth as u64), request))
            .collect();
        let mut completions = Vec::new();
        let mut reconnections = 0;
        let (mut turn, mut passes) = (None, HashMap::new());
        loop {
            let Some(transport) = &mut self.transport else { return outcomes };
            let mut pause = None;
            while let Some((ticket, request)) = waiting.pop_front() {
                // One for which the link had no room has its pass already.
                if !passes.contains_key(&ticket) {
                    match self.carrier.sharing.bulk(self.node, &request, &mut turn) {
                        Ok(pass) => {
                            // Time that is spent waiting for a turn is not the node's.
                            deadline = Instant::now() + patience;
                            passes.extend(pass.map(|pass| (ticket, pass)));
                        }
                        Err(denied) => {
                            waiting.push_front((ticket, request));
                            pause = Some(denied);
                            break;
                        }
                    }
                }
                match transport.submit(ticket, request, deadline) {
                    Ok(()) => {}
                    Err(Unsubmitted { why: SubmitError::Full, request }) => {
                        waiting.push_front((ticket, request));
                        break;
                    }
                    // It has no outcome.
                    Err(Unsubmitted { .. }) => {}
                }
            }
            if transport.pending() == 0 && waiting.is_empty() {
                return outcomes;
            }
            // Only who has nothing under way sleeps until the bell rings: others may wait for what comes.
            if let Some(pause) = pause.as_ref().filter(|_| transport.pending() == 0) {
                pause.sleep();
                continue;
            }
            if Instant::now() > deadline + SLICE {
                return outcomes;
            }
            let heard = transport.complete(&mut completions, pause.map_or(SLICE, |pause| pause.at_most));
            for Completion { ticket, request, result } in completions.drain(..) {
                let nth = ticket.0.checked_sub(first).and_then(|nth| usize::try_from(nth).ok());
                if result == Err(Failure::Late) {
                    self.carrier.failed(self.node, self.life);
                    // Those behind it would each be waited for as long, one after the other. They have no outcome.
                    waiting.clear();
                }
                if let Some(pass) = passes.remove(&ticket).filter(|_| result.is_ok()) {
                    Pass::finish(pass);
                }
                if let Some(outcome) = nth.and_then(|nth| outcomes.get_mut(nth)) {
                    *outcome = Some((request, result));
                }
            }
            if heard.is_ok() {
                continue;
            }
            let unanswered = transport.take_unanswered();
            // Nothing of it is under way any more, and what is repeated waits for its turn anew.
            passes.clear();
            turn = None;
            let life = self.life;
            self.transport = None;
            self.doubt();
            if reconnections == RECONNECTIONS || !self.open() {
                return outcomes;
            }
            reconnections += 1;
            if self.life != life {
                // It is another node: what was asked of the one before means nothing to it.
                return outcomes;
            }
            unanswered.into_iter().rev().for_each(|request| waiting.push_front(request));
        }
    }
}

/// Waits until something has come by one of these links, at most so long. Whether it may have.
pub(super) fn wait_for_any<'a>(links: impl Iterator<Item = &'a NodeLink>, timeout: Duration) -> bool {
    let Some(descriptors) = links.map(NodeLink::descriptor).collect::<Option<Vec<_>>>() else {
        // One of them can't be waited for so: it is looked at soon.
        std::thread::sleep(timeout.min(UNSEEN));
        return true;
    };
    let mut waiting: Vec<PollFd<'_>> =
        descriptors.iter().map(|descriptor| PollFd::new(descriptor, PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: 0, tv_nsec: timeout.subsec_nanos().into() };
    poll(&mut waiting, Some(&timeout)).is_ok_and(|ready| ready > 0)
}
