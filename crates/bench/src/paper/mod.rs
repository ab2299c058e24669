//! The papers that Farmem builds on: which of their figures and tables are measured here, by what, and what
//! they say.
//!
//! - `references` ties each measure to the figures that it answers;
//! - `figures` lists what is to be answered, and why some are not;
//! - [`Answers`] is both together: the table of docs/results/papers.md, of `farmem bench papers`, and of the
//!   report.

mod figures;
mod references;

use std::fmt;

use figures::{FIGURES, LEFT_OUT};
pub(crate) use references::of;
use references::{REFERENCES, steps_of};

/// Every figure and table of the papers that is to be answered, as a table in Markdown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Answers;

/// One of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    /// The paper, and the figure's name in it.
    pub(crate) figure: &'static str,
    /// What it shows.
    pub(crate) shows: &'static str,
    /// The steps of `farmem bench all` that measure the same; none where `missing` says why.
    pub(crate) steps: Vec<&'static str>,
    /// What of it is not measured, and why; empty if nothing.
    pub(crate) missing: &'static str,
}

impl Answers {
    /// All of them, in the order of the papers.
    pub(crate) fn all(self) -> impl Iterator<Item = Answer> {
        FIGURES.iter().map(|&(figure, shows)| Answer {
            figure,
            shows,
            steps: steps_of(figure),
            missing: LEFT_OUT.iter().find(|(left_out, _)| *left_out == figure).map_or("", |(_, why)| why),
        })
    }
}

impl Answer {
    /// The measures of a benchmark that answer it, as `(bench, measure)`.
    pub(crate) fn measures(&self) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
        let names_it = |reference: &&references::Reference| reference.figures.contains(&self.figure);
        REFERENCES.iter().filter(names_it).map(|reference| (reference.bench(), reference.measure))
    }
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| figure | shows | answered by | not answered |\n|---|---|---|---|")?;
        for Answer { figure, shows, steps, missing } in self.all() {
            let steps: Vec<String> = steps.iter().map(|step| format!("`{step}`")).collect();
            writeln!(f, "| {figure} | {shows} | {} | {missing} |", steps.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULTS: &str = include_str!("../../../../docs/results/papers.md");

    #[test]
    fn every_figure_is_answered_by_a_measure_or_left_out_with_a_reason() {
        for Answer { figure, steps, missing, .. } in Answers.all() {
            assert!(!steps.is_empty() || !missing.is_empty(), "{figure}: neither a benchmark nor a reason");
        }
        for (figure, _) in LEFT_OUT {
            assert!(FIGURES.iter().any(|(known, _)| known == figure), "{figure} is left out, but not wanted");
        }
    }

    #[test]
    fn each_figure_has_a_row_among_the_headlines() {
        let (headlines, _) = RESULTS.split_once("farmem bench papers").unwrap();
        for Answer { figure, .. } in Answers.all() {
            assert!(headlines.contains(&format!("\n| {figure} |")), "{figure} has no row");
        }
    }

    #[test]
    fn the_results_have_the_table() {
        assert!(RESULTS.contains(&Answers.to_string()), "put this into docs/results/papers.md:\n{Answers}");
    }
}
