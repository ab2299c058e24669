//! What can be measured, and under whom.

use std::fmt;

use clap::ValueEnum;
use serde::Serialize;

use crate::option;
use crate::peer::{Kind, Readahead};

/// A program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProgramName {
    /// A dict of lists, in Python.
    PythonDict,
    /// A hash of arrays, in Perl.
    PerlHash,
    /// A hash of arrays, in Ruby.
    RubyHash,
    /// An array of arrays, in PHP.
    PhpArray,
    /// A Map of arrays, in Node.js.
    NodeMap,
    /// A HashMap of arrays, in Java with the G1 collector.
    JavaHashMap,
    /// A table that Polars groups, sorts and joins.
    Polars,
    /// An array that numpy sorts.
    NumpySort,
    /// Clusters that scikit-learn finds.
    Kmeans,
    /// A table of SQLite in memory.
    Sqlite,
    /// Tables that DuckDB groups and joins in memory.
    Duckdb,
    /// Trees that XGBoost trains.
    Xgboost,
    /// Transactions of PostgreSQL on tables in its shared buffers, which are what a part of is local.
    Pgbench,
}

/// The system that provides memory to a program beyond its local share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Peer {
    /// `farmem run`.
    Farmem,
    /// Kernel swap on zram with lz4.
    Zram,
    /// As zram, and the kernel reads nothing ahead.
    ZramNoReadahead,
    /// Kernel swap on a file, behind zswap.
    Zswap,
    /// As zswap, and the kernel reads nothing ahead.
    ZswapNoReadahead,
}

impl Peer {
    /// Those that are measured where none is named.
    pub(super) const USUAL: [Self; 4] = [Self::Farmem, Self::Zram, Self::ZramNoReadahead, Self::Zswap];

    /// Those that stand for zram where one figure does: the shorter time counts.
    pub(crate) const OF_ZRAM: [Self; 2] = [Self::Zram, Self::ZramNoReadahead];
    /// The same of zswap.
    pub(crate) const OF_ZSWAP: [Self; 2] = [Self::Zswap, Self::ZswapNoReadahead];

    pub(super) fn swap(self) -> Option<(Kind, Readahead)> {
        match self {
            Self::Farmem => None,
            Self::Zram => Some((Kind::ZramLz4, Readahead::AsSet)),
            Self::ZramNoReadahead => Some((Kind::ZramLz4, Readahead::Off)),
            Self::Zswap => Some((Kind::Zswap, Readahead::AsSet)),
            Self::ZswapNoReadahead => Some((Kind::Zswap, Readahead::Off)),
        }
    }
}

impl fmt::Display for ProgramName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&option::name(self))
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&option::name(self))
    }
}
