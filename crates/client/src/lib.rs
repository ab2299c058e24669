//! Running applications, seen from outside: how their supervisors are found ([`applications`]), what can be
//! asked of them, and what they tell ([`Report`]).
//!
//! Reports are data: the supervisor fills them in, and whoever asks gets them as JSON. What they mean, in
//! rates, causes and sentences, is worked out here, so that all who show it say the same.
#![forbid(unsafe_code)]

mod ask;
mod report;

pub use ask::directory::{
    Own, PREFIX as SOCKET_PREFIX, SetError, all, applications, detach, find, holder, is_any_running,
    processes, query, regions, set,
};
pub use ask::limits::{Limits, PoolRange, to_slabs, to_whole_pages};
pub use ask::resizing::{Resized, grow, shrink};
pub use ask::size::Size;
pub use report::by_class::ByClass;
pub use report::explanation::{Cause, Explanation, Part};
pub use report::figures::{FIGURES, Figure, FigureUnit, FigureValue};
pub use report::inside::{ProcessReport, RegionReport, RegionsReport};
pub use report::managed_by::ManagedBy;
pub use report::rates::Rates;
pub use report::run::{LostPage, Report};
pub use report::troubles::troubles;
