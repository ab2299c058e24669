//! What a client gets of a node: pages one at a time, and as many bytes as go.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use farmem_broker::link_schedule::{Gate, Pass, Turn};
use farmem_policy::links::timeliness::is_too_late;
use farmem_policy::links::{Class, Latency};
use farmem_transport::{
    Answer, ClientIdentity, Completion, Destination, FRAME_BYTES, Frame, Order, Request, Security, Ticket,
    Transport, connect,
};
use hdrhistogram::Histogram;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::end::End;

/// Longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(30);
/// Chunks that a client has: 16 MiB.
const CHUNKS: u16 = 64;
/// Memory that a client has of its node.
pub(super) const CLIENT_BYTES: u64 = CHUNKS as u64 * Order::SLAB.bytes() as u64;
/// Pages that one read brings, where neighbours are read ahead.
const SPAN_PAGES: usize = 16;
const SPAN_BYTES: usize = SPAN_PAGES * FRAME_BYTES;
/// Requests that are under way at a time, where as many bytes as possible shall go: 4 MiB of writes, 2 MiB of
/// reads.
const WRITES: usize = 16;
const READS: usize = 32;

/// Reads, all of one size, whatever their class: the product doesn't make those that nobody waits for
/// smaller, either.
#[derive(Clone, Copy)]
pub(super) struct Course {
    pub(super) class: Class,
    /// Pages of each read.
    pub(super) pages: usize,
    /// How many are under way or wait for their turn.
    pub(super) wanted: usize,
    /// What would come later than so long after it was wanted is dropped while it waits for its turn.
    pub(super) useful: Option<Duration>,
    pub(super) time: Duration,
}

/// What came of them.
pub(super) struct Read {
    pub(super) bytes: u64,
    /// Reads that were dropped.
    pub(super) dropped: u64,
    /// From the moment when each was wanted.
    pub(super) nanoseconds: Histogram<u64>,
}

/// Longest latency that is told from longer ones, in nanoseconds.
const LONGEST_NS: u64 = 60_000_000_000;
/// Between two looks whether a turn has come, while answers are waited for.
const LOOK: Duration = Duration::from_micros(250);

/// A client with chunks of a node, each frame of which begins with its number.
pub(super) struct Client {
    link: Box<dyn Transport>,
    chunks: Vec<Frame>,
    ticket: u64,
    random: SmallRng,
    /// Buffers that no request has.
    pages: Vec<u8>,
    slabs: Vec<Vec<u8>>,
    spans: Vec<Vec<u8>>,
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Client {
    /// Connects, and writes to all that it is granted. `number` tells clients of one node apart.
    pub(super) fn connect(to: &Destination, security: &Security, number: u64) -> Result<Self> {
        let mut random = SmallRng::seed_from_u64(number);
        let identity = ClientIdentity { space: random.random(), lane: 0 };
        let mut client = Self {
            link: connect(to, identity, security, PATIENCE)?,
            chunks: Vec::new(),
            ticket: 0,
            random,
            pages: Vec::new(),
            slabs: vec![vec![0; Order::SLAB.bytes()]; WRITES],
            spans: vec![Vec::new(); READS],
        };
        client.submit(Request::Grant { order: Order::SLAB, count: CHUNKS })?;
        let answer = client.next()?.result;
        let Ok(Answer::Granted(chunks)) = answer else { bail!("the node grants nothing: {answer:?}") };
        ensure!(chunks.len() == usize::from(CHUNKS), "the node has too little memory");
        client.chunks = chunks;
        client.send(CLIENT_BYTES as usize)?;
        Ok(client)
    }

    fn submit(&mut self, request: Request) -> Result<()> {
        self.ticket += 1;
        Ok(self.link.submit(Ticket(self.ticket), request, Instant::now() + PATIENCE)?)
    }

    /// Reads for a while: each read in its turn at the gate, or, without one, as soon as it is wanted.
    pub(super) fn read_by(&mut self, gate: Option<&Arc<Gate>>, course: Course) -> Result<Read> {
        let bytes = (course.pages * FRAME_BYTES) as u64;
        let mut read = Read { bytes: 0, dropped: 0, nanoseconds: Histogram::new_with_max(LONGEST_NS, 3)? };
        let (useful_ns, mut took) = (course.useful.map(nanoseconds), Latency::default());
        let mut turns: VecDeque<(Option<Turn>, Instant)> = VecDeque::new();
        let mut passes: HashMap<u64, (Option<Pass>, Instant, Instant)> = HashMap::new();
        let (began, mut done) = (Instant::now(), Vec::new());
        loop {
            let is_over = began.elapsed() >= course.time;
            while !is_over && turns.len() + passes.len() < course.wanted {
                turns.push_back((gate.map(|gate| gate.turn(course.class, bytes)), Instant::now()));
            }
            if is_over {
                turns.clear();
            }
            let before = turns.len();
            turns.retain(|(_, wanted)| !is_too_late(useful_ns, nanoseconds(wanted.elapsed()), &took));
            read.dropped += (before - turns.len()) as u64;
            let bell = gate.map(|gate| (gate, gate.bell()));
            while let Some((turn, wanted)) = turns.front_mut() {
                let (Ok(pass), wanted) = (turn.as_mut().map(Turn::take).transpose(), *wanted) else { break };
                turns.pop_front();
                let request = Request::Read {
                    at: self.any(course.pages).offset(),
                    length_bytes: bytes as u32,
                    buffer: self.spans.pop().unwrap_or_default(),
                };
                self.submit(request)?;
                passes.insert(self.ticket, (pass, wanted, Instant::now()));
            }
            if passes.is_empty() {
                if is_over {
                    return Ok(read);
                }
                if let Some((gate, bell)) = bell {
                    gate.sleep(bell, LOOK);
                }
                continue;
            }
            self.link.complete(&mut done, if turns.is_empty() { PATIENCE } else { LOOK })?;
            for completion in done.drain(..) {
                if let Some((pass, wanted, sent)) = passes.remove(&completion.ticket.0) {
                    if let Some(pass) = pass {
                        pass.finish();
                    }
                    took.note(nanoseconds(sent.elapsed()));
                    read.nanoseconds.saturating_record(nanoseconds(wanted.elapsed()));
                }
                let buffer = pages_of(completion)?;
                if !is_over {
                    read.bytes += buffer.len() as u64;
                }
                self.spans.push(buffer);
            }
        }
    }

    /// Waits for the only request that is under way.
    fn next(&mut self) -> Result<Completion> {
        let mut done = Vec::new();
        loop {
            self.link.complete(&mut done, PATIENCE)?;
            if let Some(completion) = done.pop() {
                return Ok(completion);
            }
        }
    }

    /// The first of so many neighbours.
    fn any(&mut self, neighbours: usize) -> Frame {
        let chunk = self.chunks[self.random.random_range(0..self.chunks.len())];
        let spans = Order::SLAB.frames() as usize / neighbours;
        Frame::new(chunk.get() + (self.random.random_range(0..spans) * neighbours) as u32)
    }
}

impl End for Client {
    fn fetch(&mut self) -> Result<Duration> {
        let (at, buffer) = (self.any(1).offset(), std::mem::take(&mut self.pages));
        let began = Instant::now();
        self.submit(Request::Read { at, length_bytes: FRAME_BYTES as u32, buffer })?;
        let done = self.next()?;
        let took = began.elapsed();
        self.pages = pages_of(done)?;
        Ok(took)
    }

