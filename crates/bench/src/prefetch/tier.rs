//! Where the far memory of what is measured is.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use farmem_page::ByteCount;
use serde::Serialize;

use crate::below::{Below, LEAST_POOL};

/// Where the far memory of a program or pattern is: near, or far enough away that what comes ahead pays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SubjectTier {
    /// Compressed, in this machine's memory.
    #[default]
    Pool,
    /// On a memory node whose answers take half a millisecond longer than by the loopback device. Next to
    /// nothing stays in the pool.
    Node,
}

/// Each way to the node.
const DELAY: Duration = Duration::from_micros(250);
/// Memory that the node lends, which is more than any of the programs has.
const NODE_MEMORY: ByteCount = ByteCount::new(4 << 30);

impl SubjectTier {
    /// `folder` is for what a node says.
    ///
    /// # Errors
    /// When a node can't be started.
    pub(super) fn open(self, farmem: &Path, folder: &Path) -> Result<Below> {
        match self {
            Self::Pool => Ok(Below::Nothing),
            Self::Node => Below::node(farmem, folder, NODE_MEMORY, Some(DELAY)),
        }
    }
}

/// Options of `farmem run`.
pub(super) fn options(below: &Below) -> Vec<String> {
    let mut options = below.options(ByteCount::ZERO);
    if !options.is_empty() {
        options.extend(["--plain".to_owned(), "--pool".to_owned(), LEAST_POOL.get().to_string()]);
    }
    options
}
