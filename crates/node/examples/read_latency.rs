//! How long reads of a page from a node take, one after the other: read_latency HOST:PORT KEY auto|tcp|rdma
//! READS
//!
//! Prints percentiles in µs. `scripts/test-rdma` compares them with those of a program that does nothing
//! else.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use farmem_transport::{
    Answer, ClientIdentity, Completion, Connector, Destination, FRAME_BYTES, Identity, Order, RegionOffset,
    Request, Security, SharedKey, Ticket, Traffic, Transport, Travel,
};

const PATIENCE: Duration = Duration::from_secs(10);
/// What isn't counted, for all that happens once.
const WARM_UP: u64 = 100;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [node, key, travel, reads] = &words[..] else {
        bail!("usage: read_latency HOST:PORT KEY auto|tcp|rdma READS")
    };
    let travel = match travel.as_str() {
        "auto" => Travel::Auto,
        "tcp" => Travel::Connection,
        "rdma" => Travel::Rdma,
        other => bail!("{other} is neither auto nor tcp nor rdma"),
    };
    let security = Security::Tls(Identity::with_key(&SharedKey::load(Path::new(key))?)?);
    let node: Destination = node.parse()?;
    let client = ClientIdentity { space: u128::from(std::process::id()), lane: 0 };
    let connector = Connector::new(security, travel, None)?;
    let mut link = connector.connect(&node, client, Traffic::Demand, PATIENCE)?;
    let at = begin(&mut *link)?;

    let mut times = Vec::new();
    let mut buffer = Vec::new();
    for nth in 0..WARM_UP + reads.parse::<u64>().context("READS is a number")? {
        let began = Instant::now();
        let request = Request::Read { at, length_bytes: FRAME_BYTES as u32, buffer };
        let done = ask(&mut *link, nth + 3, request)?;
        times.extend((nth >= WARM_UP).then(|| began.elapsed()));
        let Request::Read { buffer: read, .. } = done.request else { bail!("another request came back") };
        buffer = read;
    }
    times.sort_unstable();
    let percentile =
        |percent: usize| times.get(times.len() * percent / 100).map_or(0.0, |time| time.as_secs_f64() * 1e6);
    println!(
        "reads of 4096 bytes, us: p10 {:.1} p50 {:.1} p99 {:.1}",
        percentile(10),
        percentile(50),
        percentile(99)
    );
    ask(&mut *link, u64::MAX >> 2, Request::Leave)?;
    Ok(())
}

/// A page that has been written.
fn begin(link: &mut dyn Transport) -> Result<RegionOffset> {
    let granted = ask(link, 1, Request::Grant { order: Order::SLAB, count: 1 })?;
    let Ok(Answer::Granted(frames)) = granted.result else {
        bail!("nothing is granted: {:?}", granted.result)
    };
    let at = frames[0].offset();
    ask(link, 2, Request::Write { at, data: vec![7; FRAME_BYTES] })?;
    Ok(at)
}

fn ask(link: &mut dyn Transport, ticket: u64, request: Request) -> Result<Completion> {
    link.submit(Ticket(ticket), request, Instant::now() + PATIENCE)?;
    let mut done = Vec::new();
    while done.is_empty() {
        link.complete(&mut done, PATIENCE)?;
    }
    let done = done.swap_remove(0);
    match done.result {
        Ok(_) => Ok(done),
        Err(failure) => bail!("{:?} failed: {failure}", done.request),
    }
}
