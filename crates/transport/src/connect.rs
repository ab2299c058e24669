//! From the address of a node to a link.

#[cfg(feature = "rdma")]
use std::collections::HashSet;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
#[cfg(feature = "rdma")]
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::link::Link;
use crate::stream::Stream;
use crate::{ClientIdentity, Destination, LinkError, Security, Transport};

/// How reads and writes travel to nodes that are reached through a network.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Travel {
    /// By RDMA where both ends have it; else as by [`Travel::Connection`].
    #[default]
    Auto,
    /// Over the connection, as all other requests.
    Connection,
    /// By RDMA, or not at all.
    Rdma,
}

/// Makes the links of a client.
pub struct Connector {
    security: Security,
    travel: Travel,
    #[cfg(feature = "rdma")]
    device: Option<farmem_verbs::Wanted>,
    #[cfg(feature = "rdma")]
    spaces: crate::rdma::Spaces,
    /// Nodes of which it was said that they are not reached by RDMA.
    #[cfg(feature = "rdma")]
    said: Mutex<HashSet<Destination>>,
}

impl Connector {
    /// Links that are protected so, and travel so. `device` is the RDMA device, as `NAME`, `NAME:PORT` or `NAME:PORT:GID`; without it that which has the address of
    /// the connection.
    ///
    /// # Errors
    /// A sentence: RDMA is wanted, and can't be had on this machine.
    pub fn new(security: Security, travel: Travel, device: Option<&str>) -> Result<Self, LinkError> {
        #[cfg(feature = "rdma")]
        {
            let device = device.map(str::parse::<farmem_verbs::Wanted>).transpose();
            let device = device.map_err(|error| LinkError::Rdma(error.to_string()))?;
            if travel == Travel::Rdma {
                crate::rdma::probe(device.as_ref()).map_err(|error| LinkError::Rdma(error.to_string()))?;
            }
            Ok(Self { security, travel, device, spaces: Default::default(), said: Mutex::default() })
        }
        #[cfg(not(feature = "rdma"))]
        {
            if travel == Travel::Rdma || device.is_some() {
                let why = "this program was built without it; `cargo build --release -p farmem --features rdma` has it";
                return Err(LinkError::Rdma(why.to_owned()));
            }
            Ok(Self { security, travel })
        }
    }

    /// Connects to a node and introduces a client to it, all within `patience` (the look-up of a host's name aside).
    ///
    /// # Errors
    /// Nobody is there, or who is there doesn't let the client in.
    pub fn connect(
        &self,
        to: &Destination,
        client: ClientIdentity,
        patience: Duration,
    ) -> Result<Box<dyn Transport>, LinkError> {
        let deadline = Instant::now() + patience;
        let link = introduce(to, client, &self.security, deadline)?;
        match to {
            Destination::Tcp { .. } if self.travel != Travel::Connection => {
                self.attach(link, to, client, deadline)
            }
            _ => Ok(Box::new(link)),
        }
    }

    #[cfg(feature = "rdma")]
    fn attach(
        &self,
        link: Link,
        to: &Destination,
        client: ClientIdentity,
        deadline: Instant,
    ) -> Result<Box<dyn Transport>, LinkError> {
        match crate::rdma::attach(link, client, self.device.as_ref(), &self.spaces, deadline) {
            Ok(link) => Ok(link),
            Err((_, crate::rdma::NoRdma::Link(error))) => Err(error),
            Err((link, why)) if self.travel == Travel::Auto => {
                let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
                if said.insert(to.clone()) {
                    tracing::info!(node = %to, %why, "goes by TCP, not by RDMA");
                }
                Ok(link)
            }
            Err((_, why)) => Err(LinkError::Rdma(why.to_string())),
        }
    }

    #[cfg(not(feature = "rdma"))]
    fn attach(
        &self,
        link: Link,
        _: &Destination,
        _: ClientIdentity,
        _: Instant,
    ) -> Result<Box<dyn Transport>, LinkError> {
        Ok(Box::new(link))
    }
}

/// Connects to a node and introduces a client to it, all within `patience` (the look-up of a host's name aside). `security` is for networks; a Unix socket
/// needs none. Everything travels over the connection.
///
/// # Errors
/// Nobody is there, or who is there doesn't let the client in.
pub fn connect(
    to: &Destination,
    client: ClientIdentity,
    security: &Security,
    patience: Duration,
) -> Result<Box<dyn Transport>, LinkError> {
    Ok(Box::new(introduce(to, client, security, Instant::now() + patience)?))
}

fn introduce(
    to: &Destination,
    client: ClientIdentity,
    security: &Security,
    deadline: Instant,
) -> Result<Link, LinkError> {
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
    Link::introduce(stream, client, deadline)
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
