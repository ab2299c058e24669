//! Where to listen, and whom a request may come from.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result};

/// Where to listen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// An address of this machine with a port; 0 for any that is free.
    Tcp(SocketAddr),
    /// A socket in the file system; whoever may write to it is let in.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(path.into()));
        }
        let with_port = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
        with_port.as_deref().unwrap_or(text).parse().map(Self::Tcp).map_err(|_| {
            "write an address and a port, such as `127.0.0.1:7430`, or `unix:` and a path".to_owned()
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Address {
    /// Whether only this machine reaches it.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }

    /// Begins to listen.
    pub(crate) fn bind(&self) -> Result<Bound> {
        let cannot = || format!("cannot listen on {self}");
        Ok(match self {
            Self::Tcp(address) => {
                let listener = TcpListener::bind(address).with_context(cannot)?;
                listener.set_nonblocking(true).with_context(cannot)?;
                Bound::Tcp(listener)
            }
            Self::Unix(path) => {
                let listener = bind_file(path).with_context(cannot)?;
                listener.set_nonblocking(true).with_context(cannot)?;
                Bound::Unix(listener, path.clone())
            }
        })
    }
}

/// A socket that listens.
#[derive(Debug)]
pub(crate) enum Bound {
    Tcp(TcpListener),
    /// With its file.
    Unix(UnixListener, PathBuf),
}

impl Bound {
    /// The same socket again.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(listener) => Self::Tcp(listener.try_clone()?),
            Self::Unix(listener, path) => Self::Unix(listener.try_clone()?, path.clone()),
        })
    }

    /// Where, with the port that it got.
    pub(crate) fn address(&self) -> Result<Address> {
        Ok(match self {
            Self::Tcp(listener) => Address::Tcp(listener.local_addr()?),
            Self::Unix(_, path) => Address::Unix(path.clone()),
        })
    }
}

/// A socket's file stays when its process is killed: one at which nobody listens any more makes way. A file
/// that is no socket refuses connections in the same way.
fn bind_file(path: &Path) -> io::Result<UnixListener> {
    let bound = UnixListener::bind(path);
    let is_left = bound.as_ref().is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
        && path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket())
        && UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    if is_left {
        std::fs::remove_file(path)?;
        return UnixListener::bind(path);
    }
    bound
}

/// A name by which a site is asked, as people write it: without a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostName(String);

impl FromStr for HostName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.' | '_');
        let name = text.trim_end_matches('.');
        if name.is_empty() || !name.chars().all(is_part) {
            return Err("write a name without a port, such as `memory-3.example.org`".to_owned());
        }
        Ok(Self(name.to_owned()))
    }
}

/// Whose requests are let in, by the host that they name. A page of somebody else's whose name was made to
/// lead here has that name in its requests: an address can't be made to lead elsewhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Hosts {
    /// Anybody's: something else keeps others out.
    Any,
    /// Those that name this machine as only it can be named by itself, or by one of these names.
    Local(Vec<HostName>),
    /// Those that name any address, this machine as it names itself, or one of these names.
    Addresses(Vec<HostName>),
}

impl Hosts {
    /// Whether a request with this `Host` is let in.
    pub(crate) fn admit(&self, host: Option<&str>) -> bool {
        let (names, is_any_address) = match self {
            Self::Any => return true,
            Self::Local(names) => (names, false),
            Self::Addresses(names) => (names, true),
        };
        let Some(host) = host.map(without_port) else { return false };
        let is_address = |address: IpAddr| is_any_address || address.is_loopback();
        host == "localhost"
            || host.parse().is_ok_and(is_address)
            || names.iter().any(|HostName(name)| name.eq_ignore_ascii_case(host.trim_end_matches('.')))
    }
}

fn without_port(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => host.split(':').next().unwrap_or(host),
    }
}

/// Whether both are the same, found out in a time that doesn't tell where they differ.
pub(crate) fn is_same_secret(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    one.len() == other.len() && one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let tcp = |text: &str| Address::Tcp(text.parse().unwrap());
        assert_eq!("127.0.0.1:80".parse(), Ok(tcp("127.0.0.1:80")));
        assert_eq!("localhost:80".parse(), Ok(tcp("127.0.0.1:80")));
        assert_eq!("unix:/run/x".parse(), Ok(Address::Unix("/run/x".into())));
        for text in ["", "unix:", "80", "example.org:80"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_socket_that_was_left_makes_way_and_nothing_else_does() {
        let folder = tempfile::tempdir().unwrap();
        let (left, used, file) =
            (folder.path().join("left"), folder.path().join("used"), folder.path().join("file"));
        drop(UnixListener::bind(&left).unwrap());
        let _listener = UnixListener::bind(&used).unwrap();
        std::fs::write(&file, "results").unwrap();

        assert!(bind_file(&left).is_ok());
        assert!(bind_file(&used).is_err() && UnixStream::connect(&used).is_ok());
        assert!(bind_file(&file).is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "results");
    }

    #[test]
    fn only_loopback_and_sockets_are_local() {
        for (text, is_local) in [
            ("127.0.0.1:1", true),
            ("[::1]:1", true),
            ("unix:/x", true),
            ("0.0.0.0:1", false),
            ("10.0.0.7:1", false),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().is_local(), is_local, "{text}");
        }
    }

    #[test]
    fn hosts_of_others_are_told_from_this_one() {
        let hosts = Hosts::Local(Vec::new());
        for host in ["localhost", "localhost:7430", "127.0.0.1:7430", "[::1]:7430"] {
            assert!(hosts.admit(Some(host)), "{host}");
        }
        for host in ["", "example.org", "127.0.0.1.example.org", "10.0.0.7:7430", "[fe80::1]:1"] {
            assert!(!hosts.admit(Some(host)), "{host}");
        }
        assert!(!hosts.admit(None));
    }

    #[test]
    fn what_is_for_other_machines_is_asked_for_by_an_address_or_a_name_that_was_given() {
        let hosts = Hosts::Addresses(vec!["memory-3.example.org.".parse().unwrap()]);
        for host in
            ["10.0.0.7:7432", "[fd00::7]:7432", "[fd00::7]", "localhost:7432", "Memory-3.example.org:7432"]
        {
            assert!(hosts.admit(Some(host)), "{host}");
        }
        for host in ["", "memory-3", "example.org:7432", "10.0.0.7.example.org", "[fd00::7.example.org]:1"] {
            assert!(!hosts.admit(Some(host)), "{host}");
        }
        assert!(!hosts.admit(None) && Hosts::Any.admit(None));
    }

    #[test]
    fn names_are_read_without_a_port() {
        for text in ["", ".", "memory-3:7432", "http://memory-3", "a b", "*"] {
            assert!(text.parse::<HostName>().is_err(), "{text}");
        }
    }

    #[test]
    fn secrets_are_compared_whole() {
        assert!(is_same_secret("abc", "abc"));
        assert!(!is_same_secret("abc", "abd") && !is_same_secret("abc", "abcd") && !is_same_secret("", "a"));
    }
}
