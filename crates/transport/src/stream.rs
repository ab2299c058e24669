//! A connection as bytes that come and go, whatever carries them. Nothing here waits.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use farmem_sys::shared::SharedMemory;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use crate::LinkError;
pub use crate::inbox::Inbox;
use crate::inbox::Sink;
pub use crate::outbox::Outbox;
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

    /// The node's end of a connection by shared memory, from a Unix socket that has been accepted. The socket
    /// must not block.
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

    /// To be called by whoever was woken, before looking whether bytes have come or can go. Whether something
    /// may have changed that the descriptor does not tell of any more.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn hear(&mut self) -> Result<bool, LinkError> {
        match &mut self.0 {
            Kind::Plain(_) | Kind::Tls(_) => Ok(false),
            Kind::Rings(rings) => rings.hear(),
        }
    }

    /// Whether it is a socket and nothing else, which takes bytes from wherever they lie.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.0, Kind::Plain(_))
    }

    /// Sends such bytes, as far as that is possible now.
    pub(crate) fn push(&mut self) -> Result<(), LinkError> {
        match &mut self.0 {
            Kind::Plain(_) | Kind::Rings(_) => Ok(()),
            Kind::Tls(tls) => tls.flush(),
        }
    }

    /// Takes in bytes that have come. Whether there may be more at once.
    pub(crate) fn receive(&mut self, into: &mut Sink<'_>) -> Result<bool, LinkError> {
        let wanted = into.wanted();
        match &mut self.0 {
            Kind::Tls(tls) => Ok(tls.receive(into)? >= wanted),
            Kind::Rings(rings) => Ok(rings.receive(into)? >= wanted),
            Kind::Plain(socket) => match rustix::io::readv(&*socket, &mut into.all()) {
                Ok(0) => Err(LinkError::Closed),
                other => {
                    let count = or_none(other)?;
                    into.add(count);
                    Ok(count >= wanted)
                }
            },
        }
    }

    /// Sends such bytes as lie in several places, from the first on.
    pub(crate) fn send_parts(&mut self, parts: &[IoSlice<'_>]) -> Result<usize, LinkError> {
        match &mut self.0 {
            Kind::Plain(socket) => {
                or_none(sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL))
            }
            Kind::Tls(_) | Kind::Rings(_) => match parts.iter().find(|part| !part.is_empty()) {
                Some(part) => self.send(part),
                None => Ok(0),
            },
        }
    }

    /// Sends bytes, and then some that lie in shared memory, if it can without copying them first. How many;
    /// 0 when none can be sent now, or not so.
    pub(crate) fn send_shared(
        &mut self,
        before: &[u8],
        memory: &SharedMemory,
        at: usize,
        length: usize,
    ) -> usize {
        match &self.0 {
            Kind::Plain(socket) => memory.send(socket.as_fd(), before, at, length).unwrap_or(0),
            Kind::Tls(_) | Kind::Rings(_) => 0,
        }
    }

    /// Sends bytes. How many; 0 when none can be sent now.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<usize, LinkError> {
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
