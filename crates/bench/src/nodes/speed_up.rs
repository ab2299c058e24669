//! Kernels with a part of their data local: far memory on a node, in the pool, and the kernel's swap to a
//! file on disk (COMEX §5.2, Figure 13).

use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use farmem_page::ByteCount;
use serde::Serialize;

use super::kernel::Kernels;
use super::program::ProgramTier;
use crate::kernels::{Kernel, Outcome};
use crate::median::median;
use crate::own;
use crate::peer::{Group, Kind, Readahead, Swap};
use crate::undo::Journal;

/// Local memory: data divided by it.
const PARTS: [u64; 3] = [2, 4, 10];
const PARTS_QUICK: [u64; 1] = [4];
const KERNELS_QUICK: [Kernel; 2] = [Kernel::Sort, Kernel::Dictionary];
/// Swap beyond the data, for what else a process has.
const SWAP_SPARE: u64 = 64 << 20;
/// Where next to nothing is local a kernel over swap to a file may take minutes: it is ended after so long,
/// and has taken longer than that.
const PATIENCE: Duration = Duration::from_secs(100);
const PATIENCE_QUICK: Duration = Duration::from_secs(40);
/// Looks between two corrections of a control group's limit.
const CALIBRATE_EVERY: u32 = 20;

/// A kernel with a part of its data local.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SpeedUpFigure {
    /// Which.
    pub kernel: Kernel,
    /// Local memory is the data divided by it.
    pub part: u64,
    /// Time with all of its data in memory.
    pub native_seconds: f64,
    /// With the kernel's swap to a file, where this machine can.
    pub swap_file_seconds: Option<f64>,
    /// Whether it would have taken longer, and was ended then.
    pub is_swap_file_ended: bool,
    /// With far memory in the pool.
    pub pool_seconds: f64,
    /// With far memory on a node that is reached over TCP.
    pub node_seconds: f64,
    /// Of the pages from the node that a thread waited for, those that an earlier read had brought along.
    pub read_buffer_share: f64,
}

impl fmt::Display for SpeedUpFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, part, native_seconds, pool_seconds, node_seconds, .. } = self;
        write!(
            f,
            "{kernel}, 1/{part}: {native_seconds:.2} s, from the pool {pool_seconds:.2} s, from a node {node_seconds:.2} s"
        )?;
        match self.swap_file_seconds {
            Some(seconds) if self.is_swap_file_ended => {
                write!(f, ", over swap to a file more than {seconds:.2} s")
            }
            Some(seconds) => write!(f, ", over swap to a file {seconds:.2} s"),
            None => Ok(()),
        }
    }
}

impl SpeedUpFigure {
    /// How many times as fast with a node as with swap to a file; at least, if that was ended.
    pub(super) fn speed_up(&self) -> Option<f64> {
        Some(self.swap_file_seconds? / self.node_seconds)
    }
}

/// What is measured.
pub(super) struct SpeedUp<'a> {
    pub(super) kernels: Kernels<'a>,
    pub(super) swap_folder: PathBuf,
}

/// How a kernel over swap to a file ends.
enum Swapped {
    Took(f64),
    /// After so many seconds.
    Ended(f64),
}

impl SpeedUp<'_> {
    /// Measures; and says why there is no swap to a file, where there is none.
    pub(super) fn measure(&self) -> Result<(Vec<SpeedUpFigure>, Option<String>)> {
        let kernels = &self.kernels;
        let journal = match rustix::process::geteuid().is_root() {
            true => Journal::open(),
            false => Err(anyhow::anyhow!("kernel swap needs root")),
        };
        let mut left_out = journal.as_ref().err().map(|error| format!("{error:#}"));
        let journal = journal.ok();
        let parts: &[u64] = if kernels.quick { &PARTS_QUICK } else { &PARTS };
        let chosen = if kernels.quick { &KERNELS_QUICK[..] } else { clap::ValueEnum::value_variants() };
        let mut figures = Vec::new();
        for &kernel in chosen {
            for &part in parts {
                let (mut seconds, mut shares): ([Vec<f64>; 4], Vec<f64>) = Default::default();
                let mut is_ended = false;
                for repetition in 1..=kernels.repetitions {
                    eprintln!(
                        "farmem: {repetition}/{} {kernel}, 1/{part} of its data local",
                        kernels.repetitions
                    );
                    if let Some(open) = &journal {
                        match self.run_swapped(kernel, part, open) {
                            Ok(Swapped::Took(took)) => seconds[1].push(took),
                            Ok(Swapped::Ended(after)) => {
                                seconds[1].push(after);
                                is_ended = true;
                            }
                            Err(error) => {
                                kernels.runner.check()?;
                                // Where little is local, the kernel's out-of-memory killer ends a program
                                // whose memory it could have swapped.
                                eprintln!("farmem: swap to a file left out: {error:#}");
                                left_out = Some(format!("{error:#}"));
                            }
                        }
                    }
                    seconds[0].push(self.run_native(kernel)?);
                    seconds[2].push(kernels.run(kernel, part, &ProgramTier::Pool, None)?.seconds);
                    let sample = kernels.run(kernel, part, &ProgramTier::Node(kernels.node), None)?;
                    seconds[3].push(sample.seconds);
                    shares.push(sample.read_buffer_share());
                }
                let [native, swap_file, pool, node] = seconds;
                let figure = SpeedUpFigure {
                    kernel,
                    part,
                    native_seconds: median(native),
                    swap_file_seconds: (!swap_file.is_empty()).then(|| median(swap_file)),
                    is_swap_file_ended: is_ended,
                    pool_seconds: median(pool),
                    node_seconds: median(node),
                    read_buffer_share: median(shares),
                };
                eprintln!("farmem: {figure}");
                figures.push(figure);
            }
        }
        Ok((figures, left_out))
    }

    /// Seconds that the kernel takes with all of its data in memory.
    fn run_native(&self, kernel: Kernel) -> Result<f64> {
        let mut command = Command::new(own::program()?);
        let command = command.args(self.kernels.words(kernel));
        let output = self.kernels.runner.run_command(command, Command::spawn, || Ok(()));
        Ok(Outcome::of(&output.with_context(|| kernel.to_string())?)?.seconds)
    }

    /// The same with a part of it in memory, and the kernel's swap to a file.
    fn run_swapped(&self, kernel: Kernel, part: u64, journal: &Rc<Journal>) -> Result<Swapped> {
        let Kernels { runner, data, .. } = self.kernels;
        let size = ByteCount::new(data.get() + data.get() / 4 + SWAP_SPARE);
        let _swap = Swap::on(Kind::File, Readahead::AsSet, size, &self.swap_folder, journal)?;
        // Gone before swap is turned off: nothing of its processes is left then.
        let group = Group::create(journal, "kernel", self.kernels.local(part))?;
        let mut command = group.command(own::program()?.as_os_str());
        let patience = if self.kernels.quick { PATIENCE_QUICK } else { PATIENCE };
        let (mut looks, began, mut is_over) = (0_u32, Instant::now(), false);
        let output = runner.run_command(command.args(self.kernels.words(kernel)), Command::spawn, || {
            is_over = began.elapsed() >= patience;
            ensure!(!is_over, "over swap to a file it took longer than {} s", patience.as_secs());
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(CALIBRATE_EVERY) { group.calibrate().map(drop) } else { Ok(()) }
        });
        match output.with_context(|| format!("{kernel}, 1/{part} of its data local")) {
            Err(_) if is_over => Ok(Swapped::Ended(patience.as_secs_f64())),
            output => Ok(Swapped::Took(Outcome::of(&output?)?.seconds)),
        }
    }
}
