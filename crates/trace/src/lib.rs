//! Traces of what happened to an application's pages: their file, what is in it, and what policies of
//! prefetching would have made of it.
//!
//! Recording is in `farmem-pager` (who writes), `farmem-telemetry` (the ring) and `farmem-supervisor` (from
//! the ring to the file). All here is a function of its input: the same trace gives the same figures on any
//! machine.
#![forbid(unsafe_code)]

mod course;
mod error;
mod file;
mod oracle;
mod replay;
mod summary;
mod varint;

pub use course::{Access, Course, Step, courses};
pub use error::TraceError;
pub use file::{TraceEntry, TraceHeader, TraceReader, TraceWriter};
pub use replay::{Figures, Replay, Row, replay};
pub use summary::{ProcessSummary, Summary, summarise};
