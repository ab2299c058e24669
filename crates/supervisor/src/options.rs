//! What a run is asked for.

use std::ffi::OsString;
use std::path::PathBuf;

use farmem_page::ByteCount;

use crate::sizing::SizingOptions;

/// Where pages go when the pool is full.
#[derive(Clone, Debug)]
pub struct DiskOptions {
    /// A file, made if it doesn't exist, or a folder to make a nameless file in.
    pub path: PathBuf,
    /// How much of it may be used; `None` for what is free there.
    pub size: Option<ByteCount>,
}

/// A run, every value checked.
#[derive(Clone, Debug)]
pub struct Options {
    /// Local memory that the application may keep, all its processes together.
    pub local: ByteCount,
    /// If the budget is to follow the program, up to `local`: how.
    pub sizing: Option<SizingOptions>,
    /// Limit of the pool.
    pub pool: ByteCount,
    /// What that limit can be raised to later.
    pub pool_capacity: ByteCount,
    /// The tier below the pool.
    pub disk: Option<DiskOptions>,
    /// The name to show.
    pub name: String,
    /// Where to write the report at exit.
    pub stats: Option<PathBuf>,
    /// Whether to print a summary on standard error at exit.
    pub summary: bool,
    /// The program's first argument: its name as the user wrote it.
    pub program: OsString,
    /// The program's file.
    pub executable: PathBuf,
    /// The program's further arguments.
    pub arguments: Vec<OsString>,
}
