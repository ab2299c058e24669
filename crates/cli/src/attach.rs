//! `farmem attach`: checks everything that can be checked, then hands over to a supervisor in the background,
//! and waits until the processes are within their budget.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use farmem::Failure;
use farmem_page::mebibytes;
use farmem_supervisor::Standing;

use crate::arguments::{AttachArguments, Progress};
use crate::log;
use crate::manage;
use crate::print::print_json;
use crate::run::{application, is_shown};
use crate::subject;

/// Between two lines where each stays.
const PERIOD: Duration = Duration::from_secs(1);
/// To a terminal: back to the first column, and delete what follows.
const CLEAR: &str = "\r\x1b[K";

/// Manages them from now on.
pub(crate) fn attach(arguments: AttachArguments) -> Result<ExitCode, Failure> {
    let format = arguments.application.log;
    let (subject, name) = subject::resolve(&arguments.subject)?;
    let mut plan = application(arguments.application)?;
    if plan.name.is_empty() {
        plan.name = name;
    }
    plan.managed_by = manage::managed_by();
    log::begin(format)?;
    let options = plan.options()?;
    let mut display = Display::new(arguments.watching.progress);
    let outcome = farmem_supervisor::attach(&options, &subject, |now| display.show(|| line(now)));
    display.clear();
    let standing = outcome.map_err(|error| Failure::Unusable(format!("{error:#}")))?;
    if arguments.watching.json {
        print_json(&standing)?;
    } else {
        println!("{}", sentence(&standing));
    }
    Ok(ExitCode::SUCCESS)
}

/// How it goes.
fn line(now: &Standing) -> String {
    format!(
        "{}: {} of {} processes, local {:.0} of {:.0} MiB, far {:.0} MiB",
        now.name,
        now.managed,
        now.processes,
        mebibytes(now.resident_bytes),
        mebibytes(now.budget_bytes),
        mebibytes(now.far_bytes)
    )
}

/// How it went.
fn sentence(standing: &Standing) -> String {
    let outcome = if standing.is_within_budget() {
        String::new()
    } else {
        let reason = standing.refusal.as_deref().unwrap_or("nothing more of it leaves");
        format!("; above its budget of {:.1} MiB: {reason}", mebibytes(standing.budget_bytes))
    };
    format!(
        "{} (process {}): {} {}, {} with a pager, local {:.1} MiB, far {:.1} MiB{outcome}",
        standing.name,
        standing.process,
        standing.processes,
        if standing.processes == 1 { "process" } else { "processes" },
        standing.managed,
        mebibytes(standing.resident_bytes),
        mebibytes(standing.far_bytes)
    )
}

/// Shows on standard error how it goes: on a terminal in one line, elsewhere in a line each second.
pub(crate) struct Display {
    is_shown: bool,
    is_terminal: bool,
    shown: Option<Instant>,
}

impl Display {
    /// Unless it was asked for it is shown on a terminal alone.
    pub(crate) fn new(asked: Option<Progress>) -> Self {
        let is_shown = is_shown(asked.unwrap_or(Progress::Terminal));
        Self { is_shown, is_terminal: io::stderr().is_terminal(), shown: None }
    }

    pub(crate) fn show(&mut self, text: impl FnOnce() -> String) {
        let is_due = self.is_terminal || self.shown.is_none_or(|shown| shown.elapsed() >= PERIOD);
        if !self.is_shown || !is_due {
            return;
        }
        self.shown = Some(Instant::now());
        let text = if self.is_terminal { CLEAR.to_owned() + &text() } else { text() + "\n" };
        // Nobody may read there any more.
        let _ = io::stderr().write_all(text.as_bytes());
    }

    /// Takes the line away.
    pub(crate) fn clear(&self) {
        if self.is_terminal && self.shown.is_some() {
            let _ = io::stderr().write_all(CLEAR.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_above_its_budget_is_told_with_the_reason() {
        let mut standing = Standing {
            name: "redis".to_owned(),
            process: 7,
            processes: 1,
            managed: 1,
            budget_bytes: 64 << 20,
            resident_bytes: 64 << 20,
            far_bytes: 1 << 20,
            refusal: None,
            is_over: true,
        };
        assert_eq!(
            sentence(&standing),
            "redis (process 7): 1 process, 1 with a pager, local 64.0 MiB, far 1.0 MiB"
        );
        standing.resident_bytes = 80 << 20;
        assert!(sentence(&standing).ends_with("; above its budget of 64.0 MiB: nothing more of it leaves"));
        standing.refusal = Some("process 8: it is traced".to_owned());
        assert!(sentence(&standing).ends_with("64.0 MiB: process 8: it is traced"));
    }
}
