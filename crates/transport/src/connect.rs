//! From the address of a node to a link.

#[cfg(feature = "rdma")]
use std::collections::HashMap;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
#[cfg(feature = "rdma")]
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect as connect_to, socket_with,
};

use crate::link::Link;
use crate::names::Names;
#[cfg(feature = "rdma")]
use crate::rdma::NoRdma;
use crate::stream::Stream;
use crate::{ClientIdentity, Destination, LinkError, Security, Transport};

/// Connecting devices takes no longer. A node that has answered on the connection gets more time than one of
/// which nobody knows whether it is there.
#[cfg(feature = "rdma")]
const ATTACH_PATIENCE: Duration = Duration::from_secs(5);
/// Where nothing came through between devices, it is not tried again for so long.
#[cfg(feature = "rdma")]
const SILENCE: Duration = Duration::from_secs(60);

/// What a link is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Traffic {
    /// Requests that move no content. They go over the connection.
    Control,
    /// Pages that threads wait for: a device is looked at until they are there, for a while.
    Demand,
    /// Content that nobody waits for: a device tells when it is there.
    Background,
}

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
    names: Names,
    #[cfg(feature = "rdma")]
    device: Option<farmem_verbs::Wanted>,
    #[cfg(feature = "rdma")]
    spaces: crate::rdma::Spaces,
    #[cfg(feature = "rdma")]
    ways: Mutex<HashMap<Destination, Way>>,
}

/// How a node was reached last.
#[cfg(feature = "rdma")]
#[derive(Default)]
struct Way {
    is_by_device: Option<bool>,
    /// When devices are tried again.
    again_at: Option<Instant>,
}

impl Connector {
    /// Links that are protected so, and travel so. `device` is the RDMA device, as `NAME`, `NAME:PORT` or
    /// `NAME:PORT:GID`; without it that which has the address of the connection.
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
            Ok(Self {
                security,
                travel,
                names: Names::default(),
                device,
                spaces: Default::default(),
                ways: Mutex::default(),
            })
        }
        #[cfg(not(feature = "rdma"))]
        {
            if travel == Travel::Rdma || device.is_some() {
                let why = "this program was built without it; `cargo build --release -p farmem --features rdma` has it";
                return Err(LinkError::Rdma(why.to_owned()));
            }
            Ok(Self { security, travel, names: Names::default() })
        }
    }

    /// Connects to a node and introduces a client to it, all within `patience`; connecting devices may take
    /// some seconds more.
    ///
    /// # Errors
    /// Nobody is there, or the server doesn't let the client in.
    pub fn connect(
        &self,
        to: &Destination,
        client: ClientIdentity,
        traffic: Traffic,
        patience: Duration,
    ) -> Result<Box<dyn Transport>, LinkError> {
        let link = introduce(to, client, &self.security, &self.names, Instant::now() + patience)?;
        let is_by_device = matches!(to, Destination::Tcp { .. })
            && traffic != Traffic::Control
            && self.travel != Travel::Connection;
        if is_by_device { self.attach(link, to, client, traffic) } else { Ok(Box::new(link)) }
    }

    #[cfg(feature = "rdma")]
    fn attach(
        &self,
        link: Link,
        to: &Destination,
        client: ClientIdentity,
        traffic: Traffic,
    ) -> Result<Box<dyn Transport>, LinkError> {
        let ways = || self.ways.lock().unwrap_or_else(PoisonError::into_inner);
        let is_auto = self.travel == Travel::Auto;
        let again_at = ways().get(to).and_then(|way| way.again_at);
        if is_auto && again_at.is_some_and(|at| Instant::now() < at) {
            return Ok(Box::new(link));
        }
        let deadline = Instant::now() + ATTACH_PATIENCE;
        let is_awaited = traffic == Traffic::Demand;
        let attached =
            crate::rdma::attach(link, client, self.device.as_ref(), &self.spaces, is_awaited, deadline);
        let (link, why) = match attached {
            Ok(link) => (link, None),
            Err((_, NoRdma::Link(error))) => return Err(error),
            Err((link, why)) if is_auto => (link, Some(why)),
            Err((_, why)) => return Err(LinkError::Rdma(why.to_string())),
        };
        let mut ways = ways();
        let way = ways.entry(to.clone()).or_default();
        way.again_at = matches!(why, Some(NoRdma::Silent)).then(|| Instant::now() + SILENCE);
        let before = way.is_by_device.replace(why.is_none());
        match why {
            Some(why) if before != Some(false) => {
                tracing::info!(node = %to, %why, "pages go by TCP, not by RDMA");
            }
            None if before != Some(true) => {
                // Also where everything else goes through TLS: see docs/adr/0037-rdma.md.
                tracing::info!(node = %to, "pages go by RDMA, not encrypted; --transport tcp forbids it");
            }
            _ => {}
        }
        Ok(link)
    }

    #[cfg(not(feature = "rdma"))]
    fn attach(
        &self,
        link: Link,
        _: &Destination,
        _: ClientIdentity,
        _: Traffic,
    ) -> Result<Box<dyn Transport>, LinkError> {
        Ok(Box::new(link))
    }
}

