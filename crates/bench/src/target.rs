//! A figure that is to be reached, and whether it was.

use std::fmt;

use serde::Serialize;

/// A target and what was measured.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Target {
    /// What is compared.
    pub name: String,
    /// At most this.
    pub at_most: f64,
    /// `None` when something needed for it was not measured.
    pub measured: Option<f64>,
    /// Whether it was reached; `None` when not measured.
    pub passed: Option<bool>,
    /// Whether Farmem kept more local than its budget and what it may have besides. A time reached so doesn't count.
    pub over_budget: bool,
}

impl Target {
    pub(crate) fn new(name: impl Into<String>, at_most: f64, measured: Option<f64>) -> Self {
        Self {
            name: name.into(),
            at_most,
            measured,
            passed: measured.map(|measured| measured <= at_most),
            over_budget: false,
        }
    }

    /// The same target, not reached if `over_budget`.
    pub(crate) fn counted_unless(self, over_budget: bool) -> Self {
        Self { passed: self.passed.map(|passed| passed && !over_budget), over_budget, ..self }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.passed {
            Some(true) => "pass",
            Some(false) if self.over_budget => "falls short: it kept more local than its budget",
            Some(false) => "falls short",
            None => "not measured",
        };
        let measured = self.measured.map_or_else(|| "-".to_owned(), |measured| format!("{measured:.2}"));
        write!(f, "{:<56} {measured:>6}  at most {:<5} {verdict}", self.name, self.at_most)
    }
}
