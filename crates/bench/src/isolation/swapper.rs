//! The program that swaps: Farmem's workload, led to where all its data has been written and most of it has left.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::ChildStdin;

use anyhow::{Context, bail};
use clap::ValueEnum;
use farmem_page::ByteCount;

use super::setting::{Application, Setting};
use crate::workload::{Compressibility, Event, Pattern};

/// What it does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload {
    pub(super) local: ByteCount,
    pub(super) data: ByteCount,
    pub(super) pattern: Pattern,
    pub(super) compressibility: Compressibility,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            local: ByteCount::new(0),
            data: ByteCount::new(0),
            pattern: Pattern::RandomWrite,
            compressibility: Compressibility::Half,
        }
    }
}

/// The program, which waits to be let go.
pub(super) struct Swapper {
    pub(super) application: Application,
    input: ChildStdin,
}

impl Swapper {
    /// Lets it go on, for as long as it may live.
    pub(super) fn go(mut self) -> anyhow::Result<Application> {
        self.input.write_all(b"\n")?;
        Ok(self.application)
    }
}

/// Starts the program. Returns once it has been through all its data.
pub(super) fn start(
    setting: &Setting,
    farmem: &Path,
    name: &str,
    processor: usize,
    workload: Workload,
) -> anyhow::Result<Swapper> {
    let mut command = vec![farmem.to_string_lossy().into_owned()];
    command.extend(["workload", "--paced", "--rounds", "1000", "--pattern"].map(str::to_owned));
    command.push(value_name(&workload.pattern));
    command.extend(["--compressibility".to_owned(), value_name(&workload.compressibility)]);
    command.extend(["--data".to_owned(), workload.data.get().to_string()]);
    let mut application = setting.start(name, workload.local, processor, &command)?;
    let mut input = application.child.stdin.take().context("no standard input")?;
    let output = application.child.stdout.take().context("no standard output")?;
    for line in BufReader::new(output).lines() {
        let event = serde_json::from_str(&line?).context("not a word of the workload")?;
        match event {
            Event::Started { .. } => {}
            Event::Filled => application.limit()?,
            Event::Warm => return Ok(Swapper { application, input }),
            Event::Done(_) => break,
        }
        input.write_all(b"\n")?;
    }
    bail!("the program that swaps ended early")
}

fn value_name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|possible| possible.get_name().to_owned()).unwrap_or_default()
}
