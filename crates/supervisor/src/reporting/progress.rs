//! One line that says how the run goes, refreshed in place (`--progress`).

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use farmem_client::Rates;
use farmem_client::Report;

use crate::say;

/// From one line to the next.
const PERIOD: Duration = Duration::from_secs(1);
/// As wide as a terminal that doesn't say.
const COLUMNS: usize = 80;

/// What shows it.
pub(super) struct Progress {
    due: Instant,
    before: Report,
    /// On anything but a terminal each line stays, and the next one follows it.
    is_terminal: bool,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { due: Instant::now() + PERIOD, before: Report::default(), is_terminal: stderr().is_terminal() }
    }

    pub(super) fn is_due(&self) -> bool {
        Instant::now() >= self.due
    }

    pub(super) fn show(&mut self, now: Report) {
        let text = line(&self.before, &now);
        if self.is_terminal {
            say::show_line(&shortened(&text, columns()));
        } else {
            say::say(&text);
        }
        self.before = now;
        self.due = Instant::now() + PERIOD;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        say::clear_line();
    }
}

/// How the run goes, what matters most first.
fn line(before: &Report, now: &Report) -> String {
    let rates =
        if before.process == now.process { Rates::between(before, now) } else { Rates::since_start(now) };
    let mib = |bytes: u64| bytes >> 20;
    format!(
        "{} {:.0} s: local {} of {} MiB, far {} MiB, {:.0} faults/s, waits {:.0}%",
        now.name,
        now.wall_seconds,
        mib(now.resident_bytes),
        mib(now.budget_bytes),
        mib(now.far_bytes()),
        rates.faults,
        rates.stall * 100.0
    )
}

/// What fits a line of a terminal, one column left free: the last one may wrap.
fn shortened(text: &str, columns: usize) -> String {
    text.chars().take(columns.saturating_sub(1)).collect()
}

fn columns() -> usize {
    match rustix::termios::tcgetwinsize(stderr()) {
        Ok(size) if size.ws_col > 0 => size.ws_col.into(),
        _ => COLUMNS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_what_happened_since_the_last_one() {
        let report = |wall_seconds, faults: u64| Report {
            name: "sort".to_owned(),
            process: 1,
            wall_seconds,
            budget_bytes: 64 << 20,
            resident_bytes: 60 << 20,
            far_pages: 512,
            counters: [("faults".to_owned(), faults.into())].into_iter().collect(),
            ..Report::default()
        };

        let text = line(&report(1.0, 100), &report(2.0, 600));

        assert_eq!(text, "sort 2 s: local 60 of 64 MiB, far 2 MiB, 500 faults/s, waits 0%");
        assert_eq!(shortened(&text, 7), "sort 2");
    }
}
