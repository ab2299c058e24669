//! A report as records.

use super::Report;
use crate::record::{Findings, Measurement};

/// The part that measures itself.
const MACHINE: &str = "machine";

impl Report {
    /// What it found.
    pub(crate) fn findings(&self) -> Findings {
        let measurement = |figure: &super::Figure| {
            Measurement::less(figure.primitive, MACHINE, "time", figure.microseconds, "µs")
        };
        let left_out = |one: &super::LeftOut| (one.primitive.to_owned(), one.reason.clone());
        Findings {
            measurements: self.figures.iter().map(measurement).collect(),
            data_bytes: None,
            left_out: self.left_out.iter().map(left_out).collect(),
        }
    }
}
