//! A report as records.

use super::{Figure, Report};
use crate::record::{Findings, Measurement};

impl Report {
    /// What it found.
    pub(crate) fn findings(&self) -> Findings {
        let measurement = |figure: &Figure| Measurement {
            case: figure.case.clone(),
            peer: figure.peer.clone(),
            measure: figure.measure,
            value: figure.value,
            unit: figure.unit,
            better: figure.better,
        };
        Findings {
            measurements: self.figures.iter().map(measurement).collect(),
            data_bytes: None,
            left_out: self.left_out.iter().map(|left| (left.what.clone(), left.reason.clone())).collect(),
        }
    }
}
