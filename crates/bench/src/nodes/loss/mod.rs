//! One node of six is killed while Redis runs with most of its data there, and started again, empty: what its
//! clients notice, and how long it takes until the redundancy is whole again.

mod redis;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use farmem_page::ByteCount;
use hdrhistogram::Histogram;
use serde::Serialize;

use super::report::Latency;
use crate::interrupt::Interrupt;
use crate::member::Member;
use crate::redis::{Client, available};
use redis::Server;

/// Nodes, and how slabs lie on them.
const NODES: usize = 6;
const REDUNDANCIES: [&str; 2] = ["4+2", "mirror"];
/// Requests a second: well below what the server can do, so that a stall shows in the requests that it holds
/// up and is over with it.
const RATE: f64 = 500.0;
/// How long it stays killed: longer than a node may be away before it counts as lost.
const AWAY: Duration = Duration::from_secs(8);
/// Longer than it takes.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(100);

/// What the loss of a node cost.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LossFigure {
    /// How slabs lay on nodes.
    pub redundancy: String,
    /// Values of the server that lay on nodes, compressed, in whole slabs.
    pub kept_bytes: u64,
    /// What of the nodes' memory that took, redundancy included.
    pub stored_bytes: u64,
    /// Requests, one after the other at a fixed rate.
    pub requests: u64,
    /// Of these, answered wrong or not at all.
    pub failed: u64,
    /// From when a request was due until it was answered, before the node was killed.
    pub before: Latency,
    /// The same from then until redundancy was whole again.
    pub during: Latency,
    /// The same after that.
    pub after: Latency,
    /// The longest of all from the kill on.
    pub longest_ms: f64,
    /// From when the node was killed until redundancy was whole again.
    pub seconds_to_whole: f64,
    /// From then until the node was there again, empty.
    pub seconds_away: f64,
    /// What was rebuilt.
    pub rebuilt_bytes: u64,
}

/// Measures with so much data in the server, a quarter of it local.
///
/// # Errors
/// When a program does what it should not, or the benchmark is to stop.
pub(super) fn measure(
    interrupt: &Interrupt,
    farmem: &Path,
    data: ByteCount,
    spell: Duration,
) -> Result<Vec<LossFigure>> {
    let of = |redundancy: &&str| {
        eprintln!("farmem: a node of six is killed under {redundancy}");
        measure_one(interrupt, farmem, data, spell, redundancy)
            .with_context(|| format!("a node that is killed under {redundancy}"))
    };
    REDUNDANCIES.iter().map(of).collect()
}

/// Why it can't be measured on this machine, if so.
pub(super) fn hindrance() -> Option<String> {
    available().err().map(|error| format!("{error:#}"))
}

/// Moments of a measurement, from its beginning.
struct Course {
    killed: Duration,
    back: Duration,
    whole: Duration,
}

fn measure_one(
    interrupt: &Interrupt,
    farmem: &Path,
    data: ByteCount,
    spell: Duration,
    redundancy: &str,
) -> Result<LossFigure> {
    let folder = tempfile::tempdir().context("cannot make a folder")?;
    // Each one alone could hold all of it twice.
    let memory = ByteCount::new(2 * data.get());
    let mut members =
        (0..NODES).map(|_| Member::start(farmem, folder.path(), memory)).collect::<Result<Vec<Member>>>()?;
    let addresses: Vec<&str> = members.iter().map(Member::address).collect();
    let server = Server::start(farmem, folder.path(), data, &addresses, redundancy)?;
    let mut client = Client::connect(server.socket())?;
    client.load(data, interrupt)?;
    // Slabs leave until there is room enough.
    let (mut kept_bytes, mut settled) = (0, false);
    let began = Instant::now();
    while !settled && began.elapsed() < PATIENCE {
        interrupt.check()?;
        thread::sleep(Duration::from_millis(500));
        let now = server.figure("node_bytes")?;
        settled = now > 0 && now == kept_bytes;
        kept_bytes = now;
    }
    ensure!(kept_bytes > 0, "nothing of the server lies on nodes");
    let stored_bytes = server.figure("node_stored_bytes")?;

    let is_over = AtomicBool::new(false);
    let began = Instant::now();
    let (asked, course) = thread::scope(|scope| {
        let asking = scope.spawn(|| client.ask_at(RATE, &is_over));
        let course = run_course(interrupt, &mut members, &server, spell, began);
        is_over.store(true, Ordering::Release);
        let asked = asking.join().map_err(|_| anyhow!("the client has panicked"))??;
        anyhow::Ok((asked, course?))
    })?;
    let rebuilt_bytes = server.figure("node_rebuilt_bytes")?;
    let within = |from: Duration, to: Duration| -> Result<Histogram<u64>> {
        let mut times = Histogram::new_with_bounds(1000, 120_000_000_000, 3)?;
        asked
            .iter()
            .filter(|asked| (from..to).contains(&asked.due))
            .for_each(|asked| times.saturating_record(asked.took.as_nanos() as u64));
        Ok(times)
    };
    let during = within(course.killed, course.whole)?;
    let after = within(course.whole, Duration::MAX)?;
    Ok(LossFigure {
        redundancy: redundancy.to_owned(),
        kept_bytes,
        stored_bytes,
        requests: asked.len() as u64,
        failed: asked.iter().filter(|asked| !asked.is_right).count() as u64,
        before: latency(&within(Duration::ZERO, course.killed)?),
        during: latency(&during),
        after: latency(&after),
        longest_ms: during.max().max(after.max()) as f64 / 1e6,
        seconds_to_whole: (course.whole - course.killed).as_secs_f64(),
        seconds_away: (course.back - course.killed).as_secs_f64(),
        rebuilt_bytes,
    })
}

/// Kills a node, starts it again, and waits until nothing is lacking; with a while before and after.
fn run_course(
    interrupt: &Interrupt,
    members: &mut [Member],
    server: &Server,
    spell: Duration,
    began: Instant,
) -> Result<Course> {
    let wait = |time: Duration| -> Result<()> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            interrupt.check()?;
            thread::sleep(LOOK);
        }
        Ok(())
    };
    wait(spell)?;
    let member = members.first_mut().context("there are nodes")?;
    let killed = began.elapsed();
    member.kill();
    let (mut back, mut whole) = (None, None);
    while back.is_none() || whole.is_none() {
        wait(LOOK)?;
        if back.is_none() && began.elapsed() >= killed + AWAY {
            back = Some(began.elapsed());
            member.start_again()?;
        }
        // That the loss is known shows in what has been made good.
        if whole.is_none()
            && server.figure("node_rebuilt_bytes")? > 0
            && server.figure("node_lacking_bytes")? == 0
        {
            whole = Some(began.elapsed());
        }
        ensure!(began.elapsed() < killed + PATIENCE, "what was lost is not made good");
    }
    let (back, whole) = (back.unwrap_or_default(), whole.unwrap_or_default());
    wait(spell)?;
    Ok(Course { killed, back, whole })
}

fn latency(times: &Histogram<u64>) -> Latency {
    let us = |quantile| times.value_at_quantile(quantile) as f64 / 1e3;
    Latency { p50_us: us(0.5), p99_us: us(0.99) }
}
