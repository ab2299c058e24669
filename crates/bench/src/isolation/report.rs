//! What came out, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt;

use comfy_table::Table;
use farmem_machine::Description;
use serde::Serialize;

use super::co_runs::CoRuns;
use super::efficiency::Efficiency;
use super::entries::Entries;
use super::growth::{self, Growth};
use super::kept::Kept;
use super::recovery::Recovery;
use super::reservations::Reservations;
use super::setting::Peer;
use super::site::CoRunsTier;
use super::swap_in::SwapIn;
use super::victim::{Service, Turn};
use crate::median::median;
use crate::option;
use crate::table::table;
use crate::target::Target;

/// A peer's p99 slowdown is to be at most so large.
const SLOWDOWN: f64 = 1.3;
/// It is also to be at most this part of the best kernel peer's.
const PART_OF_BEST: f64 = 0.5;
/// A server is to be itself again so soon for each GiB that it is given.
const SECONDS_PER_GIB: f64 = 3.0;
/// Slowdowns of programs side by side are to be spread at most this part of the best kernel peer's: a
/// third.
const PART_OF_DEVIATION: f64 = 0.33;

/// All that was measured, and on what.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Version of Farmem.
    pub version: &'static str,
    /// The machine.
    pub machine: Description,
    /// Data of each application; a quarter of it was local.
    pub data_bytes: u64,
    /// Turns that each figure is the median of.
    pub repetitions: u32,
    /// How many pages the kernel read from swap at once at most, under each peer that is the kernel's; one
    /// where it read nothing ahead.
    pub read_at_once: BTreeMap<Peer, u64>,
    /// Where far memory of programs side by side was, under Farmem.
    pub far: CoRunsTier,
    /// The server next to the program that swaps.
    pub victim: BTreeMap<Peer, Victim>,
    /// A server that had too little memory and was given more: each turn.
    pub recovery: BTreeMap<Peer, Vec<Recovery>>,
    /// What it takes to bring a page back when there is room again: each turn.
    pub swap_in: BTreeMap<Peer, Vec<SwapIn>>,
    /// What stored pages take, by kind of page.
    pub efficiency: BTreeMap<Peer, Vec<Efficiency>>,
    /// What it takes to find an entry for a page that leaves.
    pub entries: Vec<Entries>,
    /// Programs whose pages keep their entries, and not.
    pub kept: Option<Kept>,
    /// What became of the entries of a program with several threads.
    pub reservations: Vec<Reservations>,
    /// Redis while its data outgrew its memory, and after it was given more: each turn.
    pub growth: BTreeMap<Peer, Vec<Growth>>,
    /// Programs of several kinds side by side, each with a quarter of its memory local.
    pub co_runs: BTreeMap<Peer, CoRuns>,
    /// The same with half of it local.
    pub co_runs_half: BTreeMap<Peer, CoRuns>,
    /// Peers and programs that took no part or failed, and why.
    pub left_out: BTreeMap<String, String>,
    /// What was to be reached.
    pub targets: Vec<Target>,
}

/// The server under one peer: medians over all turns.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Victim {
    /// How many times longer the middle request took next to the other program.
    pub p50_slowdown: f64,
    /// How many times longer the slowest of a hundred took.
    pub p99_slowdown: f64,
    /// What was left of the throughput.
    pub throughput_ratio: f64,
    /// The server without the other program.
    pub alone: Service,
    /// And next to it.
    pub beside: Service,
    /// Pages of both that left each second meanwhile.
    pub swap_outs_per_second: f64,
    /// Pages of both that came back each second.
    pub swap_ins_per_second: f64,
}

impl Victim {
    pub(super) fn of(turns: impl Iterator<Item = Turn>) -> Self {
        let turns: Vec<Turn> = turns.collect();
        let over = |value: &dyn Fn(&Turn) -> f64| median(turns.iter().map(value).collect());
        let service = |which: &dyn Fn(&Turn) -> Service| Service {
            p50_us: over(&|turn| which(turn).p50_us),
            p99_us: over(&|turn| which(turn).p99_us),
            requests_per_second: over(&|turn| which(turn).requests_per_second),
        };
        Self {
            p50_slowdown: over(&|turn| turn.beside.p50_us / turn.alone.p50_us),
            p99_slowdown: over(&|turn| turn.beside.p99_us / turn.alone.p99_us),
            throughput_ratio: over(&|turn| turn.beside.requests_per_second / turn.alone.requests_per_second),
            alone: service(&|turn| turn.alone),
            beside: service(&|turn| turn.beside),
            swap_outs_per_second: over(&|turn| turn.swap_outs_per_second),
            swap_ins_per_second: over(&|turn| turn.swap_ins_per_second),
        }
    }
}

