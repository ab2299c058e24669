//! A lane over a connection of bytes.
//!
//! Invariants:
//! 1. The node answers in the order in which it is asked, so the front of `waiting` is what the next message answers.
//! 2. What is in `waiting`, late or not, is at most [`MOST_REQUESTS`] requests (and one sign of life) with at most [`MOST_BYTES`] bytes.
//!    So is what is in the outbox, headers aside.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::stream::{Inbox, Outbox, Stream};
use crate::wire::{
    HEADER_BYTES, Header, INTRODUCTION_BYTES, Malformed, decode_answer, decode_welcome, encode_hello,
    encode_request,
};
use crate::{
    Answer, ClientIdentity, Completion, Failure, LinkError, MOST_BYTES, MOST_REQUESTS, NodeDescription,
    Request, SubmitError, Ticket, Transport, Unsubmitted,
};

/// A node that has said nothing for so long, while a request waited, says nothing any more.
const SILENCE: Duration = Duration::from_secs(10);
/// The ticket of signs of life, which nobody else uses.
const OWN: Ticket = Ticket(0);

struct Waiting {
    ticket: Ticket,
    /// `None` once it was completed as late; but a grant stays, for what comes of it has to be known.
    request: Option<Request>,
    transfer_bytes: usize,
    deadline: Instant,
    is_late: bool,
}

/// A lane.
pub(crate) struct Link {
    stream: Stream,
    node: NodeDescription,
    inbox: Inbox,
    outbox: Outbox,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    last: Ticket,
    /// When the node was last heard, or, if that is later, when the first of what waits was asked.
    heard_at: Instant,
    asked_at: Instant,
    has_ended: bool,
}

impl Link {
    /// Introduces a client to the node at the other end, and waits until `deadline` for its answer.
    pub(crate) fn introduce(
        mut stream: Stream,
        client: ClientIdentity,
        deadline: Instant,
    ) -> Result<Self, LinkError> {
        let (mut inbox, mut outbox) = (Inbox::default(), Outbox::default());
        outbox.end().extend_from_slice(&encode_hello(client));
        let welcome = loop {
            stream.hear()?;
            outbox.flush(&mut stream)?;
            inbox.fill(&mut stream)?;
            if let Some(bytes) = inbox.bytes().first_chunk::<INTRODUCTION_BYTES>() {
                break decode_welcome(bytes)?;
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return Err(LinkError::Silent);
            };
            wait(&stream, outbox.waits_for(&stream), left)?;
        };
        inbox.consume(INTRODUCTION_BYTES);
        let node = welcome.map_err(|why| LinkError::TurnedAway(why.sentence()))?;
        let now = Instant::now();
        Ok(Self {
            stream,
            node,
            inbox,
            outbox,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            last: OWN,
            heard_at: now,
            asked_at: now,
            has_ended: false,
        })
    }

    /// Submits a request that only this machine's side of the link knows of: with a ticket that is not counted among those of the lane.
    pub(crate) fn enqueue(&mut self, ticket: Ticket, request: Request, deadline: Instant) {
        let now = Instant::now();
        if self.waiting.is_empty() {
            self.heard_at = now;
        }
        self.asked_at = now;
        encode_request(ticket, &request, self.outbox.end());
        let transfer_bytes = request.transfer_bytes();
        self.waiting_bytes += transfer_bytes;
        self.waiting.push_back(Waiting {
            ticket,
            request: Some(request),
            transfer_bytes,
            deadline,
            is_late: false,
        });
    }

    /// This end's address in the network.
    #[cfg(feature = "rdma")]
    pub(crate) fn local_address(&self) -> Option<std::net::IpAddr> {
        self.stream.local_address()
    }

    /// A sign of life, when there was none for a while.
    fn renew(&mut self, now: Instant) {
        if now.saturating_duration_since(self.asked_at) >= self.node.lease / 4 {
            self.enqueue(OWN, Request::Renew, now + self.node.lease);
        }
    }

    /// Takes in what has come, and completes what it answers.
    fn hear(&mut self, into: &mut Vec<Completion>) -> Result<(), LinkError> {
        // What came along with the welcome is there already, and counts although the connection may have ended since.
        self.take_answers(into)?;
        loop {
            let is_more = self.inbox.fill(&mut self.stream)?;
            self.take_answers(into)?;
            if !is_more {
                return Ok(());
            }
        }
    }

    fn take_answers(&mut self, into: &mut Vec<Completion>) -> Result<(), LinkError> {
        while let Some(completion) = self.next_answer()? {
            into.extend(completion);
        }
        Ok(())
    }

    /// Takes the next message. `None` when it isn't whole; without a completion when nobody waits for it.
    fn next_answer(&mut self) -> Result<Option<Option<Completion>>, LinkError> {
        let bytes = self.inbox.bytes();
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let header = Header::decode(header)?;
        let Some(body) = rest.get(..header.body_bytes()) else { return Ok(None) };
        // It waits until it has an answer: what is none leaves it to be handed back.
        let Some(waiting) = self.waiting.front_mut().filter(|waiting| waiting.ticket == header.ticket())
        else {
            return Err(LinkError::Garbage("it answers what was not asked"));
        };
        let result =
            waiting.request.as_mut().map(|request| decode_answer(&header, body, request)).transpose()?;
        let consumed = HEADER_BYTES + body.len();
        self.inbox.consume(consumed);
        let Some(waiting) = self.waiting.pop_front() else { return Ok(None) };
        self.waiting_bytes -= waiting.transfer_bytes;
        self.heard_at = Instant::now();
        let (Some(request), Some(result)) = (waiting.request, result) else { return Ok(Some(None)) };
        let is_news = !waiting.is_late || matches!(result, Ok(Answer::Granted(_)));
        let completion =
            Completion { ticket: waiting.ticket, request, result: result.map_err(Failure::from) };
        Ok(Some((waiting.ticket != OWN && is_news).then_some(completion)))
    }

