//! What the page shows, as JSON.

use farmem_client::{ByClass, Explanation, Part, Rates, Report};
use serde::Serialize;

use crate::watch::{MOST_SAMPLES, PERIOD, Sample, Seen, Sight};

/// A program that waits for pages for more than this share of a thread's time is worth a look, for more than
/// that is short of memory.
const WORTH_A_LOOK: f64 = 0.05;
const SHORT: f64 = 0.25;

/// How an application is doing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Level {
    /// It hardly waits for pages.
    Fine,
    /// It waits now and then.
    Paging,
    /// It waits for much of its time.
    Short,
    /// Something was lost, or the disk refuses.
    Trouble,
}

/// All of it.
#[derive(Debug, Serialize)]
pub(crate) struct State {
    look: u64,
    period_ms: u64,
    most_samples: usize,
    is_writable: bool,
    /// Whether who asks knows the token.
    is_admitted: bool,
    left_out: usize,
    applications: Vec<Application>,
}

#[derive(Debug, Serialize)]
struct Application {
    name: String,
    process: u32,
    level: Level,
    reason: String,
    advice: String,
    stall_share: f64,
    causes: Vec<Named>,
    budget_bytes: u64,
    resident_bytes: u64,
    far_bytes: u64,
    shared_resident_bytes: u64,
    shared_far_bytes: u64,
    shared_local_bytes: u64,
    pool_bytes: u64,
    pool_limit_bytes: u64,
    node_bytes: u64,
    disk_bytes: u64,
    processes: u64,
    wall_seconds: f64,
    fault_p50_us: f64,
    fault_p99_us: f64,
    contribution: f64,
    /// Whether it may use memory nodes.
    has_nodes: bool,
    rates: Shown,
    history: History,
}

#[derive(Debug, Serialize)]
struct Named {
    #[serde(flatten)]
    part: Part,
    meaning: &'static str,
}

#[derive(Debug, Serialize)]
struct Shown {
    faults: f64,
    in_bytes: f64,
    out_bytes: f64,
    link_in_bytes: ByClass<f64>,
    link_out_bytes: ByClass<f64>,
}

/// Columns, the oldest sample first.
#[derive(Debug, Default, Serialize)]
struct History {
    look: Vec<u64>,
    stall: Vec<f64>,
    faults: Vec<f64>,
    budget_bytes: Vec<u64>,
    resident_bytes: Vec<u64>,
    far_bytes: Vec<u64>,
    link_in_demand_bytes: Vec<f64>,
    link_in_ahead_bytes: Vec<f64>,
    link_in_bulk_bytes: Vec<f64>,
}

impl State {
    /// As it is now, with what was seen after the look `since`; those in trouble first.
    pub(crate) fn new(sight: &Sight, since: u64, is_writable: bool, is_admitted: bool) -> Self {
        let mut applications: Vec<Application> =
            sight.applications.iter().map(|seen| Application::new(seen, since)).collect();
        applications.sort_by(|one, other| {
            (other.level, &one.name, one.process).cmp(&(one.level, &other.name, other.process))
        });
        Self {
            look: sight.look,
            period_ms: PERIOD.as_millis() as u64,
            most_samples: MOST_SAMPLES,
            is_writable,
            is_admitted,
            left_out: sight.left_out,
            applications,
        }
    }
}

impl Application {
    fn new(seen: &Seen, since: u64) -> Self {
        let now = &seen.now;
        let explanation = Explanation::between(seen.before(), now);
        let (level, reason) = judge(now, &explanation);
        let rates = seen.history.back().map_or(Rates::default(), |sample| sample.rates);
        Self {
            name: now.name.clone(),
            process: now.process,
            level,
            reason,
            stall_share: explanation.share(),
            causes: explanation
                .causes
                .iter()
                .map(|&part| Named { part, meaning: part.cause.meaning() })
                .collect(),
            advice: explanation.advice,
            budget_bytes: now.budget_bytes,
            resident_bytes: now.resident_bytes,
            far_bytes: now.far_bytes(),
            shared_resident_bytes: now.shared_resident_bytes,
            shared_far_bytes: now.shared_far_bytes,
            shared_local_bytes: now.shared_local_bytes,
            pool_bytes: now.pool_bytes,
            pool_limit_bytes: now.pool_limit_bytes,
            node_bytes: now.node_bytes,
            disk_bytes: now.disk_bytes,
            processes: now.processes,
            wall_seconds: now.wall_seconds,
            fault_p50_us: now.fault_p50_us,
            fault_p99_us: now.fault_p99_us,
            contribution: now.contribution,
            has_nodes: now.has_nodes(),
            rates: Shown {
                faults: rates.faults,
                in_bytes: rates.in_bytes,
                out_bytes: rates.out_bytes,
                link_in_bytes: rates.link_in_bytes,
                link_out_bytes: rates.link_out_bytes,
            },
            history: History::of(seen.history.iter().filter(|sample| sample.look > since)),
        }
    }
}

