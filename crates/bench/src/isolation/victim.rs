//! A server that must answer soon, alone and next to a program that swaps as fast as it can.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use farmem_page::ByteCount;
use serde::Serialize;

use super::client::{Client, Latencies};
use super::server::{self, PROCESSOR};
use super::setting::{Application, Setting, on_processor};
use super::swapper::{self, Workload};
use crate::median::median;

/// The other program's processor.
const ANTAGONIST: usize = PROCESSOR + 1;
const ANTAGONIST_NAME: &str = "bench-antagonist";

/// Spells in which the server is measured at a fixed rate.
const SPELLS: u32 = 7;

/// How much data, and how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    pub(super) data: ByteCount,
    pub(super) requests_per_second: f64,
    pub(super) measured: Duration,
}

impl Scale {
    /// What each application may keep local.
    pub(super) fn local(self) -> ByteCount {
        ByteCount::new(self.data.get() / 4)
    }
}

/// How the server did for a while.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Service {
    /// Half of the requests took at most so long.
    pub p50_us: f64,
    /// 99 of 100 requests.
    pub p99_us: f64,
    /// Requests that it can answer when the next one comes at once.
    pub requests_per_second: f64,
}

/// The server alone and disturbed, in one turn.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Turn {
    /// Nobody else runs.
    pub alone: Service,
    /// Next to the other program.
    pub beside: Service,
    /// Pages of both that left each second, next to the other program.
    pub swap_outs_per_second: f64,
    /// Pages of both that came back each second.
    pub swap_ins_per_second: f64,
}

/// Runs one turn.
pub(super) fn turn(setting: &Setting, folder: &Path, scale: Scale) -> anyhow::Result<Turn> {
    let (server, mut client) = server::start(setting, folder, server::room(scale.local()), scale.data)?;
    let alone = serve(&mut client, scale)?;
    let antagonist = swapper::start(
        setting,
        ANTAGONIST_NAME,
        ANTAGONIST,
        Workload { local: scale.local(), data: scale.data, ..Workload::default() },
    )?
    .go()?;
    let names = [server::NAME, ANTAGONIST_NAME];
    let moved = || Ok::<_, anyhow::Error>([setting.swapped_out(&names)?, setting.swapped_in(&names)?]);
    let (before, began) = (moved()?, Instant::now());
    let beside = serve(&mut client, scale)?;
    let (after, seconds) = (moved()?, began.elapsed().as_secs_f64());
    let [swap_outs_per_second, swap_ins_per_second] =
        [0, 1].map(|way| after[way].saturating_sub(before[way]) as f64 / seconds);
    check(antagonist, "the program beside the server")?;
    check(server, "the server")?;
    Ok(Turn { alone, beside, swap_outs_per_second, swap_ins_per_second })
}

fn check(mut application: Application, what: &str) -> anyhow::Result<()> {
    application.check().with_context(|| what.to_owned())?;
    application.end()?;
    Ok(())
}

/// How the server does at a fixed rate, in spells of which the middle one counts: whoever takes the whole
/// machine away for some milliseconds now and then, its host above all, makes one spell slow and not the
/// figure.
fn serve(client: &mut Client, scale: Scale) -> anyhow::Result<Service> {
    on_processor(PROCESSOR, || {
        // What the phase before has left in memory is not this phase's.
        client.as_fast_as_it_can(scale.measured / 4)?;
        let spells: anyhow::Result<Vec<Latencies>> =
            (0..SPELLS).map(|_| client.at_rate(scale.requests_per_second, scale.measured / SPELLS)).collect();
        let spells = spells?;
        let requests_per_second = client.as_fast_as_it_can(scale.measured / 2)?;
        let microseconds = |quantile| {
            let times = spells.iter().map(|spell| spell.times.value_at_quantile(quantile) as f64 / 1e3);
            median(times.collect())
        };
        Ok(Service { p50_us: microseconds(0.5), p99_us: microseconds(0.99), requests_per_second })
    })?
}
