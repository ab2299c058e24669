//! A client of memcached that asks for one item after the other, changes some, and looks at every byte.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use hdrhistogram::Histogram;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::interrupt::Interrupt;

/// Bytes of a value.
const VALUE_BYTES: usize = 1024;
/// What the server needs for an item: its value, key and links, rounded up to a size class.
const ITEM_BYTES: u64 = 1184;
/// How long a server may take to listen, and to answer.
const PATIENCE: Duration = Duration::from_secs(60);
const SEED: u64 = 0x6d65_6d63;
const STORED: &[u8] = b"STORED\r\n";
/// Of the requests of [`Client::ask`], one of so many stores an item (Canvas, Table 2: 45 million reads and 5
/// million writes).
const REQUESTS_FOR_A_SET: u32 = 10;

/// A connection to a server that holds a known set of items.
pub(super) struct Client {
    stream: UnixStream,
    interrupt: Interrupt,
    random: SmallRng,
    items: u64,
    /// The items that are this connection's alone: this one, and then each so many further on.
    first: u64,
    step: u64,
    /// How often it has changed items, where it has.
    versions: HashMap<u64, u32>,
    received: Vec<u8>,
    expected: Vec<u8>,
}

/// What a measurement at a fixed rate showed.
#[derive(Clone, Debug)]
pub(super) struct Latencies {
    /// From when a request was due until its reply was complete, in nanoseconds.
    pub(super) times: Histogram<u64>,
}

