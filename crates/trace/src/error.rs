//! What can be wrong with a trace.

use std::io;

/// Why a trace can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file can't be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file is something else.
    #[error("it is not a trace; `farmem trace record` makes one")]
    NoTrace,
    /// Written by a version of Farmem with another format.
    #[error("it has format {0}, and this farmem reads format {known}; record it again", known = crate::file::VERSION)]
    Version(u32),
    /// What stands there is no record.
    #[error("it is damaged at byte {0}; record it again")]
    Damaged(u64),
}
