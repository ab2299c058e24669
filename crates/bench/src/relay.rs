//! A way to a node that is longer than any within one machine: what comes in goes on after a while, in both
//! directions. It can also hold everything back.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// What is read at once.
const PORTION_BYTES: usize = 64 << 10;
/// Portions that are on their way in one direction of a connection: 8 MiB. That is more than TCP within a
/// machine carries in the time of the way.
const PORTIONS: usize = 128;

/// A relay in front of a server. It ends, and with it all connections through it, when dropped.
pub(crate) struct Relay {
    address: SocketAddr,
    gate: Arc<Gate>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Whether anything goes on.
#[derive(Default)]
struct Gate {
    is_shut: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn set(&self, is_shut: bool) {
        *self.is_shut.lock().unwrap_or_else(PoisonError::into_inner) = is_shut;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let is_shut = self.is_shut.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever panicked with the lock has left a whole `bool`.
        drop(self.opened.wait_while(is_shut, |is_shut| *is_shut).unwrap_or_else(PoisonError::into_inner));
    }
}

impl Relay {
    /// Listens on a free port of the loopback device. What comes there arrives at `to` after `delay`, and the
    /// other way round.
    pub(crate) fn start(to: &str, delay: Duration) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("cannot listen")?;
        let address = listener.local_addr()?;
        let (gate, is_over) = (Arc::new(Gate::default()), Arc::new(AtomicBool::new(false)));
        let accepting = Accepting { to: to.to_owned(), delay, gate: Arc::clone(&gate) };
        let ends = Arc::clone(&is_over);
        let thread = thread::Builder::new().spawn(move || accepting.accept(&listener, &ends))?;
        Ok(Self { address, gate, is_over, thread: Some(thread) })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Nothing goes on until it is released.
    pub(crate) fn hold(&self) {
        self.gate.set(true);
    }

    /// What was held back goes on.
    pub(crate) fn release(&self) {
        self.gate.set(false);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.release();
        // It wakes the thread that accepts. If there is none any more, nobody has to be woken.
        let _ = TcpStream::connect(self.address);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct Accepting {
    to: String,
    delay: Duration,
    gate: Arc<Gate>,
}

impl Accepting {
    fn accept(&self, listener: &TcpListener, is_over: &AtomicBool) {
        let mut connections = Vec::new();
        while let Ok((near, _)) = listener.accept() {
            if is_over.load(Ordering::Acquire) {
                break;
            }
            // Where the server takes no connection the client loses its own at once, as it would without the
            // relay.
            connections.extend(self.connect(near));
        }
        // Dropped, each of them ends.
        drop(connections);
    }

    fn connect(&self, near: TcpStream) -> Result<Connection> {
        let far = TcpStream::connect(&self.to)?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        let mut connection = Connection { streams: [near, far], threads: Vec::new() };
        for (from, to) in [(0, 1), (1, 0)] {
            let (sender, receiver) = sync_channel(PORTIONS);
            let [from, to] = [from, to].map(|side: usize| connection.streams[side].try_clone());
            let (from, to, delay, gate) = (from?, to?, self.delay, Arc::clone(&self.gate));
            connection.threads.push(thread::Builder::new().spawn(move || take(from, delay, &sender))?);
            connection.threads.push(thread::Builder::new().spawn(move || give(&receiver, to, &gate))?);
        }
        Ok(connection)
    }
}

struct Connection {
    streams: [TcpStream; 2],
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        for stream in &self.streams {
            // It fails if the other side has ended the connection, which is what is wanted.
            let _ = stream.shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// What came in, with the moment when it is to go on.
type Portion = (Instant, Vec<u8>);

fn take(mut from: TcpStream, delay: Duration, to: &SyncSender<Portion>) {
    let mut buffer = vec![0; PORTION_BYTES];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if to.send((Instant::now() + delay, buffer[..count].to_vec())).is_err() {
            return;
        }
    }
}

fn give(from: &Receiver<Portion>, mut to: TcpStream, gate: &Gate) {
    while let Ok((due, bytes)) = from.recv() {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        gate.pass();
        if to.write_all(&bytes).is_err() {
            return;
        }
    }
    // The sender has ended; the receiver is told after the last byte.
    let _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_millis(5);

    /// A relay, and a connection to a server that sends back what it gets until the connection ends.
    fn echo() -> (Relay, TcpStream, JoinHandle<()>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let relay = Relay::start(&listener.local_addr().unwrap().to_string(), DELAY).unwrap();
        let near = TcpStream::connect(relay.address()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let server = thread::spawn(move || {
            let mut buffer = [0; 1024];
            while let Ok(count @ 1..) = far.read(&mut buffer) {
                far.write_all(&buffer[..count]).unwrap();
            }
        });
        (relay, near, server)
    }

    #[test]
    fn bytes_arrive_in_order_and_not_before_the_way_there_and_back() {
        let (relay, mut near, server) = echo();
        let began = Instant::now();

        near.write_all(b"there and back").unwrap();
        let mut found = [0; 14];
        near.read_exact(&mut found).unwrap();

        assert_eq!(&found, b"there and back");
        assert!(began.elapsed() >= 2 * DELAY);
        drop(relay);
        server.join().unwrap();
    }

    #[test]
    fn what_is_held_back_arrives_when_it_is_released() {
        let (relay, mut near, server) = echo();
        near.set_read_timeout(Some(10 * DELAY)).unwrap();
        let mut found = [0; 4];
        relay.hold();

        near.write_all(b"late").unwrap();
        assert!(near.read_exact(&mut found).is_err());
        relay.release();
        near.set_read_timeout(None).unwrap();
        near.read_exact(&mut found).unwrap();

        assert_eq!(&found, b"late");
        drop(relay);
        server.join().unwrap();
    }
}
