//! What runs: three native programs, as Canvas has them, and a managed one under three collectors.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use clap::ValueEnum;
use farmem_page::ByteCount;
use serde::Serialize;

use crate::isolation::server;
use crate::own;
use crate::sources::{GRAPH, TREES, TREES_ROW_BYTES, works};

/// A program. It counts as one run from its start to its end, memcached from the first of a number of
/// requests to the last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// Compresses and unpacks text.
    Snappy,
    /// Reads and writes items at random, as it is asked: nine of ten requests read.
    Memcached,
    /// Trains trees, with a thread for each processor.
    Xgboost,
    /// A Java program that builds, walks and changes a graph of objects, under the G1 collector.
    JavaG1,
    /// The same under the parallel collector.
    JavaParallel,
    /// The same under the serial collector.
    JavaSerial,
}

impl Program {
    /// The programs that each group has.
    pub(super) const NATIVE: [Self; 3] = [Self::Snappy, Self::Memcached, Self::Xgboost];
    /// Those of which each group has one.
    pub(super) const MANAGED: [Self; 3] = [Self::JavaG1, Self::JavaParallel, Self::JavaSerial];

    /// The processor that it runs on, of two; `None` for all. A program that waits in loops for its own
    /// threads would only wait for them on one.
    pub(super) fn processor(self) -> Option<usize> {
        match self {
            Self::Memcached => Some(0),
            Self::Xgboost => None,
            _ => Some(1),
        }
    }

    /// The name of its space or control group.
    pub(super) fn room(self) -> &'static str {
        match self {
            Self::Snappy => "bench-snappy",
            Self::Memcached => "bench-memcached",
            Self::Xgboost => "bench-xgboost",
            Self::JavaG1 => "bench-java-g1",
            Self::JavaParallel => "bench-java-parallel",
            Self::JavaSerial => "bench-java-serial",
        }
    }

    fn collector(self) -> Option<&'static str> {
        match self {
            Self::JavaG1 => Some("-XX:+UseG1GC"),
            Self::JavaParallel => Some("-XX:+UseParallelGC"),
            Self::JavaSerial => Some("-XX:+UseSerialGC"),
            Self::Snappy | Self::Memcached | Self::Xgboost => None,
        }
    }
}

/// What the programs take of memory in addition to their data, so that all have about the same.
const NODE_BYTES: u64 = 1300;
/// What a collector keeps for itself, in addition to what is in use.
const HEAP_SHARE: f64 = 2.1;
const ROUNDS: u32 = 8;
/// Threads of memcached, and connections to it (Canvas §3).
pub(super) const SERVER_THREADS: u64 = 4;

/// What is needed to start the programs.
#[derive(Debug)]
pub(super) struct Kit {
    folder: PathBuf,
    own: PathBuf,
    python: PathBuf,
    data: ByteCount,
    /// Those of the machine.
    processors: usize,
}

impl Kit {
    /// Prepares what can be; with it, the programs that can't be run here and why.
    pub(super) fn prepare(
        folder: &Path,
        python: &Path,
        data: ByteCount,
    ) -> anyhow::Result<(Self, BTreeMap<Program, String>)> {
        fs::write(folder.join("Graph.java"), GRAPH)?;
        fs::write(folder.join("train_trees.py"), TREES)?;
        let mut missing = BTreeMap::new();
        let compile = || works(Command::new("javac").args(["-d", "."]).arg("Graph.java").current_dir(folder));
        if let Err(error) = compile() {
            missing.extend(Program::MANAGED.map(|program| (program, format!("{error:#}"))));
        }
        if let Err(error) = works(Command::new(python).args(["-c", "import numpy, xgboost"])) {
            missing.insert(Program::Xgboost, format!("{error:#}; name a Python that has it with --python"));
        }
        if let Err(error) = works(Command::new("memcached").arg("-h")) {
            missing.insert(Program::Memcached, format!("{error:#}"));
        }
        let processors = thread::available_parallelism()?.get();
        let [folder, python] = [folder, python].map(Path::to_owned);
        let kit = Self { folder, own: own::program()?, python, data, processors };
        Ok((kit, missing))
    }

    /// Where memcached listens.
    pub(super) fn socket(&self) -> PathBuf {
        self.folder.join("memcached")
    }

    /// Items that memcached holds, in bytes.
    pub(super) fn data(&self) -> ByteCount {
        self.data
    }

    /// What starts a program.
    pub(super) fn command(&self, program: Program) -> Vec<String> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let data = self.data.get();
        let words = |program: &Path, arguments: &[String]| {
            [text(program)].into_iter().chain(arguments.iter().cloned()).collect()
        };
        match program {
            Program::Memcached => server::command(&self.socket(), self.data, SERVER_THREADS),
            Program::Snappy => words(
                &self.own,
                &["compression", "--data", &data.to_string(), "--rounds", &ROUNDS.to_string()]
                    .map(str::to_owned),
            ),
            Program::Xgboost => words(
                &self.python,
                &[
                    text(&self.folder.join("train_trees.py")),
                    (data / TREES_ROW_BYTES).to_string(),
                    self.processors.to_string(),
                ],
            ),
            Program::JavaG1 | Program::JavaParallel | Program::JavaSerial => {
                let heap = (data as f64 * HEAP_SHARE) as u64 >> 20;
                let collector = program.collector().unwrap_or_default();
                let options =
                    [collector, &format!("-Xmx{heap}m"), "-Xss1m", "-cp", &text(&self.folder), "Graph"];
                let counts = [(data / NODE_BYTES).to_string(), "1".to_owned()];
                words(Path::new("java"), &[&options.map(str::to_owned)[..], &counts].concat())
            }
        }
    }
}
