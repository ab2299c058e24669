//! The mappings of the calling process.

use farmem_page::{PageRange, VirtAddr};

use crate::schedule;
use crate::subject::objects::objects;
use crate::{Errno, world};

pub use farmem_sys::maps::Mapping;

/// The calling process's list of mappings.
#[derive(Debug)]
pub struct Maps {
    space: usize,
}

/// The calling process's list of mappings with their flags.
#[derive(Debug)]
pub struct Flags;

impl Flags {
    /// Opens the list.
    ///
    /// # Errors
    /// None.
    pub fn open() -> Result<Self, Errno> {
        Ok(Self)
    }

    /// Visits no mapping: none is wiped.
    ///
    /// # Errors
    /// None.
    pub fn wiped_on_fork(&self, _visit: impl FnMut(PageRange)) -> Result<(), Errno> {
        Ok(())
    }
}

impl Maps {
    /// Opens the list.
    ///
    /// # Errors
    /// None.
    pub fn open() -> Result<Self, Errno> {
        Ok(Self { space: world::with(|world| world.own_space()) })
    }

    /// The mapping that holds `from`, or the next one behind it; `None` behind the last.
    ///
    /// # Errors
    /// None.
    pub fn next(&self, from: VirtAddr) -> Result<Option<Mapping>, Errno> {
        if let Some(objects) = objects() {
            return Ok(objects.next(from.page()));
        }
        schedule::point();
        Ok(world::with(|world| world.spaces[self.space].mapping_from(from.page())))
    }
}