impl History {
    fn of<'a>(samples: impl Iterator<Item = &'a Sample>) -> Self {
        let mut history = Self::default();
        for sample in samples {
            history.look.push(sample.look);
            history.stall.push(sample.rates.stall);
            history.faults.push(sample.rates.faults);
            history.budget_bytes.push(sample.budget_bytes);
            history.resident_bytes.push(sample.resident_bytes);
            history.far_bytes.push(sample.pool_bytes + sample.node_bytes + sample.disk_bytes);
            let ByClass { demand, ahead, bulk } = sample.rates.link_in_bytes;
            history.link_in_demand_bytes.push(demand);
            history.link_in_ahead_bytes.push(ahead);
            history.link_in_bulk_bytes.push(bulk);
        }
        history
    }
}

/// How it is doing, and why, in a few words.
fn judge(now: &Report, explanation: &Explanation) -> (Level, String) {
    if now.counter("lost") > 0 {
        return (Level::Trouble, format!("{} pages are lost", now.counter("lost")));
    }
    if now.disk_writes_failed > 0 {
        return (Level::Trouble, format!("the disk refused {} writes", now.disk_writes_failed));
    }
    let share = explanation.share();
    let level = match share {
        share if share > SHORT => Level::Short,
        share if share > WORTH_A_LOOK => Level::Paging,
        _ => Level::Fine,
    };
    let most = explanation.causes.first().map_or("", |part| part.cause.meaning());
    let reason = match level {
        Level::Fine => "hardly waits for pages".to_owned(),
        _ => format!("waits for pages {:.0}% of a thread's time, mostly {most}", share * 100.0),
    };
    (level, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(process: u32, wall_seconds: f64, stall_seconds: f64) -> Report {
        let stall_ns = (stall_seconds * 1e9) as u64;
        let counters = [("stall_ns", stall_ns), ("stall_disk_ns", stall_ns)];
        Report {
            process,
            wall_seconds,
            counters: counters.map(|(name, value)| (name.to_owned(), value.into())).into_iter().collect(),
            ..Report::default()
        }
    }

    #[test]
    fn who_waits_most_is_first_and_told_why() {
        let mut sight = Sight::default();
        sight.update(vec![report(1, 1.0, 0.0), report(2, 1.0, 0.0), report(3, 1.0, 0.0)]);
        sight.update(vec![report(1, 2.0, 0.0), report(2, 2.0, 0.5), report(3, 2.0, 0.1)]);

        let state = State::new(&sight, 0, false, false);

        let levels: Vec<_> = state.applications.iter().map(|each| (each.process, each.level)).collect();
        assert_eq!(levels, [(2, Level::Short), (3, Level::Paging), (1, Level::Fine)]);
        assert_eq!(
            state.applications[0].reason,
            "waits for pages 50% of a thread's time, mostly fetching pages from disk"
        );
    }

    #[test]
    fn losses_come_before_everything() {
        let now = Report { disk_writes_failed: 3, ..report(1, 1.0, 0.9) };
        let explanation = Explanation::since_start(&now);
        assert_eq!(judge(&now, &explanation), (Level::Trouble, "the disk refused 3 writes".to_owned()));
    }

    #[test]
    fn only_what_is_new_is_sent() {
        let mut sight = Sight::default();
        (0..5).for_each(|look| sight.update(vec![report(1, f64::from(look), 0.0)]));
        let state = State::new(&sight, 3, false, false);
        assert_eq!(state.applications[0].history.look, [4, 5]);
    }
}
