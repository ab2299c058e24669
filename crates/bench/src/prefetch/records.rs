//! A report as records.

use super::report::{Figure, Report};
use crate::record::{Findings, Measurement};

impl Report {
    /// What it found.
    pub(crate) fn findings(&self) -> Findings {
        let measurements = |figure: &Figure| {
            let (case, peer) = (figure.program.as_str(), figure.policy);
            let share = figure.share_of_oracle;
            let mut found = vec![
                Measurement::less(case, peer, "run time", figure.seconds, "s"),
                Measurement::more(case, peer, "contribution", figure.contribution * 100.0, "%"),
                Measurement::more(case, peer, "accuracy", figure.accuracy * 100.0, "%"),
            ];
            found.push(Measurement::less(case, peer, "deciding", figure.deciding_share * 100.0, "%"));
            let more = figure.processor_beyond_none;
            found.extend(
                more.map(|more| Measurement::less(case, peer, "processor time more", more * 100.0, "%")),
            );
            found.extend(
                share.map(|share| Measurement::more(case, peer, "share of the oracle", share * 100.0, "%")),
            );
            found
        };
        let left_out = self.left_out.iter().map(|(what, reason)| (what.clone(), reason.clone()));
        Findings {
            measurements: self.figures.iter().flat_map(measurements).collect(),
            data_bytes: None,
            left_out: left_out.collect(),
        }
    }
}
