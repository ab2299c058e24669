//! Kernels whose far memory is where one wants it: what all measurements of them share.

use std::process::Command;

use anyhow::{Context, Result};
use farmem_page::ByteCount;

use super::program::ProgramTier;
use super::route::Route;
use crate::kernels::{Kernel, Outcome};
use crate::run::Runner;
use crate::{option, own};

/// What is measured, and with what.
pub(super) struct Kernels<'a> {
    pub(super) runner: &'a Runner,
    pub(super) node: &'a Route,
    pub(super) data: ByteCount,
    pub(super) repetitions: u32,
    pub(super) quick: bool,
}

/// What one run under Farmem showed.
pub(super) struct Sample {
    pub(super) seconds: f64,
    pub(super) node_fetches: f64,
    pub(super) read_buffer_hits: f64,
}

impl Sample {
    /// Of the pages from the node that a thread waited for, those that an earlier read had brought along.
    pub(super) fn read_buffer_share(&self) -> f64 {
        self.read_buffer_hits / (self.node_fetches + self.read_buffer_hits).max(1.0)
    }
}

impl Kernels<'_> {
    /// The command's words after the program.
    pub(super) fn words(&self, kernel: Kernel) -> [String; 4] {
        ["kernel".to_owned(), option::name(&kernel), "--data".to_owned(), self.data.get().to_string()]
    }

    /// The local memory of a run that has a part of its data local.
    pub(super) fn local(&self, part: u64) -> ByteCount {
        ByteCount::new(self.data.get() / part)
    }

    /// Runs one under Farmem, with these options besides.
    ///
    /// # Errors
    /// When it fails.
    pub(super) fn run(
        &self,
        kernel: Kernel,
        part: u64,
        far: &ProgramTier<'_>,
        further: Option<[String; 2]>,
    ) -> Result<Sample> {
        let mut options = vec!["--local".to_owned(), self.local(part).get().to_string()];
        // Numbers hardly compress, and what a kernel has besides its data goes there, too.
        options.extend(far.options(ByteCount::new(2 * self.data.get())));
        options.extend(further.into_iter().flatten());
        let mut program = vec![own::word()?];
        program.extend(self.words(kernel));
        let finished = self
            .runner
            .run(options, &program, Command::spawn)
            .with_context(|| format!("{kernel}, 1/{part} of its data local, far memory: {}", far.name()))?;
        Ok(Sample {
            seconds: Outcome::of(&finished.output)?.seconds,
            node_fetches: finished.number("node_fetches"),
            read_buffer_hits: finished.number("read_buffer_hits"),
        })
    }
}
