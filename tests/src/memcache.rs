//! A small client for memcached's text protocol, over a Unix socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::scale::patience;

/// One connection.
#[derive(Debug)]
pub struct MemcacheClient {
    stream: BufReader<UnixStream>,
}

impl MemcacheClient {
    /// Connects; `None` while nobody listens.
    #[must_use]
    pub fn connect(socket: &Path) -> Option<Self> {
        let stream = UnixStream::connect(socket).ok()?;
        stream.set_read_timeout(Some(patience())).ok()?;
        stream.set_write_timeout(Some(patience())).ok()?;
        Some(Self { stream: BufReader::with_capacity(1 << 16, stream) })
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("the server replies in time");
        line.trim_end().to_owned()
    }

    /// Stores a value.
    ///
    /// # Panics
    /// When the server does not.
    pub fn set(&mut self, key: &str, value: &[u8]) {
        let mut request = format!("set {key} 0 0 {}\r\n", value.len()).into_bytes();
        request.extend_from_slice(value);
        request.extend_from_slice(b"\r\n");
        self.stream.get_mut().write_all(&request).expect("the server takes requests");
        let reply = self.line();
        assert_eq!(reply, "STORED", "{key} was not stored");
    }

    /// Fetches a value; `None` when the key is not there.
    ///
    /// # Panics
    /// When the server sends something else.
    pub fn get(&mut self, key: &str) -> Option<Vec<u8>> {
        self.stream
            .get_mut()
            .write_all(format!("get {key}\r\n").as_bytes())
            .expect("the server takes requests");
        let line = self.line();
        if line == "END" {
            return None;
        }
        let length: usize =
            line.strip_prefix(&format!("VALUE {key} 0 ")).and_then(|rest| rest.parse().ok()).expect(&line);
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes).expect("the server sends what it announced");
        bytes.truncate(length);
        assert_eq!(self.line(), "END");
        Some(bytes)
    }

    /// One of the server's own statistics.
    ///
    /// # Panics
    /// When there is none of that name.
    pub fn statistic(&mut self, name: &str) -> u64 {
        self.stream.get_mut().write_all(b"stats\r\n").expect("the server takes requests");
        let mut found = None;
        loop {
            let line = self.line();
            if line == "END" {
                return found.expect(name);
            }
            if let Some(rest) = line.strip_prefix(&format!("STAT {name} ")) {
                found = rest.parse().ok();
            }
        }
    }
}
