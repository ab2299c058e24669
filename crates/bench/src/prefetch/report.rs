//! What came out, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::Context;
use comfy_table::{CellAlignment, Table, presets};
use farmem_machine::Description;
use farmem_page::{ByteCount, mebibytes};
use farmem_policy::PrefetchPolicy;
use serde::Serialize;

use super::name::SubjectName;
use super::subject::{Ran, Subject};
use super::tier::SubjectTier;
use crate::median::median;
use crate::option;
use crate::target::Target;

/// All that was measured, and on what.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Version of Farmem.
    pub version: &'static str,
    /// The machine.
    pub machine: Description,
    /// Where far memory was.
    pub far: SubjectTier,
    /// Runs that each figure is the median of.
    pub repetitions: u32,
    /// The figures.
    pub figures: Vec<Figure>,
    /// The targets; none of a user's program, nor with far memory on a node.
    pub targets: Vec<Target>,
    /// What was left out, and why.
    pub left_out: BTreeMap<String, String>,
}

/// Medians over the runs of one program under one policy.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Figure {
    /// The program, or pattern of access.
    pub program: String,
    /// The policy.
    pub policy: &'static str,
    /// Local memory that it was given.
    pub local_bytes: u64,
    /// Run time of a program; of a pattern, of its measured rounds.
    pub seconds: f64,
    /// The smallest and the largest of the runs' times.
    pub seconds_range: [f64; 2],
    /// The time without prefetching is 1: the median over the repetitions, each compared with the one of the
    /// same turn; `None` where that was not measured.
    pub ratio_to_none: Option<f64>,
    /// Processor time of all threads of the process, those of its pager among them, beyond that without
    /// prefetching, of the time without prefetching; the median likewise. `None` where the program doesn't
    /// tell its own processor time.
    pub processor_beyond_none: Option<f64>,
    /// Time in which both tiers decided what to fetch ahead, looked for references and followed them, of the
    /// processor time of the program: of a pattern's measured rounds, else of all of the run.
    pub deciding_share: f64,
    /// Part of the far pages wanted that were there already.
    pub contribution: f64,
    /// That compared with the contribution of an oracle that knows the future, by a replay with the same
    /// local memory; `None` where nothing had to be fetched.
    pub share_of_oracle: Option<f64>,
    /// Part of the prefetched pages that were used.
    pub accuracy: f64,
    /// Fetches that a thread waited for.
    pub fetches: f64,
    /// Pages fetched ahead.
    pub prefetched: f64,
    /// The largest part of the processors' time in one of the runs that the machine's host took.
    pub stolen_share: f64,
}

impl Figure {
    /// # Errors
    /// Without samples.
    pub(super) fn median(
        subject: &Subject,
        policy: PrefetchPolicy,
        local: ByteCount,
        samples: &[Ran],
        without: Option<&[Ran]>,
        oracle: Option<f64>,
    ) -> anyhow::Result<Self> {
        let times: Vec<f64> = samples.iter().map(|sample| sample.seconds).collect();
        let least = times.iter().copied().reduce(f64::min).context("no run")?;
        let most = times.iter().copied().reduce(f64::max).context("no run")?;
        let middle = |key: &str| median(samples.iter().map(|sample| sample.finished.number(key)).collect());
        let beside = |of: fn(&Ran, &Ran) -> Option<f64>| {
            let pairs = samples.iter().zip(without?).map(|(sample, none)| of(sample, none));
            pairs.collect::<Option<Vec<f64>>>().map(median)
        };
        Ok(Self {
            program: subject.name().to_owned(),
            policy: policy.name(),
            local_bytes: local.get(),
            seconds: median(times),
            seconds_range: [least, most],
            ratio_to_none: beside(|sample, none| Some(sample.seconds / none.seconds)),
            processor_beyond_none: beside(|sample, none| {
                Some((sample.processor_seconds? - none.processor_seconds?) / none.seconds)
            }),
            deciding_share: median(samples.iter().map(deciding_share).collect()),
            contribution: middle("contribution"),
            share_of_oracle: oracle.map(|oracle| middle("contribution") / oracle),
            accuracy: middle("accuracy"),
            fetches: middle("fetches"),
            prefetched: middle("prefetched"),
            stolen_share: samples.iter().map(|sample| sample.finished.stolen_share).fold(0.0, f64::max),
        })
    }
}

/// The time that deciding took in a run, of the processor time.
fn deciding_share(sample: &Ran) -> f64 {
    let nanoseconds = sample.finished.number("deciding_ns") + sample.finished.number("following_ns");
    let all = sample.processor_seconds.unwrap_or_else(|| sample.finished.number("cpu_seconds"));
    if all > 0.0 { nanoseconds / 1e9 / all } else { 0.0 }
}

