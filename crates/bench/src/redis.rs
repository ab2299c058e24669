//! Redis, and a client of it that looks at every byte.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use farmem_page::ByteCount;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use rand_distr::Zipf;

use crate::interrupt::Interrupt;

/// Bytes of a value, and what the server needs for it with its key.
const VALUE_BYTES: usize = 1024;
const ITEM_BYTES: u64 = 1200;
const PATIENCE: Duration = Duration::from_secs(60);
/// The kernel now and then ends a program at its control group's limit, though there is swap left.
const CLOSED: &str =
    "Redis has closed the connection: it was ended, if not by this benchmark then for want of memory";
const SEED: u64 = 0x7265_6469;
/// Exponent of popularity, the one that key-value benchmarks use.
const ZIPF_EXPONENT: f64 = 0.99;
/// Multiplied by it, popular keys are scattered.
const SCATTER: u64 = 2_654_435_761;
/// Keys that a scan asks for at a time.
const SCANNED_AT_ONCE: &str = "64";

/// Whether the server is installed.
///
/// # Errors
/// When it isn't.
pub(crate) fn available() -> Result<()> {
    let output = Command::new("redis-server").arg("--version").stdin(Stdio::null()).output();
    output.map(|_| ()).context("redis-server can't be started; install Redis")
}

/// What starts a server that keeps nothing on disk.
pub(crate) fn command(socket: &Path) -> Vec<OsString> {
    let words = ["redis-server", "--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"];
    words.into_iter().map(OsString::from).chain([socket.into()]).collect()
}

/// A request and what came of it.
pub(crate) struct Asked {
    /// When it was due, from the beginning.
    pub(crate) due: Duration,
    /// From then until it was answered.
    pub(crate) took: Duration,
    /// Whether the answer was what had been stored.
    pub(crate) is_right: bool,
}

/// A connection to a server that holds a known set of items.
pub(crate) struct Client {
    stream: BufReader<UnixStream>,
    random: SmallRng,
    items: u64,
}

