//! One connection of a client: what it says first, then requests and answers. It never waits: it is called
//! when bytes have come or may go.

use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use farmem_transport::stream::{Inbox, Outbox, Stream};
use farmem_transport::wire::{
    HEADER_BYTES, Header, Heard, INTRODUCTION_BYTES, MOST_BODY_BYTES, Malformed, TurnedAway, decode_hello,
    decode_request, encode_welcome,
};
use farmem_transport::{ClientIdentity, LinkError, MOST_TRANSFER_BYTES};

use crate::fault::FaultPoint;
use crate::service::{Reply, Service, Standing};

/// While so many bytes of answers wait, nothing more is heard: a client that doesn't listen isn't served.
const MOST_UNSENT_BYTES: usize = 2 * MOST_TRANSFER_BYTES;
/// The longest message that there is.
const MOST_MESSAGE_BYTES: usize = HEADER_BYTES + MOST_BODY_BYTES;
/// Requests that are served before it is another connection's turn; fewer, where they move
/// [`MOST_UNSENT_BYTES`].
pub(crate) const TURN: usize = 32;

/// What a call has left to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// Nothing, until bytes come or can go.
    Done,
    /// Call again soon: there is more.
    More,
    /// The client has just said who it is.
    Introduced(ClientIdentity),
    /// The client has gone by its own word; when the answer is out the connection may be closed, and its
    /// other ones too.
    Left(ClientIdentity),
}

/// Why a connection is closed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum End {
    /// The client has closed it.
    #[error("it has gone")]
    Gone,
    /// It said goodbye.
    #[error("it has left")]
    Left,
    /// Another one has taken its place.
    #[error("it has connected again")]
    Replaced,
    /// What it sent is no message.
    #[error("it sent an invalid message: {0}")]
    Garbage(#[from] Malformed),
    /// It was told so.
    #[error("it was turned away: {0}")]
    TurnedAway(TurnedAway),
    /// It didn't introduce itself in time, or said nothing for the time of a lease.
    #[error("it says nothing")]
    Silent,
    /// It had not introduced itself, and others wanted its place.
    #[error("there are too many connections, and it has not said who it is")]
    Crowded,
    /// Its lease ended while it was away.
    #[error("its lease has ended")]
    Expired,
    /// The link has failed.
    #[error(transparent)]
    Link(LinkError),
}

impl From<LinkError> for End {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Closed => Self::Gone,
            other => Self::Link(other),
        }
    }
}

/// A connection.
pub(crate) struct Connection {
    stream: Stream,
    /// Whether it goes through a network. A Unix socket takes long answers better together, as the outbox has
    /// them, than one by one: for each it wakes the client.
    is_remote: bool,
    inbox: Inbox,
    outbox: Outbox,
    client: Option<ClientIdentity>,
    heard_at: Duration,
    /// Whether something was answered in this turn: it may have gone already.
    has_answered: bool,
    is_leaving: bool,
}

impl Connection {
    /// Nothing comes by it for now: it takes little memory meanwhile.
    pub(crate) fn rest(&mut self) {
        self.inbox.rest();
        if self.outbox.waiting() == 0 {
            self.outbox = Outbox::default();
        }
    }

    /// One that has just come.
    pub(crate) fn new(stream: Stream, now: Duration) -> Self {
        Self {
            is_remote: stream.local_address().is_some(),
            stream,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            client: None,
            heard_at: now,
            has_answered: false,
            is_leaving: false,
        }
    }

    /// The client at the other end, once it is known.
    pub(crate) fn client(&self) -> Option<ClientIdentity> {
        self.client
    }

    /// When something was last heard.
    pub(crate) fn heard_at(&self) -> Duration {
        self.heard_at
    }

    /// Whether it waits for its descriptor to become writable.
    pub(crate) fn awaits_writable(&self) -> bool {
        self.outbox.waits_for(&self.stream)
    }

    /// Whether it waits for its descriptor to become readable.
    pub(crate) fn awaits_readable(&self) -> bool {
        self.listens() || self.stream.hears_of_room()
    }

    /// Whether it takes more requests.
    fn listens(&self) -> bool {
        !self.is_leaving && self.outbox.waiting() < MOST_UNSENT_BYTES
    }

    /// Does what there is to do.
    ///
    /// # Errors
    /// It is to be closed.
    pub(crate) fn turn(&mut self, now: Duration, service: &mut Service) -> Result<Progress, End> {
        self.stream.hear()?;
        self.outbox.flush(&mut self.stream)?;
        if self.is_leaving && self.outbox.waiting() == 0 && !self.stream.waits_to_send() {
            return Err(End::Left);
        }
        let mut is_more = false;
        if self.listens() {
            // Where a whole message is there no more is taken in: else a client that asks faster than it is
            // served would fill memory.
            is_more = self.inbox.bytes().len() >= MOST_MESSAGE_BYTES || self.inbox.fill(&mut self.stream)?;
        }
        let progress = match self.client {
            None => self.introduce(now, service)?,
            Some(client) => self.serve(now, client, service)?,
        };
        // Requests may be there that were not served because too many answers waited. No event will tell of
        // them.
        let is_stopped = !self.listens();
        if mem::take(&mut self.has_answered) || self.outbox.waiting() > 0 {
            if service.faults.is_next(FaultPoint::HalfAnswered) {
                self.outbox.halve();
            }
            self.outbox.flush(&mut self.stream)?;
            service.faults.pass(FaultPoint::HalfAnswered);
            service.faults.pass(FaultPoint::Answered);
        }
        let is_more = (is_more || is_stopped) && self.listens();
        Ok(if progress == Progress::Done && is_more { Progress::More } else { progress })
    }