/// Connects to a node and introduces a client to it, all within `patience`. `security` is for networks; a
/// Unix socket needs none. Everything travels over the connection.
///
/// # Errors
/// Nobody is there, or the server doesn't let the client in.
pub fn connect(
    to: &Destination,
    client: ClientIdentity,
    security: &Security,
    patience: Duration,
) -> Result<Box<dyn Transport>, LinkError> {
    Ok(Box::new(introduce(to, client, security, &Names::default(), Instant::now() + patience)?))
}

fn introduce(
    to: &Destination,
    client: ClientIdentity,
    security: &Security,
    names: &Names,
    deadline: Instant,
) -> Result<Link, LinkError> {
    let stream = match to {
        Destination::Tcp { host, port } => {
            let addresses = names.look_up(host, *port, deadline)?;
            Stream::to_node(reach(&addresses, deadline)?.into(), security, host)?
        }
        Destination::Unix(path) => Stream::plain(reach_here(path, deadline)?),
        Destination::Shared(path) => Stream::accept_memory(reach_here(path, deadline)?, deadline)?,
    };
    Link::introduce(stream, client, deadline)
}

/// Connects to a socket of this machine. Where whoever has it takes no connections, and as many wait as may,
/// that ends with the deadline.
fn reach_here(path: &Path, deadline: Instant) -> Result<OwnedFd, LinkError> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(LinkError::Silent);
    }
    let kernel = |errno: Errno| LinkError::Kernel(errno.into());
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).map_err(kernel)?;
    // The kernel has no finer bound than a microsecond, and takes nothing for none.
    let left = left.max(Duration::from_millis(1));
    set_socket_timeout(&socket, Timeout::Send, Some(left)).map_err(kernel)?;
    match connect_to(&socket, &SocketAddrUnix::new(path).map_err(kernel)?) {
        Ok(()) => {}
        Err(Errno::AGAIN) => return Err(LinkError::Silent),
        Err(errno) => return Err(kernel(errno)),
    }
    ioctl_fionbio(&socket, true).map_err(kernel)?;
    Ok(socket)
}

/// Tries the addresses of a host, one after the other. Each has its part of the time: one that says nothing
/// keeps none from being tried.
fn reach(addresses: &[SocketAddr], deadline: Instant) -> Result<TcpStream, LinkError> {
    let mut last = None;
    for (nth, address) in addresses.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now()) / (addresses.len() - nth) as u32;
        if left.is_zero() {
            return Err(LinkError::Silent);
        }
        match TcpStream::connect_timeout(address, left) {
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

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use rustix::net::{bind, listen};

    use super::*;

    #[test]
    fn who_takes_no_connections_is_waited_for_no_longer_than_asked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&listener, 0).unwrap();
        let _waits = UnixStream::connect(&path).unwrap();
        let client = ClientIdentity { space: 1, lane: 0 };
        for to in [Destination::Unix(path.clone()), Destination::Shared(path)] {
            let outcome = connect(&to, client, &Security::Plain, Duration::from_millis(20));
            assert!(matches!(outcome, Err(LinkError::Silent)));
        }
    }
}
