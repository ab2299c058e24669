//! A report as records.

use super::co_runs::CoRuns;
use super::growth::{self, Phase};
use super::report::Report;
use super::setting::Peer;
use crate::median::median;
use crate::option;
use crate::record::{Findings, Measurement};

const SERVER: &str = "memcached";

impl Report {
    /// What it found.
    pub(crate) fn findings(&self) -> Findings {
        let mut found = Vec::new();
        for (peer, victim) in &self.victim {
            let peer = option::name(peer);
            found.extend([
                Measurement::less(SERVER, &peer, "p99 slowdown", victim.p99_slowdown, "×"),
                Measurement::less(SERVER, &peer, "p50 slowdown", victim.p50_slowdown, "×"),
                Measurement::more(SERVER, &peer, "throughput left", victim.throughput_ratio * 100.0, "%"),
                Measurement::more(
                    "memcached beside random writes",
                    &peer,
                    "swap-outs per second",
                    victim.swap_outs_per_second,
                    "pages",
                ),
                Measurement::more(
                    "memcached beside random writes",
                    &peer,
                    "swap-ins per second",
                    victim.swap_ins_per_second,
                    "pages",
                ),
            ]);
        }
        for (peer, turns) in &self.recovery {
            let times: Vec<f64> = turns.iter().filter_map(|turn| turn.seconds_per_gib).collect();
            if !times.is_empty() {
                let measure = "time to full throughput for each GiB given";
                found.push(Measurement::less(SERVER, option::name(peer), measure, median(times), "s"));
            }
        }
        for (peer, turns) in &self.swap_in {
            let peer = option::name(peer);
            let mut back = |case, times: Vec<f64>| {
                if !times.is_empty() {
                    let time = median(times);
                    found.push(Measurement::less(case, &peer, "time of a page brought back", time, "µs"));
                }
            };
            back("as it is touched", turns.iter().map(|turn| turn.touched_us).collect());
            back("before it is touched", turns.iter().filter_map(|turn| turn.untouched_us).collect());
        }
        for (peer, kinds) in &self.efficiency {
            found.extend(kinds.iter().map(|kind| {
                let case = format!("{} pages", option::name(&kind.compressibility));
                let share = kind.share();
                Measurement::less(case, option::name(peer), "bytes used for a byte stored", share, "bytes")
            }));
        }
        for entries in &self.entries {
            let threads = entries.threads;
            let case = format!("{threads} {}", if threads == 1 { "thread" } else { "threads" });
            let measure = "processor time of a swap-out";
            found.extend([
                Measurement::less(&case, "entry kept", measure, entries.reserved_ns, "ns"),
                Measurement::less(&case, "entry allocated", measure, entries.allocated_ns, "ns"),
            ]);
        }
        if let Some(kept) = self.kept {
            let (case, measure) = ("two programs that write", "time of an access beside the other");
            found.extend([
                Measurement::less(case, "entry kept", measure, kept.kept_us, "µs"),
                Measurement::less(case, "entry allocated", measure, kept.new_us, "µs"),
            ]);
        }
        for figure in &self.reservations {
            let plural = if figure.threads == 1 { "" } else { "s" };
            let case = format!("{} thread{plural} that write", figure.threads);
            let peer = figure.entries.name();
            let share = |count: f64| count / figure.swap_outs.max(1.0) * 100.0;
            let rate = figure.swap_outs_per_second;
            found.extend([
                Measurement::more(&case, peer, "swap-outs per second of one program", rate, "pages"),
                Measurement::less(
                    &case,
                    peer,
                    "entries allocated for a swap-out",
                    share(figure.allocated),
                    "%",
                ),
                Measurement::less(
                    &case,
                    peer,
                    "entries given back for a swap-out",
                    share(figure.given_back),
                    "%",
                ),
            ]);
        }
        for (peer, turns) in &self.growth {
            let told = growth::cases(turns).into_iter().chain(growth::seconds(turns));
            found.extend(told.map(|(phase, case, rate)| {
                let measure = match phase {
                    Phase::Grows => "requests per second of Redis as its data grows",
                    Phase::Given => "requests per second of Redis after a gift of memory",
                    Phase::SecondsOfGrowth => "requests per second of Redis in each second of its growth",
                    Phase::SecondsGiven => {
                        "requests per second of Redis in each second after a gift of memory"
                    }
                };
                Measurement::more(case, option::name(peer), measure, rate, "requests")
            }));
        }
        for (peer, co_runs) in &self.co_runs {
            found.extend(programs(*peer, co_runs, self.far.suffix()));
        }
        for (peer, co_runs) in &self.co_runs_half {
            found.extend(programs(*peer, co_runs, &format!(", half local{}", self.far.suffix())));
        }
        let left_out = self.left_out.iter().map(|(what, reason)| (what.clone(), reason.clone()));
        Findings { measurements: found, data_bytes: Some(self.data_bytes), left_out: left_out.collect() }
    }
}

/// Programs side by side; `suffix` tells their cases from others.
fn programs(peer: Peer, co_runs: &CoRuns, suffix: &str) -> Vec<Measurement> {
    let peer = option::name(&peer);
    let mut found = Vec::new();
    let spreads = co_runs.programs.iter().map(|(program, spread)| (option::name(program), spread));
    for (program, spread) in spreads.chain([("all programs".to_owned(), &co_runs.all)]) {
        let case = format!("{program}{suffix}");
        let less = |measure, value| Measurement::less(&case, &peer, measure, value, "×");
        found.extend([
            less("slowdown beside others", spread.mean),
            less("least slowdown", spread.minimum),
            less("largest slowdown", spread.maximum),
            less("spread of slowdowns", spread.deviation),
        ]);
    }
    for program in co_runs.programs.keys() {
        let case = format!("{}{suffix}", option::name(program));
        let runs = || co_runs.runs.iter().filter(|run| run.program == *program);
        let alone = median(runs().map(|run| run.alone_seconds).collect());
        let beside = median(runs().map(|run| run.beside_seconds).collect());
        found.push(Measurement::less(&case, &peer, "time alone", alone, "s"));
        found.push(Measurement::less(&case, &peer, "time beside others", beside, "s"));
        let figures = || runs().filter_map(|run| run.beside_figures);
        if figures().next().is_some() {
            let more = |measure, share: f64| Measurement::more(&case, &peer, measure, share * 100.0, "%");
            let contribution = median(figures().map(|figures| figures.contribution).collect());
            let accuracy = median(figures().map(|figures| figures.accuracy).collect());
            found.push(more("contribution beside others", contribution));
            found.push(more("accuracy beside others", accuracy));
        }
    }
    let rate = median(co_runs.runs.iter().map(|run| run.group_swap_outs_per_second).collect());
    let measure = "swap-outs per second of all beside each other";
    found.push(Measurement::more(format!("all programs{suffix}"), &peer, measure, rate, "pages"));
    found
}
