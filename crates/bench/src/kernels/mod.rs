//! Programs in the manner of COMEX's evaluation (§5, Figures 10 to 14): numerical kernels as in the NAS
//! parallel benchmarks, and problems on graphs, keys and points as in the problem-based suite. Written for
//! this purpose, each as simple as its accesses to memory allow, and with a result that can be checked.

mod breadth_first;
mod dictionary;
mod fourier;
mod graph;
mod hull;
mod independent;
mod numbers;
mod sort;
mod stencil;

use std::fmt;
use std::time::Instant;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use farmem_page::ByteCount;
use serde::{Deserialize, Serialize};

use crate::option;

/// One of the programs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kernel {
    /// Averages of neighbours on a grid of three dimensions, in order (as BT, MG, SP).
    Stencil,
    /// A fast Fourier transform: strides of all powers of two (as FT).
    Fourier,
    /// The distances of a graph's vertices from one of them.
    BreadthFirst,
    /// Keys looked up in a hash table and put into it, at random.
    Dictionary,
    /// Numbers sorted by merging.
    Sort,
    /// The convex hull of points in a plane.
    Hull,
    /// Vertices of a graph of which no two are neighbours, as many as fit.
    Independent,
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&option::name(self))
    }
}

/// What a kernel does once its data is there.
trait Task {
    /// What is measured.
    fn work(&mut self);
    /// Whether the result is right, all of it.
    fn is_right(&self) -> bool;
}

impl Kernel {
    /// With data of about so many bytes, and not much more.
    fn prepare(self, bytes: usize) -> Box<dyn Task> {
        match self {
            Self::Stencil => Box::new(stencil::Stencil::new(bytes)),
            Self::Fourier => Box::new(fourier::Fourier::new(bytes)),
            Self::BreadthFirst => Box::new(breadth_first::BreadthFirst::new(bytes)),
            Self::Dictionary => Box::new(dictionary::Dictionary::new(bytes)),
            Self::Sort => Box::new(sort::Sort::new(bytes)),
            Self::Hull => Box::new(hull::Hull::new(bytes)),
            Self::Independent => Box::new(independent::Independent::new(bytes)),
        }
    }
}

/// What a kernel tells at its end, as a line of JSON.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Time of the work, without the preparation of the data and the check of the result.
    pub seconds: f64,
}

impl Outcome {
    /// From the output of a program that ran one.
    pub(crate) fn of(output: &[u8]) -> anyhow::Result<Self> {
        serde_json::from_slice(output).context("the kernel doesn't tell how long it took")
    }
}

/// The least data that all kernels work on.
pub const LEAST_BYTES: ByteCount = ByteCount::new(1 << 20);

/// Runs one in this process.
///
/// # Errors
/// When there is too little data to work on, and when its result is wrong.
pub fn run(kernel: Kernel, data: ByteCount) -> anyhow::Result<Outcome> {
    ensure!(data >= LEAST_BYTES, "kernels need at least {} bytes of data", LEAST_BYTES.get());
    let mut task = kernel.prepare(usize::try_from(data.get())?);
    let began = Instant::now();
    task.work();
    let seconds = began.elapsed().as_secs_f64();
    ensure!(task.is_right(), "the result of {kernel} is wrong");
    Ok(Outcome { seconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_comes_to_the_right_result() {
        for &kernel in Kernel::value_variants() {
            for bytes in [LEAST_BYTES.get(), 5 << 20] {
                assert!(run(kernel, ByteCount::new(bytes)).is_ok(), "{kernel} {bytes}");
            }
        }
    }

    #[test]
    fn a_result_that_is_not_there_is_not_right() {
        for &kernel in Kernel::value_variants() {
            assert!(!kernel.prepare(1 << 20).is_right(), "{kernel}");
        }
    }
}
