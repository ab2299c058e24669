//! A connection as bytes that come and go, whatever carries them. Nothing here waits.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::LinkError;

/// Bytes that are asked for at a time.
const PORTION_BYTES: usize = 256 << 10;

/// One end of a connection.
pub struct Stream(Kind);

enum Kind {
    /// A socket.
    Plain(OwnedFd),
}

impl Stream {
    /// What is sent goes out as it is, and by whomever it is received. The socket must not block.
    pub fn plain(socket: OwnedFd) -> Self {
        Self(Kind::Plain(socket))
    }

    /// What the other end has proved to be: the fingerprint of its certificate, where it has one.
    pub fn credential(&self) -> Option<[u8; 32]> {
        None
    }

    /// Appends bytes that have come. How many; 0 when there are none now.
    fn receive(&mut self, into: &mut Vec<u8>) -> Result<usize, LinkError> {
        match &self.0 {
            Kind::Plain(socket) => {
                into.reserve(PORTION_BYTES);
                match rustix::io::read(socket, spare_capacity(into)) {
                    Ok(0) => Err(LinkError::Closed),
                    other => or_none(other),
                }
            }
        }
    }

    /// Sends bytes. How many; 0 when none can be sent now.
    fn send(&mut self, bytes: &[u8]) -> Result<usize, LinkError> {
        match &self.0 {
            Kind::Plain(socket) => or_none(rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Kind::Plain(socket) => socket.as_fd(),
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
        Ok(())
    }

    /// Forgets the second half of what waits, for those who die in the middle of a message.
    pub fn halve(&mut self) {
        let half = self.start + self.waiting() / 2;
        self.bytes.truncate(half);
    }
}
