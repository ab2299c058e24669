//! Where a node is found, as people write it.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// The address of a node: to listen at, or to connect to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Destination {
    /// `HOST:PORT`, or `[ADDRESS]:PORT` for IPv6.
    Tcp {
        /// A name, or an address without brackets.
        host: String,
        /// 0 to listen at any port that is free.
        port: u16,
    },
    /// `unix:PATH`: a socket in the file system.
    Unix(PathBuf),
    /// `shm:PATH`: such a socket, by which both ends come to share memory; what they say goes through that.
    Shared(PathBuf),
}

/// A text that is no address of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it is neither HOST:PORT nor unix:PATH nor shm:PATH")]
pub struct NoDestination;

impl Destination {
    /// Whether what is said there stays on this machine, so that it may go without proofs and secrets: a
    /// loopback address or a Unix socket.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp { host, .. } => {
                host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
            }
            Self::Unix(_) | Self::Shared(_) => true,
        }
    }
}

impl FromStr for Destination {
    type Err = NoDestination;

    fn from_str(text: &str) -> Result<Self, NoDestination> {
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(NoDestination) } else { Ok(Self::Unix(path.into())) };
        }
        if let Some(path) = text.strip_prefix("shm:") {
            return if path.is_empty() { Err(NoDestination) } else { Ok(Self::Shared(path.into())) };
        }
        let (host, port) = text.rsplit_once(':').ok_or(NoDestination)?;
        let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(address) => address,
            // Which of the colons would be the one?
            None if host.contains(':') => return Err(NoDestination),
            None => host,
        };
        if host.is_empty() || host.contains(char::is_whitespace) {
            return Err(NoDestination);
        }
        Ok(Self::Tcp { host: host.to_owned(), port: port.parse().map_err(|_| NoDestination)? })
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Shared(path) => write!(f, "shm:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_read_as_they_are_shown() {
        for text in
            ["memory-3:7431", "10.0.0.1:1", "[fe80::1]:7431", "unix:/run/node.socket", "shm:/run/node.memory"]
        {
            assert_eq!(text.parse::<Destination>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_destination_is_refused() {
        for text in ["", "memory-3", ":7431", "a:b", "a:70000", "fe80::1:7431", "unix:", "shm:", "a b:1"] {
            assert_eq!(text.parse::<Destination>(), Err(NoDestination), "{text}");
        }
    }

    #[test]
    fn loopback_and_sockets_are_local() {
        let is_local = |text: &str| text.parse::<Destination>().unwrap().is_local();
        assert!(["localhost:1", "127.0.0.9:1", "[::1]:1", "unix:/x"].into_iter().all(is_local));
        assert!(!["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "localhost.example:1"].into_iter().any(is_local));
    }
}
