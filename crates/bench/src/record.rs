//! One measurement, as it is kept: a line of JSON that says everything it takes to read it by itself.

use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};
use farmem_machine::Description;
use serde::{Deserialize, Serialize};

/// The name of the file with records in a folder of results.
pub const FILE: &str = "records.jsonl";

/// Which way is the better one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Times, memory.
    Less,
    /// Rates, shares that were served.
    More,
}

/// What a benchmark found, before it is known for whom.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Measurement {
    pub(crate) case: String,
    pub(crate) peer: String,
    pub(crate) measure: &'static str,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
}

impl Measurement {
    pub(crate) fn less(
        case: impl Into<String>,
        peer: impl Into<String>,
        measure: &'static str,
        value: f64,
        unit: &'static str,
    ) -> Self {
        Self { case: case.into(), peer: peer.into(), measure, value, unit, better: Better::Less }
    }

    pub(crate) fn more(
        case: impl Into<String>,
        peer: impl Into<String>,
        measure: &'static str,
        value: f64,
        unit: &'static str,
    ) -> Self {
        Self { better: Better::More, ..Self::less(case, peer, measure, value, unit) }
    }
}

/// What of a benchmark this machine could not run, and why.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct LeftOut {
    /// The benchmark.
    pub bench: String,
    /// What of it.
    pub what: String,
    /// Why.
    pub reason: String,
}

/// What a benchmark found, and what it could not.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Findings {
    pub(crate) measurements: Vec<Measurement>,
    /// Data of each program that was measured; `None` where each has its own, or none.
    pub(crate) data_bytes: Option<u64>,
    /// What was left out, and why.
    pub(crate) left_out: Vec<(String, String)>,
}

/// What the works that Farmem builds on found in the same matter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Paper {
    /// The figure or table.
    pub figure: String,
    /// What it says, with its unit.
    pub number: String,
}

/// A measurement.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The benchmark, as `farmem bench` calls it.
    pub bench: String,
    /// What was done.
    pub case: String,
    /// Under whom.
    pub peer: String,
    /// What was measured.
    pub measure: String,
    /// Which of several repetitions, from 1.
    pub repetition: u32,
    /// The figure.
    pub value: f64,
    /// What it counts.
    pub unit: String,
    /// Which way is better.
    pub better: Better,
    /// What a paper says about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<Paper>,
    /// Data of the program that was measured; `None` where programs have their own, or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_bytes: Option<u64>,
    /// The machine.
    pub machine: Description,
    /// Version of Farmem.
    pub version: String,
    /// The commit that it was built from; `unknown` where the build did not say.
    pub commit: String,
}

/// The records of a file, or of the file in a folder of results.
///
/// # Errors
/// When it can't be read, or a line is no record.
pub fn read(path: &Path) -> anyhow::Result<Vec<Record>> {
    let path = if path.is_dir() { path.join(FILE) } else { path.to_owned() };
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let records = parse(&text).with_context(|| format!("{} holds no records", path.display()))?;
    ensure!(!records.is_empty(), "{} holds no records", path.display());
    Ok(records)
}

/// The first `count` records of a file, or none if it lacks one of them. What follows doesn't matter.
pub(crate) fn read_first(path: &Path, count: usize) -> Option<Vec<Record>> {
    let text = fs::read(path).ok()?;
    let lines = text.split(|byte| *byte == b'\n').take(count);
    let records: Vec<Record> = lines.map(|line| serde_json::from_slice(line).ok()).collect::<Option<_>>()?;
    (records.len() == count).then_some(records)
}

fn parse(text: &str) -> anyhow::Result<Vec<Record>> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(at, line)| serde_json::from_str(line).with_context(|| format!("line {}", at + 1))).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn record(case: &str, peer: &str, repetition: u32, value: f64) -> Record {
        Record {
            bench: "faults".to_owned(),
            case: case.to_owned(),
            peer: peer.to_owned(),
            measure: "time of an access".to_owned(),
            repetition,
            value,
            unit: "µs".to_owned(),
            better: Better::Less,
            paper: None,
            data_bytes: Some(64 << 20),
            machine: Description::current(),
            version: "1.2.3".to_owned(),
            commit: "unknown".to_owned(),
        }
    }

    #[test]
    fn a_record_comes_back_from_its_line() {
        let record = record("random-read", "farmem", 2, 12.5);
        let line = serde_json::to_string(&record).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(parse(&format!("{line}\n\n")).unwrap(), [record]);
    }

    #[test]
    fn what_is_no_record_is_named_by_its_line() {
        let error = format!("{:#}", parse("\n{\"bench\": 1}\n").unwrap_err());
        assert!(error.starts_with("line 2"), "{error}");
    }
}
