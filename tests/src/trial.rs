//! One scenario, natively and under the pager.

use std::fmt::Debug;
use std::time::Instant;

use crate::launch::{Launcher, Runner, runner};
use crate::looks::{LOOK_INTERVAL, pause_after};
use crate::scale::patience;

/// The share of its own peak that a program gets as local budget.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Share {
    /// 50%.
    Half,
    /// 25%.
    Quarter,
}

impl Share {
    fn of(self, peak_bytes: u64) -> u64 {
        match self {
            Self::Half => peak_bytes / 2,
            Self::Quarter => peak_bytes / 4,
        }
    }
}

const MEBIBYTE: u64 = 1024 * 1024;

/// Runs the scenario natively, then with a share of its peak as budget, and compares both transcripts.
///
/// # Panics
/// When the transcripts differ, or the statistics of a managed run can't be true.
pub fn same_at(share: Share, scenario: impl Fn(&Launcher) -> String) {
    let native = Launcher::native();
    let expected = scenario(&native);
    let peaks: Vec<u64> = native.records().iter().map(|record| record.peak.anonymous_bytes).collect();
    let peak_bytes = peaks.iter().copied().max().expect("a scenario starts a program");
    let budget_bytes = share.of(peak_bytes).next_multiple_of(MEBIBYTE);
    eprintln!("peak {} MiB natively, budget {} MiB", peak_bytes / MEBIBYTE, budget_bytes / MEBIBYTE);

    let run = || {
        let second = second_launcher(budget_bytes);
        let transcript = scenario(&second);
        assert_eq!(transcript, expected, "the program did something else under the pager");
        overshoots(&second, &peaks)
    };
    // A budget is kept by a thread that needs a core in time: short programs have filled their memory when it
    // gets one.
    assert_in_one_of_three(run, Vec::is_empty);
}

/// Checks the statistics of a managed launcher's programs. In what they went past their budget, and what they
/// must have done and didn't, one sentence each.
fn overshoots(launcher: &Launcher, native_peaks: &[u64]) -> Vec<String> {
    let Some(budget_bytes) = launcher.budget_bytes() else { return Vec::new() };
    let mut contradictions = Vec::new();
    let (mut overshoots, mut lacks) = (Vec::new(), Vec::new());
    for (record, native_peak) in launcher.records().iter().zip(native_peaks) {
        match &record.statistics {
            Some(Ok(statistics)) => {
                let must_have_paged = *native_peak > budget_bytes + budget_bytes / 4;
                contradictions.extend(statistics.contradictions(budget_bytes));
                overshoots.extend(statistics.overshoot(budget_bytes));
                if must_have_paged {
                    lacks.extend(statistics.lacks());
                }
                for key in ["wall_seconds", "resident_peak_bytes", "faults", "evicted", "fault_p50_us"] {
                    eprint!("{key} {}  ", statistics.number(key));
                }
                eprintln!();
            }
            Some(Err(sentence)) => contradictions.push(sentence.clone()),
            None => contradictions.push("no statistics were written".to_owned()),
        }
        let pager_bytes = native_peak * 15 / 1000 + 32 * MEBIBYTE;
        let most_bytes = budget_bytes + budget_bytes / 20 + 16 * MEBIBYTE + pager_bytes;
        if record.peak.anonymous_bytes > most_bytes {
            overshoots.push(format!(
                "the kernel counted {} MiB of resident anonymous memory, with a budget of {} MiB",
                record.peak.anonymous_bytes / MEBIBYTE,
                budget_bytes / MEBIBYTE
            ));
        }
    }
    assert!(contradictions.is_empty(), "{}", contradictions.join("\n"));
    if !launcher.may_overshoot() {
        lacks.append(&mut overshoots);
    }
    lacks
}

/// In what a managed launcher's programs, each of which has `data_bytes` of memory, went past the budget, one
/// sentence each.
///
/// # Panics
/// When their statistics can't be true.
#[must_use]
pub fn past_budget(launcher: &Launcher, data_bytes: u64) -> Vec<String> {
    overshoots(launcher, &vec![data_bytes; launcher.records().len()])
}

/// Checks that they did not.
///
/// # Panics
/// When one did, or its statistics can't be true.
pub fn assert_within_budget(launcher: &Launcher, data_bytes: u64) {
    let overshoots = past_budget(launcher, data_bytes);
    assert!(overshoots.is_empty(), "{}", overshoots.join("\n"));
}

/// A launcher for the runner of this test run: with that budget when it is farmem, else native.
#[must_use]
pub fn second_launcher(budget_bytes: u64) -> Launcher {
    match runner() {
        Runner::Native => Launcher::native(),
        Runner::Farmem => Launcher::managed(budget_bytes),
    }
}

/// Waits until `ready` gives something.
///
/// # Panics
/// When it never does.
pub fn wait_for<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + patience();
    loop {
        let began = Instant::now();
        if let Some(value) = ready() {
            return value;
        }
        assert!(Instant::now() < deadline, "{what} never came");
        pause_after(began, LOOK_INTERVAL);
    }
}

/// Checks figures that depend on when the threads of a program and its pager get a core, as what comes ahead
/// in time does: of three runs one must have them as wanted, and what the others had is printed. What holds
/// in every run, `measure` itself checks.
///
/// # Panics
/// When none has.
pub fn assert_in_one_of_three<Figures: Debug>(
    mut measure: impl FnMut() -> Figures,
    is_wanted: impl Fn(&Figures) -> bool,
) {
    let mut others = Vec::new();
    while others.len() < 3 {
        let figures = measure();
        if is_wanted(&figures) {
            return;
        }
        eprintln!("not as wanted: {figures:?}");
        others.push(figures);
    }
    panic!("none of three runs was as wanted: {others:#?}");
}

/// Checks that no process that this test has started lives any more, not even in the background.
///
/// # Panics
/// When one still does after long.
pub fn assert_nothing_is_left() {
    wait_for("the end of all processes", || {
        let others = crate::watch::living_tree(std::process::id());
        (others == [std::process::id()]).then_some(())
    });
}
