//! Where clients come in.

use std::ffi::CString;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use farmem_sys::Errno;
use farmem_sys::link::remove_abandoned;
use farmem_transport::stream::Stream;
use farmem_transport::{Destination, LinkError, Security};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;

/// An address that is listened at.
pub(crate) enum Listener {
    Tcp(TcpListener),
    /// Of either kind that begins with a socket in the file system.
    Unix {
        listener: UnixListener,
        path: PathBuf,
        shares_memory: bool,
    },
}

impl Listener {
    /// Begins to listen.
    pub(crate) fn bind(at: &Destination) -> Result<Self> {
        let cannot = || format!("cannot listen at {at}");
        match at {
            Destination::Tcp { host, port } => {
                let listener = TcpListener::bind((host.as_str(), *port)).with_context(cannot)?;
                listener.set_nonblocking(true)?;
                Ok(Self::Tcp(listener))
            }
            Destination::Unix(path) | Destination::Shared(path) => {
                remove_left(path)?;
                let listener = UnixListener::bind(path).with_context(cannot)?;
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
                    .with_context(cannot)?;
                listener.set_nonblocking(true)?;
                let shares_memory = matches!(at, Destination::Shared(_));
                Ok(Self::Unix { listener, path: path.clone(), shares_memory })
            }
        }
    }

    /// Where it can be reached: with the port that was found, where any was asked for.
    pub(crate) fn address(&self) -> Result<Destination> {
        Ok(match self {
            Self::Tcp(listener) => {
                let address: SocketAddr = listener.local_addr()?;
                Destination::Tcp { host: address.ip().to_string(), port: address.port() }
            }
            Self::Unix { path, shares_memory: true, .. } => Destination::Shared(path.clone()),
            Self::Unix { path, .. } => Destination::Unix(path.clone()),
        })
    }

    /// The next connection that waits, and its peer in words; `None` when there is none. `security` is for
    /// networks.
    pub(crate) fn accept(&self, security: &Security) -> Result<Option<(Stream, String)>, LinkError> {
        let accepted = match self {
            Self::Tcp(listener) => listener.accept().and_then(|(socket, peer)| {
                socket.set_nodelay(true)?;
                socket.set_nonblocking(true)?;
                Ok((OwnedFd::from(socket), peer.to_string()))
            }),
            Self::Unix { listener, .. } => listener.accept().and_then(|(socket, _)| {
                socket.set_nonblocking(true)?;
                let process = own_process(&socket)?;
                Ok((OwnedFd::from(socket), format!("process {process}")))
            }),
        };
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let stream = match self {
            Self::Tcp(_) => Stream::to_client(socket, security)?,
            Self::Unix { shares_memory: true, .. } => Stream::offer_memory(socket)?,
            Self::Unix { .. } => Stream::plain(socket),
        };
        Ok(Some((stream, peer)))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix { listener, .. } => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix { path, .. } = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The process at the other end, which must be of the node's own user or root. The file's mode says the same;
/// but whoever has opened it to others may not have meant this.
fn own_process(socket: &UnixStream) -> io::Result<i32> {
    // 0 where that process is not in the node's PID namespace, which rustix's kind of number can't be.
    let peer = getsockopt(socket, PeerCredentials)?;
    if [0, rustix::process::geteuid().as_raw()].contains(&peer.uid()) {
        Ok(peer.pid())
    } else {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user"))
    }
}

/// Removes the socket that a node has left which was killed.
fn remove_left(path: &Path) -> Result<()> {
    let shown = path.display();
    remove_abandoned(&CString::new(path.as_os_str().as_bytes())?).map_err(|error| match error {
        Errno::NOTSOCK => anyhow!("{shown} exists already and is not a socket"),
        Errno::ADDRINUSE => anyhow!("another process listens at {shown} already"),
        error => anyhow!("cannot remove {shown}: {error}"),
    })
}
