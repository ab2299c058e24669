//! How the content of a page is told apart, packed and proved: repeated words, fingerprints, compression.
//!
//! Pure and `no_std`; nothing here allocates, so all of it may run while a thread of the program waits for
//! its page.
#![no_std]
#![forbid(unsafe_code)]

mod compress;
mod fingerprint;
mod uniform;
mod unpack;

pub use compress::{Compressor, Corrupt, ENCODED_MAX_BYTES, Encoded, PACKED_LIMIT_BYTES, decompress};
pub use fingerprint::{Fingerprint, Fingerprinter};
pub use uniform::{fill_uniform, uniform};
