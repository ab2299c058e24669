//! `farmem bench micro`: what the primitives of a pager in user space cost on this machine, and the floor
//! that follows from them.

mod floor;
mod primitives;
mod records;
mod wake;

use std::fmt;

use farmem_machine::Description;
use serde::Serialize;

use crate::interrupt::Interrupt;
use crate::median::median;
use crate::table::table;

/// The floor: no pager in user space that serves faults from another thread can be faster here, whatever it
/// does besides.
pub(crate) const FLOOR: &str = "fault served by a handler on the same core";

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// A tenth of the repetitions.
    pub quick: bool,
    /// Turns of each primitive; `None` for 5, or 3 when quick.
    pub repeat: Option<u32>,
}

/// What a primitive took.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Figure {
    /// The primitive.
    pub primitive: &'static str,
    /// Of each page or call, the median of all turns.
    pub microseconds: f64,
    /// The smallest and the largest of the turns' times.
    pub microseconds_range: [f64; 2],
}

/// A primitive that this machine or user can't measure.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LeftOut {
    /// The primitive.
    pub primitive: &'static str,
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
    /// Turns that each figure is the median of.
    pub repetitions: u32,
    /// The figures.
    pub figures: Vec<Figure>,
    /// What could not be measured.
    pub left_out: Vec<LeftOut>,
}

/// One way to spend time. Gives microseconds for each page or call.
struct Primitive {
    name: &'static str,
    measure: fn(count: usize) -> anyhow::Result<f64>,
}

const PRIMITIVES: [Primitive; 10] = [
    Primitive { name: "system call", measure: primitives::system_call },
    Primitive { name: "page fault, new memory, kernel only", measure: primitives::first_touch },
    Primitive { name: "UFFDIO_COPY, one page", measure: |count| primitives::copy(count, 1) },
    Primitive { name: "UFFDIO_COPY, 16 neighbours", measure: |count| primitives::copy(count, 16) },
    Primitive { name: "UFFDIO_MOVE, one page", measure: |count| primitives::move_out(count, 1) },
    Primitive { name: "UFFDIO_MOVE, 64 neighbours", measure: |count| primitives::move_out(count, 64) },
    Primitive { name: "wake-up, same core", measure: |count| wake::wake(count, wake::Cores::Same) },
    Primitive { name: "wake-up, another core", measure: |count| wake::wake(count, wake::Cores::Apart) },
    Primitive { name: FLOOR, measure: |count| floor::fault(count, wake::Cores::Same) },
    Primitive {
        name: "fault served by a handler on another core",
        measure: |count| floor::fault(count, wake::Cores::Apart),
    },
];

const REPETITIONS: u32 = 5;
const REPETITIONS_QUICK: u32 = 3;
/// Calls, or pages, of a turn.
const COUNT: usize = 16_384;
const COUNT_QUICK: usize = 2_048;

/// Measures. Primitives take turns.
///
/// # Errors
/// When interrupted. What can't be measured here is named in the report.
pub fn run(options: &Options) -> anyhow::Result<Report> {
    let interrupt = Interrupt::listen()?;
    let repetitions = options.repeat.unwrap_or(if options.quick { REPETITIONS_QUICK } else { REPETITIONS });
    let count = if options.quick { COUNT_QUICK } else { COUNT };
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); PRIMITIVES.len()];
    let mut left_out: Vec<LeftOut> = Vec::new();
    for _ in 0..repetitions {
        for (primitive, times) in PRIMITIVES.iter().zip(&mut times) {
            interrupt.check()?;
            if left_out.iter().any(|one| one.primitive == primitive.name) {
                continue;
            }
            match (primitive.measure)(count) {
                Ok(time) => times.push(time),
                Err(error) => {
                    left_out.push(LeftOut { primitive: primitive.name, reason: format!("{error:#}") });
                }
            }
        }
    }
    let figures = PRIMITIVES.iter().zip(times).filter(|(_, times)| !times.is_empty());
    let figures = figures.map(|(primitive, times)| Figure {
        primitive: primitive.name,
        microseconds_range: [
            times.iter().copied().fold(f64::INFINITY, f64::min),
            times.iter().copied().fold(0.0, f64::max),
        ],
        microseconds: median(times),
    });
    Ok(Report {
        version: env!("CARGO_PKG_VERSION"),
        machine: Description::current(),
        repetitions,
        figures: figures.collect(),
        left_out,
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = table(&["primitive", "µs", "range"], 1);
        for figure in &self.figures {
            let [least, most] = figure.microseconds_range;
            table.add_row([
                figure.primitive.to_owned(),
                format!("{:.2}", figure.microseconds),
                format!("{least:.2}-{most:.2}"),
            ]);
        }
        writeln!(f, "{table}")?;
        self.left_out.iter().try_for_each(|one| writeln!(f, "{} left out: {}", one.primitive, one.reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_primitives_differ_and_the_floor_is_one_of_them() {
        let names: std::collections::BTreeSet<&str> = PRIMITIVES.iter().map(|one| one.name).collect();
        assert_eq!(names.len(), PRIMITIVES.len());
        assert!(names.contains(FLOOR));
    }
}