/// Canvas's Table 5, for comparable programs.
const CONTRIBUTION_ITERATIVE: f64 = 0.75;
const CONTRIBUTION_GRAPH: f64 = 0.45;
const ACCURACY: f64 = 0.85;
/// What references are to make of the time of a program that follows them.
const SHARE_OF_BY_ADDRESS: f64 = 0.5;
/// What prefetching may cost where there is nothing to find: of the time, and in processor time.
const RATIO_UNPREDICTABLE: f64 = 1.03;
const PROCESSOR_UNPREDICTABLE: f64 = 0.01;

/// What prefetching may cost where there is nothing to find, and what it must find where there is; of what
/// was measured.
pub(super) fn judge(figures: &[Figure]) -> Vec<Target> {
    let by = |name: SubjectName, policy: PrefetchPolicy| {
        let (program, policy) = (option::name(&name), policy.name());
        figures.iter().find(|figure| figure.program == program && figure.policy == policy)
    };
    let of = |name: SubjectName| by(name, PrefetchPolicy::default());
    let mut targets = Vec::new();
    if let Some(random) = of(SubjectName::UNPREDICTABLE) {
        let title = option::name(&SubjectName::UNPREDICTABLE);
        let none = by(SubjectName::UNPREDICTABLE, PrefetchPolicy::None);
        targets.push(Target::new(
            format!("{title}: of the time without prefetching"),
            RATIO_UNPREDICTABLE,
            random.ratio_to_none,
        ));
        targets.push(Target::new(
            format!("{title}: processor time more, of that time"),
            PROCESSOR_UNPREDICTABLE,
            random.processor_beyond_none,
        ));
        targets.push(Target::new(
            format!(
                "{title}: deciding and following, of processor time, beyond asking a policy that says nothing"
            ),
            PROCESSOR_UNPREDICTABLE,
            none.map(|none| random.deciding_share - none.deciding_share),
        ));
    }
    for name in SubjectName::REFERENCES {
        let Some(figure) = of(name) else { continue };
        let title = format!("{}: of the time by the best policy by address", figure.program);
        let best = best_by_address(figures, &figure.program);
        targets.push(Target::new(title, SHARE_OF_BY_ADDRESS, best.map(|best| figure.seconds / best)));
    }
    let iterative = SubjectName::ITERATIVE.map(|name| (name, CONTRIBUTION_ITERATIVE));
    for (name, contribution) in iterative.into_iter().chain([(SubjectName::GRAPH, CONTRIBUTION_GRAPH)]) {
        let Some(figure) = of(name) else { continue };
        let title = |measure: &str| format!("{}: {measure}", figure.program);
        targets.push(Target::at_least(title("contribution"), contribution, Some(figure.contribution)));
        targets.push(Target::at_least(title("accuracy"), ACCURACY, Some(figure.accuracy)));
    }
    targets
}

/// The time of a program under the policy by address that takes least.
fn best_by_address(figures: &[Figure], program: &str) -> Option<f64> {
    let is_by_address =
        |figure: &&Figure| PrefetchPolicy::BY_ADDRESS.iter().any(|policy| policy.name() == figure.policy);
    let of_program = figures.iter().filter(|figure| figure.program == program);
    of_program.filter(is_by_address).map(|figure| figure.seconds).reduce(f64::min)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        table.set_header([
            "program",
            "local MiB",
            "policy",
            "s",
            "range",
            "of none",
            "cpu more",
            "deciding",
            "contribution",
            "of oracle",
            "accuracy",
            "fetches",
            "prefetched",
            "stolen",
        ]);
        let mut program = None;
        for figure in &self.figures {
            let is_first = program.replace(&figure.program) != Some(&figure.program);
            let [least, most] = figure.seconds_range;
            table.add_row([
                if is_first { figure.program.clone() } else { String::new() },
                if is_first { format!("{:.1}", mebibytes(figure.local_bytes)) } else { String::new() },
                figure.policy.to_owned(),
                format!("{:.3}", figure.seconds),
                format!("{least:.3}-{most:.3}"),
                figure.ratio_to_none.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
                figure
                    .processor_beyond_none
                    .map_or_else(String::new, |share| format!("{:.1}%", share * 100.0)),
                format!("{:.2}%", figure.deciding_share * 100.0),
                format!("{:.2}", figure.contribution),
                figure.share_of_oracle.map_or_else(String::new, |share| format!("{share:.2}")),
                format!("{:.2}", figure.accuracy),
                format!("{:.0}", figure.fetches),
                format!("{:.0}", figure.prefetched),
                format!("{:.0}%", figure.stolen_share * 100.0),
            ]);
        }
        for column in [1].into_iter().chain(3..14) {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        writeln!(f, "{table}")?;
        for (what, reason) in &self.left_out {
            writeln!(f, "left out: {what}: {reason}")?;
        }
        self.targets.iter().try_for_each(|target| writeln!(f, "{target}"))
    }
}
