//! What came out, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::Context;
use comfy_table::{CellAlignment, Table, presets};
use farmem_machine::Description;
use farmem_page::ByteCount;
use farmem_policy::PrefetchPolicy;
use serde::Serialize;

use super::run::Sample;
use super::subject::{REFERENCES, Subject, UNPREDICTABLE};
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
    /// Runs that each figure is the median of.
    pub repetitions: u32,
    /// The figures.
    pub figures: Vec<Figure>,
    /// The targets; none of a user's program.
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
    /// The time without prefetching is 1; `None` where that was not measured.
    pub ratio_to_none: Option<f64>,
    /// Part of the far pages wanted that were there already.
    pub contribution: f64,
    /// That beside the contribution of one who knows the future, by a replay with the same local memory; `None` where nothing had to be fetched.
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
        samples: &[Sample],
        oracle: Option<f64>,
    ) -> anyhow::Result<Self> {
        let times: Vec<f64> = samples.iter().map(|sample| sample.seconds).collect();
        let least = times.iter().copied().reduce(f64::min).context("no run")?;
        let most = times.iter().copied().reduce(f64::max).context("no run")?;
        let middle = |key: &str| {
            median(samples.iter().map(|sample| sample.statistics[key].as_f64().unwrap_or(0.0)).collect())
        };
        Ok(Self {
            program: subject.name().to_owned(),
            policy: policy.name(),
            local_bytes: local.get(),
            seconds: median(times),
            seconds_range: [least, most],
            ratio_to_none: None,
            contribution: middle("contribution"),
            share_of_oracle: oracle.map(|oracle| middle("contribution") / oracle),
            accuracy: middle("accuracy"),
            fetches: middle("fetches"),
            prefetched: middle("prefetched"),
            stolen_share: samples.iter().map(|sample| sample.stolen_share).fold(0.0, f64::max),
        })
    }
}

/// Compares each with the same program without prefetching.
pub(super) fn with_ratios(mut figures: Vec<Figure>) -> Vec<Figure> {
    let without: Vec<_> =
        figures.iter().filter(|figure| figure.policy == PrefetchPolicy::None.name()).cloned().collect();
    for figure in &mut figures {
        let of = without.iter().find(|other| other.program == figure.program);
        figure.ratio_to_none = of.map(|other| figure.seconds / other.seconds);
    }
    figures
}

/// What prefetching may cost where there is nothing to find, and what it must find where there is.
pub(super) fn judge(figures: &[Figure]) -> Vec<Target> {
    let of = |program: &str| {
        let default = PrefetchPolicy::default().name();
        figures.iter().find(|figure| figure.program == program && figure.policy == default)
    };
    let random = option::name(&UNPREDICTABLE);
    if of(&random).is_none() {
        return Vec::new();
    }
    vec![
        Target::new(
            "random reads, of their time without prefetching",
            1.03,
            of(&random).and_then(|figure| figure.ratio_to_none),
        ),
        Target::new(
            "a list, of its time under the best policy by address",
            0.5,
            of(&option::name(&REFERENCES)).zip(best_by_address(figures)).map(|(two, one)| two.seconds / one),
        ),
    ]
}

/// The time of the list under the policy by address that takes least.
fn best_by_address(figures: &[Figure]) -> Option<f64> {
    let list = option::name(&REFERENCES);
    let is_by_address =
        |figure: &&Figure| PrefetchPolicy::BY_ADDRESS.iter().any(|policy| policy.name() == figure.policy);
    let of_list = figures.iter().filter(|figure| figure.program == list);
    of_list.filter(is_by_address).map(|figure| figure.seconds).reduce(f64::min)
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
                if is_first {
                    format!("{:.1}", figure.local_bytes as f64 / f64::from(1 << 20))
                } else {
                    String::new()
                },
                figure.policy.to_owned(),
                format!("{:.3}", figure.seconds),
                format!("{least:.3}-{most:.3}"),
                figure.ratio_to_none.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
                format!("{:.2}", figure.contribution),
                figure.share_of_oracle.map_or_else(String::new, |share| format!("{share:.2}")),
                format!("{:.2}", figure.accuracy),
                format!("{:.0}", figure.fetches),
                format!("{:.0}", figure.prefetched),
                format!("{:.0}%", figure.stolen_share * 100.0),
            ]);
        }
        for column in [1].into_iter().chain(3..12) {
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
