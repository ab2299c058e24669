//! A lane over a connection of bytes.
//!
//! Invariants:
//! 1. The node answers in the order in which it is asked, so the front of `waiting` is what the next message
//!    answers.
//! 2. What is in `waiting`, late or not, is at most [`MOST_REQUESTS`] requests (and one sign of life) with at
//!    most [`MOST_BYTES`] bytes. So is what is to be sent, headers aside: contents of writes go from the
//!    requests, and stay there until all of it has gone.
//! 3. While `missing` is something, a read's answer arrives whose header was checked and consumed: so many
//!    bytes of its body have not come, and the inbox held no more. They go to the buffer of the front of
//!    `waiting`, which has the length of the body; or nowhere, when it was late meanwhile.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::inbox::Sink;
use crate::outbox::LONG_BYTES;
use crate::sending::Sending;
use crate::stream::{Inbox, PORTION_BYTES, Stream};
use crate::wire::{
    HEADER_BYTES, Header, INTRODUCTION_BYTES, Malformed, brings_buffer, decode_answer, decode_welcome,
    encode_hello, encode_request, encode_write,
};
use crate::{
    Answer, ClientIdentity, Completion, Failure, LinkError, MOST_BYTES, MOST_REQUESTS, NodeDescription,
    Refusal, Request, SubmitError, Ticket, Transport, Unsubmitted,
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
    missing: Option<usize>,
    sending: Sending,
    waiting: VecDeque<Waiting>,
    /// How many have left `waiting`: so each has a number.
    answered: u64,
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
        let (mut inbox, mut sending) = (Inbox::default(), Sending::default());
        sending.end().extend_from_slice(&encode_hello(client));
        let welcome = loop {
            stream.hear()?;
            sending.flush(&mut stream, |_| None)?;
            inbox.fill(&mut stream)?;
            if let Some(bytes) = inbox.bytes().first_chunk::<INTRODUCTION_BYTES>() {
                break decode_welcome(bytes)?;
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return Err(LinkError::Silent);
            };
            wait(&stream, sending.waits_for(&stream), left)?;
        };
        inbox.consume(INTRODUCTION_BYTES);
        let node = welcome.map_err(|why| LinkError::TurnedAway(why.sentence()))?;
        let now = Instant::now();
        Ok(Self {
            stream,
            node,
            inbox,
            missing: None,
            sending,
            waiting: VecDeque::new(),
            answered: 0,
            waiting_bytes: 0,
            last: OWN,
            heard_at: now,
            asked_at: now,
            has_ended: false,
        })
    }

    /// Submits a request that only this machine's side of the link knows of: with a ticket that is not
    /// counted among those of the lane.
    pub(crate) fn enqueue(&mut self, ticket: Ticket, request: Request, deadline: Instant) {
        let now = Instant::now();
        if self.waiting.is_empty() {
            self.heard_at = now;
        }
        self.asked_at = now;
        match &request {
            Request::Write { at, data } if data.len() >= LONG_BYTES && self.stream.is_plain() => {
                encode_write(ticket, *at, data, self.sending.end());
                self.sending.append_content(self.answered + self.waiting.len() as u64, data.len());
            }
            _ => encode_request(ticket, &request, self.sending.end()),
        }
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
        let is_due = now.saturating_duration_since(self.asked_at) >= self.node.lease / 4;
        // One is enough to know that the node lives, whatever it says of its lease.
        if is_due && self.waiting.iter().all(|waiting| waiting.ticket != OWN) {
            self.enqueue(OWN, Request::Renew, now + self.node.lease);
        }
    }

    /// Sends as much as can be sent now.
    fn flush(&mut self) -> Result<(), LinkError> {
        let (waiting, answered) = (&self.waiting, self.answered);
        self.sending.flush(&mut self.stream, |number| {
            let place = usize::try_from(number.checked_sub(answered)?).ok()?;
            match waiting.get(place)?.request.as_ref()? {
                Request::Write { data, .. } => Some(data),
                _ => None,
            }
        })
    }

    /// Takes in what has come, and completes what it answers.
    fn hear(&mut self, into: &mut Vec<Completion>) -> Result<(), LinkError> {
        // What came along with the welcome is there already, and counts although the connection may have
        // ended since.
        self.take_answers(into)?;
        loop {
            let is_more = self.fill();
            // What came before the connection ended counts.
            self.take_answers(into)?;
            if !is_more? {
                return Ok(());
            }
        }
    }

    /// Takes in what has come, up to a portion. Whether there may be more at once.
    ///
    /// What has come by then is in its place even where that fails.
    fn fill(&mut self) -> Result<bool, LinkError> {
        let most = self.wanted();
        let Some(missing) = self.missing else {
            return self.inbox.fill_up_to(most, &mut self.stream);
        };
        let front = self.waiting.front_mut().and_then(|waiting| waiting.request.as_mut());
        let Some(Request::Read { buffer, .. }) = front else {
            let is_more = self.inbox.fill_up_to(missing + most, &mut self.stream);
            let dropped = missing.min(self.inbox.bytes().len());
            self.inbox.consume(dropped);
            self.missing = Some(missing - dropped);
            return is_more;
        };
        let (length, filled) = (buffer.len(), buffer.len() - missing);
        let mut sink = Sink { body: buffer, filled, inbox: &mut self.inbox, most };
        let is_more = self.stream.receive(&mut sink);
        self.missing = Some(length - sink.filled);
        is_more
    }

    /// How many bytes to ask for beyond a body that arrives: where another long one follows, not more than
    /// its header, so that it goes to its place at once.
    fn wanted(&self) -> usize {
        let next = self.waiting.get(usize::from(self.missing.is_some()));
        match next.and_then(|waiting| waiting.request.as_ref()) {
            Some(Request::Read { length_bytes, .. }) if *length_bytes as usize >= LONG_BYTES => {
                match HEADER_BYTES.saturating_sub(self.inbox.bytes().len()) {
                    0 => PORTION_BYTES,
                    left => left,
                }
            }
            _ => PORTION_BYTES,
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
        match self.missing {
            Some(0) => {
                self.missing = None;
                return Ok(Some(self.finish(Some(Ok(Answer::Read)))));
            }
            Some(_) => return Ok(None),
            None => {}
        }
        let bytes = self.inbox.bytes();
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let header = Header::decode(header)?;
        // It waits until it has an answer: what is none leaves it to be handed back.
        let Some(waiting) = self.waiting.front_mut().filter(|waiting| waiting.ticket == header.ticket())
        else {
            return Err(LinkError::Garbage("it answers what was not asked"));
        };
        if self.sending.has_content_of(self.answered) {
            return Err(LinkError::Garbage("it answers what it has not heard"));
        }
        let Some(body) = rest.get(..header.body_bytes()) else {
            if let Some(request) = &mut waiting.request
                && header.body_bytes() >= LONG_BYTES
                && brings_buffer(&header, request)
                && let Request::Read { buffer, .. } = request
            {
                let (there, length) = (rest.len(), header.body_bytes());
                // What it held before is overwritten: so zeros are only needed where it was shorter.
                buffer.resize(length, 0);
                buffer[..there].copy_from_slice(rest);
                self.inbox.consume(HEADER_BYTES + there);
                self.missing = Some(length - there);
            }
            return Ok(None);
        };
        let result =
            waiting.request.as_mut().map(|request| decode_answer(&header, body, request)).transpose()?;
        let consumed = HEADER_BYTES + body.len();
        self.inbox.consume(consumed);
        Ok(Some(self.finish(result)))
    }

    /// The front of what waits has its answer. `None` when nobody waits for that.
    fn finish(&mut self, result: Option<Result<Answer, Refusal>>) -> Option<Completion> {
        let waiting = self.waiting.pop_front()?;
        self.answered += 1;
        self.waiting_bytes -= waiting.transfer_bytes;
        self.heard_at = Instant::now();
        let (request, result) = (waiting.request?, result?);
        let is_news = !waiting.is_late || matches!(result, Ok(Answer::Granted(_)));
        let completion =
            Completion { ticket: waiting.ticket, request, result: result.map_err(Failure::from) };
        (waiting.ticket != OWN && is_news).then_some(completion)
    }

    /// Completes what is past its deadline.
    fn expire(&mut self, now: Instant, into: &mut Vec<Completion>) {
        for (waiting, number) in self.waiting.iter_mut().zip(self.answered..) {
            if waiting.is_late || waiting.ticket == OWN || waiting.deadline > now {
                continue;
            }
            waiting.is_late = true;
            // Half of a message can't be taken back.
            if let Some(Request::Write { data, .. }) = &waiting.request {
                self.sending.keep(number, data);
            }
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
            if let Err(ended) = self.flush() {
                // Answers may have come before.
                self.hear(into)?;
                return Err(ended);
            }
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
        self.sending.waits_for(&self.stream)
    }
}

#[cfg(test)]
mod tests;
