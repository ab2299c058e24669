//! What COMEX calls T, P and B, one after the other over a wide range, with the others as they are by default
//! (§5.1.3, Figures 10 to 12).

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use super::kernel::{Kernels, Sample};
use super::program::ProgramTier;
use crate::kernels::Kernel;
use crate::median::median;

/// Local memory: data divided by it.
const PART: u64 = 4;
const KERNELS: [Kernel; 3] = [Kernel::Sort, Kernel::BreadthFirst, Kernel::Dictionary];
const KERNELS_QUICK: [Kernel; 1] = [Kernel::Sort];

/// Values of COMEX's figures that can't be set, and why.
pub(super) const NOT_SET: [(&str, &str); 2] = [
    (
        "T of 0",
        "a slab leaves only into memory that its node has granted before, so a threshold of less than one slab's frames, 64, is 64",
    ),
    (
        "P of 32 and 64",
        "a read brings 16 pages at most: the read buffer's entries and the windows of links are made for that",
    ),
];

/// What is varied: an option of `farmem run`, and its values in pages.
struct Sweep {
    name: &'static str,
    option: &'static str,
    pages: &'static [u64],
    pages_quick: &'static [u64],
}

const SWEEPS: [Sweep; 3] = [
    Sweep {
        name: "T",
        option: "--node-reserve",
        pages: &[64, 256, 1 << 10, 4 << 10, 16 << 10],
        pages_quick: &[64],
    },
    Sweep { name: "P", option: "--node-read", pages: &[1, 2, 4, 8, 16], pages_quick: &[1, 16] },
    Sweep {
        name: "B",
        option: "--read-buffer",
        pages: &[256, 1 << 10, 4 << 10, 16 << 10],
        pages_quick: &[256],
    },
];

/// A kernel with one of these at one value.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SweepFigure {
    /// Which kernel.
    pub kernel: Kernel,
    /// What was set, by COMEX's letter.
    pub parameter: &'static str,
    /// To what, in pages; `None` where it follows what is measured.
    pub pages: Option<u64>,
    /// Time of the kernel.
    pub seconds: f64,
    /// The same, of the time with nothing set.
    pub relative: f64,
    /// Reads from the node.
    pub node_fetches: f64,
    /// Pages that an earlier read had brought along.
    pub read_buffer_hits: f64,
}

/// Measures all of them.
pub(super) fn measure(kernels: &Kernels<'_>) -> Result<Vec<SweepFigure>> {
    let chosen = if kernels.quick { &KERNELS_QUICK[..] } else { &KERNELS };
    let settings: Vec<(&Sweep, Option<u64>)> = SWEEPS
        .iter()
        .flat_map(|sweep| {
            let pages = if kernels.quick { sweep.pages_quick } else { sweep.pages };
            [None].into_iter().chain(pages.iter().map(|&pages| Some(pages))).map(move |pages| (sweep, pages))
        })
        .collect();
    let mut figures = Vec::new();
    for &kernel in chosen {
        // All settings take turns within each repetition.
        let mut samples: Vec<Vec<Sample>> = settings.iter().map(|_| Vec::new()).collect();
        for repetition in 1..=kernels.repetitions {
            eprintln!(
                "farmem: {repetition}/{} {kernel} with T, P and B at several values",
                kernels.repetitions
            );
            for (&(sweep, pages), samples) in settings.iter().zip(&mut samples) {
                let bytes = |pages: u64| (pages * farmem_page::PAGE_BYTES as u64).to_string();
                let setting = pages.map(|pages| [sweep.option.to_owned(), bytes(pages)]);
                let run = kernels.run(kernel, PART, &ProgramTier::Node(kernels.node), setting);
                let sample = run.with_context(|| format!("{} of {pages:?} pages", sweep.name))?;
                let value =
                    pages.map_or_else(|| "its own value".to_owned(), |pages| format!("{pages} pages"));
                ensure!(sample.node_fetches > 0.0, "{kernel}: nothing came from the node");
                eprintln!("farmem: {kernel} with {} of {value}: {:.2} s", sweep.name, sample.seconds);
                samples.push(sample);
            }
        }
        let mut default_seconds = 0.0;
        for (&(sweep, pages), samples) in settings.iter().zip(&samples) {
            let of = |figure: &dyn Fn(&Sample) -> f64| median(samples.iter().map(figure).collect());
            let seconds = of(&|sample| sample.seconds);
            if pages.is_none() {
                default_seconds = seconds;
            }
            figures.push(SweepFigure {
                kernel,
                parameter: sweep.name,
                pages,
                seconds,
                relative: seconds / default_seconds,
                node_fetches: of(&|sample| sample.node_fetches),
                read_buffer_hits: of(&|sample| sample.read_buffer_hits),
            });
        }
    }
    Ok(figures)
}