    /// By writes of whole chunks.
    fn send(&mut self, bytes: usize) -> Result<()> {
        let (mut left, mut done) = (bytes / Order::SLAB.bytes(), Vec::new());
        loop {
            while left > 0
                && let Some(mut data) = self.slabs.pop()
            {
                left -= 1;
                let chunk = self.chunks[left % self.chunks.len()];
                for (page, number) in data.chunks_exact_mut(FRAME_BYTES).zip(chunk.get()..) {
                    page[..4].copy_from_slice(&number.to_le_bytes());
                }
                self.submit(Request::Write { at: chunk.offset(), data })?;
            }
            if self.link.pending() == 0 {
                return Ok(());
            }
            self.link.complete(&mut done, PATIENCE)?;
            for Completion { request, result, .. } in done.drain(..) {
                let (Request::Write { data, .. }, Ok(Answer::Written)) = (request, &result) else {
                    bail!("a write came to {result:?}")
                };
                self.slabs.push(data);
            }
        }
    }

    /// By reads of spans of neighbours.
    fn receive(&mut self, bytes: usize) -> Result<()> {
        let (mut left, mut done) = (bytes / SPAN_BYTES, Vec::new());
        loop {
            while left > 0
                && let Some(buffer) = self.spans.pop()
            {
                left -= 1;
                let at = self.any(SPAN_PAGES).offset();
                self.submit(Request::Read { at, length_bytes: SPAN_BYTES as u32, buffer })?;
            }
            if self.link.pending() == 0 {
                return Ok(());
            }
            self.link.complete(&mut done, PATIENCE)?;
            for completion in done.drain(..) {
                self.spans.push(pages_of(completion)?);
            }
        }
    }
}

impl Drop for Client {
    /// Gives everything back: the next client of the node needs it.
    fn drop(&mut self) {
        // A thread that can't be told has ended.
        let _ = self.submit(Request::Leave).and_then(|()| self.next());
    }
}

/// The buffer of a read, with the pages in it that were asked for.
fn pages_of(done: Completion) -> Result<Vec<u8>> {
    let (Request::Read { at, length_bytes, buffer }, Ok(Answer::Read)) = (done.request, &done.result) else {
        bail!("a read came to {:?}", done.result)
    };
    ensure!(buffer.len() == length_bytes as usize, "a read brought less than it should");
    for (page, number) in buffer.chunks_exact(FRAME_BYTES).zip(at.get() / FRAME_BYTES as u64..) {
        ensure!(page[..4] == (number as u32).to_le_bytes(), "a page holds what belongs to another one");
    }
    Ok(buffer)
}
