//! What it takes to bring pages back to a program that has room again: as it touches them, and without
//! waiting for that (FastSwap, Table IV).

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use farmem_page::{ByteCount, PageCount};
use procfs::process::Process;
use serde::Serialize;

use super::setting::{Peer, Setting};
use super::swapper::{self, Workload};
use super::victim::Scale;
use crate::workload::Pattern;

const NAME: &str = "bench-swap-in";
const PROCESSOR: usize = 0;
/// The part of all pages that may be missing when they count as back: what a program doesn't need is not
/// worth waiting for.
const LEFT_SHARE: u64 = 50;
const LOOK: Duration = Duration::from_millis(1);
/// After so long they won't come any more.
const PATIENCE: Duration = Duration::from_secs(20);

/// One turn. Times are for each page that was not local.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct SwapIn {
    /// The program reads each page once, in random order, from the moment when it has room.
    pub touched_us: f64,
    /// It does nothing; `None` where pages then stay where they are.
    pub untouched_us: Option<f64>,
}

/// Runs one turn.
pub(super) fn turn(setting: &Setting, peer: Peer, scale: Scale) -> anyhow::Result<SwapIn> {
    let plenty = ByteCount::new(scale.data.get() * 2);
    let pages = scale.data.pages();
    let workload = Workload {
        local: scale.local(),
        data: scale.data,
        pattern: Pattern::Chase,
        rounds: 1,
        accesses: Some(pages.get()),
        ..Workload::default()
    };

    let mut swapper = swapper::start(setting, NAME, PROCESSOR, workload)?;
    let away = pages.saturating_sub(resident(swapper.process)?);
    swapper.application.set_local(plenty)?;
    let outcome = swapper.finish()?;
    let round = outcome.rounds.first().context("the workload measured nothing")?;
    let touched_us = round.nanoseconds_per_access * outcome.accesses as f64 / per_page(away);

    let untouched_us = if peer == Peer::Farmem {
        let mut swapper = swapper::start(setting, NAME, PROCESSOR, workload)?;
        let before = resident(swapper.process)?;
        let began = Instant::now();
        swapper.application.set_local(plenty)?;
        let wanted = PageCount::new(pages.get() - pages.get() / LEFT_SHARE);
        let back = loop {
            setting.check()?;
            let now = resident(swapper.process)?;
            if now >= wanted || began.elapsed() > PATIENCE {
                break now;
            }
            thread::sleep(LOOK);
        };
        let took = began.elapsed();
        swapper.application.end()?;
        (back >= wanted).then(|| took.as_secs_f64() * 1e9 / per_page(back.saturating_sub(before)))
    } else {
        None
    };
    Ok(SwapIn { touched_us, untouched_us })
}

/// What turns nanoseconds for all these pages into microseconds for each.
fn per_page(pages: PageCount) -> f64 {
    pages.get().max(1) as f64 * 1e3
}

/// Pages of private memory that the process has: its data, and little else.
fn resident(process: u32) -> anyhow::Result<PageCount> {
    let statm = Process::new(process as i32)?.statm()?;
    Ok(PageCount::new(statm.resident - statm.shared))
}
