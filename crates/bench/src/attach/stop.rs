//! How long the threads of a program stand still when a pager comes, and when it leaves.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use farmem_page::ByteCount;
use hdrhistogram::Histogram;

use super::Bench;
use super::conversation::Conversation;
use super::workshop::Program;
use crate::record::Measurement;

const THREADS: usize = 8;
const MEBIBYTES: u64 = 32;
/// Nothing of them need leave with so much, and yet the pager comes.
const LOCAL: ByteCount = ByteCount::new(40 << 20);
const ATTACHES: u32 = 200;
const ATTACHES_QUICK: u32 = 5;
/// How long a pager that has come or left is watched.
const AFTERWARDS: Duration = Duration::from_millis(20);
/// Words of a thread's part of the board: its window, the longest standstill there, the longest gap.
const SLOT_WORDS: usize = 4;
const WORD_BYTES: usize = size_of::<u64>();

pub(super) const CASE: &str = "8 busy threads";
pub(super) const ATTACH: &str = "attach";
pub(super) const P50: &str = "standstill, p50";
pub(super) const P99: &str = "standstill, p99";

/// What threads do in a window of time: nothing comes, a pager comes, one leaves.
struct Windows {
    /// By what happens.
    stood: [Histogram<u64>; 3],
}

pub(super) fn measure(bench: &Bench<'_>) -> Result<Vec<Measurement>> {
    let path = bench.workshop.folder.join("board");
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
    let mut command = Command::new(bench.workshop.make(Program::Busy)?);
    command.arg(&path).args([THREADS.to_string(), MEBIBYTES.to_string()]);
    let farmem = &bench.farmem;
    let busy = Conversation::begin(&mut command, farmem.interrupt())?;
    let mut board = Board { file, window: 0 };
    let histogram = || Histogram::new(3).context("a histogram");
    let mut windows = Windows { stood: [histogram()?, histogram()?, histogram()?] };
    for _ in 0..bench.amount(ATTACHES, ATTACHES_QUICK) {
        board.open(bench)?;
        let began = Instant::now();
        let attached = farmem.attach(busy.process(), LOCAL)?;
        farmem.wait_for_pagers(&attached.name, 1)?;
        farmem.sleep(AFTERWARDS)?;
        let took = began.elapsed();
        windows.stood[1].record(board.longest()?)?;
        board.open(bench)?;
        farmem.detach(&attached)?;
        farmem.sleep(AFTERWARDS)?;
        windows.stood[2].record(board.longest()?)?;
        board.open(bench)?;
        farmem.sleep(took)?;
        windows.stood[0].record(board.longest()?)?;
    }
    let mut found = Vec::new();
    for (stood, peer) in windows.stood.iter().zip(["native", ATTACH, "detach"]) {
        let milliseconds = |nanoseconds: u64| nanoseconds as f64 / 1e6;
        let figures = [
            (P50, stood.value_at_quantile(0.5)),
            (P99, stood.value_at_quantile(0.99)),
            ("standstill, longest", stood.max()),
        ];
        let figure = |(measure, value)| Measurement::less(CASE, peer, measure, milliseconds(value), "ms");
        found.extend(figures.map(figure));
    }
    Ok(found)
}

/// What threads write down, each in its own place.
struct Board {
    file: File,
    window: u64,
}

impl Board {
    /// From now on only what comes counts.
    fn open(&mut self, bench: &Bench<'_>) -> Result<()> {
        self.window += 1;
        self.file.write_all_at(&self.window.to_ne_bytes(), 0)?;
        let window = self.window;
        bench.farmem.wait_for("an answer of each thread", || {
            Ok(self.slots()?.iter().all(|slot| slot[0] == window).then_some(()))
        })
    }

    /// The longest time for which any thread stood still.
    fn longest(&self) -> Result<u64> {
        Ok(self.slots()?.iter().map(|slot| slot[1]).max().unwrap_or(0))
    }

    fn slots(&self) -> Result<[[u64; SLOT_WORDS]; THREADS]> {
        let mut bytes = [0; WORD_BYTES * SLOT_WORDS * THREADS];
        let length = self.file.read_at(&mut bytes, WORD_BYTES as u64)?;
        let mut slots = [[0; SLOT_WORDS]; THREADS];
        // Before the program has begun the file is empty, and windows begin at 1.
        let words = bytes[..length].chunks_exact(WORD_BYTES);
        for (word, place) in words.zip(slots.as_flattened_mut()) {
            *place = u64::from_ne_bytes(word.try_into().unwrap_or_default());
        }
        Ok(slots)
    }
}
