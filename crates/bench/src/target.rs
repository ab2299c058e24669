//! A figure that is to be reached, and whether it was.

use std::fmt;

use serde::Serialize;

/// What a figure must not miss.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
}

/// A target and what was measured.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Target {
    /// What is compared.
    pub name: String,
    /// The limit.
    #[serde(flatten)]
    pub limit: Limit,
    /// `None` when something needed for it was not measured.
    pub measured: Option<f64>,
    /// Whether it was reached; `None` when not measured.
    pub passed: Option<bool>,
    /// Whether Farmem kept more local than its budget and what it may have besides. A time reached so doesn't
    /// count.
    pub over_budget: bool,
}

impl Target {
    /// A figure that must not be larger.
    pub(crate) fn new(name: impl Into<String>, at_most: f64, measured: Option<f64>) -> Self {
        let passed = measured.map(|measured| measured <= at_most);
        Self { name: name.into(), limit: Limit::AtMost(at_most), measured, passed, over_budget: false }
    }

    /// A figure that must not be smaller.
    pub(crate) fn at_least(name: impl Into<String>, at_least: f64, measured: Option<f64>) -> Self {
        let passed = measured.map(|measured| measured >= at_least);
        Self { name: name.into(), limit: Limit::AtLeast(at_least), measured, passed, over_budget: false }
    }

    /// The same target, not reached if `over_budget`.
    pub(crate) fn counted_unless(self, over_budget: bool) -> Self {
        Self { passed: self.passed.map(|passed| passed && !over_budget), over_budget, ..self }
    }
}

impl Limit {
    fn words(self) -> (&'static str, f64) {
        match self {
            Self::AtMost(limit) => ("at most", limit),
            Self::AtLeast(limit) => ("at least", limit),
        }
    }
}

impl Target {
    fn verdict(&self) -> &'static str {
        match self.passed {
            Some(true) => "pass",
            Some(false) if self.over_budget => "falls short: it kept more local than its budget",
            Some(false) => "falls short",
            None => "not measured",
        }
    }

    /// What was wanted and what was found, for a text.
    pub(crate) fn sentence(&self) -> String {
        let measured = self.measured.map_or_else(String::new, |measured| format!("{measured:.2}, "));
        let (words, limit) = self.limit.words();
        format!("{}: {measured}{words} {limit} wanted: {}", self.name, self.verdict())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = self.verdict();
        let measured = self.measured.map_or_else(|| "-".to_owned(), |measured| format!("{measured:.2}"));
        let (words, limit) = self.limit.words();
        write!(f, "{:<56} {measured:>6}  {words} {limit:<5} {verdict}", self.name)
    }
}
