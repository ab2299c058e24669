//! Ten programs at once with most of their data on twelve nodes: how evenly it lies there. Nobody knows of
//! the others: a program has only its hash (COMEX §3.3.4), and its own block table.

mod program;

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use farmem_page::ByteCount;
use serde::Serialize;

use crate::interrupt::Interrupt;
use crate::member::{Member, NodeFigures};
use crate::target::Target;
use program::Program;

const NODES: usize = 12;
const PROGRAMS: usize = 10;
/// What the fullest node holds is to be at most so many times what nodes hold on average.
const LARGEST: f64 = 1.2;
/// Longer than it takes.
const PATIENCE: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(500);

/// How what programs keep lay on nodes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SpreadFigure {
    /// How many programs there were, all at once and with as much data.
    pub programs: usize,
    /// Data of each; a quarter of it was local, and none of it compresses.
    pub data_bytes: u64,
    /// What was on nodes by the programs' block tables, in whole slabs.
    pub kept_bytes: u64,
    /// What programs had written to each node.
    pub written_bytes: Vec<u64>,
    /// Memory that each node had granted: what is kept there, and what programs have in hand for what leaves
    /// next.
    pub granted_bytes: Vec<u64>,
    /// How even `written_bytes` is.
    pub written: Evenness,
    /// How even `granted_bytes` is.
    pub granted: Evenness,
}

/// How far apart amounts are.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Evenness {
    /// Their mean.
    pub mean_bytes: f64,
    /// The least of them, of the mean.
    pub least: f64,
    /// The largest, of the mean.
    pub largest: f64,
    /// Their standard deviation, of the mean.
    pub deviation: f64,
}

impl Evenness {
    /// Of some amounts that aren't all zero.
    fn of(amounts: &[u64]) -> Self {
        let count = amounts.len() as f64;
        let mean = amounts.iter().sum::<u64>() as f64 / count;
        let shares = || amounts.iter().map(|&amount| amount as f64 / mean);
        Self {
            mean_bytes: mean,
            least: shares().fold(f64::INFINITY, f64::min),
            largest: shares().fold(0.0, f64::max),
            deviation: (shares().map(|share| (share - 1.0).powi(2)).sum::<f64>() / count).sqrt(),
        }
    }
}

impl SpreadFigure {
    /// No node is to be much fuller than the others.
    pub(super) fn target(&self) -> Target {
        let name = format!("bytes on the fullest of {} nodes, of the mean", self.written_bytes.len());
        Target::new(name, LARGEST, Some(self.written.largest))
    }
}

/// Measures with so much data in each program. At the end each goes through all of its data, and finds what
/// it wrote.
///
/// # Errors
/// When a program does what it should not, or the benchmark is to stop.
pub(super) fn measure(interrupt: &Interrupt, farmem: &Path, data: ByteCount) -> Result<SpreadFigure> {
    eprintln!("farmem: {PROGRAMS} programs use {NODES} nodes at once");
    let folder = tempfile::tempdir().context("cannot make a folder")?;
    // No node is ever full: each one alone could hold all.
    let memory = ByteCount::new(PROGRAMS as u64 * data.get() + Program::RESERVE_BYTES * PROGRAMS as u64);
    let members =
        (0..NODES).map(|_| Member::start(farmem, folder.path(), memory)).collect::<Result<Vec<Member>>>()?;
    let addresses: Vec<&str> = members.iter().map(Member::address).collect();
    let mut programs = (0..PROGRAMS)
        .map(|number| Program::start(farmem, folder.path(), number, data, &addresses))
        .collect::<Result<Vec<Program>>>()?;

    let began = Instant::now();
    let look = || -> Result<()> {
        interrupt.check()?;
        ensure!(began.elapsed() < PATIENCE, "the programs don't come to an end");
        thread::sleep(LOOK);
        Ok(())
    };
    for program in &mut programs {
        while !program.is_filled()? {
            look()?;
        }
    }
    // Slabs leave until there is room enough.
    let mut before = Vec::new();
    let figures = loop {
        let now = members.iter().map(Member::figures).collect::<Result<Vec<NodeFigures>>>()?;
        if before == now {
            break now;
        }
        before = now;
        look()?;
    };
    let kept_bytes = programs.iter().map(Program::kept_bytes).sum::<Result<u64>>()?;
    ensure!(kept_bytes > 0, "nothing lies on nodes");
    for program in &mut programs {
        program.go_on()?;
    }
    for program in &mut programs {
        while !program.has_ended_well()? {
            look()?;
        }
    }

    let written_bytes: Vec<u64> = figures.iter().map(|node| node.written_bytes).collect();
    let granted_bytes: Vec<u64> =
        figures.iter().map(|node| node.memory_bytes.saturating_sub(node.free_bytes)).collect();
    Ok(SpreadFigure {
        programs: PROGRAMS,
        data_bytes: data.get(),
        kept_bytes,
        written: Evenness::of(&written_bytes),
        granted: Evenness::of(&granted_bytes),
        written_bytes,
        granted_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_same_everywhere_is_even() {
        let even = Evenness { mean_bytes: 5.0, least: 1.0, largest: 1.0, deviation: 0.0 };
        assert_eq!(Evenness::of(&[5; 12]), even);
    }

    #[test]
    fn what_is_on_one_of_two_is_twice_the_mean_there() {
        let uneven = Evenness { mean_bytes: 4.0, least: 0.0, largest: 2.0, deviation: 1.0 };
        assert_eq!(Evenness::of(&[8, 0]), uneven);
    }
}
