//! Kernels with a part of their data local: far memory on a node, in the pool, and the kernel's swap to a file on disk (COMEX §5.2, Figure 13).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use farmem_page::ByteCount;
use serde::Serialize;

use super::program::Far;
use super::route::Route;
use crate::kernels::{Kernel, Outcome};
use crate::median::median;
use crate::option;
use crate::peer::{Group, Kind, Swap};
use crate::run::Runner;
use crate::undo::Journal;

/// Local memory: data divided by it.
const PARTS: [u64; 3] = [2, 4, 10];
const PARTS_QUICK: [u64; 1] = [4];
const KERNELS_QUICK: [Kernel; 2] = [Kernel::Sort, Kernel::Dictionary];
/// Swap beyond the data, for what else a process has.
const SWAP_SPARE: u64 = 64 << 20;
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
    /// With far memory in the pool,
    pub pool_seconds: f64,
    /// and on a node that is reached over TCP.
    pub node_seconds: f64,
}

impl SpeedUpFigure {
    /// How many times as fast with a node as with swap to a file.
    pub(super) fn speed_up(&self) -> Option<f64> {
        Some(self.swap_file_seconds? / self.node_seconds)
    }
}

/// What is measured, and with what.
pub(super) struct SpeedUp<'a> {
    pub(super) runner: &'a Runner,
    pub(super) farmem: &'a Path,
    pub(super) node: &'a Route,
    pub(super) data: ByteCount,
    pub(super) swap_folder: PathBuf,
    pub(super) repetitions: u32,
    pub(super) quick: bool,
}

/// Where a kernel's data is.
#[derive(Clone, Copy)]
enum Place<'a> {
    Native,
    SwapFile(&'a Rc<Journal>),
    Pool,
    Node,
}

impl SpeedUp<'_> {
    /// Measures; and says why there is no swap to a file, where there is none.
    pub(super) fn measure(&self) -> Result<(Vec<SpeedUpFigure>, Option<String>)> {
        let journal = match rustix::process::geteuid().is_root() {
            true => Journal::open(),
            false => Err(anyhow::anyhow!("kernel swap needs root")),
        };
        let mut left_out = journal.as_ref().err().map(|error| format!("{error:#}"));
        let journal = journal.ok();
        let parts: &[u64] = if self.quick { &PARTS_QUICK } else { &PARTS };
        let kernels = if self.quick { &KERNELS_QUICK[..] } else { clap::ValueEnum::value_variants() };
        let mut figures = Vec::new();
        for &kernel in kernels {
            for &part in parts {
                let mut seconds: [Vec<f64>; 4] = Default::default();
                for repetition in 1..=self.repetitions {
                    eprintln!(
                        "farmem: {repetition}/{} {kernel}, 1/{part} of its data local",
                        self.repetitions
                    );
                    if let Some(open) = &journal {
                        match self.run(kernel, part, Place::SwapFile(open)) {
                            Ok(took) => seconds[1].push(took),
                            Err(error) => {
                                self.runner.check()?;
                                // Where little is local, the kernel's out-of-memory killer ends a program whose memory it could have swapped.
                                eprintln!("farmem: swap to a file left out: {error:#}");
                                left_out = Some(format!("{error:#}"));
                            }
                        }
                    }
                    seconds[0].push(self.run(kernel, part, Place::Native)?);
                    seconds[2].push(self.run(kernel, part, Place::Pool)?);
                    seconds[3].push(self.run(kernel, part, Place::Node)?);
                }
                let [native, swap_file, pool, node] = seconds;
                figures.push(SpeedUpFigure {
                    kernel,
                    part,
                    native_seconds: median(native),
                    swap_file_seconds: (!swap_file.is_empty()).then(|| median(swap_file)),
                    pool_seconds: median(pool),
                    node_seconds: median(node),
                });
            }
        }
        Ok((figures, left_out))
    }

    /// Seconds that the kernel takes.
    fn run(&self, kernel: Kernel, part: u64, place: Place<'_>) -> Result<f64> {
        let local = ByteCount::new(self.data.get() / part);
        let (name, data) = (option::name(&kernel), self.data.get().to_string());
        let farmem = self.farmem.to_string_lossy();
        let program = [&*farmem, "kernel", &name, "--data", &data];
        let output = match place {
            Place::Native => {
                self.runner
                    .run_command(Command::new(self.farmem).args(&program[1..]), Command::spawn, || Ok(()))
            }
            Place::SwapFile(journal) => self.run_swapped(&program, local, journal),
            Place::Pool => self.run_managed(&program, local, &Far::Pool),
            Place::Node => self.run_managed(&program, local, &Far::Node(self.node)),
        };
        Ok(Outcome::of(&output.with_context(|| format!("{kernel}, 1/{part} of its data local"))?)?.seconds)
    }

    fn run_managed(&self, program: &[&str], local: ByteCount, far: &Far<'_>) -> Result<Vec<u8>> {
        let mut options = vec!["--local".to_owned(), local.get().to_string()];
        // Numbers hardly compress, and what a kernel has besides its data goes there, too.
        options.extend(far.options(ByteCount::new(2 * self.data.get())));
        let finished = self.runner.run(options, program, Command::spawn)?;
        if matches!(far, Far::Node(_)) && finished.number("node_fetches") == 0.0 {
            bail!("nothing came from the node");
        }
        Ok(finished.output)
    }

    fn run_swapped(&self, program: &[&str], local: ByteCount, journal: &Rc<Journal>) -> Result<Vec<u8>> {
        let size = ByteCount::new(self.data.get() + self.data.get() / 4 + SWAP_SPARE);
        let _swap = Swap::on(Kind::File, size, &self.swap_folder, journal)?;
        // Gone before swap is turned off: nothing of its processes is left then.
        let group = Group::create(journal, "kernel", local)?;
        let mut command = group.command(self.farmem.as_os_str());
        let mut looks = 0_u32;
        self.runner.run_command(command.args(&program[1..]), Command::spawn, || {
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(CALIBRATE_EVERY) { group.calibrate().map(drop) } else { Ok(()) }
        })
    }
}
