//! A trace's file: see `docs/formats/trace.md`.

use std::collections::HashMap;
use std::io::{self, Read, Write};

use farmem_page::{PageCount, PageIndex};
use farmem_policy::PrefetchPolicy;
use farmem_telemetry::{TraceKind, TraceRecord};

use crate::error::TraceError;
use crate::varint;

const MAGIC: [u8; 8] = *b"FARMTRAC";
pub(crate) const VERSION: u32 = 1;

const KIND_BITS: u8 = 0x0f;
/// The process is that of the record before.
const SAME_SLOT: u8 = 0x10;
/// The detail is that of this process's last record of this kind.
const SAME_DETAIL: u8 = 0x20;
/// Instead of a kind: records that were lost, a number follows.
const LOST: u8 = 0x0e;
/// Instead of a kind: the end, nothing follows. A trace without it was not finished.
const END: u8 = 0x0f;

/// What stands before the records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceHeader {
    /// The application's budget when it started.
    pub budget: PageCount,
    /// What decided which pages were fetched ahead while it was recorded.
    pub policy: PrefetchPolicy,
}

/// What follows, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceEntry {
    /// A record.
    Record(TraceRecord),
    /// So many records are missing here.
    Lost(u64),
    /// The recording was finished here.
    End,
}

/// What records are told relative to.
#[derive(Debug, Default)]
struct Context {
    slot: u16,
    time_ns: u64,
    pages: HashMap<u16, u64>,
    details: HashMap<(u16, u8), u32>,
}

impl Context {
    fn page(&mut self, slot: u16) -> &mut u64 {
        self.pages.entry(slot).or_default()
    }

    fn detail(&mut self, slot: u16, kind: TraceKind) -> &mut u32 {
        self.details.entry((slot, kind as u8)).or_default()
    }
}

/// Writes a trace.
#[derive(Debug)]
pub struct TraceWriter<W: Write> {
    to: W,
    context: Context,
}

impl<W: Write> TraceWriter<W> {
    /// Begins one.
    ///
    /// # Errors
    /// It can't be written.
    pub fn new(mut to: W, header: &TraceHeader) -> io::Result<Self> {
        to.write_all(&MAGIC)?;
        to.write_all(&VERSION.to_le_bytes())?;
        to.write_all(&(header.policy as u32).to_le_bytes())?;
        to.write_all(&header.budget.get().to_le_bytes())?;
        Ok(Self { to, context: Context::default() })
    }

    /// Adds a record.
    ///
    /// # Errors
    /// It can't be written; then the rest of the trace can't be read.
    pub fn record(&mut self, record: &TraceRecord) -> io::Result<()> {
        let context = &mut self.context;
        let is_same_slot = context.slot == record.slot;
        let is_same_detail = *context.detail(record.slot, record.kind) == record.detail;
        let head = record.kind as u8
            | if is_same_slot { SAME_SLOT } else { 0 }
            | if is_same_detail { SAME_DETAIL } else { 0 };
        self.to.write_all(&[head])?;
        if !is_same_slot {
            varint::write(&mut self.to, record.slot.into())?;
        }
        let page = std::mem::replace(context.page(record.slot), record.page.get());
        varint::write_signed(&mut self.to, record.page.get().wrapping_sub(page) as i64)?;
        varint::write_signed(&mut self.to, record.time_ns.wrapping_sub(context.time_ns) as i64)?;
        if !is_same_detail {
            varint::write(&mut self.to, record.detail.into())?;
        }
        *context.detail(record.slot, record.kind) = record.detail;
        (context.slot, context.time_ns) = (record.slot, record.time_ns);
        Ok(())
    }

    /// Says that so many records are missing.
    ///
    /// # Errors
    /// It can't be written.
    pub fn lost(&mut self, count: u64) -> io::Result<()> {
        self.to.write_all(&[LOST])?;
        varint::write(&mut self.to, count)
    }

    /// Hands on what was written so far.
    ///
    /// # Errors
    /// It can't be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// It can't be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.to.write_all(&[END])?;
        self.to.flush()?;
        Ok(self.to)
    }
}