    fn introduce(&mut self, now: Duration, service: &mut Service) -> Result<Progress, End> {
        let Some(hello) = self.inbox.bytes().first_chunk::<INTRODUCTION_BYTES>() else {
            return Ok(Progress::Done);
        };
        let client = match decode_hello(hello) {
            Ok(client) => client,
            Err(Malformed::Version(theirs)) => {
                self.turn_away(TurnedAway::Version);
                return Err(Malformed::Version(theirs).into());
            }
            Err(malformed) => return Err(malformed.into()),
        };
        self.inbox.consume(INTRODUCTION_BYTES);
        service.faults.pass(FaultPoint::Introduced);
        let welcome = service.introduce(now, client, self.stream.credential());
        if let Err(why) = welcome {
            self.turn_away(why);
            return Err(End::TurnedAway(why));
        }
        self.outbox.end().extend_from_slice(&encode_welcome(welcome));
        self.has_answered = true;
        self.client = Some(client);
        self.heard_at = now;
        Ok(Progress::Introduced(client))
    }

    /// Says why not, as far as the connection takes that at once.
    fn turn_away(&mut self, why: TurnedAway) {
        self.outbox.end().extend_from_slice(&encode_welcome(Err(why)));
        let _ = self.outbox.flush(&mut self.stream);
    }

    fn serve(
        &mut self,
        now: Duration,
        client: ClientIdentity,
        service: &mut Service,
    ) -> Result<Progress, End> {
        let mut moved_bytes = 0;
        for _ in 0..TURN {
            if !self.listens() {
                return Ok(Progress::Done);
            }
            if moved_bytes >= MOST_UNSENT_BYTES {
                break;
            }
            let Some((header, rest)) = self.inbox.bytes().split_first_chunk::<HEADER_BYTES>() else {
                return Ok(Progress::Done);
            };
            let header = Header::decode(header)?;
            let Some(body) = rest.get(..header.body_bytes()) else { return Ok(Progress::Done) };
            let heard = decode_request(&header, body)?;
            // Only a client that asks for a device's queue wants to know.
            let is_attach = matches!(heard, Heard::Attach { .. });
            let local = is_attach.then(|| self.stream.local_address()).flatten();
            // A node that is to die in the middle of an answer must have one that waits.
            let may_go = self.is_remote && !service.faults.is_next(FaultPoint::HalfAnswered);
            let reply = Reply { outbox: &mut self.outbox, by: may_go.then_some(&mut self.stream) };
            moved_bytes += match heard {
                Heard::Read { length_bytes, .. } => length_bytes as usize,
                _ => body.len(),
            };
            let standing = service.obey(now, client, header.ticket(), &heard, local, reply);
            self.has_answered = true;
            let consumed = HEADER_BYTES + body.len();
            self.inbox.consume(consumed);
            self.heard_at = now;
            match standing {
                Standing::Stays => {}
                Standing::Left => {
                    self.is_leaving = true;
                    return Ok(Progress::Left(client));
                }
                Standing::Forgotten => return Err(End::Expired),
            }
        }
        Ok(Progress::More)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::os::unix::net::UnixStream;

    use farmem_transport::wire::{encode_hello, encode_request};
    use farmem_transport::{Request, Ticket};

    use super::*;
    use crate::WantedRdma;
    use crate::fault::Faults;
    use crate::rdma::Rdma;

    #[test]
    fn who_asks_faster_than_it_is_served_fills_no_memory() {
        const SIGNS: usize = 200_000;
        const START: Duration = Duration::ZERO;
        let rdma = Rdma::new(&WantedRdma::default()).unwrap();
        let mut service =
            Service::new(7, 64, Duration::from_secs(60), None, rdma, Faults::default()).unwrap();
        let (here, mut client) = UnixStream::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        client.set_nonblocking(true).unwrap();
        let mut connection = Connection::new(Stream::plain(here.into()), START);
        let mut asked = encode_hello(ClientIdentity { space: 1, lane: 0 }).to_vec();
        for ticket in 1..=SIGNS as u64 {
            encode_request(Ticket(ticket), &Request::Renew, &mut asked);
        }
        let answers = INTRODUCTION_BYTES + SIGNS * HEADER_BYTES;
        let (mut rest, mut heard, mut most, mut room) = (&asked[..], 0, 0, vec![0; 1 << 20]);
        while heard < answers {
            match client.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            connection.turn(START, &mut service).unwrap();
            most = most.max(connection.inbox.bytes().len());
            match client.read(&mut room) {
                Ok(count) => heard += count,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        assert_eq!(heard, answers);
        assert!(most < MOST_MESSAGE_BYTES + (512 << 10), "{most} bytes wait to be looked at");
    }
}
