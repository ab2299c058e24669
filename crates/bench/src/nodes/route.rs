//! The ways to a node, each with a node of its own in a thread of this process.

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use farmem_node::{Options, Server, WantedRdma};
use farmem_page::ByteCount;
use farmem_transport::{Destination, Identity, Security, SharedKey};
use rustix::thread::Pid;

use super::apart;
use super::bare::Bare;
use super::client::Client;
use super::namespace::{FAR, Link};

const LOOPBACK: &str = "127.0.0.1";
/// Longer than a measurement, so that no client has to renew its lease.
const LEASE: Duration = Duration::from_secs(3600);

/// One way to a node.
pub(super) struct Route {
    pub(super) name: String,
    host: Host,
    security: Security,
    key: Option<PathBuf>,
    /// Where the node is not in this process's own network.
    link: Option<Link>,
    is_limited: bool,
}

impl Route {
    /// Whether it has a rate.
    pub(super) fn is_limited(&self) -> bool {
        self.is_limited
    }

    /// All ways within this machine: loopback, the same with a key, a Unix socket, shared memory. `folder` is
    /// for sockets and the key.
    pub(super) fn local(folder: &Path, memory: ByteCount) -> Result<Vec<Self>> {
        let tcp = || Destination::Tcp { host: LOOPBACK.to_owned(), port: 0 };
        let key_file = folder.join("key");
        let key = SharedKey::generate()?;
        key.save(&key_file)?;
        let identity = Security::Tls(Identity::with_key(&key)?);
        let plain = |name, listen| Self::open(name, listen, Security::Plain, None, None, memory);
        Ok(vec![
            plain("tcp", tcp())?,
            Self::open("tls", tcp(), identity, Some(key_file), None, memory)?,
            plain("unix", Destination::Unix(folder.join("node")))?,
            plain("shm", Destination::Shared(folder.join("memory")))?,
        ])
    }

    /// TCP from one network namespace to another.
    ///
    /// # Errors
    /// When this machine or user can't make them.
    pub(super) fn linked(rate: Option<&str>, memory: ByteCount) -> Result<Self> {
        let name = rate.map_or_else(|| "veth".to_owned(), |rate| format!("veth-{rate}"));
        let listen = Destination::Tcp { host: FAR.to_owned(), port: 0 };
        let route = Self::open(&name, listen, Security::Plain, None, Some(Link::new(rate)?), memory)?;
        Ok(Self { is_limited: rate.is_some(), ..route })
    }

    fn open(
        name: &str,
        listen: Destination,
        security: Security,
        key: Option<PathBuf>,
        link: Option<Link>,
        memory: ByteCount,
    ) -> Result<Self> {
        let options = Options {
            listen: vec![listen],
            security: security.clone(),
            memory,
            lease: LEASE,
            rack: None,
            // What is measured are the other ways.
            rdma: WantedRdma::None,
        };
        let host = match &link {
            Some(link) => link.far.within(|| Host::start(&options))?,
            None => Host::start(&options)?,
        };
        Ok(Self { name: name.to_owned(), host, security, key, link, is_limited: false })
    }

    /// Does `work` on this side of the way.
    pub(super) fn near<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        match &self.link {
            Some(link) => link.near.within(work),
            None => work(),
        }
    }

    /// A client of the node.
    pub(super) fn client(&self, number: u64) -> Result<Client> {
        self.near(|| Client::connect(&self.host.address, &self.security, number))
    }

    /// The node's thread.
    pub(super) fn far(&self) -> Pid {
        self.host.number
    }

    /// A connection that goes the same way, without TLS, and with a Unix socket for shared memory.
    pub(super) fn bare(&self) -> Result<Bare> {
        if !matches!(self.host.address, Destination::Tcp { .. }) {
            let (near, far) = UnixStream::pair()?;
            return Bare::new(near, far);
        }
        let listener = match &self.link {
            Some(link) => link.far.within(|| Ok(TcpListener::bind((FAR, 0))?))?,
            None => TcpListener::bind((LOOPBACK, 0))?,
        };
        let address = listener.local_addr()?;
        let near = self.near(|| Ok(TcpStream::connect(address)?)).context("the link carries nothing")?;
        let (far, _) = listener.accept()?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        Bare::new(near, far)
    }

    /// Options of `farmem run` for far memory on the node.
    pub(super) fn options(&self) -> Vec<String> {
        let mut options = vec!["--node".to_owned(), self.host.address.to_string()];
        match &self.key {
            Some(key) => options.extend(["--key".to_owned(), key.display().to_string()]),
            None => options.push("--plain".to_owned()),
        }
        options
    }
}

/// A node that serves until it is dropped.
struct Host {
    address: Destination,
    number: Pid,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Host {
    fn start(options: &Options) -> Result<Self> {
        let mut server = Server::bind(options, None::<&File>)?;
        let address = server.addresses()?.pop().context("the node has no address")?;
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stop);
        let (number, thread) = apart::start(move || {
            while !is_over.load(Ordering::Acquire) {
                server.turn()?;
            }
            Ok(())
        })?;
        Ok(Self { address, number, stop, thread: Some(thread) })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            eprintln!("farmem: a node has failed: {error:#}");
        }
    }
}
