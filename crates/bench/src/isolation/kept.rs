//! Programs whose pages keep their entries, and the same with a new entry for each page that leaves (Canvas,
//! Figure 12): two at once, each on a processor of its own, so that both want entries all the time.

use std::path::Path;

use anyhow::Context;
use serde::Serialize;

use super::setting::{Peer, Setting};
use super::swapper::{self, Swapper, Workload};
use super::victim::Scale;
use crate::interrupt::Interrupt;
use crate::median::median;
use crate::workload::Pattern;

const NAMES: [&str; 2] = ["bench-kept-0", "bench-kept-1"];
/// Each page is written, and must be stored: one that leaves unchanged needs no entry.
const PATTERN: Pattern = Pattern::RandomWrite;
const ROUNDS: u32 = 3;
const REPETITIONS: usize = 3;

/// Times of an access of two programs side by side: medians.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Kept {
    /// Pages keep their entries.
    pub kept_us: f64,
    /// Each page that leaves gets a new one.
    pub new_us: f64,
}

/// Measures both, in turns.
pub(super) fn measure(
    farmem: &Path,
    folder: &Path,
    scale: Scale,
    interrupt: &Interrupt,
) -> anyhow::Result<Kept> {
    let setting = Setting::prepare(Peer::Farmem, farmem, scale.data, folder, interrupt)?;
    let (mut kept, mut new) = (Vec::new(), Vec::new());
    for _ in 0..REPETITIONS {
        kept.push(turn(&setting, scale, true)?);
        new.push(turn(&setting, scale, false)?);
    }
    Ok(Kept { kept_us: median(kept), new_us: median(new) })
}

/// Microseconds for each access, of both programs.
fn turn(setting: &Setting, scale: Scale, keeps_entries: bool) -> anyhow::Result<f64> {
    let workload = Workload {
        local: scale.local(),
        data: scale.data,
        pattern: PATTERN,
        rounds: ROUNDS,
        keeps_entries,
        ..Workload::default()
    };
    let start = |(processor, name)| swapper::start(setting, name, processor, workload);
    let mut programs = NAMES.into_iter().enumerate().map(start).collect::<anyhow::Result<Vec<Swapper>>>()?;
    programs.iter_mut().try_for_each(Swapper::begin)?;
    let outcomes = programs.iter_mut().map(Swapper::outcome).collect::<anyhow::Result<Vec<_>>>()?;
    let rounds = || outcomes.iter().flat_map(|outcome| &outcome.rounds);
    let sum: f64 = rounds().map(|round| round.nanoseconds_per_access).sum();
    let count =
        u32::try_from(rounds().count()).ok().filter(|&count| count > 0).context("nothing was measured")?;
    Ok(sum / f64::from(count) / 1e3)
}