/// Judges what the issue of isolation is measured by.
pub(super) fn judge(
    victim: &BTreeMap<Peer, Victim>,
    recovery: &BTreeMap<Peer, Vec<Recovery>>,
    co_runs: &BTreeMap<Peer, CoRuns>,
) -> Vec<Target> {
    let slowdown = |victim: &Victim| victim.p99_slowdown;
    let deviation = |co_runs: &CoRuns| co_runs.all.deviation;
    // A turn in which it never was itself again counts as the longest.
    let recovered = recovery.get(&Peer::Farmem).map(|turns| {
        median(turns.iter().map(|turn| turn.seconds_per_gib.unwrap_or(f64::INFINITY)).collect())
    });
    vec![
        Target::new("p99 slowdown of the server", SLOWDOWN, victim.get(&Peer::Farmem).map(slowdown)),
        Target::new("p99 slowdown, of the best kernel peer's", PART_OF_BEST, part_of_best(victim, slowdown)),
        Target::new("seconds to full throughput, for each GiB given", SECONDS_PER_GIB, recovered),
        Target::new(
            "spread of slowdowns, of the best kernel peer's",
            PART_OF_DEVIATION,
            part_of_best(co_runs, deviation),
        ),
    ]
}

/// Farmem's figure as a part of the least that a kernel peer has.
fn part_of_best<T>(found: &BTreeMap<Peer, T>, figure: impl Fn(&T) -> f64) -> Option<f64> {
    let kernel = found.iter().filter(|(peer, _)| **peer != Peer::Farmem);
    let best = kernel.map(|(_, found)| figure(found)).reduce(f64::min)?;
    Some(figure(found.get(&Peer::Farmem)?) / best)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "applications of {} MiB each, a quarter of it local; medians of {} on {} cores ({}), Linux {}",
            self.data_bytes >> 20,
            self.repetitions,
            self.machine.cores,
            self.machine.processor,
            self.machine.kernel
        )?;
        let settings: Vec<String> =
            self.read_at_once.iter().map(|(peer, pages)| words_of(*peer, *pages)).collect();
        if !settings.is_empty() {
            writeln!(f, "the kernel reads at most so many pages at once: {}", settings.join(", "))?;
        }
        if !self.victim.is_empty() {
            writeln!(f, "\nmemcached beside random writes\n{}\n", self.table())?;
        }
        if !self.recovery.is_empty() {
            writeln!(f, "{}\n", self.recovery_table())?;
        }
        for (peer, turns) in &self.swap_in {
            let touched = median(turns.iter().map(|turn| turn.touched_us).collect());
            let untouched: Vec<f64> = turns.iter().filter_map(|turn| turn.untouched_us).collect();
            write!(
                f,
                "{}: a page back once there is room: {touched:.1} µs as the program touches it",
                option::name(peer)
            )?;
            if !untouched.is_empty() {
                write!(f, ", {:.1} µs before it does", median(untouched))?;
            }
            writeln!(f)?;
        }
        writeln!(f)?;
        for (peer, kinds) in &self.efficiency {
            let shares: Vec<String> = kinds
                .iter()
                .map(|kind| format!("{} {:.3}", option::name(&kind.compressibility), kind.share()))
                .collect();
            writeln!(f, "{}: bytes used for each byte stored: {}", option::name(peer), shares.join(", "))?;
        }
        if !self.entries.is_empty() {
            writeln!(f, "\n{}\n", self.entries_table())?;
        }
        if let Some(Kept { kept_us, new_us }) = self.kept {
            writeln!(
                f,
                "two programs that write: {kept_us:.1} µs for an access where pages keep their entries, {new_us:.1} µs where they don't"
            )?;
        }
        if !self.reservations.is_empty() {
            writeln!(f, "\none program that writes\n{}\n", self.reservations_table())?;
        }
        if !self.growth.is_empty() {
            writeln!(f, "\nRedis, requests/s while its data grows\n{}\n", self.growth_table())?;
        }
        for (co_runs, share) in [(&self.co_runs, "a quarter"), (&self.co_runs_half, "half")] {
            if !co_runs.is_empty() {
                writeln!(
                    f,
                    "\nprograms beside each other, {share} local{}: how much longer they take\n{}\n",
                    self.far.suffix(),
                    co_runs_table(co_runs)
                )?;
            }
        }
        for (peer, runs) in self.co_runs.iter().chain(&self.co_runs_half) {
            let rates = runs.runs.iter().map(|run| run.group_swap_outs_per_second);
            writeln!(
                f,
                "{}: {:.0} pages out each second, of all beside each other",
                option::name(peer),
                median(rates.collect())
            )?;
            for run in &runs.runs {
                if let Some(figures) = run.beside_figures {
                    writeln!(
                        f,
                        "{}, {} beside others: contribution {:.2}, accuracy {:.2}",
                        option::name(peer),
                        option::name(&run.program),
                        figures.contribution,
                        figures.accuracy
                    )?;
                }
            }
        }
        for (name, reason) in &self.left_out {
            writeln!(f, "{name} left out: {reason}")?;
        }
        for target in &self.targets {
            writeln!(f, "{target}")?;
        }
        Ok(())
    }
}

