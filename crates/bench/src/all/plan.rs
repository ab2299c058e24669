//! The steps of all benchmarks, each small enough to be lost when one stops in the middle.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::attach::Part as AttachPart;
use crate::faults::CaseName;
use crate::isolation::Part as IsolationPart;
use crate::nodes::Part as NodesPart;
use crate::option;
use crate::prefetch::SubjectName;
use crate::programs::ProgramName;

/// What a step runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Work {
    Micro,
    Attach(AttachPart),
    Faults(CaseName),
    Programs(ProgramName),
    Prefetch(SubjectName),
    Isolation(IsolationPart),
    Nodes(NodesPart),
}

impl Work {
    /// The benchmark.
    pub(super) fn bench(self) -> &'static str {
        match self {
            Self::Micro => "micro",
            Self::Attach(_) => "attach",
            Self::Faults(_) => "faults",
            Self::Programs(_) => "programs",
            Self::Prefetch(_) => "prefetch",
            Self::Isolation(_) => "isolation",
            Self::Nodes(_) => "nodes",
        }
    }

    /// The benchmark, and the part of it.
    pub(super) fn name(self) -> String {
        let part = match self {
            Self::Micro => return self.bench().to_owned(),
            Self::Attach(part) => option::name(&part),
            Self::Faults(case) => option::name(&case),
            Self::Programs(program) => option::name(&program),
            Self::Prefetch(subject) => option::name(&subject),
            Self::Isolation(part) => option::name(&part),
            Self::Nodes(part) => option::name(&part),
        };
        format!("{}/{part}", self.bench())
    }

    /// Everything that there is, in the order in which it runs.
    fn all() -> Vec<Self> {
        let faults = CaseName::value_variants().iter().map(|&case| Self::Faults(case));
        let programs = ProgramName::value_variants().iter().map(|&program| Self::Programs(program));
        let prefetch = SubjectName::value_variants().iter().map(|&subject| Self::Prefetch(subject));
        let isolation = IsolationPart::value_variants().iter().map(|&part| Self::Isolation(part));
        let nodes = NodesPart::value_variants().iter().map(|&part| Self::Nodes(part));
        let attach = AttachPart::value_variants().iter().map(|&part| Self::Attach(part));
        let alone = [Self::Micro].into_iter();
        alone
            .chain(attach)
            .chain(faults)
            .chain(programs)
            .chain(prefetch)
            .chain(isolation)
            .chain(nodes)
            .collect()
    }

    /// About how long it takes, on two cores; what is measured meanwhile corrects it.
    pub(super) fn guess(self, quick: bool) -> Duration {
        let (whole, quick_seconds) = match self {
            Self::Micro => (10, 2),
            Self::Attach(AttachPart::Stop) => (120, 5),
            Self::Attach(AttachPart::Idle) => (50, 10),
            Self::Attach(_) => (15, 3),
            Self::Faults(CaseName::Zipf) => (240, 45),
            Self::Faults(CaseName::Fits) => (6, 2),
            Self::Faults(_) => (70, 14),
            Self::Programs(_) => (100, 25),
            Self::Prefetch(SubjectName::RandomRead) => (200, 50),
            Self::Prefetch(_) => (100, 25),
            Self::Isolation(IsolationPart::CoRuns | IsolationPart::CoRunsHalf) => (1260, 250),
            Self::Isolation(IsolationPart::Entries) => (60, 25),
            Self::Isolation(_) => (250, 70),
            Self::Nodes(NodesPart::Ways) => (90, 30),
            Self::Nodes(NodesPart::Shared) => (30, 6),
            Self::Nodes(NodesPart::Spaces) => (190, 60),
            Self::Nodes(NodesPart::Programs) => (240, 40),
            Self::Nodes(NodesPart::SpeedUp) => (900, 60),
            Self::Nodes(NodesPart::Sweeps) => (700, 15),
            Self::Nodes(NodesPart::Loss) => (120, 60),
            Self::Nodes(NodesPart::Spread) => (40, 20),
            Self::Nodes(NodesPart::Threads) => (30, 15),
        };
        Duration::from_secs(if quick { quick_seconds } else { whole })
    }
}