impl Client {
    /// Connects to a server that has just been started, as soon as it listens.
    pub(super) fn connect(socket: &Path, interrupt: &Interrupt) -> anyhow::Result<Self> {
        let deadline = Instant::now() + PATIENCE;
        let stream = loop {
            interrupt.check()?;
            match UnixStream::connect(socket) {
                Ok(stream) => break stream,
                Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(20)),
                Err(error) => return Err(error).context("the server doesn't listen"),
            }
        };
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream,
            interrupt: interrupt.clone(),
            random: SmallRng::seed_from_u64(SEED),
            items: 0,
            first: 0,
            step: 1,
            versions: HashMap::new(),
            received: Vec::new(),
            expected: Vec::new(),
        })
    }

    /// Fills the server with `data` bytes of items.
    pub(super) fn load(&mut self, data: u64) -> anyhow::Result<()> {
        const AT_ONCE: u64 = 64;
        self.items = items(data);
        let mut value = Vec::new();
        for first in (0..self.items).step_by(AT_ONCE as usize) {
            self.interrupt.check()?;
            let end = (first + AT_ONCE).min(self.items);
            let mut request = Vec::new();
            for key in first..end {
                append_set(&mut request, key, 0, &mut value)?;
            }
            self.stream.write_all(&request)?;
            let mut reply = vec![0; STORED.len() * (end - first) as usize];
            self.stream.read_exact(&mut reply)?;
            ensure!(reply.chunks(STORED.len()).all(|word| word == STORED), "the server didn't store an item");
        }
        Ok(())
    }

    /// Asks for items at random, the next one as soon as one has come; replies per second.
    pub(super) fn as_fast_as_it_can(&mut self, duration: Duration) -> anyhow::Result<f64> {
        self.stream.set_nonblocking(false)?;
        let began = Instant::now();
        let mut replies = 0_u64;
        while began.elapsed() < duration {
            self.ask_once()?;
            replies += 1;
        }
        Ok(replies as f64 / began.elapsed().as_secs_f64())
    }

    /// As many connections to the same server, this one among them. Each has items of its own, and so knows
    /// what it stored last.
    pub(super) fn divide(mut self, socket: &Path, connections: u64) -> anyhow::Result<Vec<Self>> {
        self.step = connections;
        let (items, interrupt) = (self.items, self.interrupt.clone());
        let mut all = vec![self];
        for first in 1..connections.min(items) {
            let random = SmallRng::seed_from_u64(SEED + first);
            let other = Self::connect(socket, &interrupt)?;
            all.push(Self { random, items, first, step: connections, ..other });
        }
        Ok(all)
    }

    /// Makes so many requests for items at random, the next one as soon as one is answered: most read, some
    /// write.
    pub(super) fn ask(&mut self, count: u64) -> anyhow::Result<()> {
        self.stream.set_nonblocking(false)?;
        (0..count).try_for_each(|_| match self.random.random_ratio(1, REQUESTS_FOR_A_SET) {
            true => self.store_once(),
            false => self.ask_once(),
        })
    }

    fn any_key(&mut self) -> u64 {
        let own = (self.items - self.first).div_ceil(self.step);
        self.first + self.step * self.random.random_range(0..own)
    }

    /// Stores an item with other content than it had.
    fn store_once(&mut self) -> anyhow::Result<()> {
        self.interrupt.check()?;
        let key = self.any_key();
        let version = self.versions.entry(key).or_default();
        *version += 1;
        let mut request = Vec::new();
        append_set(&mut request, key, *version, &mut self.expected)?;
        self.stream.write_all(&request)?;
        while self.received.len() < STORED.len() {
            self.receive()?;
        }
        ensure!(self.received == STORED, "the server didn't store item {key}");
        self.received.clear();
        Ok(())
    }

    fn ask_once(&mut self) -> anyhow::Result<()> {
        self.interrupt.check()?;
        let key = self.any_key();
        self.stream.write_all(format!("get k{key:08}\r\n").as_bytes())?;
        while !self.take_reply(key)? {
            self.receive()?;
        }
        Ok(())
    }

    /// Asks for items at random, `rate` times a second whether or not the server keeps up. A request's time
    /// counts from when it was due, so that a server that stands still is charged for all who would have
    /// asked meanwhile.
    pub(super) fn at_rate(&mut self, rate: f64, duration: Duration) -> anyhow::Result<Latencies> {
        self.stream.set_nonblocking(true)?;
        let count = (rate * duration.as_secs_f64()) as u64;
        let mut times = Histogram::new_with_bounds(1000, 120_000_000_000, 3)?;
        let mut waiting: VecDeque<(u64, Instant)> = VecDeque::new();
        let mut unsent: Vec<u8> = Vec::new();
        let began = Instant::now();
        let deadline = began + duration + PATIENCE;
        let due = |request: u64| began + Duration::from_secs_f64(request as f64 / rate);
        let mut asked = 0;
        while asked < count || !waiting.is_empty() {
            self.interrupt.check()?;
            let now = Instant::now();
            if now > deadline {
                bail!("the server stopped answering");
            }
            while asked < count && due(asked) <= now {
                let key = self.any_key();
                write!(unsent, "get k{key:08}\r\n")?;
                waiting.push_back((key, due(asked)));
                asked += 1;
            }
            self.send(&mut unsent)?;
            let until = if asked < count { due(asked) } else { deadline };
            self.wait(until.saturating_duration_since(Instant::now()), !unsent.is_empty())?;
            if !self.receive()? {
                continue;
            }
            while let Some(&(key, due)) = waiting.front() {
                if !self.take_reply(key)? {
                    break;
                }
                waiting.pop_front();
                times.saturating_record(due.elapsed().as_nanos() as u64);
            }
        }
        Ok(Latencies { times })
    }

    fn send(&mut self, unsent: &mut Vec<u8>) -> anyhow::Result<()> {
        while !unsent.is_empty() {
            match self.stream.write(unsent) {
                Ok(sent) => drop(unsent.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn wait(&self, time: Duration, to_send: bool) -> anyhow::Result<()> {
        let events = if to_send { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut set = [PollFd::new(&self.stream, events)];
        let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        poll(&mut set, Some(&time))?;
        Ok(())
    }

    /// Reads what has come. `false` when that is nothing.
    fn receive(&mut self) -> anyhow::Result<bool> {
        let mut part = [0; 1 << 16];
        match self.stream.read(&mut part) {
            Ok(0) => bail!("the server closed the connection"),
            Ok(count) => {
                self.received.extend_from_slice(&part[..count]);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes the reply for `key` from what has come. `false` when it isn't complete yet.
    fn take_reply(&mut self, key: u64) -> anyhow::Result<bool> {
        const HEAD: usize = "VALUE k00000000 0 1024\r\n".len();
        const TAIL: &[u8] = b"\r\nEND\r\n";
        const REPLY: usize = HEAD + VALUE_BYTES + TAIL.len();
        if self.received.starts_with(b"END\r\n") {
            bail!("the server lost item {key}");
        }
        if self.received.len() < REPLY {
            return Ok(false);
        }
        content(key, self.versions.get(&key).copied().unwrap_or(0), &mut self.expected);
        let (head, rest) = self.received[..REPLY].split_at(HEAD);
        let (value, tail) = rest.split_at(VALUE_BYTES);
        let is_right = head == format!("VALUE k{key:08} 0 {VALUE_BYTES}\r\n").as_bytes()
            && value == self.expected
            && tail == TAIL;
        ensure!(is_right, "item {key} came back with other bytes than were stored");
        self.received.drain(..REPLY);
        Ok(true)
    }
}

/// How many items take so many bytes.
pub(super) fn items(bytes: u64) -> u64 {
    (bytes / ITEM_BYTES).max(1)
}

/// Puts a request to store an item at the end of others. `value` is overwritten.
fn append_set(requests: &mut Vec<u8>, key: u64, version: u32, value: &mut Vec<u8>) -> anyhow::Result<()> {
    content(key, version, value);
    write!(requests, "set k{key:08} 0 0 {VALUE_BYTES}\r\n")?;
    requests.extend_from_slice(value);
    requests.extend_from_slice(b"\r\n");
    Ok(())
}

/// The value of an item after so many changes: a page of them compresses to about half.
fn content(key: u64, version: u32, value: &mut Vec<u8>) {
    let mut random = SmallRng::seed_from_u64(key | u64::from(version) << 32);
    value.clear();
    while value.len() < VALUE_BYTES {
        value.extend_from_slice(&(random.next_u64() & 0xff_ffff_ffff).to_le_bytes());
        value.extend_from_slice(&0x0101_0101_0101_0101_u64.to_le_bytes());
    }
}
