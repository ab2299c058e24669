//! How soon a server that had too little memory is itself again after it was given more (FastSwap, Figures 2
//! and 9).

use std::path::Path;
use std::time::{Duration, Instant};

use farmem_page::ByteCount;
use serde::Serialize;

use super::server::{self, PROCESSOR};
use super::setting::{Setting, on_processor};
use super::victim::Scale;
use crate::median::median;

/// How many times longer than other measurements the server is watched after it was given memory.
const WATCHED: u32 = 3;
/// Requests are counted for so long at a time.
const WINDOW: Duration = Duration::from_millis(50);
/// What it answers in the last windows is what it has settled at.
const SETTLED_WINDOWS: usize = 20;
/// The part of what it answered before it was starved, or settles at if that is less, at which it counts as
/// itself again, in this many windows one after the other. The speed of a virtual machine drifts by more than
/// a tenth within seconds.
const RECOVERED: f64 = 0.8;
const WINDOWS: usize = 3;

/// One turn.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Recovery {
    /// Requests per second with memory for all data.
    pub full_requests_per_second: f64,
    /// And with memory for a quarter of it.
    pub starved_requests_per_second: f64,
    /// Requests per second after it was given memory: when a window began, in seconds, and what it answered
    /// in it.
    pub after: Vec<(f64, f64)>,
    /// Requests per second that it came to in the end.
    pub settled_requests_per_second: f64,
    /// From when it was given memory until it answered four fifths of that or of its full rate; `None` when
    /// it never did while it was watched.
    pub seconds: Option<f64>,
    /// The same for each GiB that it was given.
    pub seconds_per_gib: Option<f64>,
}

/// Runs one turn.
pub(super) fn turn(setting: &Setting, folder: &Path, scale: Scale) -> anyhow::Result<Recovery> {
    let plenty = ByteCount::new(scale.data.get() * 2);
    let (mut server, mut client) = server::start(setting, folder, server::room(plenty), scale.data)?;
    let mut rate = |duration| on_processor(PROCESSOR, || client.as_fast_as_it_can(duration))?;
    let full = rate(scale.measured)?;
    server.set_local(scale.local())?;
    // What it may keep is to be what it asks for.
    rate(scale.measured)?;
    let starved = rate(scale.measured)?;
    let began = Instant::now();
    server.set_local(plenty)?;
    let mut after = Vec::new();
    while began.elapsed() < scale.measured * WATCHED {
        after.push((began.elapsed().as_secs_f64(), rate(WINDOW)?));
    }
    server.end()?;
    let settled = median(after.iter().rev().take(SETTLED_WINDOWS).map(|&(_, rate)| rate).collect());
    let seconds = recovered(&after, settled.min(full));
    let given = (scale.data.get() - scale.local().get()) as f64 / f64::from(1 << 30);
    Ok(Recovery {
        full_requests_per_second: full,
        starved_requests_per_second: starved,
        after,
        settled_requests_per_second: settled,
        seconds,
        seconds_per_gib: seconds.map(|seconds| seconds / given),
    })
}

/// When the first of the windows began in which the server was itself again.
fn recovered(after: &[(f64, f64)], full: f64) -> Option<f64> {
    after
        .windows(WINDOWS)
        .find(|windows| windows.iter().all(|&(_, rate)| rate >= RECOVERED * full))
        .map(|windows| windows[0].0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovered_when_several_windows_in_a_row_are_fast_enough() {
        let after =
            [(0.0, 10.0), (0.1, 95.0), (0.2, 20.0), (0.3, 81.0), (0.4, 99.0), (0.5, 80.0), (0.6, 40.0)];
        assert_eq!(recovered(&after, 100.0), Some(0.3));
        assert_eq!(recovered(&after, 200.0), None);
    }
}
