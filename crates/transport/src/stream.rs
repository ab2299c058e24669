//! A connection as bytes that come and go, whatever carries them. Nothing here waits.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::LinkError;
use crate::rings::Rings;
use crate::security::Security;
use crate::tls::TlsStream;

/// Bytes that are asked for at a time.
pub(crate) const PORTION_BYTES: usize = 256 << 10;

/// One end of a connection.
pub struct Stream(Kind);

enum Kind {
    /// A socket.
    Plain(OwnedFd),
    /// A socket with TLS around what goes through it.
    Tls(Box<TlsStream>),
    /// Memory that both ends map.
    Rings(Box<Rings>),
}

impl Stream {
    /// What is sent goes out as it is, and by whomever it is received. The socket must not block.
    pub fn plain(socket: OwnedFd) -> Self {
        Self(Kind::Plain(socket))
    }

    /// The client's end of a connection to a node at `host`. The socket must not block.
    ///
    /// # Errors
    /// The host has a name that no certificate can have.
    pub fn to_node(socket: OwnedFd, security: &Security, host: &str) -> Result<Self, LinkError> {
        Ok(match security {
            Security::Plain => Self::plain(socket),
            Security::Tls(identity) => Self(Kind::Tls(Box::new(TlsStream::connect(socket, identity, host)?))),
        })
    }

    /// The node's end of a connection that has been accepted. The socket must not block.
    ///
    /// # Errors
    /// The settings of TLS are no good.
    pub fn to_client(socket: OwnedFd, security: &Security) -> Result<Self, LinkError> {
        Ok(match security {
            Security::Plain => Self::plain(socket),
            Security::Tls(identity) => Self(Kind::Tls(Box::new(TlsStream::accept(socket, identity)?))),
        })
    }

    /// The node's end of a connection by shared memory, from a Unix socket that has been accepted. The socket must not block.
    ///
    /// # Errors
    /// There is no memory, or the client has gone.
    pub fn offer_memory(socket: OwnedFd) -> Result<Self, LinkError> {
        Ok(Self(Kind::Rings(Box::new(Rings::offer(socket)?))))
    }

    /// The client's end of that. Waits for the memory until `deadline`.
    ///
    /// # Errors
    /// It doesn't come, or is none.
    pub fn accept_memory(socket: OwnedFd, deadline: Instant) -> Result<Self, LinkError> {
        Ok(Self(Kind::Rings(Box::new(Rings::accept(socket, deadline)?))))
    }

    /// What the other end has proved to be: the fingerprint of its certificate, where it has one.
    pub fn credential(&self) -> Option<[u8; 32]> {
        match &self.0 {
            Kind::Plain(_) | Kind::Rings(_) => None,
            Kind::Tls(tls) => tls.credential(),
        }
    }

    /// This end's address, where the connection goes through a network.
    pub fn local_address(&self) -> Option<IpAddr> {
        let socket = match &self.0 {
            Kind::Plain(socket) => socket.as_fd(),
            Kind::Tls(tls) => tls.as_fd(),
            Kind::Rings(_) => return None,
        };
        let address = SocketAddr::try_from(rustix::net::getsockname(socket).ok()?).ok()?;
        Some(address.ip().to_canonical())
    }

    /// Whether bytes were taken that have not gone yet.
    pub fn waits_to_send(&self) -> bool {
        match &self.0 {
            Kind::Plain(_) | Kind::Rings(_) => false,
            Kind::Tls(tls) => tls.waits_to_send(),
        }
    }

    /// Whether its descriptor becomes readable, and not writable, when there is room for what waits.
    pub fn hears_of_room(&self) -> bool {
        matches!(self.0, Kind::Rings(_))
    }

    /// To be called by whoever was woken, before looking whether bytes have come or can go. Whether something may have changed that the
    /// descriptor does not tell of any more.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn hear(&mut self) -> Result<bool, LinkError> {
        match &mut self.0 {
            Kind::Plain(_) | Kind::Tls(_) => Ok(false),
            Kind::Rings(rings) => rings.hear(),
        }
    }

    /// Sends such bytes, as far as that is possible now.
    fn push(&mut self) -> Result<(), LinkError> {
        match &mut self.0 {
            Kind::Plain(_) | Kind::Rings(_) => Ok(()),
            Kind::Tls(tls) => tls.flush(),
        }
    }

    /// Appends bytes that have come. How many; 0 when there are none now.
    fn receive(&mut self, into: &mut Vec<u8>) -> Result<usize, LinkError> {
        match &mut self.0 {
            Kind::Tls(tls) => tls.receive(into),
            Kind::Rings(rings) => rings.receive(into),
            Kind::Plain(socket) => {
                into.reserve(PORTION_BYTES);
                match rustix::io::read(&*socket, spare_capacity(into)) {
                    Ok(0) => Err(LinkError::Closed),
                    other => or_none(other),
                }
            }
        }
    }

    /// Sends bytes. How many; 0 when none can be sent now.
    fn send(&mut self, bytes: &[u8]) -> Result<usize, LinkError> {
        match &mut self.0 {
            Kind::Tls(tls) => tls.send(bytes),
            Kind::Rings(rings) => rings.send(bytes),
            Kind::Plain(socket) => or_none(rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Kind::Plain(socket) => socket.as_fd(),
            Kind::Tls(tls) => tls.as_fd(),
            Kind::Rings(rings) => rings.as_fd(),
        }
    }
}

fn or_none(result: Result<usize, Errno>) -> Result<usize, LinkError> {
    match result {
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        Err(Errno::CONNRESET | Errno::PIPE) => Err(LinkError::Closed),
        Err(error) => Err(LinkError::Kernel(io::Error::from(error))),
        Ok(count) => Ok(count),
    }
}

/// Bytes that have come and were not looked at yet.
#[derive(Default)]
pub struct Inbox {
    bytes: Vec<u8>,
    start: usize,
}

impl Inbox {
    /// Takes in what has come. Whether there may be more at once.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn fill(&mut self, from: &mut Stream) -> Result<bool, LinkError> {
        if self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        Ok(from.receive(&mut self.bytes)? >= PORTION_BYTES)
    }

    /// All that is there.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// The first so many bytes have been looked at.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn consume(&mut self, count: usize) {
        assert!(count <= self.bytes.len() - self.start, "bytes that are not there were looked at");
        self.start += count;
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        }
    }
}

/// Bytes that are to go.
#[derive(Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    start: usize,
}

impl Outbox {
    /// Where to append more.
    pub fn end(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Whether bytes wait, here or in the connection, for its descriptor to become writable.
    pub fn waits_for(&self, to: &Stream) -> bool {
        (self.waiting() > 0 || to.waits_to_send()) && !to.hears_of_room()
    }

    /// How many bytes wait.
    pub fn waiting(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Sends as much as can be sent now.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn flush(&mut self, to: &mut Stream) -> Result<(), LinkError> {
        while self.start < self.bytes.len() {
            match to.send(&self.bytes[self.start..])? {
                0 => return Ok(()),
                sent => self.start += sent,
            }
        }
        self.bytes.clear();
        self.start = 0;
        to.push()
    }

    /// Forgets the second half of what waits, for those who die in the middle of a message.
    pub fn halve(&mut self) {
        let half = self.start + self.waiting() / 2;
        self.bytes.truncate(half);
    }
}