impl Report {
    fn recovery_table(&self) -> Table {
        let mut table =
            table(&["peer", "requests/s, all local", "a quarter local", "given memory again", "after, s"], 1);
        for (peer, turns) in &self.recovery {
            let over = |value: &dyn Fn(&Recovery) -> f64| median(turns.iter().map(value).collect());
            let seconds = over(&|turn| turn.seconds.unwrap_or(f64::INFINITY));
            table.add_row([
                option::name(peer),
                format!("{:.0}", over(&|turn| turn.full_requests_per_second)),
                format!("{:.0}", over(&|turn| turn.starved_requests_per_second)),
                format!("{:.0}", over(&|turn| turn.settled_requests_per_second)),
                if seconds.is_finite() { format!("{seconds:.2}") } else { "never while watched".to_owned() },
            ]);
        }
        table
    }

    fn entries_table(&self) -> Table {
        let mut table =
            table(&["threads that swap out", "entry kept, ns of a processor", "entry allocated"], 0);
        for entries in &self.entries {
            table.add_row([
                entries.threads.to_string(),
                format!("{:.0}", entries.reserved_ns),
                format!("{:.0}", entries.allocated_ns),
            ]);
        }
        table
    }

    fn reservations_table(&self) -> Table {
        let mut table = table(
            &["threads", "entries", "pages out a second", "allocated %", "reused %", "given back %"],
            2,
        );
        for figure in &self.reservations {
            let share = |count: f64| format!("{:.1}", count / figure.swap_outs.max(1.0) * 100.0);
            table.add_row([
                figure.threads.to_string(),
                figure.entries.name().to_owned(),
                format!("{:.0}", figure.swap_outs_per_second),
                share(figure.allocated),
                share(figure.reused),
                share(figure.given_back),
            ]);
        }
        table
    }

    fn growth_table(&self) -> Table {
        let mut table = table(&["peer", "case", "requests/s"], 2);
        for (peer, turns) in &self.growth {
            for (_, case, rate) in growth::cases(turns) {
                table.add_row([option::name(peer), case, format!("{rate:.0}")]);
            }
        }
        table
    }

    fn table(&self) -> Table {
        let mut table = table(
            &[
                "peer",
                "p50 alone, µs",
                "beside",
                "slowdown",
                "p99 alone, µs",
                "beside",
                "slowdown",
                "requests/s alone",
                "beside",
                "ratio",
            ],
            1,
        );
        for (peer, victim) in &self.victim {
            let (alone, beside) = (victim.alone, victim.beside);
            table.add_row([
                option::name(peer),
                format!("{:.0}", alone.p50_us),
                format!("{:.0}", beside.p50_us),
                format!("{:.2}", victim.p50_slowdown),
                format!("{:.0}", alone.p99_us),
                format!("{:.0}", beside.p99_us),
                format!("{:.2}", victim.p99_slowdown),
                format!("{:.0}", alone.requests_per_second),
                format!("{:.0}", beside.requests_per_second),
                format!("{:.2}", victim.throughput_ratio),
            ]);
        }
        table
    }
}

fn words_of(peer: Peer, read_at_once: u64) -> String {
    format!("{} {read_at_once}", option::name(&peer))
}

fn co_runs_table(co_runs: &BTreeMap<Peer, CoRuns>) -> Table {
    let mut table = table(&["peer", "program", "mean", "minimum", "maximum", "deviation"], 2);
    for (peer, co_runs) in co_runs {
        let programs = co_runs.programs.iter().map(|(program, spread)| (option::name(program), spread));
        for (name, spread) in programs.chain([("all".to_owned(), &co_runs.all)]) {
            let figures = [spread.mean, spread.minimum, spread.maximum, spread.deviation];
            let figures = figures.map(|figure| format!("{figure:.2}"));
            table.add_row([option::name(peer), name].into_iter().chain(figures));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(alone: f64, beside: f64) -> Turn {
        let service = |p99_us| Service { p50_us: p99_us / 4.0, p99_us, requests_per_second: 1e6 / p99_us };
        Turn {
            alone: service(alone),
            beside: service(beside),
            swap_outs_per_second: 0.0,
            swap_ins_per_second: 0.0,
        }
    }

    #[test]
    fn a_slowdown_is_of_one_turn_and_the_median_of_all() {
        let victim = Victim::of([turn(100.0, 110.0), turn(300.0, 900.0), turn(200.0, 240.0)].into_iter());
        assert_eq!(victim.p99_slowdown, 1.2);
        assert_eq!(victim.alone.p99_us, 200.0);
    }

    #[test]
    fn farmem_is_judged_alone_and_by_the_best_of_the_kernels_peers() {
        let victims = BTreeMap::from([
            (Peer::Farmem, Victim::of([turn(100.0, 120.0)].into_iter())),
            (Peer::Zram, Victim::of([turn(100.0, 300.0)].into_iter())),
            (Peer::File, Victim::of([turn(100.0, 900.0)].into_iter())),
        ]);
        let targets = judge(&victims, &BTreeMap::new(), &BTreeMap::new());
        assert_eq!(targets[0].passed, Some(true));
        assert_eq!(targets[1].measured, Some(1.2 / 3.0));
        let nothing = judge(&BTreeMap::new(), &BTreeMap::new(), &BTreeMap::new());
        assert!(nothing.iter().all(|target| target.passed.is_none()));
    }
}
