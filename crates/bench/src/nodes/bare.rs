//! What a connection can do where nothing but the connection is in the way: at its other end a thread answers
//! a request with as many bytes as a page's answer has, and sends or takes as much as it is told.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use farmem_transport::FRAME_BYTES;
use farmem_transport::wire::HEADER_BYTES;
use rustix::thread::Pid;

use super::apart;
use super::end::End;

const ANSWER_BYTES: usize = HEADER_BYTES + FRAME_BYTES;
const PORTION_BYTES: usize = 256 << 10;

/// What the other end is asked for. A request has the size of one to a node.
#[derive(Clone, Copy)]
enum Order {
    Answer,
    /// Takes so many bytes, and says one when it has them.
    Take(u64),
    Give(u64),
}

impl Order {
    fn encode(self) -> [u8; HEADER_BYTES] {
        let (kind, count) = match self {
            Self::Answer => (0, 0),
            Self::Take(count) => (1, count),
            Self::Give(count) => (2, count),
        };
        let mut bytes = [kind; HEADER_BYTES];
        bytes[..8].copy_from_slice(&count.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; HEADER_BYTES]) -> Self {
        let (count, rest) = bytes.split_first_chunk().expect("a header is longer than a count");
        let count = u64::from_le_bytes(*count);
        match rest[0] {
            0 => Self::Answer,
            1 => Self::Take(count),
            _ => Self::Give(count),
        }
    }
}

/// A connection that blocks.
pub(super) trait Wire: Read + Write + Send {}
impl<T: Read + Write + Send> Wire for T {}

/// One end of a bare connection.
pub(super) struct Bare {
    wire: Box<dyn Wire>,
    buffer: Vec<u8>,
    far: Pid,
}

impl Bare {
    /// One whose other end is `far`; a thread serves that until this end is dropped.
    pub(super) fn new(wire: impl Wire + 'static, far: impl Wire + 'static) -> Result<Self> {
        // It ends with an error when this end hangs up.
        let (far, _) = apart::start(move || serve(far))?;
        Ok(Self { wire: Box::new(wire), buffer: vec![0; PORTION_BYTES], far })
    }

    /// The thread at the other end.
    pub(super) fn far(&self) -> Pid {
        self.far
    }
}

impl End for Bare {
    fn fetch(&mut self) -> Result<Duration> {
        let began = Instant::now();
        self.wire.write_all(&Order::Answer.encode())?;
        self.wire.read_exact(&mut self.buffer[..ANSWER_BYTES]).context("no answer came")?;
        Ok(began.elapsed())
    }

    fn send(&mut self, bytes: usize) -> Result<()> {
        self.wire.write_all(&Order::Take(bytes as u64).encode())?;
        give(&mut self.wire, &self.buffer, bytes)?;
        Ok(self.wire.read_exact(&mut self.buffer[..1])?)
    }

    fn receive(&mut self, bytes: usize) -> Result<()> {
        self.wire.write_all(&Order::Give(bytes as u64).encode())?;
        take(&mut self.wire, &mut self.buffer, bytes)
    }
}

fn serve(mut wire: impl Wire) -> Result<()> {
    let mut buffer = vec![0; PORTION_BYTES];
    loop {
        let mut order = [0; HEADER_BYTES];
        wire.read_exact(&mut order)?;
        match Order::decode(&order) {
            Order::Answer => wire.write_all(&buffer[..ANSWER_BYTES])?,
            Order::Take(count) => {
                take(&mut wire, &mut buffer, count as usize)?;
                wire.write_all(&buffer[..1])?;
            }
            Order::Give(count) => give(&mut wire, &buffer, count as usize)?,
        }
    }
}

fn give(wire: &mut impl Write, buffer: &[u8], mut bytes: usize) -> Result<()> {
    while bytes > 0 {
        let part = bytes.min(buffer.len());
        wire.write_all(&buffer[..part])?;
        bytes -= part;
    }
    Ok(())
}

fn take(wire: &mut impl Read, buffer: &mut [u8], mut bytes: usize) -> Result<()> {
    while bytes > 0 {
        let part = bytes.min(buffer.len());
        wire.read_exact(&mut buffer[..part])?;
        bytes -= part;
    }
    Ok(())
}
