//! The ledger: what an application's processes and their supervisor tell each other, in one piece of shared
//! memory.
//!
//! Pure views over slices of atomics: whoever maps the memory hands the slice in. Every figure is described
//! once, here, with its meaning; JSON, screens and metrics are made from these descriptions. All words are
//! written by one process at a time and read by everyone; a reader may see figures of different moments.
#![no_std]
#![forbid(unsafe_code)]

mod counter;
mod failure;
mod histogram;
mod ledger;
mod region_report;
mod trace;

pub use counter::{COUNTERS, Counter, Kind};
pub use failure::{Failure, Refusal, Step};
pub use histogram::{BUCKETS, Histogram, bucket_ceiling_ns, bucket_of};
pub use ledger::{
    Header, LEDGER_BYTES, LOST_NAMED, Ledger, LostPage, MAX_HANDLERS, MAX_PROCESSES, ProcessSlot,
    RETURN_BUCKETS, Rest, SlotState,
};
pub use region_report::{
    ABSENCE_ENDS, ABSENCE_SPANS, Gathered, REPORTED_REGIONS, RegionFigures, RegionReport,
};
pub use trace::{TRACE_RECORDS, TraceKind, TraceReader, TraceRecord, TraceRing};
