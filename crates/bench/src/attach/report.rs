//! What came out, as tables and as JSON.

use std::fmt;

use farmem_machine::Description;
use serde::Serialize;

use super::{Found, Part, early, idle, overshoot, start, stop};
use crate::median::median;
use crate::option;
use crate::record::{Better, Measurement};
use crate::table::table;
use crate::target::Target;

/// Longest extra time of a small program, in milliseconds: of a child of a managed program, and of one that
/// is run itself.
const START_MS: f64 = 0.3;
/// Largest share of a processor that the supervisor of idle processes takes, in percent.
const IDLE_PERCENT: f64 = 1.0;
/// Longest standstill of threads when a pager comes, in milliseconds.
const STOP_P50_MS: f64 = 2.0;
const STOP_P99_MS: f64 = 10.0;
/// Longest time until a program that was attached to is within its budget, in seconds.
const INTO_BUDGET_SECONDS: f64 = 2.0;
/// The same of one that has taken more at once.
const BACK_SECONDS: f64 = 1.0;

/// A figure: the median over the repetitions.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Figure {
    /// The part of the benchmark.
    pub part: Part,
    /// What was done.
    pub case: String,
    /// Under whom, or of whom.
    pub peer: String,
    /// What was measured.
    pub measure: &'static str,
    /// The figure.
    pub value: f64,
    /// The smallest and the largest of the repetitions.
    pub range: [f64; 2],
    /// What it counts; empty for numbers of something.
    pub unit: &'static str,
    /// Which way is better.
    pub better: Better,
}

/// A call that returned although nothing had come that it waited for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Early {
    /// The call, and how it was made.
    pub call: String,
    /// How often it returned.
    pub returned: u64,
    /// The number of its error at last; 0 if it had none.
    pub errno: u64,
}

/// What could not be measured.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LeftOut {
    /// What.
    pub what: String,
    /// Why.
    pub reason: String,
}

/// All that was measured, and on what.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Version of Farmem.
    pub version: &'static str,
    /// The machine.
    pub machine: Description,
    /// Repetitions that each figure is the median of.
    pub repetitions: u32,
    /// The figures.
    pub figures: Vec<Figure>,
    /// Calls that returned early, of the last repetition in which any did.
    pub early: Vec<Early>,
    /// What could not be measured.
    pub left_out: Vec<LeftOut>,
    /// What is to be reached.
    pub targets: Vec<Target>,
}