/// A step of the plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Step {
    pub(super) work: Work,
    /// From 1.
    pub(super) repetition: u32,
}

/// What a step is called in the folder of results.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(super) struct StepName {
    pub(super) name: String,
    pub(super) repetition: u32,
}

impl Step {
    /// Whether it is the first of all plans.
    pub(super) fn is_first(self) -> bool {
        self.work == Work::Micro && self.repetition == 1
    }

    pub(super) fn name(self) -> StepName {
        StepName { name: self.work.name(), repetition: self.repetition }
    }
}

/// The steps to take: each repetition goes through all benchmarks, so that what happens on the machine in the
/// course of hours meets all alike. `only` has names of benchmarks and of parts of them; empty for all. What
/// this machine's primitives cost is measured with whatever else: figures of faults are read by it.
///
/// # Errors
/// A sentence for a name that there is not.
pub(super) fn steps(only: &[String], repetitions: u32) -> Result<Vec<Step>, String> {
    let all = Work::all();
    let is_named = |work: &Work, name: &str| work.bench() == name || work.name() == name;
    if let Some(unknown) = only.iter().find(|name| !all.iter().any(|work| is_named(work, name))) {
        let names: Vec<String> = all.iter().map(|work| work.name()).collect();
        return Err(format!(
            "there is no benchmark {unknown}; there are micro, attach, faults, programs, prefetch, isolation and nodes, and their parts {}",
            names.into_iter().filter(|name| name.contains('/')).collect::<Vec<_>>().join(", ")
        ));
    }
    let chosen =
        |work: &Work| *work == Work::Micro || only.is_empty() || only.iter().any(|name| is_named(work, name));
    let works: Vec<Work> = all.into_iter().filter(chosen).collect();
    Ok((1..=repetitions)
        .flat_map(|repetition| works.iter().map(move |&work| Step { work, repetition }))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::Answers;

    #[test]
    fn names_choose_benchmarks_and_parts_of_them_and_primitives_come_with_all() {
        let names = |only: &[&str]| -> Vec<String> {
            let only: Vec<String> = only.iter().map(|&name| name.to_owned()).collect();
            steps(&only, 1).unwrap().iter().map(|step| step.work.name()).collect()
        };
        assert_eq!(names(&["faults/zipf", "micro"]), ["micro", "faults/zipf"]);
        assert_eq!(names(&["faults/zipf"]), ["micro", "faults/zipf"]);
        assert_eq!(
            names(&["nodes"]),
            [
                "micro",
                "nodes/ways",
                "nodes/shared",
                "nodes/spaces",
                "nodes/programs",
                "nodes/speed-up",
                "nodes/sweeps",
                "nodes/loss",
                "nodes/spread",
                "nodes/threads"
            ]
        );
        assert!(names(&[]).len() > 20);
    }

    #[test]
    fn what_answers_a_papers_figure_is_a_step() {
        let works = Work::all();
        for step in Answers.all().flat_map(|answer| answer.steps) {
            assert!(works.iter().any(|work| work.name() == step || work.bench() == step), "{step}");
        }
    }

    #[test]
    fn a_repetition_goes_through_everything_before_the_next() {
        let steps = steps(&["micro".to_owned(), "prefetch/zipf".to_owned()], 2).unwrap();
        let repetitions: Vec<u32> = steps.iter().map(|step| step.repetition).collect();
        assert_eq!(repetitions, [1, 1, 2, 2]);
    }

    #[test]
    fn an_unknown_name_is_refused_with_those_that_there_are() {
        let refused = steps(&["falts".to_owned()], 1).unwrap_err();
        assert!(refused.contains("falts") && refused.contains("faults/random-read"));
    }
}
