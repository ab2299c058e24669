//! Programs under `farmem run` that share a link to a node, by the broker of `farmem host`: how three that
//! want all of it divide it (Canvas §6.4.3), and what one that walks through its data gets next to one that
//! floods the link with what it fetches ahead (Canvas Figure 14).

mod share;
mod site;
mod space;
mod walk;

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use farmem_page::ByteCount;

pub use share::{PartFigure, SpacesFigure};
pub use site::Classes;
pub use walk::{Walk, WalkFigure};

use crate::interrupt::Interrupt;
use crate::option;

/// Longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(1800);
const LOOK: Duration = Duration::from_millis(50);

/// What is measured, and with what.
pub(super) struct Spaces<'a> {
    pub(super) interrupt: &'a Interrupt,
    pub(super) farmem: &'a Path,
    /// Of each program.
    pub(super) data: ByteCount,
    pub(super) repetitions: u32,
    pub(super) quick: bool,
}

impl Spaces<'_> {
    /// Measures all. Cases take turns within each repetition.
    ///
    /// # Errors
    /// When a program does what it should not, or the benchmark is to stop.
    pub(super) fn measure(&self) -> Result<(Vec<SpacesFigure>, Vec<WalkFigure>)> {
        let mut shares = vec![Vec::new(); share::CASES.len()];
        let mut walks = vec![Vec::new(); walk::PATTERNS.len()];
        for repetition in 1..=self.repetitions {
            let turn = format!("{repetition}/{}", self.repetitions);
            for (case, samples) in share::CASES.iter().zip(&mut shares) {
                let name = case.name();
                eprintln!("farmem: {turn} three programs, {name}");
                samples.push(self.share(case).with_context(|| format!("three programs, {name}"))?);
            }
            for (&pattern, samples) in walk::PATTERNS.iter().zip(&mut walks) {
                let name = option::name(&pattern);
                eprintln!("farmem: {turn} {name}, alone and beside a flood");
                samples.push(self.walk(pattern).with_context(|| format!("{name} beside a flood"))?);
            }
        }
        let shares = shares.iter().filter_map(|samples| SpacesFigure::median(samples)).collect();
        let walks = walks.iter().filter_map(|samples| WalkFigure::median(samples)).collect();
        Ok((shares, walks))
    }

    /// Waits until something is so, unless the benchmark is asked to stop before.
    fn until(&self, what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
        let began = Instant::now();
        loop {
            self.interrupt.check()?;
            if is_so()? {
                return Ok(());
            }
            ensure!(began.elapsed() < PATIENCE, "waited for {what} in vain");
            thread::sleep(LOOK);
        }
    }

    /// Lets time go by.
    fn pause(&self, time: Duration) -> Result<()> {
        let began = Instant::now();
        self.until("time to go by", || Ok(began.elapsed() >= time))
    }
}