impl Report {
    pub(super) fn new(machine: Description, repetitions: u32) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            machine,
            repetitions,
            figures: Vec::new(),
            early: Vec::new(),
            left_out: Vec::new(),
            targets: Vec::new(),
        }
    }

    pub(super) fn leave_out(&mut self, what: String, reason: String) {
        let left = LeftOut { what, reason };
        if !self.left_out.contains(&left) {
            self.left_out.push(left);
        }
    }

    /// Adds what the repetitions of a part have found.
    pub(super) fn add(&mut self, part: Part, repetitions: Vec<Found>) {
        let mut all: Vec<Measurement> = Vec::new();
        for Found { measurements, early, left_out } in repetitions {
            all.extend(measurements);
            if !early.is_empty() {
                self.early = early;
            }
            left_out.into_iter().for_each(|(what, reason)| self.leave_out(what, reason));
        }
        while let Some(first) = all.first().cloned() {
            let is_same = |other: &mut Measurement| {
                (&other.case, &other.peer, other.measure) == (&first.case, &first.peer, first.measure)
            };
            let values: Vec<f64> = all.extract_if(.., is_same).map(|one| one.value).collect();
            self.figures.push(Figure {
                part,
                case: first.case,
                peer: first.peer,
                measure: first.measure,
                range: [
                    values.iter().copied().fold(f64::INFINITY, f64::min),
                    values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                ],
                value: median(values),
                unit: first.unit,
                better: first.better,
            });
        }
    }

    /// Adds the targets, and whether they are reached.
    pub(super) fn judge(&mut self) {
        let largest = |part: Part, measure: &str, is_meant: &dyn Fn(&Figure) -> bool| {
            let figures = self.figures.iter().filter(|figure| figure.part == part);
            let meant = figures.filter(|figure| figure.measure == measure && is_meant(figure));
            meant.map(|figure| figure.value).reduce(f64::max)
        };
        let of_children = |figure: &Figure| figure.case.starts_with(start::CHILD);
        let of_whole_runs = |figure: &Figure| figure.case.starts_with(start::WHOLE_RUN);
        let of_supervisors =
            |figure: &Figure| figure.peer == idle::SUPERVISOR && figure.case.ends_with(idle::WITHOUT);
        let of_attaches = |figure: &Figure| figure.peer == stop::ATTACH;
        let any = |_: &Figure| true;
        self.targets = vec![
            Target::new(
                "extra ms of a child of a managed program",
                START_MS,
                largest(Part::Start, start::EXTRA_TIME, &of_children),
            ),
            Target::new(
                "extra ms of a program that is run itself",
                START_MS,
                largest(Part::Start, start::EXTRA_TIME, &of_whole_runs),
            ),
            Target::new("extra threads", 0.0, largest(Part::Start, start::THREADS, &any)),
            Target::new("extra descriptors", 0.0, largest(Part::Start, start::DESCRIPTORS, &any)),
            Target::new("lines on standard error", 0.0, largest(Part::Start, start::LINES, &any)),
            Target::new(
                "% of a processor, the supervisor of idle processes",
                IDLE_PERCENT,
                largest(Part::Idle, idle::SHARE, &of_supervisors),
            ),
            Target::new(
                "ms that busy threads stand still, p50",
                STOP_P50_MS,
                largest(Part::Stop, stop::P50, &of_attaches),
            ),
            Target::new(
                "ms that busy threads stand still, p99",
                STOP_P99_MS,
                largest(Part::Stop, stop::P99, &of_attaches),
            ),
            Target::new("calls that returned early", 0.0, largest(Part::EarlyReturns, early::RETURNED, &any)),
            Target::new(
                "s from attach until within the budget",
                INTO_BUDGET_SECONDS,
                largest(Part::IntoBudget, super::descent::TIME, &any),
            ),
            Target::new(
                "s until within the budget after taking it all at once",
                BACK_SECONDS,
                largest(Part::Overshoot, overshoot::BACK, &any),
            ),
        ];
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "medians of {} on {} cores ({}{}), Linux {}\n",
            self.repetitions,
            self.machine.cores,
            self.machine.processor,
            if self.machine.is_virtual { ", virtual" } else { "" },
            self.machine.kernel
        )?;
        let mut table = table(&["part", "case", "peer", "measure", "figure", "range"], 4);
        let mut part = None;
        for figure in &self.figures {
            let is_first = part.replace(figure.part) != Some(figure.part);
            let digits = if figure.unit.is_empty() { 0 } else { 3 };
            let [least, most] = figure.range;
            table.add_row([
                if is_first { option::name(&figure.part) } else { String::new() },
                figure.case.clone(),
                figure.peer.clone(),
                figure.measure.to_owned(),
                format!("{:.digits$} {}", figure.value, figure.unit).trim_end().to_owned(),
                format!("{least:.digits$}-{most:.digits$}"),
            ]);
        }
        writeln!(f, "{table}\n")?;
        for Early { call, returned, errno } in &self.early {
            writeln!(f, "{call} returned early: {returned} times, error {errno}")?;
        }
        for LeftOut { what, reason } in &self.left_out {
            writeln!(f, "{what} left out: {reason}")?;
        }
        self.targets.iter().try_for_each(|target| writeln!(f, "{target}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(value: f64) -> Found {
        vec![
            Measurement::less(start::CHILD, "farmem", start::EXTRA_TIME, value, "ms"),
            Measurement::less(start::WHOLE_RUN, "farmem", start::EXTRA_TIME, 4.0, "ms"),
        ]
        .into()
    }

    #[test]
    fn figures_are_medians_of_repetitions_and_judged_by_the_worst_case() {
        let mut report = Report::new(Description::current(), 3);
        report.add(Part::Start, vec![found(0.1), found(0.5), found(0.2)]);
        report.judge();

        let values: Vec<f64> = report.figures.iter().map(|figure| figure.value).collect();
        assert_eq!((values, report.figures[0].range), (vec![0.2, 4.0], [0.1, 0.5]));
        // A whole run is no child.
        assert_eq!((report.targets[0].measured, report.targets[0].passed), (Some(0.2), Some(true)));
        assert_eq!((report.targets[1].measured, report.targets[1].passed), (Some(4.0), Some(false)));
        assert_eq!(report.targets[2].passed, None);
        assert!(report.to_string().contains("extra ms of a child"));
    }

    #[test]
    fn what_is_left_out_twice_is_named_once() {
        let mut report = Report::new(Description::current(), 2);
        let once = || Found { left_out: vec![("a".to_owned(), "b".to_owned())], ..Found::default() };
        report.add(Part::Start, vec![once(), once()]);
        assert_eq!(report.left_out.len(), 1);
    }
}
