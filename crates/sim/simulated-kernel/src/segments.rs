//! Shared memory of the program's: here programs have none.

use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::Errno;
use crate::maps::{Mapping, Maps};

pub use farmem_sys::segments::MOST;

/// Segments of the program's.
#[derive(Debug)]
pub struct Segments;

impl Segments {
    /// None.
    pub const fn new(_words: usize) -> Self {
        Self
    }

    /// None.
    pub fn words(&self, _index: usize) -> Option<&[AtomicU64]> {
        None
    }

    /// None.
    pub fn low_half(&self, _index: usize, _at: usize) -> Option<&AtomicU32> {
        None
    }

    /// Adds none.
    ///
    /// # Errors
    /// None.
    pub fn add(
        &self,
        _maps: &Maps,
        _mapping: &Mapping,
        _is_wanted: impl FnOnce(&[AtomicU64]) -> bool,
    ) -> Result<Option<usize>, Errno> {
        Ok(None)
    }
}
