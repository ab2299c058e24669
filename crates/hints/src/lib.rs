//! What a program knows of its memory, told to Farmem. Without Farmem every call does nothing; what is called
//! for is kept, in case a pager is attached later.
//!
//! ```
//! let table = vec![0_u64; 1 << 20];
//! let wanted = [7, 70_000, 700_000];
//! for &row in &wanted {
//!     farmem_hints::prefetch(&table[row..row + 64])?;
//! }
//! let index = vec![0_u32; 1 << 10];
//! let pin = farmem_hints::pin(&index)?; // stays local until `pin` is dropped
//! # drop(pin);
//! # Ok::<(), farmem_hints::Error>(())
//! ```
//!
//! Hints are about pages of 4 KiB: what lies next to a slice on its first and last page is fetched, and
//! pinned, with it. Details are in `include/farmem.h` and `docs/guide/hints.md`.

use std::error;
use std::fmt;

use farmem_mailbox::Kind;

mod home;
mod kernel;
mod observer;
mod prefetcher;
mod said;

pub use prefetcher::{Fault, Prefetcher};

/// Why a hint came to nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// More would be pinned than three quarters of the application's local memory.
    TooMuchPinned,
    /// More is asked for than has been done. The hint is dropped, and may be given again.
    Busy,
    /// There is a prefetcher already.
    Registered,
    /// Anything else, as a number of `errno.h`.
    Other(i32),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMuchPinned => {
                f.write_str("no more memory can be pinned: a quarter of the local memory stays free")
            }
            Self::Busy => f.write_str("more is asked for than has been done: the hint was dropped"),
            Self::Registered => f.write_str("there is a prefetcher already"),
            Self::Other(number) => write!(f, "the hint came to nothing (error {number})"),
        }
    }
}

impl error::Error for Error {}

/// An answer as `include/farmem.h` gives it.
fn told(answer: i32) -> Result<(), Error> {
    const EAGAIN: i32 = 11;
    const ENOMEM: i32 = 12;
    const EBUSY: i32 = 16;
    match answer {
        0 => Ok(()),
        EAGAIN => Err(Error::Busy),
        ENOMEM => Err(Error::TooMuchPinned),
        EBUSY => Err(Error::Registered),
        number => Err(Error::Other(number)),
    }
}

/// Whether this process has a pager now. One may be attached later.
#[must_use]
pub fn is_present() -> bool {
    said::is_present()
}

/// This memory will be wanted soon. Returns at once.
///
/// # Errors
/// [`Error::Busy`].
pub fn prefetch<T>(memory: &[T]) -> Result<(), Error> {
    told(said::hint(Kind::Prefetch, memory.as_ptr().cast(), size_of_val(memory)))
}

/// This memory won't be wanted for long: when something has to leave, it leaves first. Returns at once.
///
/// # Errors
/// [`Error::Busy`].
pub fn cold<T>(memory: &[T]) -> Result<(), Error> {
    told(said::hint(Kind::Cold, memory.as_ptr().cast(), size_of_val(memory)))
}

/// This memory stays local until what is returned is dropped. Returns when it is local.
///
/// # Errors
/// [`Error::TooMuchPinned`], and [`Error::Busy`] when other threads have much to pin.
pub fn pin<T>(memory: &[T]) -> Result<Pin, Error> {
    let (start, length) = (memory.as_ptr(), size_of_val(memory));
    told(said::pin(false, start.cast(), length))?;
    Ok(Pin { address: start.addr(), length })
}

/// Memory that stays local. It is known by its address alone, so it may be changed meanwhile; drop this
/// before the memory is freed, which an allocator may use for something else. Of two pins that share a page
/// the first to be dropped unpins it.
#[derive(Debug)]
#[must_use = "the memory may leave as soon as this is dropped"]
pub struct Pin {
    address: usize,
    length: usize,
}

impl Drop for Pin {
    fn drop(&mut self) {
        said::pin(true, std::ptr::without_provenance(self.address), self.length);
    }
}