    /// Completes what is past its deadline.
    fn expire(&mut self, now: Instant, into: &mut Vec<Completion>) {
        for waiting in &mut self.waiting {
            if waiting.is_late || waiting.ticket == OWN || waiting.deadline > now {
                continue;
            }
            waiting.is_late = true;
            let request = match &waiting.request {
                Some(grant @ Request::Grant { .. }) => Some(grant.clone()),
                _ => waiting.request.take(),
            };
            into.extend(request.map(|request| Completion {
                ticket: waiting.ticket,
                request,
                result: Err(Failure::Late),
            }));
        }
    }

    /// Until when there is nothing to do unless the node says something.
    pub(crate) fn next_look(&self, now: Instant, end: Instant) -> Duration {
        let deadlines = self.waiting.iter().filter(|waiting| !waiting.is_late && waiting.ticket != OWN);
        let next = deadlines.map(|waiting| waiting.deadline).min().unwrap_or(end);
        let renewal = self.asked_at + self.node.lease / 4;
        end.min(next).min(renewal).saturating_duration_since(now)
    }

    fn turn(&mut self, into: &mut Vec<Completion>, timeout: Duration) -> Result<(), LinkError> {
        let (before, end) = (into.len(), Instant::now() + timeout);
        let mut is_first = true;
        loop {
            let now = Instant::now();
            self.renew(now);
            let is_woken = self.stream.hear()?;
            self.outbox.flush(&mut self.stream)?;
            // The first look comes after the wait: an answer to what was just sent can't be there yet.
            if !is_first || is_woken || timeout.is_zero() || !self.inbox.bytes().is_empty() {
                self.hear(into)?;
                self.expire(now, into);
                if into.len() > before || now >= end {
                    return Ok(());
                }
                if !self.waiting.is_empty() && now.saturating_duration_since(self.heard_at) > SILENCE {
                    return Err(LinkError::Silent);
                }
            }
            is_first = false;
            wait(&self.stream, self.waits_to_send(), self.next_look(now, end))?;
        }
    }
}

/// Waits until something comes, or, if asked, can be sent.
fn wait(stream: &Stream, is_sending: bool, timeout: Duration) -> Result<(), LinkError> {
    let out = if is_sending { PollFlags::OUT } else { PollFlags::empty() };
    let mut places = [PollFd::new(stream, PollFlags::IN | out)];
    let timeout =
        Timespec { tv_sec: timeout.as_secs().min(3600) as i64, tv_nsec: timeout.subsec_nanos().into() };
    match poll(&mut places, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(LinkError::Kernel(error.into())),
    }
}

impl From<Malformed> for LinkError {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::Version(theirs) => Self::Version { theirs },
            Malformed::Magic => Self::Garbage("it does not begin as an introduction does; it may want a key"),
            Malformed::Check => Self::Garbage("its check word is wrong"),
            Malformed::Kind => Self::Garbage("its kind is unknown or has no place there"),
            Malformed::Length => Self::Garbage("its length is wrong"),
            Malformed::Range => Self::Garbage("a number in it is out of range"),
        }
    }
}

impl Transport for Link {
    fn node(&self) -> NodeDescription {
        self.node
    }

    fn submit(&mut self, ticket: Ticket, request: Request, deadline: Instant) -> Result<(), Unsubmitted> {
        let why = if request.is_malformed() {
            SubmitError::Malformed
        } else if ticket <= self.last {
            SubmitError::Ticket
        } else if self.waiting.len() >= MOST_REQUESTS
            || self.waiting_bytes + request.transfer_bytes() > MOST_BYTES
        {
            SubmitError::Full
        } else {
            self.last = ticket;
            self.enqueue(ticket, request, deadline);
            return Ok(());
        };
        Err(Unsubmitted { why, request })
    }

    fn complete(&mut self, into: &mut Vec<Completion>, timeout: Duration) -> Result<(), LinkError> {
        if self.has_ended {
            return Err(LinkError::Closed);
        }
        let result = self.turn(into, timeout);
        self.has_ended = result.is_err();
        result
    }

    fn take_unanswered(&mut self) -> Vec<(Ticket, Request)> {
        self.has_ended = true;
        let unanswered = self.waiting.drain(..).filter(|waiting| waiting.ticket != OWN && !waiting.is_late);
        unanswered.filter_map(|waiting| Some((waiting.ticket, waiting.request?))).collect()
    }

    fn pending(&self) -> usize {
        self.waiting.iter().filter(|waiting| waiting.ticket != OWN && !waiting.is_late).count()
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.stream.as_fd())
    }

    fn waits_to_send(&self) -> bool {
        self.outbox.waits_for(&self.stream)
    }
}
