//! From the address of a node to a link.

use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::link::Link;
use crate::stream::Stream;
use crate::{ClientIdentity, Destination, LinkError, Security, Transport};

/// Connects to a node and introduces a client to it, all within `patience` (the look-up of a host's name aside). `security` is for networks; a Unix socket
/// needs none.
///
/// # Errors
/// Nobody is there, or who is there doesn't let the client in.
pub fn connect(
    to: &Destination,
    client: ClientIdentity,
    security: &Security,
    patience: Duration,
) -> Result<Box<dyn Transport>, LinkError> {
    let deadline = Instant::now() + patience;
    let stream = match to {
        Destination::Tcp { host, port } => {
            Stream::to_node(reach(host, *port, deadline)?.into(), security, host)?
        }
        Destination::Unix(path) => {
            let socket = UnixStream::connect(path)?;
            socket.set_nonblocking(true)?;
            Stream::plain(socket.into())
        }
        Destination::Shared(path) => {
            let socket = UnixStream::connect(path)?;
            socket.set_nonblocking(true)?;
            Stream::accept_memory(socket.into(), deadline)?
        }
    };
    Ok(Box::new(Link::introduce(stream, client, deadline)?))
}

/// Tries the addresses of a host, one after the other.
fn reach(host: &str, port: u16, deadline: Instant) -> Result<TcpStream, LinkError> {
    let mut last = None;
    for address in (host, port).to_socket_addrs()? {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(LinkError::Silent);
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(socket) => {
                // A request is small, and whoever asks waits for it.
                socket.set_nodelay(true)?;
                socket.set_nonblocking(true)?;
                return Ok(socket);
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or(LinkError::Closed, LinkError::Kernel))
}
