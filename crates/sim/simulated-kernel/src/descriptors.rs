//! Descriptors: names of what processes hand to each other.

use core::marker::PhantomData;

use crate::shared::SharedMemory;

/// A descriptor's number.
pub type RawFd = i32;

/// What a descriptor stands for.
#[derive(Clone, Copy, Debug)]
pub enum Named {
    /// Memory that processes share.
    Memory(&'static SharedMemory),
    /// A userfaultfd, by its number in the world.
    Uffd(usize),
    /// An object of shared memory, by its number in the world.
    Object(usize),
    /// The disk below the pool.
    Disk,
    /// Anything else.
    Nothing,
}

/// A descriptor.
#[derive(Debug)]
pub struct OwnedFd(pub Named);

/// A descriptor that is somebody else's.
#[derive(Clone, Copy, Debug)]
pub struct BorrowedFd<'a>(pub Named, PhantomData<&'a ()>);

impl BorrowedFd<'_> {
    pub(crate) fn of(named: Named) -> Self {
        Self(named, PhantomData)
    }
}

/// Whatever has a descriptor.
pub trait AsFd {
    /// It.
    fn as_fd(&self) -> BorrowedFd<'_>;
}

/// Whatever has a descriptor's number.
pub trait AsRawFd {
    /// It.
    fn as_raw_fd(&self) -> RawFd;
}

impl AsFd for OwnedFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        BorrowedFd::of(self.0)
    }
}

impl AsRawFd for BorrowedFd<'_> {
    fn as_raw_fd(&self) -> RawFd {
        match self.0 {
            Named::Uffd(number) => RawFd::try_from(number).unwrap_or(-1),
            _ => -1,
        }
    }
}
