//! A small client for Redis, over a Unix socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::scale::patience;

/// A reply of the server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reply {
    /// A short line, such as `OK`.
    Line(String),
    /// An error line.
    Error(String),
    /// A number.
    Number(i64),
    /// Bytes, or nothing when the key is not there.
    Bytes(Option<Vec<u8>>),
}

/// One connection. Requests can be sent ahead of their replies.
#[derive(Debug)]
pub struct RedisClient {
    stream: BufReader<UnixStream>,
    requests: Vec<u8>,
}

impl RedisClient {
    /// Connects; `None` while nobody listens, or the server still loads its data.
    #[must_use]
    pub fn connect(socket: &Path) -> Option<Self> {
        let stream = UnixStream::connect(socket).ok()?;
        stream.set_read_timeout(Some(patience())).ok()?;
        stream.set_write_timeout(Some(patience())).ok()?;
        let mut client = Self { stream: BufReader::with_capacity(1 << 16, stream), requests: Vec::new() };
        (client.call(&[b"PING"]) == Reply::Line("PONG".to_owned())).then_some(client)
    }

    /// Puts a request in the queue; [`Self::flush`] sends it.
    pub fn queue(&mut self, words: &[&[u8]]) {
        self.requests.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            self.requests.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            self.requests.extend_from_slice(word);
            self.requests.extend_from_slice(b"\r\n");
        }
    }

    /// Sends all queued requests. Keep their replies below what the socket's buffers hold, or both sides
    /// wait.
    ///
    /// # Panics
    /// When the server has gone.
    pub fn flush(&mut self) {
        self.stream.get_mut().write_all(&self.requests).expect("the server takes requests");
        self.requests.clear();
    }

    /// The next reply.
    ///
    /// # Panics
    /// When none comes in time, or it can't be understood.
    pub fn reply(&mut self) -> Reply {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("the server replies in time");
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).expect("the server closed the connection");
        match kind {
            "+" => Reply::Line(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Number(rest.parse().expect("a number")),
            "$" if rest == "-1" => Reply::Bytes(None),
            "$" => {
                let length: usize = rest.parse().expect("a length");
                let mut bytes = vec![0; length + 2];
                self.stream.read_exact(&mut bytes).expect("the server sends what it announced");
                bytes.truncate(length);
                Reply::Bytes(Some(bytes))
            }
            _ => panic!("the server said something unknown: {line}"),
        }
    }

    /// One request, one reply.
    pub fn call(&mut self, words: &[&[u8]]) -> Reply {
        self.queue(words);
        self.flush();
        self.reply()
    }

    /// Asks the server to shut down; it has no time to reply.
    pub fn shut_down(mut self, how: &str) {
        self.queue(&[b"SHUTDOWN", how.as_bytes()]);
        self.flush();
        let mut rest = Vec::new();
        // Ends when the server has closed the connection, by an error or by the end of the stream.
        let _ = self.stream.read_to_end(&mut rest);
    }

    /// A section of `INFO`.
    ///
    /// # Panics
    /// When the server sends something else.
    pub fn info(&mut self, section: &str) -> String {
        match self.call(&[b"INFO", section.as_bytes()]) {
            Reply::Bytes(Some(bytes)) => String::from_utf8(bytes).expect("text"),
            other => panic!("INFO gave {other:?}"),
        }
    }
}
