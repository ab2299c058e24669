//! A run in ten lines: what was asked, what was used, what paging cost, what would help.

use std::fmt::{Arguments, Write as _};

use farmem_page::mebibytes;

use crate::report::explanation::Explanation;
use crate::report::run::Report;
use crate::report::troubles::troubles;

/// The lines that `--summary` prints. Beyond ten only what has gone wrong.
pub(crate) fn summary(report: &Report) -> String {
    let explanation = Explanation::since_start(report);
    let mut text = String::new();
    let mut line = |arguments: Arguments<'_>| {
        let _ = writeln!(text, "farmem: {arguments}");
    };
    line(format_args!(
        "{} ran {:.2} s, used {:.2} s of processor time, {:.2} s of it for paging",
        report.name, report.wall_seconds, report.cpu_seconds, report.pager_cpu_seconds
    ));
    line(format_args!(
        "asked to stay within {:.1} MiB, peaked at {:.1} MiB; managed at most {:.1} MiB",
        mebibytes(report.budget_bytes),
        mebibytes(report.resident_peak_bytes),
        mebibytes(report.managed_peak_bytes)
    ));
    line(format_args!(
        "pool {:.1} MiB for {:.1} MiB of pages; disk {:.1} MiB",
        mebibytes(report.pool_bytes),
        mebibytes(report.pool_stored_pages << farmem_page::PAGE_SHIFT),
        mebibytes(report.disk_bytes)
    ));
    if report.node_bytes > 0 || report.node_fetches > 0 {
        line(format_args!(
            "nodes {:.1} MiB; {} reads from them, {} pages came along with an earlier read",
            mebibytes(report.node_bytes),
            report.node_fetches,
            report.read_buffer_hits
        ));
    }
    line(format_args!(
        "{} faults, half of them within {:.1} µs, all but 1% within {:.1} µs",
        report.counter("faults"),
        report.fault_p50_us,
        report.fault_p99_us
    ));
    line(format_args!(
        "{} pages fetched on demand, {} ahead of it ({:.0}% of those used)",
        report.counter("fetches"),
        report.counter("prefetched"),
        report.accuracy * 100.0
    ));
    line(format_args!(
        "{} pages evicted, {} of them unchanged and dropped without a write",
        report.counter("evicted"),
        report.counter("dropped_clean")
    ));
    line(format_args!(
        "threads waited {:.2} s for pages{}",
        explanation.stall_seconds,
        largest_causes(&explanation)
    ));
    line(format_args!("{}", explanation.advice));
    troubles(report).iter().for_each(|trouble| line(format_args!("{trouble}")));
    text
}

/// The three causes that took longest.
fn largest_causes(explanation: &Explanation) -> String {
    let share = |seconds: f64| seconds / explanation.stall_seconds * 100.0;
    let named: Vec<String> = explanation
        .causes
        .iter()
        .take(3)
        .map(|part| format!("{:.0}% {}", share(part.seconds), part.cause.meaning()))
        .collect();
    if named.is_empty() { String::new() } else { format!(": {}", named.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_run_takes_ten_lines_at_most() {
        let counters = [("stall_ns", 2_000_000_000_u64), ("stall_pool_ns", 1_500_000_000), ("fetches", 9)];
        let report = Report {
            name: "sort".to_owned(),
            wall_seconds: 4.0,
            node_bytes: 1 << 20,
            counters: counters.map(|(name, value)| (name.to_owned(), value.into())).into_iter().collect(),
            ..Report::default()
        };

        let text = summary(&report);

        assert!(
            text.lines().count() <= 10 && text.lines().all(|line| line.starts_with("farmem: ")),
            "{text}"
        );
        assert!(
            text.contains(
                "threads waited 2.00 s for pages: 75% fetching pages from the pool, 25% anything else"
            ),
            "{text}"
        );
    }

    #[test]
    fn without_a_fault_nothing_was_waited_for() {
        assert!(summary(&Report::default()).contains("threads waited 0.00 s for pages\n"));
    }
}