/// Counts what was read of it.
#[derive(Debug)]
struct Counted<R> {
    from: R,
    bytes: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer)?;
        self.bytes += count as u64;
        Ok(count)
    }
}

/// Reads a trace: an iterator over its entries, which ends with the file or the first error.
#[derive(Debug)]
pub struct TraceReader<R: Read> {
    from: Counted<R>,
    header: TraceHeader,
    context: Context,
    has_ended: bool,
}

impl<R: Read> TraceReader<R> {
    /// Begins to read one.
    ///
    /// # Errors
    /// It can't be read, or is no trace of this version.
    pub fn new(from: R) -> Result<Self, TraceError> {
        let mut from = Counted { from, bytes: 0 };
        let mut start = [0; 24];
        from.read_exact(&mut start).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => TraceError::NoTrace,
            _ => TraceError::Io(error),
        })?;
        let word = |at: usize| u32::from_le_bytes([start[at], start[at + 1], start[at + 2], start[at + 3]]);
        if start[..8] != MAGIC {
            return Err(TraceError::NoTrace);
        }
        if word(8) != VERSION {
            return Err(TraceError::Version(word(8)));
        }
        let header = TraceHeader {
            budget: PageCount::new(u64::from(word(16)) | u64::from(word(20)) << 32),
            policy: PrefetchPolicy::from_number(word(12).into()),
        };
        Ok(Self { from, header, context: Context::default(), has_ended: false })
    }

    /// What stands before the records.
    pub fn header(&self) -> TraceHeader {
        self.header
    }

    /// The next entry; `None` at the end of the file.
    fn entry(&mut self) -> Result<Option<TraceEntry>, TraceError> {
        let start = self.from.bytes;
        let mut head = [0];
        if self.from.read(&mut head)? == 0 {
            return Ok(None);
        }
        self.rest(head[0]).map(Some).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => TraceError::Damaged(start),
            // Cut off within a record: what was written before is whole.
            _ => TraceError::Io(error),
        })
    }

    fn rest(&mut self, head: u8) -> io::Result<TraceEntry> {
        match head & KIND_BITS {
            END => return Ok(TraceEntry::End),
            LOST => return Ok(TraceEntry::Lost(varint::read(&mut self.from)?)),
            _ => {}
        }
        let damaged = || io::Error::from(io::ErrorKind::InvalidData);
        let kind = TraceKind::from_number(head & KIND_BITS).ok_or_else(damaged)?;
        let slot = match head & SAME_SLOT {
            0 => u16::try_from(varint::read(&mut self.from)?).map_err(|_| damaged())?,
            _ => self.context.slot,
        };
        let page = varint::read_signed(&mut self.from)?;
        let time = varint::read_signed(&mut self.from)?;
        let detail = match head & SAME_DETAIL {
            0 => u32::try_from(varint::read(&mut self.from)?).map_err(|_| damaged())?,
            _ => *self.context.detail(slot, kind),
        };
        let page = self.context.page(slot).wrapping_add_signed(page);
        let time_ns = self.context.time_ns.wrapping_add_signed(time);
        *self.context.page(slot) = page;
        *self.context.detail(slot, kind) = detail;
        (self.context.slot, self.context.time_ns) = (slot, time_ns);
        // Addresses have fewer bits; beyond them sums of pages could overflow.
        if page >= 1 << 52 {
            return Err(damaged());
        }
        Ok(TraceEntry::Record(TraceRecord { kind, slot, page: PageIndex::new(page), detail, time_ns }))
    }
}

impl<R: Read> Iterator for TraceReader<R> {
    type Item = Result<TraceEntry, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let entry = match self.entry() {
            // The last record of a recording that was cut off is half there; those before it are good.
            Err(TraceError::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof => None,
            entry => entry.transpose(),
        };
        self.has_ended = !matches!(entry, Some(Ok(TraceEntry::Record(_) | TraceEntry::Lost(_))));
        entry
    }
}