impl Client {
    /// Connects as soon as the server listens.
    pub(crate) fn connect(socket: &Path) -> Result<Self> {
        let deadline = Instant::now() + PATIENCE;
        let stream = loop {
            match UnixStream::connect(socket) {
                Ok(stream) => break stream,
                Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(20)),
                Err(error) => return Err(error).context("Redis doesn't listen"),
            }
        };
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::new(stream), random: SmallRng::seed_from_u64(SEED), items: 0 })
    }

    /// Stores values until it holds so many bytes of them.
    pub(crate) fn load(&mut self, data: ByteCount, interrupt: &Interrupt) -> Result<()> {
        const AT_ONCE: u64 = 32;
        let wanted = (data.get() / ITEM_BYTES).max(1);
        while self.items < wanted {
            interrupt.check()?;
            let keys = self.items..(self.items + AT_ONCE).min(wanted);
            self.items = keys.end;
            self.store(keys)?;
        }
        Ok(())
    }

    fn store(&mut self, keys: Range<u64>) -> Result<()> {
        let mut request = Vec::new();
        for key in keys.clone() {
            write!(request, "*3\r\n$3\r\nSET\r\n$9\r\nk{key:08}\r\n${VALUE_BYTES}\r\n")?;
            request.extend_from_slice(&content(key));
            request.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&request)?;
        for _ in keys {
            let mut line = String::new();
            ensure!(self.stream.read_line(&mut line)? > 0, CLOSED);
            ensure!(line == "+OK\r\n", "Redis doesn't store: {line}");
        }
        Ok(())
    }

    /// Reads and writes values at random, as often the one as the other, the next one as soon as one is done;
    /// requests per second.
    ///
    /// # Errors
    /// Also when a value came back with other bytes than were stored.
    pub(crate) fn as_fast_as_it_can(&mut self, duration: Duration, interrupt: &Interrupt) -> Result<f64> {
        let began = Instant::now();
        let mut done = 0_u64;
        while began.elapsed() < duration {
            interrupt.check()?;
            let key = self.random.random_range(0..self.items);
            if self.random.random_bool(0.5) {
                ensure!(self.ask(key)?, "value {key} came back with other bytes than were stored");
            } else {
                self.store(key..key + 1)?;
            }
            done += 1;
        }
        Ok(done as f64 / began.elapsed().as_secs_f64())
    }

    /// Asks for values at random, `rate` times a second, until it is over. A request's time counts from when
    /// it was due, so that one that is held up is charged for those behind it.
    pub(crate) fn ask_at(&mut self, rate: f64, is_over: &AtomicBool) -> Result<Vec<Asked>> {
        let began = Instant::now();
        let mut all = Vec::new();
        while !is_over.load(Ordering::Acquire) {
            let due = Duration::from_secs_f64(all.len() as f64 / rate);
            thread::sleep(due.saturating_sub(began.elapsed()));
            let key = self.random.random_range(0..self.items);
            let is_right = self.ask(key)?;
            all.push(Asked { due, took: began.elapsed().saturating_sub(due), is_right });
        }
        Ok(all)
    }

    /// Asks for so many values, popular ones often (zipf 0.99), the next one as soon as one has come.
    ///
    /// # Errors
    /// Also when a value came back with other bytes than were stored.
    pub(crate) fn ask_by_popularity(&mut self, requests: u64, interrupt: &Interrupt) -> Result<()> {
        let ranks = Zipf::new(self.items as f64, ZIPF_EXPONENT)
            .map_err(|_| anyhow::anyhow!("the server holds nothing"))?;
        for _ in 0..requests {
            interrupt.check()?;
            let rank = self.random.sample(ranks) as u64 - 1;
            let key = rank.wrapping_mul(SCATTER) % self.items;
            ensure!(self.ask(key)?, "value {key} came back with other bytes than were stored");
        }
        Ok(())
    }

    /// Goes through all keys as the server lists them (`SCAN`), and asks for their values; how many it found.
    ///
    /// # Errors
    /// Also when a value came back with other bytes than were stored.
    pub(crate) fn scan(&mut self, interrupt: &Interrupt) -> Result<u64> {
        let mut cursor = b"0".to_vec();
        let mut found = 0;
        loop {
            interrupt.check()?;
            self.request(&[b"SCAN", &cursor, b"COUNT", SCANNED_AT_ONCE.as_bytes()])?;
            ensure!(self.length(b'*')? == 2, "Redis doesn't scan");
            cursor = self.bytes()?;
            let keys: Vec<Vec<u8>> = (0..self.length(b'*')?).map(|_| self.bytes()).collect::<Result<_>>()?;
            if !keys.is_empty() {
                let words: Vec<&[u8]> =
                    [&b"MGET"[..]].into_iter().chain(keys.iter().map(Vec::as_slice)).collect();
                self.request(&words)?;
                ensure!(self.length(b'*')? == keys.len(), "Redis doesn't answer for all keys");
            }
            for name in &keys {
                let number = name.strip_prefix(b"k").and_then(|digits| std::str::from_utf8(digits).ok());
                let key =
                    number.and_then(|digits| digits.parse().ok()).context("a key that wasn't stored")?;
                ensure!(self.bytes()? == content(key), "value {key} came back with other bytes");
                found += 1;
            }
            if cursor == b"0" {
                return Ok(found);
            }
        }
    }

    /// How many values it has stored.
    pub(crate) fn items(&self) -> u64 {
        self.items
    }

    /// Asks the server to end, which answers by closing the connection.
    pub(crate) fn end(mut self) -> Result<()> {
        self.request(&[b"SHUTDOWN", b"NOSAVE"])
    }

    fn request(&mut self, words: &[&[u8]]) -> Result<()> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            write!(request, "${}\r\n", word.len())?;
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        Ok(self.stream.get_mut().write_all(&request)?)
    }

    /// The number in a line of an answer that begins so.
    fn length(&mut self, kind: u8) -> Result<usize> {
        let mut line = String::new();
        ensure!(self.stream.read_line(&mut line)? > 0, CLOSED);
        let rest = line.strip_prefix(char::from(kind)).and_then(|rest| rest.trim_end().parse().ok());
        rest.with_context(|| format!("Redis answers otherwise: {}", line.trim_end()))
    }

    /// A string of an answer. No longer than what was stored, since nobody here stores more.
    fn bytes(&mut self) -> Result<Vec<u8>> {
        let length = self.length(b'$')?;
        ensure!(length <= VALUE_BYTES, "Redis answers with {length} bytes, more than were stored");
        let mut value = vec![0; length + 2];
        self.stream.read_exact(&mut value)?;
        value.truncate(length);
        Ok(value)
    }

    fn ask(&mut self, key: u64) -> Result<bool> {
        self.stream.get_mut().write_all(format!("*2\r\n$3\r\nGET\r\n$9\r\nk{key:08}\r\n").as_bytes())?;
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            bail!(CLOSED);
        }
        if line != format!("${VALUE_BYTES}\r\n") {
            return Ok(false);
        }
        let mut value = [0; VALUE_BYTES + 2];
        self.stream.read_exact(&mut value)?;
        Ok(value[..VALUE_BYTES] == content(key)[..])
    }
}

/// The value of a key: a page of them compresses to about half.
fn content(key: u64) -> Vec<u8> {
    let mut random = SmallRng::seed_from_u64(key);
    let mut value = Vec::with_capacity(VALUE_BYTES);
    while value.len() < VALUE_BYTES {
        value.extend_from_slice(&random.next_u64().to_le_bytes());
        value.extend_from_slice(&0x0101_0101_0101_0101_u64.to_le_bytes());
    }
    value
}
