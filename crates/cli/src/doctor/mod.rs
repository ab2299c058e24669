//! `farmem doctor`: what this machine and user can do, and for each gap the one command that repairs it.
//!
//! Only looks; changes nothing. Each module knows one part of the machine.

mod kernel;
mod limits;
mod memory;
mod permission;
mod process;

use std::fs;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use farmem::Failure;
use serde::Serialize;

use crate::arguments::DoctorArguments;

/// What a check came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    /// As it should be.
    Ok,
    /// Something is missing.
    Gap,
    /// The machine doesn't tell.
    Unknown,
}

/// One thing that was looked at.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Check {
    name: &'static str,
    verdict: Verdict,
    /// Whether `farmem run` can't work when it is missing, or the process that was asked about can't be
    /// attached to.
    essential: bool,
    /// What was found.
    found: String,
    /// What it means for programs under Farmem.
    meaning: &'static str,
    /// The command that repairs a gap, where a command can.
    #[serde(rename = "mend")]
    fix: Option<String>,
}

impl Check {
    /// A check that came out well, so far.
    fn ok(name: &'static str, found: impl Into<String>, meaning: &'static str) -> Self {
        Self { name, verdict: Verdict::Ok, essential: false, found: found.into(), meaning, fix: None }
    }

    /// A check that can't be decided.
    fn unknown(name: &'static str, found: impl Into<String>, meaning: &'static str) -> Self {
        Self { verdict: Verdict::Unknown, ..Self::ok(name, found, meaning) }
    }

    /// The same check, as a gap with its remedy, unless `fine`.
    fn gap_unless(self, fine: bool, fix: &str) -> Self {
        if fine { self } else { Self { verdict: Verdict::Gap, fix: Some(fix.to_owned()), ..self } }
    }

    /// The same check as one that `farmem run` can't do without.
    fn essential(self) -> Self {
        Self { essential: true, ..self }
    }

    fn stops_run(&self) -> bool {
        self.essential && self.verdict == Verdict::Gap
    }
}

/// The whole answer.
#[derive(Debug, Serialize)]
struct Diagnosis {
    can_run: bool,
    /// Of the process that was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    can_attach: Option<bool>,
    checks: Vec<Check>,
}

/// Looks at everything and prints what it found; status 0 when `farmem run` can work here, or the process can
/// be attached to, else 1.
pub(crate) fn doctor(arguments: &DoctorArguments) -> Result<ExitCode, Failure> {
    let mut checks: Vec<Check> = [kernel::checks(), permission::checks(), memory::checks(), limits::checks()]
        .into_iter()
        .flatten()
        .collect();
    let can_run = !checks.iter().any(Check::stops_run);
    let of_process = arguments.process.map(process::checks);
    let can_attach = of_process.as_ref().map(|checks| can_run && !checks.iter().any(Check::stops_run));
    checks.extend(of_process.into_iter().flatten());
    let diagnosis = Diagnosis { can_run, can_attach, checks };
    let text = if arguments.json {
        serde_json::to_string_pretty(&diagnosis).context("cannot write the diagnosis")? + "\n"
    } else {
        describe(&diagnosis, arguments.all)
    };
    io::stdout().write_all(text.as_bytes()).context("cannot print the diagnosis")?;
    Ok(if can_attach.unwrap_or(can_run) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The answer, and below it what is missing, or all that was looked at.
fn describe(diagnosis: &Diagnosis, is_all: bool) -> String {
    let count = |verdict| diagnosis.checks.iter().filter(|check| check.verdict == verdict).count();
    let mut text = match (diagnosis.can_run, count(Verdict::Gap)) {
        _ if diagnosis.can_attach == Some(true) => "`farmem attach` can manage it.\n".to_owned(),
        (true, _) if diagnosis.can_attach == Some(false) => "`farmem attach` can't manage it.\n".to_owned(),
        (true, 0) => "`farmem run` can work here.\n".to_owned(),
        (true, _) => "`farmem run` can work here, with the gaps below.\n".to_owned(),
        (false, _) => "`farmem run` cannot work here until the gaps below are closed.\n".to_owned(),
    };
    let shown: Vec<&Check> =
        diagnosis.checks.iter().filter(|check| is_all || check.verdict != Verdict::Ok).collect();
    let width = shown.iter().map(|check| check.name.len()).max().unwrap_or(0) + 2;
    let indent = 9 + width;
    for check in shown {
        let verdict = match check.verdict {
            Verdict::Ok => "ok",
            Verdict::Gap => "gap",
            Verdict::Unknown => "unknown",
        };
        let (name, found, meaning) = (check.name, &check.found, check.meaning);
        text.push_str(&format!("\n{verdict:<9}{name:<width$}{found}\n{:indent$}{meaning}\n", ""));
        if let Some(fix) = &check.fix {
            text.push_str(&format!("{:indent$}fix: {fix}\n", ""));
        }
    }
    if !is_all {
        text.push_str(&format!("\nChecks that are fine: {}; --all shows them.\n", count(Verdict::Ok)));
    }
    text
}

/// A file of the kernel, without its line end; `None` when it can't be read.
fn read(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_essential_gap_stops_run() {
        let gap = Check::ok("x", "y", "z").gap_unless(false, "fix it");

        assert!(!gap.stops_run());
        assert!(gap.essential().stops_run());
        assert!(!Check::ok("x", "y", "z").essential().stops_run());
        assert!(!Check::unknown("x", "y", "z").essential().stops_run());
    }

    #[test]
    fn a_gap_is_shown_with_its_fix_below_the_answer_and_the_rest_when_asked_for() {
        let checks = vec![
            Check::ok("swap", "on", "means something").gap_unless(false, "swapoff -a"),
            Check::ok("kernel", "new", "means a lot"),
        ];
        let diagnosis = Diagnosis { can_run: true, can_attach: None, checks };

        let text = describe(&diagnosis, false);
        assert!(text.starts_with("`farmem run` can work here"), "{text}");
        assert!(text.contains("gap") && text.contains("fix: swapoff -a"), "{text}");
        assert!(!text.contains("kernel") && text.contains("fine: 1;"), "{text}");
        let all = describe(&diagnosis, true);
        assert!(all.contains("fix: swapoff -a") && all.contains("means a lot"), "{all}");
    }
}
