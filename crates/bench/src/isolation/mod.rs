//! `farmem bench isolation`: how far applications on one host disturb each other through paging.

mod client;
mod efficiency;
mod entries;
mod recovery;
mod report;
mod server;
mod setting;
mod swap_in;
mod swapper;
mod victim;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use clap::ValueEnum;
use farmem_machine::Description;
use farmem_page::ByteCount;

use crate::interrupt::Interrupt;
use crate::option;
use crate::stolen::{self, Times};
pub use efficiency::Efficiency;
pub use entries::Entries;
pub use recovery::Recovery;
pub use report::{Report, Victim};
pub use setting::Peer;
use setting::Setting;
pub use swap_in::SwapIn;
use victim::Scale;
pub use victim::{Service, Turn};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Data of each application; `None` for 256 MiB, or 64 MiB when quick.
    pub data: Option<ByteCount>,
    /// Less data, shorter measurements and fewer repetitions.
    pub quick: bool,
    /// Repetitions; `None` for 3, or 1 when quick.
    pub repeat: Option<u32>,
    /// The peers to measure; empty for all.
    pub peers: Vec<Peer>,
    /// Where swap files are made.
    pub swap_folder: PathBuf,
    /// The `farmem` program, which is also the workload.
    pub farmem: PathBuf,
}

const REPETITIONS: u32 = 3;
/// A tenth of what the server can answer from the pool: what counts is how long a request takes, not how many wait.
const REQUESTS_PER_SECOND: f64 = 2000.0;

impl Options {
    fn scale(&self) -> Scale {
        let (data, seconds) = if self.quick { (64 << 20, 1) } else { (256 << 20, 4) };
        Scale {
            data: self.data.unwrap_or(ByteCount::new(data)),
            requests_per_second: REQUESTS_PER_SECOND,
            measured: Duration::from_secs(seconds),
        }
    }
}

/// Measures; progress goes to standard error. Peers take turns.
///
/// # Errors
/// When interrupted, when there is only one processor, and when the machine can't be changed back. A peer that can't be offered or
/// fails is named in the report.
pub fn run(options: &Options) -> anyhow::Result<Report> {
    ensure!(
        std::thread::available_parallelism()?.get() >= 2,
        "isolation is measured with a processor for each application: two are needed"
    );
    let interrupt = Interrupt::listen()?;
    let scale = options.scale();
    let repetitions = options.repeat.unwrap_or(if options.quick { 1 } else { REPETITIONS });
    let chosen = |peer: &&Peer| options.peers.is_empty() || options.peers.contains(peer);
    let mut peers: Vec<Peer> = Peer::value_variants().iter().filter(chosen).copied().collect();
    let mut left_out = BTreeMap::new();
    let mut turns: BTreeMap<Peer, Vec<Measured>> = BTreeMap::new();
    for repetition in 1..=repetitions {
        for peer in peers.clone() {
            interrupt.check()?;
            eprintln!("farmem: {repetition}/{repetitions} {}", option::name(&peer));
            match attempt(options, peer, scale, &interrupt) {
                Ok(turn) => turns.entry(peer).or_default().push(turn),
                Err(error) => {
                    interrupt.check()?;
                    eprintln!("farmem: {} left out: {error:#}", option::name(&peer));
                    left_out.insert(peer, format!("{error:#}"));
                    peers.retain(|running| *running != peer);
                }
            }
        }
        let first = 1.min(peers.len());
        peers.rotate_left(first);
    }
    let victim: BTreeMap<Peer, Victim> =
        turns.iter().map(|(&peer, turns)| (peer, Victim::of(turns.iter().map(|turn| turn.victim)))).collect();
    let recovery: BTreeMap<Peer, Vec<Recovery>> = turns
        .iter()
        .map(|(&peer, turns)| (peer, turns.iter().map(|turn| turn.recovery.clone()).collect()))
        .collect();
    let swap_in: BTreeMap<Peer, Vec<SwapIn>> =
        turns.iter().map(|(&peer, turns)| (peer, turns.iter().map(|turn| turn.swap_in).collect())).collect();
    // Pages are the same in all turns.
    let efficiency: BTreeMap<Peer, Vec<Efficiency>> = turns
        .iter()
        .filter_map(|(&peer, turns)| Some((peer, turns.last()?.efficiency.clone())))
        .filter(|(_, efficiency)| !efficiency.is_empty())
        .collect();
    eprintln!("farmem: entries of the pool");
    let entries = entries::measure()?;
    let targets = report::judge(&victim, &recovery);
    Ok(Report {
        version: env!("CARGO_PKG_VERSION"),
        machine: Description::current(),
        data_bytes: scale.data.get(),
        repetitions,
        victim,
        recovery,
        swap_in,
        efficiency,
        entries,
        left_out,
        targets,
    })
}

/// One turn of one peer.
struct Measured {
    victim: Turn,
    recovery: Recovery,
    swap_in: SwapIn,
    efficiency: Vec<Efficiency>,
    /// Processor time that the machine's host took from the server while it was measured.
    stolen_share: f64,
}

/// A turn, again while the machine's host takes much of the processors' time; that which lost least. The kernel sometimes ends a
/// program that reaches its control group's limit, though there is swap left: such a turn is tried again as well.
fn attempt(options: &Options, peer: Peer, scale: Scale, interrupt: &Interrupt) -> anyhow::Result<Measured> {
    let mut best: anyhow::Result<Measured> = Err(anyhow::anyhow!("not measured"));
    for _ in 0..stolen::ATTEMPTS {
        interrupt.check()?;
        let now = turn(options, peer, scale);
        let is_better = match (&best, &now) {
            (Ok(best), Ok(now)) => now.stolen_share < best.stolen_share,
            (Ok(_), Err(_)) => false,
            (Err(_), _) => true,
        };
        if is_better {
            best = now;
        }
        if best.as_ref().is_ok_and(|best| best.stolen_share <= stolen::TOLERATED) {
            break;
        }
    }
    best
}

fn turn(options: &Options, peer: Peer, scale: Scale) -> anyhow::Result<Measured> {
    // Two applications, and what else they have.
    let data = ByteCount::new(scale.data.get() * 2 + (256 << 20));
    let setting = Setting::prepare(peer, &options.farmem, data, &options.swap_folder)?;
    let folder = tempfile::tempdir()?;
    let before = Times::now();
    let victim = victim::turn(&setting, &options.farmem, folder.path(), scale)?;
    let stolen_share = Times::now().stolen_share_since(before);
    let folder = tempfile::tempdir()?;
    let recovery = recovery::turn(&setting, folder.path(), scale)?;
    let swap_in = swap_in::turn(&setting, &options.farmem, peer, scale)?;
    let efficiency = efficiency::turn(&setting, &options.farmem, scale)?;
    Ok(Measured { victim, recovery, swap_in, efficiency, stolen_share })
}
