//! Where the far memory of programs that run side by side is, under Farmem: one broker for all of them, and
//! below the pool a memory node or a disk.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;
use farmem_page::ByteCount;
use serde::Serialize;
use tempfile::TempDir;

use crate::below::{Below, LEAST_POOL, small_pool};
use crate::host::Host;

/// Where the far memory of programs side by side is: one place for all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CoRunsTier {
    /// Compressed, in this machine's memory.
    #[default]
    Pool,
    /// On a memory node, which is reached by TCP over the loopback device; next to nothing stays in the pool.
    Node,
    /// In a file on disk, the folder of swap files; next to nothing stays in the pool.
    Disk,
}

impl CoRunsTier {
    /// What tells cases from those with their far memory in the pool.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::Pool => "",
            Self::Node => ", far memory on a node",
            Self::Disk => ", far memory on disk",
        }
    }

    /// The pool of a program with so much data. Where most is to go beyond it, it has room for what is on its
    /// way.
    fn pool(self, data: ByteCount) -> u64 {
        match self {
            // What can't be compressed takes a little more than itself.
            Self::Pool => data.get() + data.get() / 8 + LEAST_POOL.get(),
            Self::Node | Self::Disk => small_pool(data).get(),
        }
    }
}

/// What a broker has in addition to what it promises to programs: one that has ended gives its part back a
/// moment later.
const SPARE_POOL: u64 = 64 << 20;
/// More of the node than a program's data takes: what it has granted ahead of need.
const RESERVE_BYTES: u64 = 16 << 20;
/// Data for each unit of weight: parts are as the data is (Canvas §6).
const WEIGHT_BYTES: u64 = 16 << 20;
const MOST_WEIGHT: u64 = 100;

/// A broker, and what is below the pools of its programs. All of it ends when dropped.
pub(super) struct Site {
    far: CoRunsTier,
    host: Host,
    below: Below,
    /// Where they say what they do, and programs how it went.
    folder: TempDir,
}

impl Site {
    /// Opens one for programs with so much data each; `disk` is a folder on a disk.
    pub(super) fn open(
        farmem: &Path,
        far: CoRunsTier,
        programs: &[ByteCount],
        disk: &Path,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a folder")?;
        let sum = |of: &dyn Fn(ByteCount) -> u64| programs.iter().map(|&data| of(data)).sum::<u64>();
        let pool = (sum(&|data| far.pool(data)) + SPARE_POOL).to_string();
        let host = Host::start(farmem, folder.path(), &pool, &[])?;
        // Entries that are kept are room as well, and a slab is full of one size of page.
        let memory = ByteCount::new(sum(&|data| 2 * data.get() + RESERVE_BYTES));
        let below = match far {
            CoRunsTier::Pool => Below::Nothing,
            CoRunsTier::Node => Below::node(farmem, folder.path(), memory, None)?,
            CoRunsTier::Disk => Below::Disk(disk.to_owned()),
        };
        Ok(Self { far, host, below, folder })
    }

    /// Where a program of that name leaves its statistics when it ends.
    pub(super) fn statistics(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}-statistics"))
    }

    /// Where the broker listens.
    pub(super) fn broker(&self) -> &Path {
        self.host.socket()
    }

    /// Options of `farmem run` for a program of that name with so much data. It neither lends nor borrows
    /// local memory, since its part of that is what is set.
    pub(super) fn options(&self, name: &str, data: ByteCount) -> Vec<String> {
        let (pool, weight) = (self.far.pool(data), (data.get() / WEIGHT_BYTES).clamp(1, MOST_WEIGHT));
        let mut options = vec!["--no-borrow".to_owned()];
        let mut add = |name: &str, value: String| options.extend([name.to_owned(), value]);
        add("--stats", self.statistics(name).display().to_string());
        add("--weight", weight.to_string());
        add("--pool", format!("{pool}-{pool}"));
        options.extend(self.below.options(ByteCount::new(2 * data.get())));
        options
    }
}
