//! Programs side by side, and how much longer each takes than alone (Canvas, §6.3 and Table 3).
//!
//! A group is three native programs and a managed one. Each has a quarter or half of what it would take
//! local, and a part of a processor that is the same alone and together with the others; what they still
//! share is the paging. Under Farmem they have one broker, and weights as their data is; their far memory is
//! in pools, on a memory node or on disk.

mod course;
mod profile;
mod program;
mod spread;

use std::collections::BTreeMap;
use std::path::Path;

use farmem_page::ByteCount;
use serde::Serialize;

use super::setting::{Peer, Setting};
use super::site::{CoRunsTier, Site};
use crate::interrupt::Interrupt;
use crate::option;
pub use course::Figures;
use profile::Profile;
use program::Kit;
pub use program::Program;
pub use spread::Spread;

/// Requests to memcached that count as one run, for each MiB of its data.
const REQUESTS_PER_MEBIBYTE: u64 = 500;

/// Programs of one peer.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CoRuns {
    /// How much longer each program took together with the others, over all its runs.
    pub programs: BTreeMap<Program, Spread>,
    /// The same for all programs together.
    pub all: Spread,
    /// Each run.
    pub runs: Vec<Run>,
}

/// A program alone and in a group.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Run {
    /// Which.
    pub program: Program,
    /// The managed program of the group; `None` where there is none.
    pub beside: Option<Program>,
    /// Seconds that it took alone.
    pub alone_seconds: f64,
    /// And in the group.
    pub beside_seconds: f64,
    /// What Farmem says about it in the group, where that ran it.
    pub beside_figures: Option<Figures>,
    /// Pages of the whole group that left each second.
    pub group_swap_outs_per_second: f64,
}

impl Run {
    fn slowdown(&self) -> f64 {
        self.beside_seconds / self.alone_seconds
    }
}

impl CoRuns {
    /// Of all runs; `None` of none.
    pub(super) fn of(runs: Vec<Run>) -> Option<Self> {
        let mut slowdowns: BTreeMap<Program, Vec<f64>> = BTreeMap::new();
        for run in &runs {
            slowdowns.entry(run.program).or_default().push(run.slowdown());
        }
        let spread = |(program, values): (&Program, &Vec<f64>)| Some((*program, Spread::of(values)?));
        let all = Spread::of(&runs.iter().map(Run::slowdown).collect::<Vec<_>>())?;
        Some(Self { programs: slowdowns.iter().filter_map(spread).collect(), all, runs })
    }
}

/// What runs, and what it takes.
pub(super) struct Programs {
    kit: Kit,
    profiles: BTreeMap<Program, Profile>,
    /// The managed program of each group.
    managed: Vec<Program>,
    /// Where the programs lie.
    _folder: tempfile::TempDir,
}

/// One turn of one peer.
#[derive(Clone, Copy)]
pub(super) struct Terms<'a> {
    pub(super) peer: Peer,
    /// Where far memory is under Farmem.
    pub(super) far: CoRunsTier,
    /// Local is a program's memory divided by this.
    pub(super) part: u64,
    pub(super) farmem: &'a Path,
    pub(super) swap_folder: &'a Path,
    pub(super) interrupt: &'a Interrupt,
}

impl Programs {
    /// Prepares them, each for so much data, and runs each once; `is_short` for one group instead of three.
    /// With it, those that can't be run here and why.
    pub(super) fn prepare(
        python: &Path,
        data: ByteCount,
        is_short: bool,
        interrupt: &Interrupt,
    ) -> anyhow::Result<(Self, BTreeMap<Program, String>)> {
        let folder = tempfile::tempdir()?;
        let (kit, mut missing) = Kit::prepare(folder.path(), python, data)?;
        let groups = if is_short { 1 } else { Program::MANAGED.len() };
        let managed = &Program::MANAGED[..groups];
        let mut profiles = BTreeMap::new();
        for &program in Program::NATIVE.iter().chain(managed) {
            interrupt.check()?;
            if missing.contains_key(&program) {
                continue;
            }
            eprintln!("farmem: {} with all its memory", option::name(&program));
            match Profile::take(&kit, program, interrupt) {
                Ok(profile) => drop(profiles.insert(program, profile)),
                Err(error) => drop(missing.insert(program, format!("{error:#}"))),
            }
        }
        let managed = managed.iter().copied().filter(|program| profiles.contains_key(program)).collect();
        Ok((Self { kit, profiles, managed, _folder: folder }, missing))
    }

    /// Runs each program alone, and then the groups.
    pub(super) fn turn(&self, terms: Terms<'_>) -> anyhow::Result<Vec<Run>> {
        let Terms { peer, far, part, farmem, swap_folder, interrupt } = terms;
        let peaks: Vec<ByteCount> = self.profiles.values().map(|profile| profile.peak).collect();
        let data = ByteCount::new(peaks.iter().map(|peak| peak.get()).sum());
        let setting = Setting::prepare(peer, farmem, data, swap_folder, interrupt)?;
        let site = match peer {
            Peer::Farmem => Some(Site::open(farmem, far, &peaks, swap_folder)?),
            _ => None,
        };
        let requests = (self.kit.data().get() >> 20).max(1) * REQUESTS_PER_MEBIBYTE;
        let run = |profiles: &[&Profile]| {
            let names: Vec<String> = profiles.iter().map(|profile| option::name(&profile.program)).collect();
            eprintln!("farmem: {}, 1/{part} local: {}", option::name(&peer), names.join(", "));
            course::run(&setting, site.as_ref(), &self.kit, profiles, requests, part)
        };
        let mut alone = BTreeMap::new();
        for profile in self.profiles.values() {
            alone.append(&mut run(&[profile])?.programs);
        }
        let natives: Vec<&Profile> =
            Program::NATIVE.iter().filter_map(|program| self.profiles.get(program)).collect();
        let groups: Vec<Option<Program>> = match &self.managed[..] {
            [] => vec![None],
            managed => managed.iter().copied().map(Some).collect(),
        };
        let mut runs = Vec::new();
        for managed in groups {
            let mut group = natives.clone();
            group.extend(managed.and_then(|managed| self.profiles.get(&managed)));
            let outcome = run(&group)?;
            for (program, ran) in outcome.programs {
                let Some(alone) = alone.get(&program) else { continue };
                runs.push(Run {
                    program,
                    beside: managed.filter(|managed| *managed != program),
                    alone_seconds: alone.took.as_secs_f64(),
                    beside_seconds: ran.took.as_secs_f64(),
                    beside_figures: ran.figures,
                    group_swap_outs_per_second: outcome.swap_outs_per_second,
                });
            }
        }
        Ok(runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowdowns_are_spread_for_each_program_and_for_all() {
        let run = |program, beside_seconds| Run {
            program,
            beside: None,
            alone_seconds: 2.0,
            beside_seconds,
            beside_figures: None,
            group_swap_outs_per_second: 0.0,
        };
        let runs = vec![run(Program::Snappy, 2.0), run(Program::Snappy, 4.0), run(Program::Memcached, 3.0)];

        let co_runs = CoRuns::of(runs).unwrap();

        assert_eq!(co_runs.programs[&Program::Snappy].deviation, 0.5);
        assert_eq!(co_runs.programs[&Program::Memcached].mean, 1.5);
        assert_eq!((co_runs.all.mean, co_runs.all.maximum), (1.5, 2.0));
        assert_eq!(CoRuns::of(Vec::new()), None);
    }
}
